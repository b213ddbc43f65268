/// One HTTP/2 frame, built and parsed by hand, so that the tests share no code with the implementation.
struct Frame: Equatable, Sendable {
  enum Kind: UInt8 {
    case data = 0, headers, priority, rstStream, settings, pushPromise, ping, goAway, windowUpdate,
      continuation
  }

  static let endStream: UInt8 = 0x1
  static let ack: UInt8 = 0x1
  static let endHeaders: UInt8 = 0x4
  static let padded: UInt8 = 0x8

  var type: UInt8
  var flags: UInt8
  var stream: Int32
  var payload: [UInt8]
  /// The length field, where it differs from the payload's length.
  var claimedLength: Int?

  init(_ kind: Kind, flags: UInt8 = 0, stream: Int32, _ payload: [UInt8] = []) {
    self.init(type: kind.rawValue, flags: flags, stream: stream, payload)
  }

  init(type: UInt8, flags: UInt8 = 0, stream: Int32, _ payload: [UInt8] = []) {
    self.type = type
    self.flags = flags
    self.stream = stream
    self.payload = payload
  }

  var kind: Kind? { Kind(rawValue: type) }

  var bytes: [UInt8] {
    let length = claimedLength ?? payload.count
    return [UInt8(length >> 16 & 0xff), UInt8(length >> 8 & 0xff), UInt8(length & 0xff), type, flags]
      + be32(UInt32(bitPattern: stream)) + payload
  }

  /// The values of a SETTINGS frame by their identifiers.
  var settings: [UInt16: UInt32] {
    var values: [UInt16: UInt32] = [:]
    for at in stride(from: 0, to: payload.count, by: 6) {
      values[UInt16(payload[at]) << 8 | UInt16(payload[at + 1])] = read32(payload, at + 2)
    }
    return values
  }

  var errorCode: UInt32? {
    switch kind {
    case .rstStream where payload.count >= 4: read32(payload, 0)
    case .goAway where payload.count >= 8: read32(payload, 4)
    default: nil
    }
  }

  /// Parse whole frames; an incomplete rest stays in `bytes`.
  static func parse(_ bytes: inout [UInt8]) -> [Frame] {
    var frames: [Frame] = []
    var at = 0
    while bytes.count - at >= 9 {
      let length = Int(bytes[at]) << 16 | Int(bytes[at + 1]) << 8 | Int(bytes[at + 2])
      guard bytes.count - at >= 9 + length else { break }
      frames.append(
        Frame(
          type: bytes[at + 3],
          flags: bytes[at + 4],
          stream: Int32(bitPattern: read32(bytes, at + 5) & 0x7fff_ffff),
          Array(bytes[at + 9..<at + 9 + length])
        )
      )
      at += 9 + length
    }
    bytes.removeFirst(at)
    return frames
  }
}

func be32(_ value: UInt32) -> [UInt8] {
  [UInt8(value >> 24), UInt8(value >> 16 & 0xff), UInt8(value >> 8 & 0xff), UInt8(value & 0xff)]
}

func read32(_ bytes: [UInt8], _ at: Int) -> UInt32 {
  UInt32(bytes[at]) << 24 | UInt32(bytes[at + 1]) << 16 | UInt32(bytes[at + 2]) << 8 | UInt32(bytes[at + 3])
}

// MARK: HPACK (RFC 7541), as far as tests need it

enum HPACK {
  /// An integer with a prefix of this many bits.
  static func integer(_ value: Int, prefix: Int, first: UInt8 = 0) -> [UInt8] {
    let most = (1 << prefix) - 1
    if value < most { return [first | UInt8(value)] }
    var bytes = [first | UInt8(most)]
    var rest = value - most
    while rest >= 128 {
      bytes.append(UInt8(rest & 0x7f | 0x80))
      rest >>= 7
    }
    return bytes + [UInt8(rest)]
  }

  /// A string without Huffman code.
  static func string(_ text: String) -> [UInt8] { integer(text.utf8.count, prefix: 7) + Array(text.utf8) }

  /// Literal fields without indexing, with literal names (section 6.2.2).
  static func plain(_ fields: [(String, String)]) -> [UInt8] {
    fields.flatMap { [0x00] + string($0.0) + string($0.1) }
  }

  /// The status in a header block as nghttp2 writes it: an index of the static table, or a literal with that name.
  static func status(_ block: [UInt8]) -> Int? {
    guard var first = block.first else { return nil }
    var rest = block[...]
    while first & 0xe0 == 0x20 {  // A table size update may come first.
      rest = rest.drop { $0 & 0xe0 == 0x20 && $0 & 0x1f != 0x1f }
      guard let next = rest.first, next != first else { return nil }
      first = next
    }
    let indexed: [UInt8: Int] = [
      0x88: 200, 0x89: 204, 0x8a: 206, 0x8b: 304, 0x8c: 400, 0x8d: 404, 0x8e: 500,
    ]
    if let status = indexed[first] { return status }
    let bytes = Array(rest)
    guard bytes.count >= 4 else { return nil }
    if bytes[1] == 3 && bytes.count >= 5 { return Int(String(decoding: bytes[2..<5], as: UTF8.self)) }
    guard bytes[1] == 0x82 else { return nil }
    // Huffman, appendix B: 0 to 2 are 00000 to 00010, 3 to 9 are 011001 to 011111.
    var bits = UInt32(bytes[2]) << 24 | UInt32(bytes[3]) << 16
    var status = 0
    for _ in 0..<3 {
      let short = bits >> 27
      status = status * 10 + Int(short <= 2 ? short : bits >> 26 - 0b011001 + 3)
      bits <<= short <= 2 ? 5 : 6
    }
    return status
  }
}

// MARK: Common frames

typealias Fields = [(String, String)]

let getFields: Fields = [
  (":method", "GET"), (":scheme", "http"), (":authority", "localhost"), (":path", "/"),
]
let postFields: Fields = [
  (":method", "POST"), (":scheme", "http"), (":authority", "localhost"), (":path", "/"),
]

func get(_ stream: Int32, _ path: String = "/", extra: Fields = []) -> Frame {
  var fields = getFields
  fields[3].1 = path
  return headers(stream, fields + extra)
}

func post(_ stream: Int32, _ extra: Fields = []) -> Frame { headers(stream, postFields + extra, end: false) }

func headers(_ stream: Int32, _ fields: Fields, end: Bool = true) -> Frame {
  headers(stream, block: HPACK.plain(fields), end: end)
}

func headers(_ stream: Int32, block: [UInt8], end: Bool = true) -> Frame {
  Frame(.headers, flags: Frame.endHeaders | (end ? Frame.endStream : 0), stream: stream, block)
}

func data(_ stream: Int32, _ text: String = "test", end: Bool = true) -> Frame {
  Frame(.data, flags: end ? Frame.endStream : 0, stream: stream, Array(text.utf8))
}

func settings(_ entries: [(UInt16, UInt32)] = [], ack: Bool = false) -> Frame {
  let payload = entries.flatMap { [UInt8($0.0 >> 8), UInt8($0.0 & 0xff)] + be32($0.1) }
  return Frame(.settings, flags: ack ? Frame.ack : 0, stream: 0, payload)
}

func windowUpdate(_ stream: Int32, _ increment: UInt32) -> Frame {
  Frame(.windowUpdate, stream: stream, be32(increment))
}

func rst(_ stream: Int32, _ code: UInt32 = 8) -> Frame { Frame(.rstStream, stream: stream, be32(code)) }

func priority(_ stream: Int32, dependsOn: UInt32 = 0, weight: UInt8 = 15, exclusive: Bool = false) -> Frame {
  Frame(.priority, stream: stream, be32(dependsOn | (exclusive ? 0x8000_0000 : 0)) + [weight])
}

func ping(_ text: String = "h2spec!!", ack: Bool = false) -> Frame {
  Frame(.ping, flags: ack ? Frame.ack : 0, stream: 0, Array(text.utf8))
}

func continuation(_ stream: Int32, _ block: [UInt8], end: Bool = true) -> Frame {
  Frame(.continuation, flags: end ? Frame.endHeaders : 0, stream: stream, block)
}

func goAway(_ code: UInt32 = 0, stream: Int32 = 0) -> Frame {
  Frame(.goAway, stream: stream, be32(0) + be32(code))
}
