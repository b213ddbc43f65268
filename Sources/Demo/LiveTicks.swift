internal import CommandOutput
internal import Foundation
internal import LocalStack
internal import Synchronization
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

/// A sender's own stream of events during the demo: each event that changes their ticks is printed when it arrives.
final class LiveTickStream: Sendable {
  private struct State {
    var liveState: LiveMessageState
    var hasOpened = false
    /// Description of the error that ended the stream.
    var failure: String?
    var isOver = false
  }

  /// Timeout for a step's changes to arrive.
  private static let deliveryTimeout = Duration.seconds(20)

  private let state: Mutex<State>
  private let style: TextStyle

  init(sender: String, style: TextStyle) {
    state = Mutex(State(liveState: LiveMessageState(sender: sender)))
    self.style = style
  }

  /// State built from the events received so far.
  var liveState: LiveMessageState { state.withLock { $0.liveState } }

  /// Follow the stream until cancelled, with reconnects.
  func follow(_ watch: EventWatch) async {
    var watch = watch
    watch.opened = { self.state.withLock { $0.hasOpened = true } }
    do {
      try await watch.run(receive: apply, note: note)
    } catch is CancellationError {
      // The regular end.
    } catch {
      fail("\(error)")
    }
  }

  /// Stop printing events.
  func end() { state.withLock { $0.isOver = true } }

  /// Wait until the stream has begun: no later event is missed.
  func waitUntilOpen() async throws {
    try await wait { $0.hasOpened }
    guard state.withLock({ $0.hasOpened }) else {
      throw StackError("GET /v1/events: " + (failure ?? "no stream was opened"))
    }
  }

  /// Wait until the stream has delivered the expected state, or until the timeout. The caller then sees what is
  /// missing.
  func wait(untilTold isTold: @Sendable (LiveMessageState) -> Bool) async throws {
    try await wait { isTold($0.liveState) }
  }

  private func wait(_ isSo: (State) -> Bool) async throws {
    let deadline = ContinuousClock.now + Self.deliveryTimeout
    while !state.withLock({ isSo($0) || $0.failure != nil }), ContinuousClock.now < deadline {
      try await Task.sleep(for: .milliseconds(5))
    }
  }

  // MARK: Receiving

  private var failure: String? { state.withLock { $0.failure } }

  /// Apply an event and print it under the lock: a caller that sees the new state finds its line already printed.
  private func apply(_ event: StreamedEvent) {
    state.withLock { state in
      do {
        guard try state.liveState.apply(event), !state.isOver else { return }
        Terminal.print("    \(style.grey(EventLineFormatter.line(event)))")
      } catch {
        state.failure = "an event of another shape than expected: \(event.data)"
      }
    }
  }

  private func note(_ line: String) {
    state.withLock { state in
      if !state.isOver { Terminal.print("    \(style.grey("\(state.liveState.sender)'s stream: \(line)"))") }
    }
  }

  private func fail(_ reason: String) { state.withLock { $0.failure = reason } }
}
