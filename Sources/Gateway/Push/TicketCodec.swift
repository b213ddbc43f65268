internal import Crypto
internal import Foundation
package import NIOCore
package import ReceiptModel
internal import ReceiptWire

/// Why a ticket is refused.
package enum TicketRefusal: Error, Equatable {
  /// Malformed, or not signed with a known secret.
  case invalid
  case expired
  /// No store was reached yet, so it is unknown which store's tickets are valid.
  case storeUnknown
}

/// The contents of a ticket. Valid until its ``TicketCodec`` reads the next.
package struct Ticket: ~Escapable {
  /// When the ticket expires, in seconds since 1970.
  package let expiry: UInt64
  /// The shard that redeems it; the caller checks it against the number of shards.
  package let shard: ShardID
  /// The place as redeem_ticket takes it (Proto/frames.md, "place").
  package let place: RawSpan
  /// The device of the push; empty: not given.
  package let device: RawSpan

  @_lifetime(copy place, copy device)
  init(expiry: UInt64, shard: ShardID, place: RawSpan, device: RawSpan) {
    self.expiry = expiry
    self.shard = shard
    self.place = place
    self.device = device
  }
}

/// Encoder and decoder of tickets (Proto/tickets.md). Decoding uses a buffer that is kept, and allocates only what the
/// hash does. One per event loop.
package final class TicketCodec {
  /// The version that this code writes, bound to one store.
  static let version: UInt8 = 2
  /// The previous version, still read, not bound to a store.
  private static let versionOfAnyStore: UInt8 = 1
  /// Maximum length of a ticket in characters (Proto/openapi.yaml).
  package static let characterCountMax = 160
  /// Maximum size of a device in bytes.
  package static let deviceByteCountMax = 32
  /// Maximum size of a place in bytes.
  package static let placeByteCountMax = 33

  private static let byteCountMax = characterCountMax / 4 * 3

  private var keys: TicketKeys
  private let room: UnsafeMutableRawPointer
  private let base64 = Base64URL()

  package init(keys: TicketKeys) {
    self.keys = keys
    room = .allocate(byteCount: Self.byteCountMax, alignment: 8)
  }

  deinit { room.deallocate() }

  /// Bind tickets to the connected store.
  package func bind(to store: SessionID) {
    if keys.store != store { keys.bind(to: store) }
  }

  // MARK: Encoding

  /// Append a ticket, without quotes.
  ///
  /// - Parameters:
  ///   - expiry: when it expires, in seconds since 1970.
  ///   - place: as ticket_place returned it.
  ///   - device: at most ``deviceByteCountMax`` bytes; empty for none.
  package func write(expiry: UInt64, shard: ShardID, place: RawSpan, device: RawSpan, into buffer: inout ByteBuffer) {
    var bytes = ByteBuffer()
    bytes.writeInteger(Self.version)
    bytes.writeInteger(keys.currentID)
    bytes.writeVarint(expiry)
    bytes.writeVarint(UInt32(shard.rawValue))
    bytes.writeRaw(place)
    bytes.writeField(device)
    let signed = bytes
    keys.sign(signed.readableBytesSpan) { _ = bytes.writeBytes($0) }
    precondition(bytes.readableBytes <= Self.byteCountMax, "the ticket is longer than decoders accept")
    Base64URL.encode(bytes.readableBytesSpan, into: &buffer)
  }

  // MARK: Decoding

  /// Decode a ticket and verify its signature, then its expiry.
  ///
  /// - Parameter now: in milliseconds since 1970.
  @_lifetime(borrow self)
  package func read(_ text: RawSpan, now: Int64) throws(TicketRefusal) -> Ticket {
    let ticket = try read(text)
    guard ticket.expiry > UInt64(max(0, now)) / 1_000 else { throw .expired }
    return ticket
  }

  @_lifetime(borrow self)
  private func read(_ text: RawSpan) throws(TicketRefusal) -> Ticket {
    guard text.byteCount <= Self.characterCountMax, let count = base64.decode(text, into: room) else {
      throw .invalid
    }
    let signedCount = count - TicketKeys.codeByteCount
    guard signedCount > 2 else { throw .invalid }
    let bytes = RawSpan(_unsafeStart: UnsafeRawPointer(room), byteCount: count)
    let signed = bytes.extracting(0..<signedCount)
    let code = bytes.extracting(signedCount..<count)
    let (version, id) = (room.load(as: UInt8.self), room.load(fromByteOffset: 1, as: UInt8.self))
    let isBound = version == Self.version
    guard isBound || version == Self.versionOfAnyStore else { throw .invalid }
    if isBound, keys.store == nil { throw .storeUnknown }
    guard keys.isValid(code, of: signed, id: id, isBound: isBound) else { throw .invalid }
    do throws(WireError) {
      var reader = FieldReader(signed)
      _ = try reader.raw(2)
      let expiry = try reader.varint()
      guard let shard = UInt16(exactly: try reader.varint()) else { throw .badVarint }
      let start = reader.offset
      _ = try reader.ticketPlace()
      let place = signed.extracting(start..<reader.offset)
      let device = try reader.string()
      try reader.end()
      let ticket = Ticket(expiry: expiry, shard: ShardID(shard), place: place, device: device)
      return _overrideLifetime(ticket, borrowing: self)
    } catch {
      throw .invalid
    }
  }
}

/// The secrets for signing tickets (Proto/tickets.md): the first signs, all are accepted.
package struct TicketKeys: Sendable {
  /// Size of the code that ends a ticket: truncated HMAC-SHA-256.
  package static let codeByteCount = 16
  /// Minimum size of a secret in bytes.
  package static let secretByteCountMin = 32

  private struct Key {
    var id: UInt8
    let secret: SymmetricKey
    /// HMAC state after the purpose string of version 1; only the ticket's bytes remain to be hashed.
    var codeOfAnyStore: HMAC<SHA256>
    /// The same for version 2 and the store; nil before the store is known.
    var code: HMAC<SHA256>?
  }

  private var keys: [Key]
  /// The store whose tickets are issued and accepted.
  private(set) var store: SessionID?

  /// - Parameter secrets: at least one, the current one first.
  package init(secrets: [[UInt8]]) {
    precondition(!secrets.isEmpty, "tickets need a secret")
    keys = secrets.map { secret in
      let key = SymmetricKey(data: secret)
      var code = HMAC<SHA256>(key: key)
      code.update(data: Array("tidemark ticket 1".utf8))
      return Key(id: Array(SHA256.hash(data: secret))[0], secret: key, codeOfAnyStore: code)
    }
  }

  /// Bind tickets to this store: their numbers would point elsewhere in another store.
  mutating func bind(to store: SessionID) {
    self.store = store
    for at in keys.indices {
      var code = HMAC<SHA256>(key: keys[at].secret)
      code.update(data: Array("tidemark ticket 2".utf8))
      for half in [store.high, store.low] {
        withUnsafeBytes(of: half.bigEndian) { code.update(data: $0) }
      }
      keys[at].code = code
    }
  }

  /// The id of the signing secret. A ticket carries it, so that other secrets need not be tried.
  var currentID: UInt8 { keys[0].id }

  /// Compute the code of a ticket's bytes, with the current secret and bound to the store.
  func sign<Result>(_ bytes: RawSpan, _ use: (UnsafeRawBufferPointer) -> Result) -> Result {
    guard let code = keys[0].code else { preconditionFailure("a ticket of no store") }
    return Self.code(code, of: bytes, use)
  }

  /// Return whether a code matches these bytes, by a secret of that id. Runs in constant time.
  ///
  /// - Parameter isBound: whether the ticket is bound to a store; false for version 1.
  func isValid(_ code: RawSpan, of bytes: RawSpan, id: UInt8, isBound: Bool) -> Bool {
    guard code.byteCount == Self.codeByteCount else { return false }
    let (high, low) = (
      code.unsafeLoadUnaligned(fromByteOffset: 0, as: UInt64.self),
      code.unsafeLoadUnaligned(fromByteOffset: 8, as: UInt64.self)
    )
    // Ids are public, and two secrets may have the same one.
    for at in keys.indices where keys[at].id == id {
      guard let begun = isBound ? keys[at].code : keys[at].codeOfAnyStore else { return false }
      let isEqual = Self.code(begun, of: bytes) { own in
        (own.loadUnaligned(fromByteOffset: 0, as: UInt64.self) ^ high)
          | (own.loadUnaligned(fromByteOffset: 8, as: UInt64.self) ^ low) == 0
      }
      if isEqual { return true }
    }
    return false
  }

  private static func code<Result>(
    _ begun: HMAC<SHA256>,
    of bytes: RawSpan,
    _ use: (UnsafeRawBufferPointer) -> Result
  ) -> Result {
    var code = begun
    bytes.withUnsafeBytes { code.update(data: $0) }
    return code.finalize().withUnsafeBytes {
      use(UnsafeRawBufferPointer(rebasing: $0.prefix(codeByteCount)))
    }
  }
}
