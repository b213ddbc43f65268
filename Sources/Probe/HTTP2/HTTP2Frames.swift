internal import Foundation
internal import HTTP2Session

/// HTTP/2 frames (RFC 9113) as lines:
///
/// ```
/// preface
/// settings initial_window_size=0
/// headers stream=1 end_stream :method=GET :scheme=http :authority=localhost :path=/
/// request stream=next :path=/v1/channels/messaging:a authorization="Bearer …"
/// data stream=1 end_stream text=test
/// 0x16 stream=1 payload=00
/// ```
///
/// `@flags`, `@length` and `@reserved` are fields of the frame header; `payload` replaces the encoded fields. The probe
/// sends nothing by itself: no acknowledgement, no window update.
struct HTTP2Frames: ProbeProtocol {
  /// Decoded frame with its fields and headers.
  struct Unit {
    enum Content {
      case preface
      case frame(HTTP2Frame, HTTP2Fields, headers: [HeaderField]?)
      /// Frame with a payload that violates the RFC.
      case malformed(HTTP2Frame, reason: String)
    }

    var content: Content

    var frame: HTTP2Frame? {
      switch content {
      case .preface: nil
      case .frame(let frame, _, _), .malformed(let frame, _): frame
      }
    }
  }

  /// Default of `request`.
  var scheme: String
  var authority: String
  /// Hide tokens, because transcripts are copied into tickets and chats.
  var masksCredentials = true

  private var encoder = HeaderEncoder()
  private var decoders: [ProbeDirection: HeaderDecoder] = [:]
  private var streamLast: UInt32 = 0
  private var pingCount: UInt64 = 0

  init(scheme: String = "http", authority: String = "localhost") {
    self.scheme = scheme
    self.authority = authority
    connected()
  }

  static func boundary(in bytes: [UInt8]) -> FrameBoundary { HTTP2Frame.boundary(in: bytes) }
  static var endsWithPing: Bool { true }

  mutating func connected() {
    encoder = HeaderEncoder()
    decoders = [.sent: HeaderDecoder(), .received: HeaderDecoder()]
    streamLast = 0
  }

  // MARK: Sending

  mutating func encode(_ line: String) throws -> [UInt8] {
    if line.hasPrefix("hex:") {
      guard let bytes = Hex.bytes(line.dropFirst(4)) else { throw ProbeError("hexadecimal is expected: \(line)") }
      return bytes
    }
    if line == "preface" { return HTTP2Frame.preface }
    let parsed = try parse(line)
    let stream: UInt32
    switch parsed.stream {
    case .number(let number): stream = number
    case .last: stream = streamLast
    case .next: stream = streamLast == 0 ? 1 : streamLast + 2
    case nil:
      if let kind = parsed.kind, kind.isOfStream || kind == .priority {
        throw ProbeError("\(kind.name): stream=… is missing")
      }
      stream = 0
    }
    let frame = try parsed.frame(stream: stream, encoder: encoder)
    if parsed.kind == .headers { streamLast = stream }
    return frame.bytes(length: parsed.length)
  }

  private func parse(_ line: String) throws -> HTTP2Line {
    let word = line.prefix { $0 != " " }
    guard word == "request" else { return try HTTP2Line(line) }
    var parsed = try HTTP2Line("headers" + line.dropFirst(word.count))
    let presets = [(":method", "GET"), (":scheme", scheme), (":authority", authority), (":path", "/")]
    let names: [[UInt8]] = parsed.pieces.compactMap { if case .field(let name, _) = $0 { name } else { nil } }
    parsed.pieces.insert(
      contentsOf: presets.filter { !names.contains(Array($0.0.utf8)) }.map {
        .field(name: Array($0.0.utf8), value: .word(Array($0.1.utf8), isQuoted: true))
      },
      at: 0
    )
    if parsed.stream == nil { parsed.stream = .next }
    if parsed.flag("end_stream") == nil { parsed.flags.append(("end_stream", 0x1, true)) }
    return parsed
  }

  mutating func pingExchange() -> (send: String, expect: String) {
    pingCount += 1
    let bytes = Hex.text([0x61, 0x6c, 0x76] + [UInt8](repeating: 0, count: 1) + UInt32(pingCount).bigEndianBytes)
    return ("ping bytes=\(bytes)", "ping ack bytes=\(bytes)")
  }

  static func open(_ exchange: ProbeExchange<HTTP2Frames>, _ line: String) async throws {
    // The server's SETTINGS may arrive before ours (RFC 9113 section 3.4).
    try await exchange.send("preface")
    try await exchange.send("settings \(line)")
    try await require("settings ack=0", exchange)
    try await exchange.send("settings ack")
    try await require("settings ack", exchange)
  }

  private static func require(_ line: String, _ exchange: ProbeExchange<HTTP2Frames>) async throws {
    let differences = try await exchange.differences(line)
    if !differences.isEmpty { throw ProbeError("in the opening: \(differences.joined(separator: "; "))") }
  }

  // MARK: Reading

  mutating func read(_ bytes: [UInt8], _ direction: ProbeDirection) -> Unit {
    if bytes == HTTP2Frame.preface { return Unit(content: .preface) }
    guard let frame = HTTP2Frame(bytes) else { preconditionFailure("a unit has a header: see boundary(in:)") }
    do throws(HTTP2Fields.Malformed) {
      let fields = try HTTP2Fields(frame)
      let headers = fields.block.map {
        try? decoders[direction]?.decode($0, isFinal: frame.has(HTTP2Flag.endHeaders))
      }
      return Unit(content: .frame(frame, fields, headers: headers ?? nil))
    } catch {
      return Unit(content: .malformed(frame, reason: error.reason))
    }
  }

  func answersAwaited(_ unit: Unit) -> Int {
    guard let frame = unit.frame else { return 0 }
    switch frame.kind {
    case .settings, .ping: return frame.has(0x1) ? 0 : 1
    case .data, .headers: return frame.has(0x1) ? 1 : 0
    default: return 0
    }
  }

  func isAnswer(_ unit: Unit) -> Bool {
    guard let frame = unit.frame else { return false }
    switch frame.kind {
    case .settings, .ping, .data, .headers: return frame.has(0x1)
    case .rst_stream, .goaway: return true
    default: return false
    }
  }

  // MARK: Expecting

  func matches(_ unit: Unit, by line: String?) throws -> Bool {
    guard let frame = unit.frame else { return false }
    // It ends the connection, so every expectation is compared with it.
    if frame.kind == .goaway { return true }
    guard let line else { return false }
    let expected = try parse(line)
    let isStreams = expected.stream == nil || number(expected.stream) == frame.stream
    if expected.type == frame.type {
      // Acknowledgements are separate.
      if let isAck = expected.flag("ack"), isAck != frame.has(0x1) { return false }
      return isStreams
    }
    guard frame.kind?.isOfStream == true else { return false }
    // The next frame of the same stream is compared; for a ping, the reset of any stream is.
    if expected.kind?.isOfStream == true { return isStreams }
    return expected.kind == .ping && frame.kind == .rst_stream
  }

  private func number(_ stream: HTTP2Line.Stream?) -> UInt32? {
    switch stream {
    case .number(let number): number
    case .last: streamLast
    case .next, nil: nil
    }
  }

  func differences(_ line: String, from unit: Unit) throws -> [String] {
    let expected = try parse(line)
    guard let frame = unit.frame else { return ["expected \(expected.name), received the preface"] }
    guard frame.type == expected.type else { return ["expected \(expected.name), received \(frame.name)"] }
    var lines: [String] = []
    func compare(_ name: String, _ expected: UInt32?, _ actual: UInt32) {
      if let expected, expected != actual {
        lines.append("\(name): expected \(expected), received \(actual)")
      }
    }
    compare("stream", number(expected.stream), frame.stream)
    compare("@flags", expected.flagsByte.map { UInt32($0) }, UInt32(frame.flags))
    compare("@reserved", expected.isReservedSet.map { $0 ? 1 : 0 }, frame.isReservedSet ? 1 : 0)
    compare("@length", expected.length, UInt32(frame.payload.count))
    for flag in expected.flags { compare(flag.name, flag.isSet ? 1 : 0, frame.has(flag.bit) ? 1 : 0) }
    if let payload = expected.payload, !payload.isWildcard {
      let bytes = try HTTP2Line.bytes(payload, "payload")
      if bytes != frame.payload {
        lines.append("payload: expected \(Hex.text(bytes)), received \(Hex.text(frame.payload))")
      }
    }
    switch unit.content {
    case .preface: break
    case .malformed(_, let reason):
      if !expected.fields.isEmpty || !expected.pieces.isEmpty {
        lines.append("the payload is malformed: \(reason)")
      }
    case .frame(_, let fields, let headers):
      for field in expected.fields { lines += try difference(field, from: fields) }
      lines += try headerDifferences(expected.pieces, from: headers, fields.block)
    }
    return lines
  }

  private func difference(_ expected: NamedLiteral, from fields: HTTP2Fields) throws -> [String] {
    let name = expected.name
    if ["text", "json", "contains", "bytes"].contains(name), let data = fields.data {
      return try bodyDifference(expected, from: data)
    }
    let settingName = HTTP2Names.settings.first { "0x" + String($0.number, radix: 16) == name }?.name ?? name
    let actual = fields.fields.filter { $0.name == settingName }.map(\.value)
    if actual.isEmpty { return ["\(name): expected, but it is not there"] }
    if expected.value.isWildcard { return [] }
    // A setting may be repeated.
    let isExpected = try actual.contains { value in
      switch value {
      case .number(let number), .code(let number): try HTTP2Line.number(expected.value, name) == number
      case .bytes(let bytes): try HTTP2Line.bytes(expected.value, name) == bytes
      case .text(let text): try HTTP2Line.word(expected.value, name) == text
      }
    }
    if isExpected { return [] }
    let wanted = Hex.word(try HTTP2Line.word(expected.value, name))
    return ["\(name): expected \(wanted), received \(actual.map(\.text).joined(separator: ", "))"]
  }

  private func bodyDifference(_ expected: NamedLiteral, from data: [UInt8]) throws -> [String] {
    if expected.value.isWildcard { return [] }
    let wanted = try HTTP2Line.word(expected.value, expected.name)
    switch expected.name {
    case "bytes":
      let bytes = try HTTP2Line.bytes(expected.value, "bytes")
      return bytes == data ? [] : ["bytes: expected \(Hex.text(bytes)), received \(Hex.text(data))"]
    case "contains":
      return data.firstRange(of: wanted) != nil
        ? [] : ["contains: expected \(Hex.word(wanted)), which is not in \(Hex.word(data))"]
    case "json": return try JSONComparison.differences(wanted, from: data)
    default: return wanted == data ? [] : ["text: expected \(Hex.word(wanted)), received \(Hex.word(data))"]
    }
  }

  /// Compare headers: each expected field has to be among those received.
  private func headerDifferences(
    _ pieces: [HTTP2Line.Piece],
    from headers: [HeaderField]?,
    _ block: [UInt8]?
  ) throws -> [String] {
    guard !pieces.isEmpty else { return [] }
    guard let headers else { return ["the header block does not decode"] }
    var lines: [String] = []
    for piece in pieces {
      switch piece {
      case .block(let bytes):
        if bytes != block {
          lines.append("block: expected \(Hex.text(bytes)), received \(Hex.text(block ?? []))")
        }
      case .field(let name, let value):
        let named = Hex.word(name)
        let values = headers.filter { $0.name == name }.map(\.value)
        if values.isEmpty {
          lines.append("\(named): expected, but it is not there")
        } else if !value.isWildcard {
          let wanted = try HTTP2Line.word(value, named)
          if !values.contains(wanted) {
            let received = values.map { Hex.word($0) }.joined(separator: ", ")
            lines.append("\(named): expected \(Hex.word(wanted)), received \(received)")
          }
        }
      }
    }
    return lines
  }
}

extension HTTP2Fields {
  /// Data of a DATA frame.
  fileprivate var data: [UInt8]? {
    switch value("text") ?? value("bytes") {
    case .text(let bytes), .bytes(let bytes): bytes
    default: nil
    }
  }
}

extension HTTP2Frames {
  /// Format a unit as a line that encodes the same frame, except for masked credentials.
  func text(_ unit: Unit) -> String {
    guard let frame = unit.frame else { return "preface" }
    var words = [frame.name]
    if frame.stream != 0 || frame.kind?.isOfStream == true { words.append("stream=\(frame.stream)") }
    if frame.isReservedSet { words.append("@reserved") }
    var implied: UInt8 = 0
    for flag in frame.kind?.flags ?? [] {
      let isSet = frame.has(flag.bit)
      if isSet { implied |= flag.bit }
      // Complete blocks are the default.
      if flag.name == "end_headers" {
        if !isSet { words.append("end_headers=0") }
      } else if isSet {
        words.append(flag.name)
      }
    }
    switch unit.content {
    case .preface: break
    case .malformed(_, let reason):
      if frame.flags != implied { words.append("@flags=0x" + Hex.text([frame.flags])) }
      words.append("payload=\(Hex.text(frame.payload)) (\(reason))")
    case .frame(_, let fields, let headers):
      if fields.value("padding") != nil { implied |= HTTP2Flag.padded }
      if frame.kind == .headers, fields.value("weight") != nil { implied |= HTTP2Flag.priority }
      if frame.flags != implied { words.append("@flags=0x" + Hex.text([frame.flags])) }
      words += fields.fields.compactMap { field in
        field.value == .bytes([]) ? nil : "\(field.name)=\(field.value.text)"
      }
      if let block = fields.block { words += text(block, headers) }
    }
    return words.joined(separator: " ")
  }

  private func text(_ block: [UInt8], _ headers: [HeaderField]?) -> [String] {
    guard let headers else { return ["block=\(Hex.text(block)) (it does not decode)"] }
    let shown = masksCredentials ? headers.map { $0.masked } : headers
    if shown.allSatisfy({ isPlain($0.name) }) {
      return shown.map { "\(String(decoding: $0.name, as: UTF8.self))=\(Hex.word($0.value))" }
    }
    let entries = shown.map { "{name=\(Hex.word($0.name)) value=\(Hex.word($0.value))}" }
    return ["headers=[\(entries.joined(separator: " "))]"]
  }

  /// Return whether a name in a line can only be a header.
  private func isPlain(_ name: [UInt8]) -> Bool {
    let others: Set<String> = [
      "stream", "payload", "block", "headers", "indexed", "end_stream", "end_headers", "padding", "pad_length",
      "dependency", "weight", "exclusive", "promised",
    ]
    let breaks = Set("={}[]\"@'\\".utf8)
    return !name.isEmpty && name.allSatisfy { $0 > 0x20 && $0 < 0x7F && !breaks.contains($0) }
      && !others.contains(String(decoding: name, as: UTF8.self))
  }
}

extension HTTP2Fields.Value {
  /// Text in a line.
  var text: String {
    switch self {
    case .number(let number): String(number)
    case .code(let code): HTTP2Names.error(code)
    case .bytes(let bytes): Hex.text(bytes)
    case .text(let bytes): Hex.word(bytes)
    }
  }
}

extension HeaderField {
  /// Header with masked credentials.
  fileprivate var masked: HeaderField {
    switch String(decoding: name, as: UTF8.self) {
    case "authorization", "proxy-authorization", "cookie", "set-cookie":
      let scheme = value.prefix { $0 != UInt8(ascii: " ") }
      return HeaderField(
        name: name,
        value: (scheme.count < value.count ? Array(scheme) + [0x20] : []) + Array("...".utf8)
      )
    case ":path":
      let marker = Array("access_token=".utf8)
      guard let range = value.firstRange(of: marker) else { return self }
      let rest = value[range.upperBound...].drop { $0 != UInt8(ascii: "&") }
      return HeaderField(name: name, value: value[..<range.upperBound] + Array("...".utf8) + rest)
    default: return self
    }
  }
}
