internal import HTTP2Session
internal import Operations

/// The HTTP/2 connections of one event loop, by a small number that requests can carry.
struct ConnectionTable {
  /// What the loop keeps beside a connection.
  struct Entry {
    var connection: HTTP2ServerConnection<GatewayLoop>?
    /// Has answers that were given outside its own read and are not flushed.
    var isDirty = false
    /// The credential that was looked at last: HTTP/2 gives equal headers of one connection equal numbers, so
    /// the next request with it needs no look at the token's bytes.
    var identity: UInt32 = 0
    /// The caller of that credential, whose times are still checked; nil where it was refused for good.
    var caller: Caller?
    var refusal = ProblemCode.tokenMissing
    /// It has shown a valid token.
    var isProven = false
    /// From where it comes: its peer, or whom a PROXY header names. Nil where that is no IP address.
    var client: PeerAddress?
    /// A proxy's that many clients share: each request names its client itself.
    var isShared = false
    /// Tokens that were refused since the last good one.
    var badTokens = 0
  }

  private(set) var entries: [Entry] = []
  private var free: [UInt32] = []
  private var dirty: [UInt32] = []

  /// Open connections.
  var count: Int { entries.count - free.count }

  /// All open connections.
  var all: [HTTP2ServerConnection<GatewayLoop>] { entries.compactMap(\.connection) }

  /// Keeps a connection; its number goes into its `userToken`.
  @discardableResult
  mutating func insert(_ connection: HTTP2ServerConnection<GatewayLoop>) -> UInt32 {
    let index: UInt32
    if let reused = free.popLast() {
      index = reused
      entries[Int(index)] = Entry(connection: connection)
    } else {
      index = UInt32(entries.count)
      entries.append(Entry(connection: connection))
    }
    connection.userToken = UInt64(index)
    return index
  }

  /// Forgets a connection that has closed. Its number may be given again: a stream's handle tells the two
  /// apart.
  mutating func remove(_ connection: HTTP2ServerConnection<GatewayLoop>) {
    let index = Int(connection.userToken)
    guard index < entries.count, entries[index].connection === connection else { return }
    entries[index] = Entry()
    free.append(UInt32(index))
  }

  func connection(_ index: UInt32) -> HTTP2ServerConnection<GatewayLoop>? { entries[Int(index)].connection }

  /// The caller of the credential that a connection used last, if this is it.
  func known(_ index: UInt32, identity: UInt32) -> Authenticator.Verdict {
    guard identity != 0, entries[Int(index)].identity == identity else { return .unknown }
    if let caller = entries[Int(index)].caller { return .caller(caller) }
    return .refused(entries[Int(index)].refusal)
  }

  /// Remembers a connection's credential.
  mutating func remember(_ index: UInt32, identity: UInt32, _ result: Result<Caller, TokenRefusal>) {
    guard identity != 0 else { return }
    entries[Int(index)].identity = identity
    switch result {
    case .success(let caller): entries[Int(index)].caller = caller
    case .failure(let refusal):
      entries[Int(index)].caller = nil
      entries[Int(index)].refusal = refusal.code
    }
  }

  /// Forgets every connection's credential: what was found out about it counts no more.
  mutating func forgetCredentials() {
    for index in entries.indices {
      entries[index].identity = 0
      entries[index].caller = nil
    }
  }

  /// Notes that a connection has shown a valid token.
  ///
  /// - Returns: whether it is the first.
  mutating func noteProven(_ index: UInt32) -> Bool {
    defer { entries[Int(index)].isProven = true }
    return !entries[Int(index)].isProven
  }

  /// Notes from where a connection comes.
  mutating func note(_ index: UInt32, client: PeerAddress?, isShared: Bool) {
    entries[Int(index)].client = client
    entries[Int(index)].isShared = isShared
  }

  /// Notes a token that was refused.
  ///
  /// - Returns: how many there were since the last good one.
  mutating func noteBadToken(_ index: UInt32) -> Int {
    entries[Int(index)].badTokens += 1
    return entries[Int(index)].badTokens
  }

  /// Notes a token that is good.
  mutating func noteGoodToken(_ index: UInt32) { entries[Int(index)].badTokens = 0 }

  /// Notes that a connection has to be flushed when the loop's turn is done.
  mutating func markDirty(_ index: UInt32) {
    if entries[Int(index)].isDirty { return }
    entries[Int(index)].isDirty = true
    dirty.append(index)
  }

  /// The next connection that has to be flushed.
  mutating func nextDirty() -> HTTP2ServerConnection<GatewayLoop>? {
    while let index = dirty.popLast() {
      guard entries[Int(index)].isDirty else { continue }
      entries[Int(index)].isDirty = false
      if let connection = entries[Int(index)].connection { return connection }
    }
    return nil
  }
}
