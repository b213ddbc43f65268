internal import Crypto
internal import Foundation
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Frames of Proto/frames.md as lines:
///
/// ```
/// mark_read @shard=11 @correlation=5 cid=messaging:general counter=6 user=alice message=m-1 unread_epoch=none
/// hex:0000000807000000 00000000
/// ```
///
/// `@flags`, `@shard`, `@correlation` and `@length` are fields of the header; `@length` may be wrong. `@thread` is the
/// parent message of a thread, `@issued` the second in which the user's token was issued: each sets its flag and
/// appends its value to the fields, in this order. A kind may also be a number such as `0x7f`, with `payload=` in
/// hexadecimal. Missing shards, correlations and counters are filled in.
struct StoreFrames: ProbeProtocol, Sendable {
  /// Shared secret for the handshake.
  var secret: [UInt8]?
  /// Session of the next handshake; nil: a random one.
  var session: [UInt8]?
  /// Whether the store may know the session.
  var isResuming = false
  /// Number of shards; 0: shards are not filled in.
  var shardCount = 0
  var counterNext: UInt64 = 1
  var correlationNext: UInt32 = 1
  /// Whether missing shards, correlations and counters are filled in; otherwise they are 0.
  var fillsIn: Bool

  init(fillsIn: Bool = true) { self.fillsIn = fillsIn }

  /// Numbers of commands and queries.
  static let requests: Range<UInt8> = 0x10..<0x50

  static var endsWithPing: Bool { false }

  mutating func resetSession() {
    session = nil
    isResuming = false
  }

  /// Return the bytes as they are: frames are decoded when they are printed or compared.
  func read(_ bytes: [UInt8], _ direction: ProbeDirection) -> [UInt8] { bytes }

  func matches(_ unit: [UInt8], by line: String?) throws -> Bool {
    // A store sends pings and events at any time; other frames are in order.
    guard let frame = DecodedFrame(unit) else { return true }
    switch frame.kind {
    case FrameKind.ping.rawValue: return line?.prefix { $0 != " " } == "ping"
    case FrameKind.events.rawValue: return try line.map { try Self.matches(frame, by: $0) } ?? false
    default: return true
    }
  }

  /// Return whether to compare an events frame with a line: it is of the same shard and has channels or users if the
  /// line has them, and none where the line has `[]`. Frames without events may arrive at any time.
  private static func matches(_ events: DecodedFrame, by line: String) throws -> Bool {
    var (word, pairs) = try LineParser.command(line)
    guard word == "events" else { return false }
    let header = try takeHeader(&pairs)
    if let shard = header["@shard"], shard != events.shard { return false }
    // A frame that does not parse is compared.
    guard let values = try? events.fields().values else { return true }
    return pairs.allSatisfy { pair in
      guard pair.name == "channels" || pair.name == "users", case .list(let expected) = pair.value else { return true }
      let given = values.first { $0.name == pair.name }?.value
      return expected.isEmpty == (given == .list([]))
    }
  }

  mutating func pingExchange() -> (send: String, expect: String) {
    let bytes = Hex.text((0..<8).map { _ in UInt8.random(in: .min ... .max) })
    return ("ping bytes=\(bytes)", "pong bytes=\(bytes)")
  }

  func isAnswer(_ unit: [UInt8]) -> Bool {
    let kind = DecodedFrame(unit)?.kind
    return kind != FrameKind.ping.rawValue && kind != FrameKind.events.rawValue
  }

  func answersAwaited(_ unit: [UInt8]) -> Int {
    // Unknown frames and misplaced frames of the handshake are answered with an error.
    guard let kind = DecodedFrame(unit).flatMap({ FrameKind(rawValue: $0.kind) }) else { return 1 }
    switch kind {
    case .pong, .drain, .events, .error: return 0
    default: return 1
    }
  }

  static func boundary(in bytes: [UInt8]) -> FrameBoundary {
    // A probe accepts every kind, and this limit only.
    guard bytes.count >= 4 else { return .incomplete }
    let length = bytes.prefix(4).reduce(0) { $0 << 8 | Int($1) }
    if length < 8 { return .broken("a length of \(length) is below 8") }
    if length > 1 << 24 { return .broken("a length of \(length) is no frame's") }
    return bytes.count >= 4 + length ? .unit(4 + length) : .incomplete
  }

  mutating func encode(_ line: String) throws -> [UInt8] {
    if line.hasPrefix("hex:") {
      guard let bytes = Hex.bytes(line.dropFirst(4)) else { throw ProbeError("hexadecimal is expected: \(line)") }
      return bytes
    }
    var (word, pairs) = try LineParser.command(Self.withCode(line))
    let header = try Self.takeHeader(&pairs)
    let spec = try Self.spec(word)
    var values = try FieldCoding.values(spec.fields, from: pairs, in: spec.name)
    let isRequest = Self.requests.contains(spec.number)
    if fillsIn, !pairs.contains(where: { $0.name == "counter" }),
      let index = values.firstIndex(where: { $0.name == "counter" })
    {
      values[index].value = .number(counterNext)
    }
    // The next counter follows the last one sent, even a given one.
    if case .number(let counter)? = values.first(where: { $0.name == "counter" })?.value,
      FrameKind(rawValue: spec.number)?.isCommand == true
    {
      counterNext = counter &+ 1
    }
    var correlation: UInt32 = 0
    if isRequest, fillsIn {
      correlation = correlationNext
      correlationNext &+= 1
    }
    var buffer = ByteBuffer()
    buffer.writeInteger(UInt32(0))
    buffer.writeInteger(spec.number)
    buffer.writeInteger(Self.flags(header) ?? 0)
    let shard = shard(values, of: spec)
    buffer.writeInteger(UInt16(truncatingIfNeeded: header["@shard"] ?? UInt64(shard)))
    buffer.writeInteger(UInt32(truncatingIfNeeded: header["@correlation"] ?? UInt64(correlation)))
    FieldCoding.write(values, as: spec.fields, into: &buffer)
    if let thread = header.thread { buffer.writeField(thread.span.bytes) }
    if let issued = header["@issued"] { buffer.writeInteger(UInt32(truncatingIfNeeded: issued)) }
    buffer.setInteger(UInt32(truncatingIfNeeded: header["@length"] ?? UInt64(buffer.writerIndex - 4)), at: 0)
    return Array(buffer.readableBytesView)
  }

  func text(_ unit: [UInt8]) -> String {
    guard let frame = DecodedFrame(unit) else { return "hex:\(Hex.text(unit))" }
    var thread: [UInt8]?
    var rest: String
    do throws(WireError) {
      let fields = try frame.fields()
      thread = fields.thread
      rest = FieldCoding.text(fields.values, as: fields.spec.fields)
    } catch {
      rest = "payload=\(Hex.text(frame.content)) (\(error))"
    }
    var words = [frame.name]
    var flags = FrameHeader.Flags(rawValue: frame.flags)
    if thread != nil { flags.remove(.thread) }
    if frame.issued != nil { flags.remove(.issued) }
    if flags.rawValue != 0 { words.append("@flags=\(flags.rawValue)") }
    if let thread { words.append("@thread=\(Hex.word(thread))") }
    if let issued = frame.issued { words.append("@issued=\(issued)") }
    if frame.shard != 0 { words.append("@shard=\(frame.shard)") }
    if frame.correlation != 0 { words.append("@correlation=\(frame.correlation)") }
    if !rest.isEmpty { words.append(rest) }
    return words.joined(separator: " ")
  }

  func differences(_ line: String, from unit: [UInt8]) throws -> [String] {
    var (word, pairs) = try LineParser.command(Self.withCode(line))
    let header = try Self.takeHeader(&pairs)
    let spec = try Self.spec(word)
    guard let frame = DecodedFrame(unit) else { return ["expected \(spec.name), received no frame"] }
    guard frame.kind == spec.number else { return ["expected \(spec.name), received \(frame.name)"] }
    var lines: [String] = []
    for (name, expected, actual) in [
      ("@flags", header["@flags"] == nil ? nil : Self.flags(header).map { UInt64($0) }, UInt64(frame.flags)),
      ("@shard", header["@shard"], UInt64(frame.shard)),
      ("@correlation", header["@correlation"], UInt64(frame.correlation)),
    ] {
      if let expected, expected != actual {
        lines.append("\(name): expected \(expected), received \(actual)")
      }
    }
    if let expected = header["@issued"], expected != frame.issued.map({ UInt64($0) }) {
      lines.append("@issued: expected \(expected), received \(frame.issued.map { "\($0)" } ?? "none")")
    }
    let values: [NamedValue]
    do throws(WireError) {
      let fields = try frame.fields()
      values = fields.values
      if let expected = header.thread, expected != fields.thread {
        let received = fields.thread.map { Hex.word($0) } ?? "none"
        lines.append("@thread: expected \(Hex.word(expected)), received \(received)")
      }
    } catch {
      return lines + ["the payload does not parse: \(error)"]
    }
    return lines + (try FieldCoding.differences(pairs, from: values, as: spec.fields))
  }

  /// Return the home shard of a frame's subject. Settings of users are in every shard, so frames for other shards need
  /// `@shard`.
  private func shard(_ values: [NamedValue], of spec: FrameSpec) -> UInt16 {
    guard fillsIn, shardCount > 0, let first = values.first else { return 0 }
    let isRequest = Self.requests.contains(spec.number)
    // A request about several channels goes to the shard of the first one.
    if isRequest, case .list(let entries)? = values.first(where: { $0.name == "channels" })?.value {
      return entries.first.map { shard($0, of: spec) } ?? 0
    }
    guard case .bytes(let name) = first.value,
      first.name == "cid" || first.name == "type"
        || isRequest && (first.name == "user" || first.name == "name" || first.name == "key")
    else { return 0 }
    return ShardID.owning(name.span.bytes, count: shardCount).rawValue
  }

  /// Return the flags of a line; nil without any.
  private static func flags(_ header: HeaderLine) -> UInt8? {
    let given = header["@flags"].map { UInt8(truncatingIfNeeded: $0) }
    var flags = FrameHeader.Flags(rawValue: given ?? 0)
    if header.thread != nil { flags.insert(.thread) }
    if header["@issued"] != nil { flags.insert(.issued) }
    return given == nil && flags.isEmpty ? nil : flags.rawValue
  }

  /// Header fields of a line.
  private struct HeaderLine {
    var numbers: [String: UInt64] = [:]
    /// Message id.
    var thread: [UInt8]?
    subscript(name: String) -> UInt64? { numbers[name] }
  }

  /// Remove the header fields from `pairs`.
  private static func takeHeader(_ pairs: inout [NamedLiteral]) throws -> HeaderLine {
    let limits = [
      "@flags": UInt64(UInt8.max), "@shard": UInt64(UInt16.max), "@correlation": UInt64(UInt32.max),
      "@length": UInt64(UInt32.max), "@issued": UInt64(UInt32.max),
    ]
    var header = HeaderLine()
    for pair in pairs where pair.name.hasPrefix("@") {
      if pair.name == "@thread" {
        if pair.value.isWildcard { continue }
        let value = try FieldCoding.value(FieldSpec(pair.name, .string), from: pair.value)
        if case .bytes(let message) = value { header.thread = message }
        continue
      }
      guard let limit = limits[pair.name] else {
        throw ProbeError("'\(pair.name)' is not of the header: @flags, @thread, @issued, @shard, @correlation, @length")
      }
      if pair.value.isWildcard { continue }
      guard case .number(let value) = try FieldCoding.value(FieldSpec(pair.name, .varint()), from: pair.value),
        value <= limit
      else { throw ProbeError("\(pair.name) is at most \(limit)") }
      header.numbers[pair.name] = value
    }
    pairs.removeAll { $0.name.hasPrefix("@") }
    return header
  }

  /// Replace `error busy` by `error code=busy`.
  private static func withCode(_ line: String) -> String {
    let words = line.split(separator: " ", maxSplits: 2)
    guard words.count >= 2, words[0] == "error", !words[1].contains("=") else { return line }
    return (["error", "code=\(words[1])"] + words.dropFirst(2).map(String.init)).joined(separator: " ")
  }

  /// Return the kind with a name or number.
  private static func spec(_ word: String) throws -> FrameSpec {
    if let spec = FrameTable.spec(named: word) { return spec }
    if word.hasPrefix("0x"), let number = UInt8(word.dropFirst(2), radix: 16) {
      return FrameTable.spec(numbered: number) ?? DecodedFrame.unknown(number)
    }
    throw ProbeError("there is no kind '\(word)'; kinds are: \(FrameTable.all.map(\.name).joined(separator: ", "))")
  }
}

/// A decoded frame.
private struct DecodedFrame {
  var kind: UInt8
  var flags: UInt8
  var shard: UInt16
  var correlation: UInt32
  /// Payload without `issued`.
  var content: [UInt8]
  /// Value of the flag of this name, if the payload is long enough.
  var issued: UInt32?

  /// Nil for fewer bytes than a header.
  init?(_ bytes: [UInt8]) {
    guard bytes.count >= FrameHeader.byteCount else { return nil }
    kind = bytes[4]
    flags = bytes[5]
    shard = UInt16(bytes[6]) << 8 | UInt16(bytes[7])
    correlation = bytes[8..<12].reduce(0) { $0 << 8 | UInt32($1) }
    content = Array(bytes[12...])
    let count = FrameHeader.issuedByteCount
    guard flags & FrameHeader.Flags.issued.rawValue != 0, content.count >= count else { return }
    issued = content.suffix(count).reduce(0) { $0 << 8 | UInt32($1) }
    content.removeLast(count)
  }

  /// Return the specification of an unknown kind.
  static func unknown(_ number: UInt8) -> FrameSpec {
    FrameSpec(number, "0x" + Hex.text([number]), [FieldSpec("payload", .rest)])
  }

  var name: String { FrameTable.spec(numbered: kind)?.name ?? Self.unknown(kind).name }

  /// Decode the fields.
  ///
  /// - Returns: `thread` is the value of the flag of this name; nil for an unknown kind, the end of whose fields is
  ///   unknown.
  func fields() throws(WireError) -> (spec: FrameSpec, values: [NamedValue], thread: [UInt8]?) {
    let known = FrameTable.spec(numbered: kind)
    let spec = known ?? Self.unknown(kind)
    var reader = FieldReader(content.span.bytes)
    let values = try FieldCoding.read(spec.fields, from: &reader)
    var thread: [UInt8]?
    if known != nil, flags & FrameHeader.Flags.thread.rawValue != 0 {
      thread = try reader.string().withUnsafeBytes { Array($0) }
    }
    try reader.end()
    if flags & FrameHeader.Flags.issued.rawValue != 0, issued == nil { throw .truncated }
    return (spec, values, thread)
  }
}

extension StoreFrames {
  /// Return the fields of a frame by name; none for an invalid frame.
  func values(of unit: [UInt8]) -> [String: FieldValue] {
    guard let values = try? DecodedFrame(unit)?.fields().values else { return [:] }
    return Dictionary(values.map { ($0.name, $0.value) }) { first, _ in first }
  }
}

/// Handshake of a connection as by a gateway (Proto/frames.md, "Handshake"). It is independent of StoreClient, so that
/// the two check each other.
extension StoreFrames {
  static func open(_ exchange: ProbeExchange<StoreFrames>, _ line: String) async throws {
    guard line.isEmpty else { throw ProbeError("a store is opened without fields; send hello and proof by hand") }
    let frames = exchange.wireProtocol
    let session = frames.session ?? (0..<16).map { _ in UInt8.random(in: .min ... .max) }
    let nonce = (0..<32).map { _ in UInt8.random(in: .min ... .max) }
    let age = frames.isResuming ? "0" : "none"
    try await exchange.send("hello session=\(Hex.text(session)) session_age=\(age) nonce=\(Hex.text(nonce))")

    let challenge = try await answer("challenge", exchange)
    guard case .bytes(let theirNonce)? = challenge["nonce"], case .bytes(let theirProof)? = challenge["proof"],
      case .number(let shards)? = challenge["shard_count"]
    else { throw ProbeError("the challenge lacks a field") }
    var proof: [UInt8] = []
    if let secret = frames.secret {
      let key = SymmetricKey(data: secret)
      let material = nonce + theirNonce + session
      guard
        HMAC<SHA256>.isValidAuthenticationCode(
          theirProof,
          authenticating: Array("tidemark store 1".utf8) + material,
          using: key
        )
      else { throw ProbeError("the store does not prove that it holds the secret") }
      proof = Array(HMAC<SHA256>.authenticationCode(for: Array("tidemark gateway 1".utf8) + material, using: key))
    }
    try await exchange.send("proof proof=\(Hex.text(proof))")
    _ = try await answer("ready", exchange)

    // A resumed session keeps its counter; that of a new one begins at 1.
    if !frames.isResuming { exchange.wireProtocol.counterNext = 1 }
    exchange.wireProtocol.session = session
    exchange.wireProtocol.isResuming = true
    exchange.wireProtocol.shardCount = Int(shards)
  }

  private static func answer(_ kind: String, _ exchange: ProbeExchange<StoreFrames>) async throws
    -> [String: FieldValue]
  {
    switch try await exchange.receive(where: { try $0.matches($1, by: kind) }) {
    case .unit(let unit):
      guard try exchange.wireProtocol.differences(kind, from: unit).isEmpty else {
        throw ProbeError("in the handshake: expected \(kind), received \(exchange.wireProtocol.text(unit))")
      }
      return exchange.wireProtocol.values(of: unit)
    case .closed: throw ProbeError("the connection was closed in the handshake, before \(kind)")
    case .timedOut: throw ProbeError("no \(kind) came in time")
    case .broken(let reason): throw ProbeError("no frame instead of \(kind): \(reason)")
    }
  }
}
