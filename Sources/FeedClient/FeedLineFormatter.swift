internal import CommandOutput
internal import Foundation

/// Formatter of a record as a line for a person: time, type, channel, then its fields.
package enum FeedLineFormatter {
  /// Width of the longest type, `message.registered`.
  private static let typeWidth = 18
  /// Fields that have their own place in the line, or that say nothing to a person.
  private static let leading: Set<String> = ["cursor", "id", "type", "cid", "user", "message_id", "at"]

  /// Format a record or a gap as a line without its end.
  package static func line(_ line: FeedLine) -> String {
    switch line {
    case .record(let record): sentence(record)
    case .gap(_, let from, let to): "\(padded("gap"))  no records from \(from) to \(to)"
    case .lease, .heartbeat, .leaseLost: ""
    }
  }

  /// Return a record or a gap as one line of JSON.
  package static func json(_ line: FeedLine) -> String {
    switch line {
    case .record(let record): String(decoding: record.json, as: UTF8.self)
    case .gap(_, let from, let to): #"{"type":"gap","from":"\#(from)","to":"\#(to)"}"#
    case .lease, .heartbeat, .leaseLost: ""
    }
  }

  private static func sentence(_ record: FeedRecord) -> String {
    let data = Data(record.json)
    guard let fields = (try? JSONSerialization.jsonObject(with: data)) as? [String: Any] else {
      return String(decoding: record.json, as: UTF8.self).printable
    }
    func text(_ name: String) -> String? { fields[name] as? String }
    let user = (fields["user"] as? [String: Any])?["id"] as? String
    let words = [user, text("message_id")].compactMap { $0 }
    let details = fields.keys.filter { !leading.contains($0) }.sorted().map { "\($0)=\(value(fields[$0]))" }
    let rest = ([text("cid") ?? "-"] + words + details).joined(separator: " ")
    return "\(text("at") ?? "-")  \(padded(text("type") ?? "-"))  \(rest)".printable
  }

  private static func padded(_ type: String) -> String {
    type.padding(toLength: max(typeWidth, type.count), withPad: " ", startingAt: 0)
  }

  /// Return a field's value: users as a list of their ids, other values as JSON.
  private static func value(_ value: Any?) -> String {
    if let users = value as? [[String: Any]] {
      return users.compactMap { $0["id"] as? String }.joined(separator: ",")
    }
    guard let value else { return "" }
    if let text = value as? String { return text }
    let data = try? JSONSerialization.data(withJSONObject: value, options: [.fragmentsAllowed, .sortedKeys])
    return data.map { String(decoding: $0, as: UTF8.self) } ?? ""
  }
}
