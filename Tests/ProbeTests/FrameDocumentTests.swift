import Foundation
import Testing
import TestSupport

@testable import Probe

/// The tables of Proto/frames.md have the kinds and fields of ``FrameTable``, in the same order and of the same types.
@Suite struct FrameDocumentTests {
  private static let document: FrameDocument = {
    do {
      return try FrameDocument(String(contentsOf: FrameVectors.proto.appending(path: "frames.md"), encoding: .utf8))
    } catch {
      fatalError("Proto/frames.md: \(error)")
    }
  }()

  @Test func documentHasEveryKind() {
    let replies = Self.document.rows.filter { $0.reply != nil }.map { $0.name + "_reply" }
    let documented = Set(Self.document.rows.map(\.name) + replies)
    #expect(documented == Set(FrameTable.all.map(\.name)))
  }

  @Test(arguments: FrameDocumentTests.document.rows)
  func documentedFieldsMatchTable(_ row: FrameDocument.Row) throws {
    let spec = try #require(FrameTable.spec(named: row.name))
    #expect(spec.number == row.number)
    #expect(FrameDocument.agree(row.fields, Self.shape(spec.fields)), "\(row.fields) \(Self.shape(spec.fields))")
    guard let fields = row.reply else { return }
    let reply = try #require(FrameTable.spec(named: row.name + "_reply"))
    #expect(reply.number == row.number | 0x80)
    #expect(FrameDocument.agree(fields, Self.shape(reply.fields)), "\(fields) \(Self.shape(reply.fields))")
  }

  /// An extra field, a missing field, another type and another order are all detected.
  @Test func differencesAreDetected() {
    let shape: [FrameDocument.Shape] = [.string, .number, .list([.string, .number])]
    #expect(FrameDocument.agree(shape, shape))
    #expect(!FrameDocument.agree(shape, shape + [.byte]))
    #expect(!FrameDocument.agree(shape, shape.dropLast()))
    #expect(!FrameDocument.agree(shape, [.number, .string, .list([.string, .number])]))
    #expect(!FrameDocument.agree(shape, [.string, .number, .list([.string, .byte])]))
  }

  private static func shape(_ fields: [FieldSpec]) -> [FrameDocument.Shape] {
    fields.map { field in
      switch field.type {
      case .varint: .number
      case .byte: .byte
      case .bytes(let count): .bytes(count)
      case .string, .blob: .string
      case .rest: .rest
      case .optional: .optional
      case .list(let element): .list(shape(element))
      }
    }
  }
}

/// The kinds of Proto/frames.md, read from its tables and from its list of compound fields.
struct FrameDocument: Sendable {
  /// A notation of frames.md, section Fields; a time is a number on the wire.
  enum Shape: Equatable, Sendable {
    case number, byte, bytes(Int), string, optional, rest
    case list([Shape])
    /// A list of events, which frames.md describes in another section.
    case events
  }

  struct Row: CustomTestStringConvertible, Sendable {
    var number: UInt8
    var name: String
    var fields: [Shape]
    /// Nil where the table has no column for replies.
    var reply: [Shape]?

    var testDescription: String { name }
  }

  private(set) var rows: [Row] = []
  private var compounds: [String: [Shape]] = [
    "cid": [.string], "user": [.string], "message": [.string], "type": [.string], "role": [.string],
  ]

  init(_ text: String) {
    // Twice: some use fields that come after them.
    for _ in 1...2 { readCompounds(text) }
    for line in text.split(separator: "\n") where line.hasPrefix("| 0x") {
      let cells = line.split(separator: "|").map { $0.trimmingCharacters(in: .whitespaces) }
      // Effects have numbers without a prefix; pages have no name in this column.
      guard let number = UInt8(cells[0].dropFirst(2), radix: 16), cells.count >= 3 else { continue }
      var fields = shape(cells[2])
      if let same = rows.first(where: { cells[2].hasPrefix("as \($0.name);") }) { fields = same.fields }
      rows.append(Row(number: number, name: cells[1], fields: fields, reply: cells.count > 3 ? shape(cells[3]) : nil))
    }
  }

  static func agree(_ document: [Shape], _ table: [Shape]) -> Bool {
    document.count == table.count
      && zip(document, table).allSatisfy { pair in
        switch pair {
        case (.list([.events]), .list): true
        case (.list(let inner), .list(let other)): agree(inner, other)
        default: pair.0 == pair.1
        }
      }
  }

  /// Read `- *name*: fields. More text.` and `- *name* and *name*: …`, whose fields may use each other's names.
  private mutating func readCompounds(_ text: String) {
    guard let section = text.range(of: "The compound fields:"), let end = text.range(of: "\n| option |") else {
      return
    }
    for entry in text[section.upperBound..<end.lowerBound].components(separatedBy: "\n- ").dropFirst() {
      let line = entry.replacingOccurrences(of: "\n  ", with: " ")
      guard let colon = line.range(of: "*: ") else { continue }
      let names = line[..<colon.lowerBound].split(separator: "*").filter { $0 != " and " }
      let sentence = line[colon.upperBound...].components(separatedBy: ". ")[0]
      let fields = shape(sentence)
      for name in names { compounds[String(name)] = fields }
    }
  }

  private func shape(_ text: String) -> [Shape] {
    Self.items(text).flatMap(fields(of:))
  }

  /// The fields of one item, such as `string cursor, empty for the first page`, or
  /// `with 1 varint unread messages, string first unread message id`. Words that are no notation are remarks.
  private func fields(of item: Substring) -> [Shape] {
    let words = item.split(whereSeparator: { " ,:.".contains($0) }).map(String.init)
    guard let first = words.first else { return [] }
    switch first {
    case "varint", "time": return [.number]
    case "byte": return [.byte]
    case "string": return [.string]
    case "opt": return [.optional]
    case "the" where words.starts(with: ["the", "bytes"]): return [.rest]
    case "with" where words.count > 2: return fields(of: item.drop { $0 != " " }.dropFirst().drop { $0 != " " })
    case _ where first.hasPrefix("bytes["):
      return Int(first.drop { $0 != "[" }.dropFirst().prefix { $0.isNumber }).map { [.bytes($0)] } ?? []
    case _ where first.hasPrefix("list("):
      let inner = Self.inParentheses(item.drop { $0 != "(" })
      return [.list(inner.hasSuffix("events") ? [.events] : shape(inner))]
    default: break
    }
    if words.count > 1, let fields = compounds[words[0] + " " + words[1]] { return fields }
    return compounds[first] ?? []
  }

  /// Split at semicolons, and at commas and colons that a notation follows, outside of parentheses.
  private static func items(_ text: String) -> [Substring] {
    let notations = ["varint ", "string ", "opt ", "byte ", "bytes[", "time ", "list("]
    var items: [Substring] = []
    var depth = 0
    var start = text.startIndex
    for index in text.indices {
      switch text[index] {
      case "(": depth += 1
      case ")": depth -= 1
      case ";" where depth == 0:
        items.append(text[start..<index])
        start = text.index(after: index)
      case ",",
        ":" where depth == 0:
        let next = text[index...].dropFirst().drop { $0 == " " }
        guard depth == 0, notations.contains(where: { next.hasPrefix($0) }) else { continue }
        items.append(text[start..<index])
        start = text.index(after: index)
      default: break
      }
    }
    items.append(text[start...])
    return items.map { $0.drop { $0 == " " } }
  }

  /// The text between the first parenthesis and its closing one.
  private static func inParentheses(_ text: Substring) -> String {
    var depth = 0
    for index in text.indices {
      if text[index] == "(" { depth += 1 }
      if text[index] == ")" { depth -= 1 }
      if depth == 0 { return String(text[text.index(after: text.startIndex)..<index]) }
    }
    return String(text)
  }
}

/// The part of Proto/vectors/frames.json that ProbeTests use.
struct FrameVectors: Decodable {
  struct Frame: Decodable, CustomTestStringConvertible {
    var name: String
    var kind: String
    var hex: String
    var fieldNames: [String]
    var testDescription: String { name }

    private enum CodingKeys: String, CodingKey { case name, kind, hex, fields }

    init(from decoder: any Decoder) throws {
      let values = try decoder.container(keyedBy: CodingKeys.self)
      name = try values.decode(String.self, forKey: .name)
      kind = try values.decode(String.self, forKey: .kind)
      hex = try values.decode(String.self, forKey: .hex)
      var fields = try values.nestedUnkeyedContainer(forKey: .fields)
      fieldNames = []
      while !fields.isAtEnd {
        var field = try fields.nestedUnkeyedContainer()
        fieldNames.append(try field.decode(String.self))
      }
    }
  }

  var frames: [Frame]

  static let proto = packageRoot.appending(path: "Proto")

  static let all: [Frame] = {
    do {
      let data = try Data(contentsOf: proto.appending(path: "vectors/frames.json"))
      return try JSONDecoder().decode(FrameVectors.self, from: data).frames
    } catch {
      fatalError("Proto/vectors/frames.json: \(error)")
    }
  }()
}
