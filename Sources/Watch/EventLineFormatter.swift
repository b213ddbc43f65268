internal import CommandOutput
internal import Foundation

/// Formatter of an event as a line for a person: time, type, and a sentence.
package enum EventLineFormatter {
  /// Width of the longest type, `notification.mark_unread`.
  private static let typeWidth = 24

  /// Format an event as a line without its end. An event that is not in Proto/openapi.yaml is shown as received.
  package static func line(_ event: StreamedEvent) -> String {
    let type = event.type.padding(toLength: max(typeWidth, event.type.count), withPad: " ", startingAt: 0)
    guard let fields = try? decoder.decode(Fields.self, from: Data(event.data.utf8)) else {
      return "\(String(repeating: " ", count: 12))  \(type)  \(event.data)".printable
    }
    return "\(time(fields.createdAt))  \(type)  \(sentence(event, fields))".printable
  }

  /// Return the data as one line: between the members of a JSON document a line break is only whitespace.
  package static func json(_ event: StreamedEvent) -> String {
    // Replace by scalars: a carriage return and its line feed are one character.
    String(String.UnicodeScalarView(event.data.unicodeScalars.map { $0 == "\r" || $0 == "\n" ? " " : $0 }))
  }

  private static let decoder = {
    let decoder = JSONDecoder()
    decoder.keyDecodingStrategy = .convertFromSnakeCase
    return decoder
  }()

  /// Fields used in the sentences; every event has some of them.
  private struct Fields: Decodable {
    struct User: Decodable { var id: String }
    struct Message: Decodable {
      var id: String
      var silent: Bool?
      var receipt: Bool?
    }
    var cid: String?
    var createdAt: String?
    var user: User?
    var threadId: String?
    var lastReadMessageId: String?
    var lastReadSeq: Int?
    var lastDeliveredMessageId: String?
    var lastDeliveredSeq: Int?
    var firstUnreadMessageId: String?
    var unreadMessages: Int?
    var unreadEpoch: Int?
    var markedUnread: Bool?
    var totalUnreadCount: Int?
    var unreadChannels: Int?
    var unreadThreads: Int?
    var messageId: String?
    var message: Message?
    var receiptStatus: String?
    var readCount: Int?
    var unreadCount: Int?
    var note: String?
    var fromSeq: Int?
    var toSeq: Int?
    var lastMessageId: String?
    var status: String?
    var memberCount: Int?
    var role: String?
  }

  private static func sentence(_ event: StreamedEvent, _ fields: Fields) -> String {
    let who = fields.user?.id ?? "somebody"
    let cid = fields.cid ?? "?"
    let place = fields.threadId.map { "the thread of \($0) in \(cid)" } ?? cid
    let message = fields.messageId ?? fields.message?.id ?? "a message"
    switch event.type {
    case "message.read": return "\(who) read up to \(read(fields)) in \(place)"
    case "message.delivered": return "\(who) received up to \(delivered(fields)) in \(place)"
    case "read_state.changed":
      return
        "\(who) is shown as having read up to \(read(fields)), received up to \(delivered(fields)) in \(place)"
    case "notification.mark_read":
      return "\(who), own devices: read up to \(read(fields)) in \(place)" + unread(fields)
    case "notification.mark_unread":
      let flag = fields.markedUnread == true ? ", flagged as a whole" : ""
      guard let first = fields.firstUnreadMessageId else {
        return "\(who), own devices: nothing unread in \(place)" + flag
      }
      return "\(who), own devices: unread from \(first) in \(place)" + unread(fields) + flag
    case "notification.totals":
      return "\(fields.totalUnreadCount ?? 0) unread in \(count(fields.unreadChannels, "channel")) and "
        + count(fields.unreadThreads, "thread")
    case "message.status":
      let (last, status) = (fields.lastMessageId ?? "?", fields.status ?? "?")
      guard let from = fields.fromSeq, let to = fields.toSeq, from < to else {
        return "\(who)'s \(last) is \(status) in \(place)"
      }
      return "\(who)'s messages from number \(from) up to \(last) are \(status) in \(place)"
    case "message.receipt":
      var text = "\(message) is \(fields.receiptStatus ?? "?") in \(place), read by \(fields.readCount ?? 0)"
      text += ", not by \(fields.unreadCount ?? 0)"
      if fields.user != nil { text += "; acknowledged by \(who)" }
      if let note = fields.note, !note.isEmpty { text += ": “\(note)”" }
      return text
    case "message.new":
      let kind = [
        fields.message?.silent == true ? "silent" : nil,
        fields.message?.receipt == true ? "with an acknowledgement request" : nil,
      ].compactMap(\.self)
      return (fields.user == nil ? "\(message) was sent" : "\(who) sent \(message)") + " in \(place)"
        + (kind.isEmpty ? "" : ", \(kind.joined(separator: ", "))")
    case "message.deleted": return "\(message) was deleted in \(place)"
    case "channel.truncated": return "\(cid) was truncated"
    case "channel.updated": return "\(cid) was changed"
    case "channel.deleted": return "\(cid) was deleted"
    case "member.added": return "\(who) joined \(cid)" + members(fields)
    case "member.removed": return "\(who) left \(cid)" + members(fields)
    case "stream.reset": return "earlier events may be missing: query the state again"
    default: return json(event)
    }
  }

  private static func read(_ fields: Fields) -> String {
    fields.lastReadMessageId ?? fields.lastReadSeq.map { $0 == 0 ? "nothing" : "number \($0)" } ?? "nothing"
  }

  private static func delivered(_ fields: Fields) -> String {
    fields.lastDeliveredMessageId ?? fields.lastDeliveredSeq.map { $0 == 0 ? "nothing" : "number \($0)" } ?? "nothing"
  }

  private static func unread(_ fields: Fields) -> String {
    fields.unreadMessages.map { ", \($0) unread" } ?? ""
  }

  private static func members(_ fields: Fields) -> String {
    (fields.role.map { " as \($0)" } ?? "") + (fields.memberCount.map { ", \(count($0, "member"))" } ?? "")
  }

  private static func count(_ number: Int?, _ noun: String) -> String {
    "\(number ?? 0) \(noun)\(number == 1 ? "" : "s")"
  }

  /// Return the time of day of an RFC 3339 time.
  private static func time(_ text: String?) -> String {
    guard let text, text.utf8.count >= 23 else { return String(repeating: " ", count: 12) }
    let start = text.index(text.startIndex, offsetBy: 11)
    return String(text[start...].prefix(12))
  }
}
