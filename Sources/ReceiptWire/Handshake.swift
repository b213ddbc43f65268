public import NIOCore
public import ReceiptModel

/// 32 random bytes of an opening.
public struct Nonce: Hashable, Sendable {
  public static let byteCount = 32
  public let bytes: [UInt8]

  /// - Parameter bytes: exactly 32.
  public init(_ bytes: [UInt8]) {
    precondition(bytes.count == Self.byteCount, "a nonce has 32 bytes")
    self.bytes = bytes
  }

  /// From the system's generator.
  public static func random() -> Nonce { Nonce((0..<byteCount).map { _ in UInt8.random(in: 0...255) }) }
}

/// The first frame of a connection, from the gateway (Proto/frames.md, "Opening").
public struct Hello: Hashable, Sendable {
  public static let magic: [UInt8] = Array("TDMK".utf8)
  public static let version: UInt32 = 1
  public static let nameLengthMax = 64

  public var versionLowest = Hello.version
  public var versionHighest = Hello.version
  public var session: SessionID
  /// None: a new session; else milliseconds since the gateway last heard from the store in it.
  public var sessionAgeMilliseconds: UInt64?
  public var nonce: Nonce
  public var frameLengthMax = FrameHeader.lengthLimitDefault
  public var name: String

  public init(session: SessionID, sessionAgeMilliseconds: UInt64?, nonce: Nonce, name: String) {
    self.session = session
    self.sessionAgeMilliseconds = sessionAgeMilliseconds
    self.nonce = nonce
    self.name = name
  }

  public init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    let magic = try reader.raw(4)
    guard magic.withUnsafeBytes({ $0.elementsEqual(Self.magic) }) else { throw .badValue(.magic) }
    let lowest = try reader.varint32()
    let highest = try reader.varint32()
    let session = try reader.sessionID()
    let age = try reader.optional()
    let nonce = Nonce(try reader.raw(Nonce.byteCount).withUnsafeBytes { Array($0) })
    let frameLengthMax = try reader.varint32()
    let name = try reader.text()
    guard name.utf8.count <= Self.nameLengthMax else { throw .badValue(.text) }
    try reader.end()
    self.init(session: session, sessionAgeMilliseconds: age, nonce: nonce, name: name)
    self.versionLowest = lowest
    self.versionHighest = highest
    self.frameLengthMax = frameLengthMax
  }

  public func write(into buffer: inout ByteBuffer) {
    buffer.writeFrame(FrameHeader(.hello)) { buffer in
      buffer.writeBytes(Self.magic)
      buffer.writeVarint(versionLowest)
      buffer.writeVarint(versionHighest)
      buffer.writeSessionID(session)
      buffer.writeOptional(sessionAgeMilliseconds)
      buffer.writeBytes(nonce.bytes)
      buffer.writeVarint(frameLengthMax)
      buffer.writeField(name)
    }
  }
}

/// The store's answer to a hello: its limits, and its proof that it holds the secret.
public struct Challenge: Hashable, Sendable {
  public var version = Hello.version
  public var nonce: Nonce
  /// 32 bytes, or empty: this store has no secret.
  public var proof: [UInt8]
  public var frameLengthMax = FrameHeader.lengthLimitDefault
  /// Requests that may be unanswered on this connection.
  public var window: UInt32
  public var shardCount: UInt32
  /// Names the data directory, whatever process serves it.
  public var store: SessionID

  public init(nonce: Nonce, proof: [UInt8], window: UInt32, shardCount: UInt32, store: SessionID) {
    self.nonce = nonce
    self.proof = proof
    self.window = window
    self.shardCount = shardCount
    self.store = store
  }

  public init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    let version = try reader.varint32()
    let nonce = Nonce(try reader.raw(Nonce.byteCount).withUnsafeBytes { Array($0) })
    let proof = try reader.string().withUnsafeBytes { Array($0) }
    let frameLengthMax = try reader.varint32()
    let window = try reader.varint32()
    let shardCount = try reader.varint32()
    guard shardCount >= 1, shardCount <= 65_535 else { throw .badValue(.count) }
    let store = try reader.sessionID()
    try reader.end()
    self.init(nonce: nonce, proof: proof, window: window, shardCount: shardCount, store: store)
    self.version = version
    self.frameLengthMax = frameLengthMax
  }

  public func write(into buffer: inout ByteBuffer) {
    buffer.writeFrame(FrameHeader(.challenge)) { buffer in
      buffer.writeVarint(version)
      buffer.writeBytes(nonce.bytes)
      buffer.writeVarint(proof.count)
      buffer.writeBytes(proof)
      buffer.writeVarint(frameLengthMax)
      buffer.writeVarint(window)
      buffer.writeVarint(shardCount)
      buffer.writeSessionID(store)
    }
  }
}

/// The gateway's proof that it holds the secret.
public struct Proof: Hashable, Sendable {
  /// 32 bytes, or empty: this gateway has no secret.
  public var bytes: [UInt8]

  public init(bytes: [UInt8]) { self.bytes = bytes }

  public init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    self.bytes = try reader.string().withUnsafeBytes { Array($0) }
    try reader.end()
  }

  public func write(into buffer: inout ByteBuffer) {
    buffer.writeFrame(FrameHeader(.proof)) { buffer in
      buffer.writeVarint(bytes.count)
      buffer.writeBytes(bytes)
    }
  }

  /// What a proof is made over: `tidemark store 1` or `tidemark gateway 1`, both nonces, the session.
  public static func material(_ side: Side, gateway: Nonce, store: Nonce, session: SessionID) -> [UInt8] {
    var buffer = ByteBuffer()
    buffer.writeStaticString(side == .store ? "tidemark store 1" : "tidemark gateway 1")
    buffer.writeBytes(gateway.bytes)
    buffer.writeBytes(store.bytes)
    buffer.writeSessionID(session)
    return Array(buffer.readableBytesView)
  }

  /// Whose proof it is.
  public enum Side: Sendable {
    case store, gateway
  }
}

/// The end of the opening: requests may follow.
public struct Ready: Hashable, Sendable {
  /// Which shards an address owns; an empty address is the store that says so.
  public struct ShardRange: Hashable, Sendable {
    public var first: UInt32
    public var count: UInt32
    public var address: String
    public init(first: UInt32, count: UInt32, address: String) {
      self.first = first
      self.count = count
      self.address = address
    }
  }

  /// The store knew the session.
  public var isResumed: Bool
  public var sessionLifetimeMilliseconds: UInt64
  public var shards: [ShardRange]

  public init(isResumed: Bool, sessionLifetimeMilliseconds: UInt64, shards: [ShardRange]) {
    self.isResumed = isResumed
    self.sessionLifetimeMilliseconds = sessionLifetimeMilliseconds
    self.shards = shards
  }

  public init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    let state = try reader.byte()
    guard state <= 1 else { throw .badValue(.session) }
    let lifetime = try reader.varint()
    var shards: [ShardRange] = []
    for _ in 0..<(try reader.count(elementBytesMin: 3)) {
      shards.append(
        ShardRange(first: try reader.varint32(), count: try reader.varint32(), address: try reader.text())
      )
    }
    try reader.end()
    self.init(isResumed: state == 1, sessionLifetimeMilliseconds: lifetime, shards: shards)
  }

  public func write(into buffer: inout ByteBuffer) {
    buffer.writeFrame(FrameHeader(.ready)) { buffer in
      buffer.writeInteger(UInt8(isResumed ? 1 : 0))
      buffer.writeVarint(sessionLifetimeMilliseconds)
      buffer.writeVarint(shards.count)
      for range in shards {
        buffer.writeVarint(range.first)
        buffer.writeVarint(range.count)
        buffer.writeField(range.address)
      }
    }
  }
}

/// An error frame's fields.
public struct ErrorFrame: Hashable, Sendable {
  /// The code as sent; ``code`` where this build knows it.
  public var rawCode: UInt64
  public var retryAfterMilliseconds: UInt32
  public var detail: String

  public var code: ErrorCode? { UInt16(exactly: rawCode).flatMap(ErrorCode.init(rawValue:)) }

  public init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    self.rawCode = try reader.varint()
    self.retryAfterMilliseconds = try reader.varint32()
    self.detail = try reader.text()
    try reader.end()
  }
}
