/// Frame types of RFC 9113 section 6.
enum HTTP2Kind: UInt8, CaseIterable {
  case data = 0, headers, priority, rst_stream, settings, push_promise, ping, goaway, window_update,
    continuation

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
