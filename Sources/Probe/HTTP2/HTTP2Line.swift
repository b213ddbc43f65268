internal import Foundation
internal import HTTP2Session

/// Parsed line of an HTTP/2 frame to send or to expect.
///
/// ```
/// headers stream=1 end_stream :method=GET :scheme=http :path=/ x-more="a b"
/// data stream=1 end_stream padding=6 text=test
/// settings initial_window_size=0 0xff=1
/// ```
struct HTTP2Line {
  /// Part of a header block, in the order of the line.
  enum Piece: Equatable {
    case field(name: [UInt8], value: Literal)
    /// Raw bytes.
    case block([UInt8])
  }

  enum Stream: Equatable {
    case number(UInt32)
    /// Next stream of this side.
    case next
    /// Stream that was opened last.
    case last
  }

  var type: UInt8
  var kind: HTTP2Kind?
  var stream: Stream?
  /// Flags of the line.
  var flags: [(name: String, bit: UInt8, isSet: Bool)] = []
  var fields: [NamedLiteral] = []
  var pieces: [Piece] = []
  /// Replacement of the encoded fields.
  var payload: Literal?
  /// Whether headers may be added to the dynamic table.
  var isIndexed = false
  /// Replacements of fields of the frame header.
  var flagsByte: UInt8?
  var length: UInt32?
  var isReservedSet: Bool?

  var name: String { HTTP2Frame(type: type).name }

  func field(_ name: String) -> Literal? { fields.last { $0.name == name }?.value }
  func flag(_ name: String) -> Bool? { flags.last { $0.name == name }?.isSet }

  // Names that need no value.
  private static let words: Set<String> = ["end_stream", "end_headers", "ack", "exclusive", "indexed", "@reserved"]

  /// Throw ``ProbeError``.
  init(_ line: String) throws {
    let (word, pairs) = try LineParser.command(line, words: Self.words)
    if let kind = HTTP2Kind(named: word) {
      self.kind = kind
      type = kind.rawValue
    } else if word.hasPrefix("0x"), let number = UInt8(word.dropFirst(2), radix: 16) {
      kind = HTTP2Kind(rawValue: number)
      type = number
    } else {
      let names = HTTP2Kind.allCases.map(\.name).joined(separator: ", ")
      throw ProbeError("there is no frame '\(word)'; frames are: \(names), a type such as 0x16, preface, request")
    }
    for pair in pairs { try parse(pair) }
  }

  private mutating func parse(_ pair: NamedLiteral) throws {
    switch pair.name {
    case "@flags": flagsByte = try Self.number(pair, most: 255).map { UInt8($0) }
    case "@length": length = try Self.number(pair, most: 0xFF_FFFF)
    case "@reserved": isReservedSet = try Self.number(pair, most: 1) == 1
    case "stream": stream = try Self.stream(pair)
    case "payload": payload = pair.value
    case let name where name.hasPrefix("@"):
      throw ProbeError("'\(name)' is not of the header: @flags, @length, @reserved")
    default:
      if let flag = kind?.flags.first(where: { $0.name == pair.name }) {
        if let number = try Self.number(pair, most: 1) { flags.append((flag.name, flag.bit, number == 1)) }
      } else if let kind, kind.fields.contains(pair.name) || kind == .settings && pair.name.hasPrefix("0x") {
        fields.append(pair)
      } else if kind?.hasHeaders == true {
        try parseHeader(pair)
      } else {
        let names = ["stream"] + (kind?.flags.map(\.name) ?? []) + (kind?.fields ?? []) + ["payload"]
        throw ProbeError("\(name) has no field '\(pair.name)'; its fields are: \(names.joined(separator: ", "))")
      }
    }
  }

  private mutating func parseHeader(_ pair: NamedLiteral) throws {
    switch (pair.name, pair.value) {
    case ("indexed", _): isIndexed = try Self.number(pair, most: 1) == 1
    case ("block", let value): pieces.append(.block(try Self.bytes(value, pair.name)))
    case ("headers", .list(let entries)):
      // Names that a line cannot contain.
      for entry in entries {
        guard case .fields(let pairs) = entry, pairs.count == 2, pairs[0].name == "name",
          pairs[1].name == "value", case .word(let name, _) = pairs[0].value
        else { throw ProbeError("headers: entries are written {name=… value=…}") }
        pieces.append(.field(name: name, value: pairs[1].value))
      }
    default: pieces.append(.field(name: Array(pair.name.utf8), value: pair.value))
    }
  }

  // MARK: Values

  /// Return the number; nil: any value.
  private static func number(_ pair: NamedLiteral, most: UInt32) throws -> UInt32? {
    pair.value.isWildcard ? nil : try number(pair.value, pair.name, most: most)
  }

  static func number(_ literal: Literal, _ name: String, most: UInt32 = .max) throws -> UInt32 {
    let text = try text(literal, name)
    if name == "code", let code = HTTP2Names.errors.firstIndex(of: text) { return UInt32(code) }
    guard let number = FieldCoding.number(text) else {
      let what = name == "code" ? "a number or one of \(HTTP2Names.errors.joined(separator: ", "))" : "a number"
      throw ProbeError("\(name)=\(text): \(what) is expected")
    }
    guard number <= UInt64(most) else { throw ProbeError("\(name)=\(text): at most \(most)") }
    return UInt32(number)
  }

  static func bytes(_ literal: Literal, _ name: String) throws -> [UInt8] {
    let text = try text(literal, name)
    guard let bytes = Hex.bytes(text) else { throw ProbeError("\(name)=\(text): hexadecimal is expected") }
    return bytes
  }

  static func word(_ literal: Literal, _ name: String) throws -> [UInt8] {
    guard case .word(let word, _) = literal else { throw ProbeError("\(name): a single value is expected") }
    return word
  }

  private static func text(_ literal: Literal, _ name: String) throws -> String {
    String(decoding: try word(literal, name), as: UTF8.self)
  }

  private static func stream(_ pair: NamedLiteral) throws -> Stream? {
    if pair.value.isWildcard { return nil }
    switch pair.value {
    case .word(Array("next".utf8), false): return .next
    case .word(Array("last".utf8), false): return .last
    default: return .number(try number(pair.value, pair.name, most: 0x7FFF_FFFF))
    }
  }
}

// MARK: - To bytes

extension HTTP2Line {
  /// Encode the frame.
  func frame(stream: UInt32, encoder: HeaderEncoder) throws -> HTTP2Frame {
    var frame = HTTP2Frame(type: type)
    frame.stream = stream
    frame.isReservedSet = isReservedSet ?? false
    // A header block is complete by default.
    if kind?.hasHeaders == true, flag("end_headers") != false { frame.flags |= HTTP2Flag.endHeaders }
    for flag in flags where flag.isSet { frame.flags |= flag.bit }
    for name in ["text", "json", "bytes"] where fields.filter({ $0.name == name }).count > 1 {
      throw ProbeError("field '\(name)' is given twice")
    }
    var payload = try content(encoder)
    if let kind, kind == .headers, hasPriority {
      payload = try priority() + payload
      frame.flags |= HTTP2Flag.priority
    }
    if let kind, kind.isPadded, field("padding") != nil || field("pad_length") != nil {
      let count = try field("padding").map { try Self.number($0, "padding", most: 1 << 16) } ?? 0
      let length = try field("pad_length").map { try Self.number($0, "pad_length", most: 255) } ?? count
      guard length <= 255 else { throw ProbeError("padding=\(count): at most 255, or with a pad_length") }
      payload = [UInt8(length)] + payload + [UInt8](repeating: 0, count: Int(count))
      frame.flags |= HTTP2Flag.padded
    }
    frame.payload = try self.payload.map { try Self.bytes($0, "payload") } ?? payload
    if let flagsByte { frame.flags = flagsByte }
    return frame
  }

  private var hasPriority: Bool {
    ["dependency", "weight", "exclusive"].contains { field($0) != nil }
  }

  private func content(_ encoder: HeaderEncoder) throws -> [UInt8] {
    switch kind {
    case .data: return try body()
    case .headers, .continuation: return try block(encoder)
    case .priority: return try priority()
    case .rst_stream: return try number("code").bigEndianBytes
    case .settings:
      return try fields.flatMap { field in
        let number =
          try HTTP2Names.settings.first { $0.name == field.name }.map { UInt32($0.number) }
          ?? Self.number(.word(Array(field.name.utf8), isQuoted: false), "setting", most: UInt32(UInt16.max))
        return Array(number.bigEndianBytes.suffix(2)) + (try Self.number(field.value, field.name)).bigEndianBytes
      }
    case .push_promise: return try number("promised").bigEndianBytes + block(encoder)
    case .ping: return try field("bytes").map { try Self.bytes($0, "bytes") } ?? [UInt8](repeating: 0, count: 8)
    case .goaway:
      return try number("last_stream").bigEndianBytes + number("code").bigEndianBytes
        + (field("debug").map { try Self.word($0, "debug") } ?? [])
    case .window_update: return try number("increment").bigEndianBytes
    case nil: return []
    }
  }

  private func number(_ name: String) throws -> UInt32 {
    try field(name).map { try Self.number($0, name) } ?? 0
  }

  private func body() throws -> [UInt8] {
    try fields.flatMap { field in
      switch field.name {
      case "text", "json": try Self.word(field.value, field.name)
      case "bytes": try Self.bytes(field.value, field.name)
      case "contains": throw ProbeError("'contains' is for what is expected")
      default: [UInt8]()
      }
    }
  }

  private func priority() throws -> [UInt8] {
    let weight = try field("weight").map { try Self.number($0, "weight", most: 256) } ?? 16
    guard weight >= 1 else { throw ProbeError("weight=0: 1 to 256") }
    let isExclusive = try number("exclusive") == 1
    return (try number("dependency") | (isExclusive ? 0x8000_0000 : 0)).bigEndianBytes + [UInt8(weight - 1)]
  }

  private func block(_ encoder: HeaderEncoder) throws -> [UInt8] {
    var block: [UInt8] = []
    // Fields that follow each other are one call: a table size update may only stand at a block's beginning.
    var gathered: [HeaderField] = []
    for piece in pieces {
      switch piece {
      case .field(let name, let value):
        gathered.append(HeaderField(name: name, value: try Self.word(value, String(decoding: name, as: UTF8.self))))
      case .block(let bytes):
        if !gathered.isEmpty { block += encoder.encode(gathered, indexed: isIndexed) }
        gathered = []
        block += bytes
      }
    }
    return gathered.isEmpty ? block : block + encoder.encode(gathered, indexed: isIndexed)
  }
}

/// Comparison of a JSON answer with the expected one. Additional members of the answer are ignored, so that a script
/// stays valid when answers get new members.
enum JSONComparison {
  /// - Throws: ``ProbeError`` if `expected` is not JSON.
  static func differences(_ expected: [UInt8], from actual: [UInt8]) throws -> [String] {
    guard let wanted = parse(expected) else {
      throw ProbeError("json: this is none: \(String(decoding: expected, as: UTF8.self))")
    }
    guard let value = parse(actual) else { return ["json: received none: \(Hex.word(actual))"] }
    return differences(wanted, from: value, path: "json")
  }

  private static func parse(_ bytes: [UInt8]) -> Any? {
    try? JSONSerialization.jsonObject(with: Data(bytes), options: .fragmentsAllowed)
  }

  private static func differences(_ expected: Any, from actual: Any, path: String) -> [String] {
    switch (expected, actual) {
    case (let wanted as [String: Any], let object as [String: Any]):
      return wanted.keys.sorted().flatMap { key -> [String] in
        guard let value = object[key] else { return ["\(path).\(key): expected, but it is not there"] }
        return wanted[key].map { differences($0, from: value, path: "\(path).\(key)") } ?? []
      }
    case (let wanted as [Any], let list as [Any]):
      guard wanted.count == list.count else {
        return ["\(path): expected \(wanted.count) entries, received \(list.count)"]
      }
      return zip(wanted, list).enumerated().flatMap {
        differences($0.element.0, from: $0.element.1, path: "\(path)[\($0.offset)]")
      }
    case (let wanted as String, _) where wanted == "*": return []
    default:
      let (wanted, value) = (text(expected), text(actual))
      return wanted == value ? [] : ["\(path): expected \(wanted), received \(value)"]
    }
  }

  private static func text(_ value: Any) -> String {
    let options: JSONSerialization.WritingOptions = [.fragmentsAllowed, .sortedKeys, .withoutEscapingSlashes]
    return (try? JSONSerialization.data(withJSONObject: value, options: options)).map {
      String(decoding: $0, as: UTF8.self)
    } ?? "\(value)"
  }
}
