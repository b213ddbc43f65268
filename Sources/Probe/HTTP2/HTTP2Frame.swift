/// Frame header (RFC 9113 section 4.1) and payload.
struct HTTP2Frame: Equatable {
  static let headerByteCount = 9
  /// Connection preface of a client (RFC 9113 section 3.4).
  static let preface = Array("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".utf8)
  /// Size limit of a payload. Other protocols, such as text or TLS records, have larger numbers at that place.
  static let payloadByteCountMax = 1 << 20

  var type: UInt8
  var flags: UInt8 = 0
  var isReservedSet = false
  var stream: UInt32 = 0
  var payload: [UInt8] = []

  var kind: HTTP2Kind? { HTTP2Kind(rawValue: type) }
  var name: String { kind?.name ?? "0x" + Hex.text([type]) }

  func has(_ flag: UInt8) -> Bool { flags & flag != 0 }

  /// - Parameter length: value of the length field; nil: the payload's length.
  func bytes(length: UInt32? = nil) -> [UInt8] {
    let length = length ?? UInt32(truncatingIfNeeded: payload.count)
    return Array(length.bigEndianBytes.dropFirst()) + [type, flags]
      + (stream | (isReservedSet ? 0x8000_0000 : 0)).bigEndianBytes + payload
  }

  init(type: UInt8) { self.type = type }

  /// Nil for fewer bytes than a header.
  init?(_ bytes: [UInt8]) {
    guard bytes.count >= Self.headerByteCount else { return nil }
    type = bytes[3]
    flags = bytes[4]
    let number = UInt32(bigEndian: bytes[5..<9])
    isReservedSet = number >> 31 == 1
    stream = number & 0x7FFF_FFFF
    payload = Array(bytes[9...])
  }

  static func boundary(in bytes: [UInt8]) -> FrameBoundary {
    if bytes.starts(with: preface) { return .unit(preface.count) }
    guard bytes.count >= 3 else { return .incomplete }
    let length = Int(UInt32(bigEndian: [0] + bytes.prefix(3)))
    if preface.starts(with: bytes) { return .incomplete }
    if length > payloadByteCountMax { return .broken("a length of \(length) is no frame's") }
    return bytes.count >= headerByteCount + length ? .unit(headerByteCount + length) : .incomplete
  }
}

/// Fields of a frame's payload, except headers, which need the connection's table.
struct HTTP2Fields: Equatable {
  enum Value: Equatable {
    case number(UInt32)
    /// RFC 9113 section 7.
    case code(UInt32)
    /// Bytes, written in hexadecimal.
    case bytes([UInt8])
    /// Bytes, written as text.
    case text([UInt8])
  }

  struct Field: Equatable {
    var name: String
    var value: Value
  }

  var fields: [Field] = []
  /// Fragment of a header block.
  var block: [UInt8]?

  func value(_ name: String) -> Value? { fields.last { $0.name == name }?.value }

  /// Error in a payload (RFC 9113 section 6).
  struct Malformed: Error, Equatable { var reason: String }

  init(_ frame: HTTP2Frame) throws(Malformed) {
    guard let kind = frame.kind else {
      add("payload", .bytes(frame.payload))
      return
    }
    var payload = frame.payload[...]
    if kind.isPadded, frame.has(HTTP2Flag.padded) {
      guard let count = payload.popFirst() else { throw Malformed(reason: "no pad length") }
      guard Int(count) <= payload.count else {
        throw Malformed(reason: "padding of \(count) bytes in \(payload.count)")
      }
      guard payload.suffix(Int(count)).allSatisfy({ $0 == 0 }) else {
        throw Malformed(reason: "padding that is not zero")
      }
      payload = payload.dropLast(Int(count))
      add("padding", .number(UInt32(count)))
    }
    switch kind {
    case .data:
      let isText = payload.allSatisfy { $0 >= 0x20 && $0 < 0x7F || $0 == 0x0A } && !payload.isEmpty
      add(isText ? "text" : "bytes", isText ? .text(Array(payload)) : .bytes(Array(payload)))
    case .headers:
      if frame.has(HTTP2Flag.priority) { try addPriority(&payload) }
      block = Array(payload)
    case .priority:
      try require(payload, 5)
      try addPriority(&payload)
    case .rst_stream:
      try require(payload, 4)
      add("code", .code(UInt32(bigEndian: payload)))
    case .settings:
      guard payload.count % 6 == 0 else { throw Malformed(reason: "a length that is no multiple of 6") }
      while payload.count >= 6 {
        let number = UInt16(truncatingIfNeeded: UInt32(bigEndian: [0, 0] + payload.prefix(2)))
        add(HTTP2Names.setting(number), .number(UInt32(bigEndian: payload.dropFirst(2).prefix(4))))
        payload = payload.dropFirst(6)
      }
    case .push_promise:
      guard payload.count >= 4 else { throw Malformed(reason: "shorter than 4 bytes") }
      add("promised", .number(UInt32(bigEndian: payload.prefix(4)) & 0x7FFF_FFFF))
      block = Array(payload.dropFirst(4))
    case .ping:
      try require(payload, 8)
      add("bytes", .bytes(Array(payload)))
    case .goaway:
      guard payload.count >= 8 else { throw Malformed(reason: "shorter than 8 bytes") }
      add("last_stream", .number(UInt32(bigEndian: payload.prefix(4)) & 0x7FFF_FFFF))
      add("code", .code(UInt32(bigEndian: payload.dropFirst(4).prefix(4))))
      if payload.count > 8 { add("debug", .text(Array(payload.dropFirst(8)))) }
    case .window_update:
      try require(payload, 4)
      add("increment", .number(UInt32(bigEndian: payload)))
    case .continuation:
      block = Array(payload)
    }
  }

  private mutating func add(_ name: String, _ value: Value) { fields.append(Field(name: name, value: value)) }

  private func require(_ payload: ArraySlice<UInt8>, _ count: Int) throws(Malformed) {
    guard payload.count == count else { throw Malformed(reason: "\(payload.count) bytes, not \(count)") }
  }

  private mutating func addPriority(_ payload: inout ArraySlice<UInt8>) throws(Malformed) {
    guard payload.count >= 5 else { throw Malformed(reason: "no room for a priority") }
    let dependency = UInt32(bigEndian: payload.prefix(4))
    add("dependency", .number(dependency & 0x7FFF_FFFF))
    add("weight", .number(UInt32(payload[payload.startIndex + 4]) + 1))
    if dependency >> 31 == 1 { add("exclusive", .number(1)) }
    payload = payload.dropFirst(5)
  }
}

extension UInt32 {
  /// - Parameter bytes: at most four.
  init(bigEndian bytes: some Collection<UInt8>) { self = bytes.reduce(0) { $0 << 8 | UInt32($1) } }

  var bigEndianBytes: [UInt8] {
    [24, 16, 8, 0].map { UInt8(truncatingIfNeeded: self >> UInt32($0)) }
  }
}
