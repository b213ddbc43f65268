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
    case .continuation: block = Array(payload)
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

/// Frame types of RFC 9113 section 6.
enum HTTP2Kind: UInt8, CaseIterable {
  case data = 0, headers, priority, rst_stream, settings, push_promise, ping, goaway, window_update, continuation

  /// Name in a line.
  var name: String { "\(self)" }

  init?(named name: String) {
    guard let kind = Self.allCases.first(where: { $0.name == name }) else { return nil }
    self = kind
  }

  /// Defined flags, except PADDED and PRIORITY, which follow from the fields.
  var flags: [(name: String, bit: UInt8)] {
    switch self {
    case .data: [("end_stream", 0x1)]
    case .headers: [("end_stream", 0x1), ("end_headers", 0x4)]
    case .push_promise, .continuation: [("end_headers", 0x4)]
    case .settings, .ping: [("ack", 0x1)]
    case .priority, .rst_stream, .goaway, .window_update: []
    }
  }

  /// Fields of a line, except stream, flags and headers.
  var fields: [String] {
    switch self {
    case .data: ["padding", "pad_length", "text", "json", "contains", "bytes"]
    case .headers: ["padding", "pad_length", "dependency", "weight", "exclusive"]
    case .priority: ["dependency", "weight", "exclusive"]
    case .rst_stream: ["code"]
    case .settings: HTTP2Names.settings.map(\.name)
    case .push_promise: ["padding", "pad_length", "promised"]
    case .ping: ["bytes"]
    case .goaway: ["last_stream", "code", "debug"]
    case .window_update: ["increment"]
    case .continuation: []
    }
  }

  /// Whether names that are not fields are headers.
  var hasHeaders: Bool { self == .headers || self == .push_promise || self == .continuation }

  var isPadded: Bool { self == .data || self == .headers || self == .push_promise }

  /// Whether it belongs to a stream and has a place in its order.
  var isOfStream: Bool {
    switch self {
    case .data, .headers, .rst_stream, .push_promise, .continuation: true
    case .priority, .settings, .ping, .goaway, .window_update: false
    }
  }
}

/// Flags that follow from the fields.
enum HTTP2Flag {
  static let padded: UInt8 = 0x8
  static let priority: UInt8 = 0x20
  static let endHeaders: UInt8 = 0x4
}

/// Names of numbers in RFC 9113.
enum HTTP2Names {
  /// Section 7.
  static let errors: [String] = [
    "NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED",
    "FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED",
  ]

  /// Section 6.5.2, RFC 8441 section 3, RFC 9218 section 2.1.
  static let settings: [(name: String, number: UInt16)] = [
    ("header_table_size", 1), ("enable_push", 2), ("max_concurrent_streams", 3), ("initial_window_size", 4),
    ("max_frame_size", 5), ("max_header_list_size", 6), ("enable_connect_protocol", 8),
    ("no_rfc7540_priorities", 9),
  ]

  static func error(_ number: UInt32) -> String {
    Int(number) < errors.count ? errors[Int(number)] : String(number)
  }

  static func setting(_ number: UInt16) -> String {
    settings.first { $0.number == number }?.name ?? "0x" + String(number, radix: 16)
  }
}
