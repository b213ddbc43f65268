import Foundation
import TestSupport
import Testing

@testable import DumpReaders

/// A dump as it is converted, in short forms that read like a story.
struct Conversion: Equatable {
  /// `channel team:a`, `m1 by alice 09:00:01`, `bob read m1 at 09:00:02`.
  var lines: [String] = []
  var json: [String] = []
  var origins: [String] = []
  /// `line 3: create_at is missing`.
  var refused: [String] = []
  var leftOut = ""

  /// Convert a dump that arrives in pieces of this size.
  init(_ format: DumpFormat, _ dump: String, pieces size: Int = .max, objectBytesMax: Int? = nil) throws {
    try self.init(format, Array(dump.utf8), pieces: size, objectBytesMax: objectBytesMax)
  }

  init(_ format: DumpFormat, _ dump: [UInt8], pieces size: Int = .max, objectBytesMax: Int? = nil) throws {
    let path = NSTemporaryDirectory() + "tidemark-spool-\(UUID().uuidString)"
    defer { try? FileManager.default.removeItem(atPath: path) }
    var refused: [String] = []
    let records = RecordCollector(spool: try RecordSpool(path: path)) { refused.append("\($0.origin): \($0.detail)") }
    var rest = dump[...]
    let conversion = DumpConversion(format, objectBytesMax: objectBytesMax)
    try conversion.read(into: records) {
      defer { rest = rest.dropFirst(size) }
      return rest.isEmpty ? nil : Array(rest.prefix(size))
    }
    let summary = try conversion.write(records) { line, origin in
      json.append(line)
      lines.append(try Self.brief(line))
      origins.append(origin.description)
    }
    self.refused = refused
    leftOut = summary.leftOut.description
    #expect(summary.lines == lines.count && summary.refused == refused.count)
  }

  /// Convert a file of the folder Fixtures.
  static func fixture(_ format: DumpFormat, pieces size: Int = .max) throws -> Self {
    try Self(format, bytes(of: format), pieces: size)
  }

  static func bytes(of format: DumpFormat) throws -> [UInt8] {
    let name = format == .mattermost ? "mattermost.jsonl" : "\(format).json"
    return Array(
      try Data(contentsOf: packageRoot.appendingPathComponent("Tests/DumpReadersTests/Fixtures/\(name)"))
    )
  }

  // MARK: Short forms

  private struct Line: Decodable {
    struct Fields: Decodable {
      var cid: String?
      var id: String?
      var user_id: String?
      var created_at: String?
      var parent_id: String?
      var silent: Bool?
      var deleted: Bool?
      var deleted_at: String?
      var mentions: Mentions?
      var moves_position: Bool?
      var thread_id: String?
      var role: String?
      var joined_at: String?
      var left_at: String?
      var muted: Bool?
      var last_read_message_id: String?
      var last_read_at: String?
      var last_read_hidden: Bool?
      var last_delivered_message_id: String?
      var last_delivered_at: String?
      var last_delivered_hidden: Bool?
      var privacy_settings: [String: [String: Bool]]?
    }

    struct Mentions: Decodable {
      var text: String

      init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        text = try (try? container.decode(String.self)) ?? container.decode([String].self).joined(separator: ",")
      }
    }

    var channel: Fields?
    var user: Fields?
    var message: Fields?
    var member: Fields?
  }

  private static func brief(_ json: String) throws -> String {
    let line = try JSONDecoder().decode(Line.self, from: Data(json.utf8))
    var words: [String?] = []
    if let channel = line.channel {
      words = ["channel", channel.cid, time("created", channel.created_at)]
    } else if let user = line.user {
      let hidden = (user.privacy_settings ?? [:]).filter { $0.value == ["enabled": false] }.keys.sorted()
      words = ["user", user.id, "hides", hidden.joined(separator: ",")]
    } else if let message = line.message {
      words = [
        message.id, message.user_id.map { "by \($0)" }, time("", message.created_at),
        message.parent_id.map { "reply to \($0)" }, message.silent == true ? "silent" : nil,
        message.deleted == true ? "deleted" : nil, time("", message.deleted_at),
        message.mentions.map { "mentions \($0.text)" }, message.moves_position == true ? "moves" : nil,
      ]
    } else if let member = line.member {
      words = [
        member.user_id, member.thread_id.map { "in \($0)" }, member.role.map { "as \($0)" },
        time("joined", member.joined_at), time("left", member.left_at), member.muted == true ? "muted" : nil,
        member.last_read_message_id.map { "read \($0)" }, time("at", member.last_read_at),
        member.last_read_hidden == true ? "hidden" : nil,
        member.last_delivered_message_id.map { "delivered \($0)" }, time("at", member.last_delivered_at),
      ]
    }
    return words.compactMap { $0 }.joined(separator: " ")
  }

  /// The time of day on 1 May 2024, without milliseconds that are 0; other times in full.
  private static func time(_ word: String, _ text: String?) -> String? {
    guard var text else { return nil }
    if text.hasPrefix("2024-05-01T") {
      text = String(text.dropFirst(11).dropLast())
      if text.hasSuffix(".000") { text = String(text.dropLast(4)) }
    }
    return word.isEmpty ? text : "\(word) \(text)"
  }
}
