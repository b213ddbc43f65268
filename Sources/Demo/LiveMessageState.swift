internal import Foundation
internal import Watch

/// A sender's messages, built from the events of their own stream. Events carry states, so a duplicate changes nothing.
struct LiveMessageState: Hashable {
  struct Message: Hashable {
    var id: String
    var seq: Int
    var status: MessageView.Status
  }

  /// Position of another member, as sequence numbers; 0 for none.
  private struct Position: Hashable {
    var read = 0
    var delivered = 0
  }

  let sender: String
  /// Messages in the order in which they were sent.
  private(set) var messages: [Message] = []
  /// Positions of the others, by user id.
  private var positions: [String: Position] = [:]

  init(sender: String) { self.sender = sender }

  /// Apply an event; kinds without effect on ticks are ignored.
  ///
  /// - Returns: whether the sender's view of their messages changed.
  /// - Throws: if the data does not match Proto/openapi.yaml.
  mutating func apply(_ event: StreamedEvent) throws -> Bool {
    guard let kind = Kind(rawValue: event.type) else { return false }
    let fields = try JSONDecoder().decode(Fields.self, from: Data(event.data.utf8))
    guard fields.thread_id == nil, let user = fields.user?.id else { return false }
    let before = messages.map(\.id).map(view)
    switch kind {
    case .new:
      guard user == sender, let message = fields.message else { return false }
      if !messages.contains(where: { $0.id == message.id }) {
        messages.append(Message(id: message.id, seq: message.seq, status: .sent))
      }
    case .read, .delivered, .changed:
      guard user != sender else { return false }
      if let seq = fields.last_read_seq { positions[user, default: Position()].read = seq }
      if let seq = fields.last_delivered_seq { positions[user, default: Position()].delivered = seq }
    case .status:
      guard user == sender, let from = fields.from_seq, let to = fields.to_seq, let status = fields.status
      else { return false }
      for index in messages.indices where messages[index].seq >= from && messages[index].seq <= to {
        messages[index].status = status
      }
    }
    return before != messages.map(\.id).map(view)
  }

  /// Return the sender's view of a message, or nil if no event has reported it. Its text is empty, because the services
  /// do not know it.
  func view(_ id: String) -> MessageView? {
    guard let message = messages.first(where: { $0.id == id }) else { return nil }
    let readBy = positions.filter { $0.value.read >= message.seq }.keys.sorted()
    let deliveredTo = positions.filter { $0.value.delivered >= message.seq && $0.value.read < message.seq }
    return MessageView(
      sender: sender,
      text: "",
      status: message.status,
      deliveredTo: deliveredTo.keys.sorted(),
      readBy: readBy
    )
  }

  private enum Kind: String {
    case new = "message.new"
    case read = "message.read"
    case delivered = "message.delivered"
    case changed = "read_state.changed"
    case status = "message.status"
  }

  /// The names are those of the API.
  // swift-format-ignore: AlwaysUseLowerCamelCase
  private struct Fields: Decodable {
    struct User: Decodable { var id: String }
    struct Message: Decodable {
      var id: String
      var seq: Int
    }
    var user: User?
    var thread_id: String?
    var message: Message?
    var last_read_seq: Int?
    var last_delivered_seq: Int?
    var from_seq: Int?
    var to_seq: Int?
    var status: MessageView.Status?
  }
}
