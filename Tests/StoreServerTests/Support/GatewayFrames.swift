import Crypto
import NIOCore
import ReceiptModel
import ReceiptWire

/// The frames of one gateway: encodes its requests, and formats received frames as text.
///
/// Its requests are about remembered webhooks: a shard answers these without any channel. A query is answered at once,
/// a command when it is committed.
struct GatewayFrames {
  static let nonce = Nonce([UInt8](repeating: 1, count: Nonce.byteCount))

  let session: SessionID
  /// Counter of the last command, and correlation of the last request.
  private(set) var counter: UInt64 = 0
  private(set) var correlation: UInt32 = 0
  /// The store's challenge, once it was received.
  private(set) var challenge: Challenge?
  private var unread = ByteBuffer()

  init(session: UInt64 = 1) { self.session = SessionID(high: 0, low: session) }

  // MARK: Opening

  /// - Parameter age: nil for a new session.
  func hello(age: UInt64? = nil) -> ByteBuffer {
    var buffer = ByteBuffer()
    Hello(session: session, sessionAgeMilliseconds: age, nonce: Self.nonce, name: "g1").write(into: &buffer)
    return buffer
  }

  /// The proof for the challenge that was received. Without a secret, or without a challenge, it is empty.
  func proof(_ secret: String? = nil) -> ByteBuffer {
    var proof = Proof(bytes: [])
    if let secret, let challenge {
      let material = Proof.material(.gateway, gateway: Self.nonce, store: challenge.nonce, session: session)
      let key = SymmetricKey(data: Array(secret.utf8))
      proof.bytes = Array(HMAC<SHA256>.authenticationCode(for: material, using: key))
    }
    var buffer = ByteBuffer()
    proof.write(into: &buffer)
    return buffer
  }

  // MARK: Requests

  /// The key of this name of a shard of two: the first of `name`, `name.1`, `name.2` and so on that the shard owns.
  static func key(_ name: String, of shard: UInt16) -> String {
    var key = name
    var number = 0
    while ShardID.owning(Array(key.utf8).span.bytes, count: 2) != ShardID(shard) {
      number += 1
      key = "\(name).\(number)"
    }
    return key
  }

  /// A command: remember this webhook for as long as the store remembers any.
  ///
  /// - Parameter resent: counter of the command that is sent again; nil for a new one.
  mutating func note(_ name: String, of shard: UInt16 = 0, resending resent: UInt64? = nil) -> ByteBuffer {
    let counter = resent ?? self.counter + 1
    self.counter = max(self.counter, counter)
    return request(.noteWebhook, flags: resent == nil ? [] : .resend, shard) { payload in
      payload.writeField(Self.key(name, of: shard))
      payload.writeVarint(counter)
      payload.writeTime(Timestamp(milliseconds: 1 << 43))
    }
  }

  /// A query: whether this webhook is remembered.
  mutating func known(_ name: String, of shard: UInt16 = 0) -> ByteBuffer {
    request(.webhookKnown, shard) { $0.writeField(Self.key(name, of: shard)) }
  }

  /// A request for a purge, or for its end if it names a round.
  mutating func purge(_ round: UInt64, of shard: UInt16 = 0) -> ByteBuffer {
    request(.purge, shard) { $0.writeVarint(round) }
  }

  /// A query whose key has this many bytes. More than 256 are refused as `invalid_field`.
  mutating func known(keyBytes: Int) -> ByteBuffer {
    request(.webhookKnown, 0) { $0.writeField(String(repeating: "k", count: keyBytes)) }
  }

  /// A command: create a channel of one member, or add the member to it.
  mutating func put(_ channel: String, of shard: UInt16, member: String, of home: UInt16) -> ByteBuffer {
    counter += 1
    let counter = counter
    return request(.putChannel, shard) { payload in
      payload.writeField(Self.key(channel, of: shard))
      payload.writeVarint(counter)
      payload.writeOptionPatch(OptionPatch())
      payload.writeVarint(1)
      payload.writeField(Self.key(member, of: home))
      payload.writeEmptyField()
    }
  }

  /// A query: the channels of a user, from the user's index in the home shard.
  mutating func channels(of user: String, of home: UInt16) -> ByteBuffer {
    request(.listChannels, home) { payload in
      payload.writeField(Self.key(user, of: home))
      payload.writeVarint(0)
      payload.writeVarint(10)
      payload.writeOptional(nil)
    }
  }

  /// A query: this connection gets the events of a channel from now on.
  mutating func subscribe(_ channel: String, of shard: UInt16 = 0) -> ByteBuffer {
    request(.subscribe, shard) { $0.writeSubscribe(changesSince: nil, [Self.key(channel, of: shard)]) }
  }

  /// A query without its fields.
  mutating func malformedQuery(of shard: UInt16 = 0) -> ByteBuffer { request(.webhookKnown, shard) { _ in } }

  mutating func ping() -> ByteBuffer {
    correlation += 1
    var buffer = ByteBuffer()
    buffer.writeFrame(FrameHeader(.ping, correlation: correlation)) { $0.writeString("8 bytes.") }
    return buffer
  }

  /// The answer to a node's ping with this number.
  func pong(_ number: UInt64) -> ByteBuffer {
    var buffer = ByteBuffer()
    buffer.writeFrame(FrameHeader(.pong)) { $0.writeInteger(number) }
    return buffer
  }

  private mutating func request(
    _ kind: FrameKind,
    flags: FrameHeader.Flags = [],
    _ shard: UInt16,
    _ fields: (inout ByteBuffer) -> Void
  ) -> ByteBuffer {
    correlation += 1
    let header = FrameHeader(kind, flags: flags, shard: ShardID(shard), correlation: correlation)
    var buffer = ByteBuffer()
    buffer.writeFrame(header, fields)
    return buffer
  }

  // MARK: Replies

  /// The frames that these bytes complete, as text: `challenge`, `ready`, `1 noted`, `2 busy, retry after 100 ms`,
  /// `error unknown_kind`.
  mutating func words(receiving bytes: ByteBuffer) -> [String] {
    var bytes = bytes
    unread.writeBuffer(&bytes)
    var words: [String] = []
    let decoder = FrameDecoder()
    while case .frame(let header, let count)? = try? decoder.next(unread.readableBytesSpan, at: 0) {
      unread.moveReaderIndex(forwardBy: FrameHeader.byteCount)
      let payload = unread.readSlice(length: count)!
      words.append(self.words(header, payload))
    }
    return words
  }

  private mutating func words(_ header: FrameHeader, _ payload: ByteBuffer) -> String {
    let flag = payload.getInteger(at: payload.readerIndex, as: UInt8.self)
    switch header.kind {
    case .challenge:
      challenge = try? Challenge(payload.readableBytesSpan)
      return challenge.map { "challenge" + ($0.proof.isEmpty ? "" : " with proof") } ?? "no challenge"
    case .ready: return flag == 1 ? "resumed" : "ready"
    case .drain: return "drain"
    case .shardMap:
      guard let map = try? ShardMap(payload.readableBytesSpan) else { return "no map" }
      let peers = map.peers.map { " \($0.node)=\($0.host):\($0.port)" }.joined()
      return "owns" + map.owned.map { " \($0.first)+\($0.count)@\($0.epoch)" }.joined()
        + (peers.isEmpty ? "" : " beside" + peers)
    case .ping: return "ping \(payload.getInteger(at: payload.readerIndex, as: UInt64.self) ?? 0)"
    case .pong: return "\(header.correlation) pong \(String(buffer: payload))"
    case .noteWebhook: return "\(header.correlation) \(flag == 1 ? "noted" : "was known")"
    case .webhookKnown: return "\(header.correlation) \(flag == 1 ? "known" : "not known")"
    case .putChannel: return "\(header.correlation) \(flag == 1 ? "created" : "there already")"
    case .purge: return "\(header.correlation) purge \(flag ?? 0)"
    case .listChannels:
      // The first field is the number of entries.
      return "\(header.correlation) channels: \(flag ?? 0)"
    case .error:
      guard let error = try? ErrorFrame(payload.readableBytesSpan), let code = error.code else {
        return "no error"
      }
      let retry =
        error.retryAfterMilliseconds == 0 ? "" : ", retry after \(error.retryAfterMilliseconds) ms"
      return (header.correlation == 0 ? "error " : "\(header.correlation) ") + code.name + retry
    default: return "kind \(header.kind.rawValue)"
    }
  }
}

extension ByteBuffer {
  /// The bytes of several buffers.
  init(joining parts: [ByteBuffer]) {
    self.init()
    for part in parts { writeImmutableBuffer(part) }
  }

  /// - Parameter hex: digits in pairs; spaces are ignored.
  init(hex: String) {
    let digits = hex.filter { $0 != " " }
    self.init()
    var index = digits.startIndex
    while index < digits.endIndex {
      let next = digits.index(index, offsetBy: 2)
      writeInteger(UInt8(digits[index..<next], radix: 16)!)
      index = next
    }
  }
}
