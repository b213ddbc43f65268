internal import COpenSSL
internal import Synchronization

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#else
  internal import Darwin
#endif

/// Keys that seal a server's session tickets (RFC 8446 section 4.6.1, RFC 5077 section 4). They are rotated every few
/// hours, and the previous key is kept. A later leak of the process's memory does not reveal today's sessions.
///
/// They outlive the `SSL_CTX` that they are installed in, so that a server with a new certificate still resumes
/// sessions.
final class SessionTicketKeys: Sendable {
  /// Twice OpenSSL's ticket lifetime of two hours: the previous key then covers all valid tickets.
  static let lifetimeSeconds: Int64 = 4 * 3_600

  struct Key: Equatable {
    /// Name of the key in tickets.
    var name: [UInt8]
    /// AES-256 in CBC mode.
    var cipher: [UInt8]
    /// HMAC-SHA-256.
    var code: [UInt8]
    /// Creation time in seconds of the caller's clock.
    var madeAt: Int64

    static let nameByteCount = 16
  }

  private struct State {
    var current: Key
    var previous: Key?
  }

  private let state: Mutex<State>
  private let now: @Sendable () -> Int64

  /// - Parameter now: seconds of a monotonic clock.
  init(now: @escaping @Sendable () -> Int64 = { SessionTicketKeys.monotonicSeconds }) {
    self.now = now
    state = Mutex(State(current: Self.makeKey(at: now())))
  }

  /// The key for a new ticket.
  var current: Key {
    let now = now()
    return state.withLock { state in
      Self.advance(&state, now)
      return state.current
    }
  }

  /// Return the key of a ticket, or nil if it is unknown or expired. If it is not `isCurrent`, the client should get a
  /// new ticket.
  func key(named name: UnsafePointer<UInt8>) -> (key: Key, isCurrent: Bool)? {
    let now = now()
    return state.withLock { state in
      Self.advance(&state, now)
      let name = UnsafeBufferPointer(start: name, count: Key.nameByteCount)
      if state.current.name.elementsEqual(name) { return (state.current, true) }
      if let previous = state.previous, previous.name.elementsEqual(name) { return (previous, false) }
      return nil
    }
  }

  private static func advance(_ state: inout State, _ now: Int64) {
    let age = now - state.current.madeAt
    guard age >= lifetimeSeconds else { return }
    state.previous = age < 2 * lifetimeSeconds ? state.current : nil
    state.current = makeKey(at: now)
  }

  private static func makeKey(at time: Int64) -> Key {
    Key(name: random(Key.nameByteCount), cipher: random(32), code: random(32), madeAt: time)
  }

  /// Return `count` random bytes. The system generator is cryptographically secure on all supported platforms.
  private static func random(_ count: Int) -> [UInt8] {
    (0..<count).map { _ in UInt8.random(in: .min ... .max) }
  }

  private static var monotonicSeconds: Int64 {
    var time = timespec()
    clock_gettime(CLOCK_MONOTONIC, &time)
    return Int64(time.tv_sec)
  }
}

extension SessionTicketKeys {
  /// Make an `SSL_CTX` seal and open its tickets with these keys. The context retains them until it is freed, together
  /// with its last connection.
  func install(in context: OpaquePointer) throws(TLSError) {
    let keys = Unmanaged.passRetained(self)
    guard SSL_CTX_set_ex_data(context, ticketKeysIndex, keys.toOpaque()) == 1 else {
      keys.release()
      throw .configuration(reason: OpenSSLErrors.drain().reason)
    }
    COpenSSL_CTX_set_ticket_callback(context) { ssl, name, initialVector, cipher, code, isSealing in
      guard let ssl, let name, let initialVector, let cipher, let code,
        let held = SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), ticketKeysIndex)
      else { return -1 }
      let keys = Unmanaged<SessionTicketKeys>.fromOpaque(held).takeUnretainedValue()
      if isSealing != 0 {
        let key = keys.current
        for (index, byte) in key.name.enumerated() { name[index] = byte }
        guard RAND_bytes(initialVector, Int32(EVP_MAX_IV_LENGTH)) == 1 else { return -1 }
        return COpenSSL_use_ticket_key(cipher, code, key.cipher, initialVector, key.code, 1)
      }
      // 0: unknown, so a full handshake follows; 2: valid, and a new ticket is issued.
      guard let (key, isCurrent) = keys.key(named: name) else { return 0 }
      guard COpenSSL_use_ticket_key(cipher, code, key.cipher, initialVector, key.code, 0) == 1 else {
        return -1
      }
      return isCurrent ? 1 : 2
    }
  }
}

/// Index of the keys in an `SSL_CTX`; they are released with it.
private let ticketKeysIndex: Int32 = COpenSSL_CTX_new_index { _, held, _, _, _, _ in
  if let held { Unmanaged<SessionTicketKeys>.fromOpaque(held).release() }
}
