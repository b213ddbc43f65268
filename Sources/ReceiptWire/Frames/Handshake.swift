package import NIOCore
package import ReceiptModel

/// 32 random bytes of a handshake.
package struct Nonce: Hashable, Sendable {
  package static let byteCount = 32
  package let bytes: [UInt8]

  /// - Parameter bytes: exactly 32.
  package init(_ bytes: [UInt8]) {
    precondition(bytes.count == Self.byteCount, "a nonce has 32 bytes")
    self.bytes = bytes
  }

  /// Return a nonce from the system's random number generator.
  package static func random() -> Nonce { Nonce((0..<byteCount).map { _ in UInt8.random(in: 0...255) }) }
}

/// The first frame of a connection, from the gateway (Proto/frames.md, "Handshake").
package struct Hello: Hashable, Sendable {
  package static let magic: [UInt8] = Array("TDMK".utf8)
  package static let version: UInt32 = 1
  package static let nameLengthMax = 64

  package var versionLowest = Hello.version
  package var versionHighest = Hello.version
  package var session: SessionID
  /// None: a new session; otherwise milliseconds since the gateway last heard from the store in this session.
  package var sessionAgeMilliseconds: UInt64?
  package var nonce: Nonce
  package var frameLengthMax = FrameHeader.lengthLimitDefault
  package var name: String

  package init(session: SessionID, sessionAgeMilliseconds: UInt64?, nonce: Nonce, name: String) {
    self.session = session
    self.sessionAgeMilliseconds = sessionAgeMilliseconds
    self.nonce = nonce
    self.name = name
  }

  package init(_ payload: RawSpan) throws(WireError) {
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

  package func write(into buffer: inout ByteBuffer) {
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

/// The store's reply to a hello: its limits, and its proof that it knows the secret.
package struct Challenge: Hashable, Sendable {
  package var version = Hello.version
  package var nonce: Nonce
  /// 32 bytes, or empty: this store has no secret.
  package var proof: [UInt8]
  package var frameLengthMax = FrameHeader.lengthLimitDefault
  /// Maximum number of unanswered requests on this connection.
  package var window: UInt32
  package var shardCount: UInt32
  /// The id of the data directory, independent of the process that serves it.
  package var store: SessionID

  package init(nonce: Nonce, proof: [UInt8], window: UInt32, shardCount: UInt32, store: SessionID) {
    self.nonce = nonce
    self.proof = proof
    self.window = window
    self.shardCount = shardCount
    self.store = store
  }

  package init(_ payload: RawSpan) throws(WireError) {
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

  package func write(into buffer: inout ByteBuffer) {
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

/// The gateway's proof that it knows the secret.
package struct Proof: Hashable, Sendable {
  /// 32 bytes, or empty: this gateway has no secret.
  package var bytes: [UInt8]

  package init(bytes: [UInt8]) { self.bytes = bytes }

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    self.bytes = try reader.string().withUnsafeBytes { Array($0) }
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeFrame(FrameHeader(.proof)) { buffer in
      buffer.writeVarint(bytes.count)
      buffer.writeBytes(bytes)
    }
  }

  /// Return the input of a proof: `tidemark store 1` or `tidemark gateway 1`, both nonces, the session.
  package static func material(_ side: Side, gateway: Nonce, store: Nonce, session: SessionID) -> [UInt8] {
    var buffer = ByteBuffer()
    buffer.writeStaticString(side == .store ? "tidemark store 1" : "tidemark gateway 1")
    buffer.writeBytes(gateway.bytes)
    buffer.writeBytes(store.bytes)
    buffer.writeSessionID(session)
    return Array(buffer.readableBytesView)
  }

  /// The side that makes the proof.
  package enum Side: Sendable {
    case store, gateway
  }
}

/// The end of the handshake: requests may follow.
package struct Ready: Hashable, Sendable {
  /// The shards that an address owns; an empty address is the store that sends this.
  package struct ShardRange: Hashable, Sendable {
    package var first: UInt32
    package var count: UInt32
    package var address: String
    package init(first: UInt32, count: UInt32, address: String) {
      self.first = first
      self.count = count
      self.address = address
    }
  }

  /// The gateway resumed a session that has not expired.
  package var isResumed: Bool
  package var sessionLifetimeMilliseconds: UInt64
  package var shards: [ShardRange]

  package init(isResumed: Bool, sessionLifetimeMilliseconds: UInt64, shards: [ShardRange]) {
    self.isResumed = isResumed
    self.sessionLifetimeMilliseconds = sessionLifetimeMilliseconds
    self.shards = shards
  }

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    let state = try reader.byte()
    guard state <= 1 else { throw .badValue(.session) }
    let lifetime = try reader.varint()
    var shards: [ShardRange] = []
    for _ in 0..<(try reader.count(elementBytesMin: 3)) {
      shards.append(ShardRange(first: try reader.varint32(), count: try reader.varint32(), address: try reader.text()))
    }
    try reader.end()
    self.init(isResumed: state == 1, sessionLifetimeMilliseconds: lifetime, shards: shards)
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeFrame(FrameHeader(.ready)) { buffer in
      buffer.writeFlag(isResumed)
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
