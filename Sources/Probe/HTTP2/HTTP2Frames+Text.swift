internal import HTTP2Session

extension HTTP2Frames {
  /// Format a unit as a line that encodes the same frame, except for masked credentials.
  package func text(_ unit: Unit) -> String {
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
      "stream", "payload", "block", "headers", "indexed", "end_stream", "end_headers", "padding",
      "pad_length",
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
