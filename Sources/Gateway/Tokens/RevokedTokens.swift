internal import ReceiptModel
package import ReceiptWire
internal import Synchronization

/// A token's id (`jti`, RFC 7519 section 4.1.7), compared byte by byte.
package struct TokenID: Hashable, Sendable {
  package let bytes: [UInt8]
  /// Computed once: a cached token's id may be looked up with each of its requests.
  private let hash: UInt64

  private static let seed = UInt64.random(in: .min ... .max)

  package init(_ bytes: [UInt8]) {
    self.bytes = bytes
    hash = StableHash.hash(bytes.span.bytes, seed: Self.seed)
  }

  /// Return whether a route can name the id. A token whose id could not be revoked is not accepted.
  static func isValid(_ bytes: RawSpan) -> Bool {
    Identifier.isID(bytes) && !bytes.equals(".") && !bytes.equals("..")
  }

  package static func == (a: Self, b: Self) -> Bool { a.hash == b.hash && a.bytes == b.bytes }
  package func hash(into hasher: inout Hasher) { hasher.combine(hash) }
}

/// The tokens revoked by id that this gateway knows of: one table shared by all of its event loops.
///
/// One loop reads the store's list every second (``TokenListing``). A request's own change is recorded here before it
/// is answered. Tokens without an id skip the table; the others take the lock only while any token is revoked.
package final class RevokedTokens: Sendable {
  private enum Summary {
    /// The list is unknown, or was not confirmed for too long: no token with an id is accepted.
    static let unknown: UInt8 = 0
    static let none: UInt8 = 1
    static let some: UInt8 = 2
  }

  private struct Entry {
    /// End of the revocation, in milliseconds since 1970; nil: not revoked, kept until the list is known up to the
    /// version.
    var until: Int64?
    /// The list's version of this entry. 0: from a connection to the store that was lost since.
    var version: UInt64
  }

  private struct State {
    var entries: [TokenID: Entry] = [:]
    var isKnown = false
    var observers: [ObjectIdentifier: @Sendable () -> Void] = [:]
    var knownChanged: @Sendable (Bool) -> Void = { _ in }
  }

  private let summary = Atomic<UInt8>(Summary.unknown)
  private let state = Mutex(State())

  package init() {}

  /// Number of revoked tokens.
  package var count: Int { state.withLock { $0.entries.values.count { $0.until != nil } } }

  /// Return why a token with this id is refused: `token_revoked`, or `store_unavailable` while the list is unknown.
  /// Nil: it is not refused, or has no id.
  @inline(__always)
  package func refusal(of id: TokenID?) -> ProblemCode? {
    guard let id else { return nil }
    return refusal(ofID: id)
  }

  private func refusal(ofID id: TokenID) -> ProblemCode? {
    switch summary.load(ordering: .acquiring) {
    case Summary.none: nil
    case Summary.some: isRevoked(id) ? .tokenRevoked : nil
    default: .storeUnavailable
    }
  }

  /// Return whether a token with this id is known to be revoked.
  package func isRevoked(_ id: TokenID) -> Bool { state.withLock { $0.entries[id]?.until != nil } }

  // MARK: Observers

  /// Call `revoked` after each change that revokes tokens, on the thread of the change, until ``stopObserving(_:)``.
  func observe(_ observer: AnyObject, _ revoked: @escaping @Sendable () -> Void) {
    let key = ObjectIdentifier(observer)
    state.withLock { $0.observers[key] = revoked }
  }

  func stopObserving(_ observer: AnyObject) {
    let key = ObjectIdentifier(observer)
    state.withLock { _ = $0.observers.removeValue(forKey: key) }
  }

  /// Call `changed` when the list becomes known or unknown.
  func observeAvailability(_ changed: @escaping @Sendable (Bool) -> Void) {
    state.withLock { $0.knownChanged = changed }
  }

  // MARK: Changes

  /// Record the state of one token as of a version of the list; `until` nil: not revoked.
  package func record(_ id: TokenID, until: Int64?, version: UInt64) {
    change { state in
      guard version >= state.entries[id]?.version ?? 0 else { return false }
      let isNew = until != nil && state.entries[id]?.until == nil
      state.entries[id] = Entry(until: until, version: version)
      return isNew
    }
  }

  /// Add revocations of a version of the list. Entries that are not named stay.
  package func add(_ revocations: [(id: TokenID, until: Int64)], version: UInt64) {
    guard !revocations.isEmpty else { return }
    change { Self.add(revocations, version: version, to: &$0) }
  }

  /// Confirm the list up to a version, and drop revocations that ended by `ended`, a time of the store.
  package func confirm(version: UInt64, ended: Int64) {
    change { state in
      state.isKnown = true
      let isOver = { (entry: Entry) in entry.until.map { $0 <= ended } ?? (entry.version <= version) }
      if state.entries.values.contains(where: isOver) {
        state.entries = state.entries.filter { !isOver($0.value) }
      }
      return false
    }
  }

  /// Replace the table with all revocations of a version of the list. Entries of later versions stay.
  package func replace(_ revocations: [(id: TokenID, until: Int64)], version: UInt64) {
    change { state in
      let before = state.entries
      state.entries = before.filter { $0.value.version > version }
      _ = Self.add(revocations, version: version, to: &state)
      state.isKnown = true
      return revocations.contains { before[$0.id]?.until == nil }
    }
  }

  private static func add(
    _ revocations: [(id: TokenID, until: Int64)],
    version: UInt64,
    to state: inout State
  ) -> Bool {
    var hasNew = false
    for (id, until) in revocations where version >= state.entries[id]?.version ?? 0 {
      if state.entries[id]?.until == nil { hasNew = true }
      state.entries[id] = Entry(until: until, version: version)
    }
    return hasNew
  }

  /// Reset the versions after a lost connection to the store: the next store may be restored from a backup, with lower
  /// versions. Known revocations stay in force until the list was read.
  package func clearVersions() {
    change { state in
      state.entries = state.entries.compactMapValues {
        $0.until == nil ? nil : Entry(until: $0.until, version: 0)
      }
      return false
    }
  }

  /// Mark the list as unknown after it was not confirmed for too long.
  package func expire() {
    change { state in
      state.isKnown = false
      return false
    }
  }

  /// - Parameter body: returns whether it has revoked a token.
  private func change(_ body: (inout State) -> Bool) {
    let calls = state.withLock { state in
      let wasKnown = state.isKnown
      let hasRevoked = body(&state)
      let isKnown = state.isKnown
      summary.store(
        !isKnown ? Summary.unknown : state.entries.isEmpty ? Summary.none : Summary.some,
        ordering: .releasing
      )
      return (
        observers: hasRevoked ? Array(state.observers.values) : [],
        knownChanged: wasKnown == isKnown ? nil : { [changed = state.knownChanged] in changed(isKnown) }
      )
    }
    calls.knownChanged?()
    for observer in calls.observers { observer() }
  }
}

/// Reading of the store's list of revoked tokens into ``RevokedTokens``, in rounds. A pure state machine that returns
/// the next request to send (Proto/frames.md, 0x35).
package struct TokenListing {
  /// Rounds without the whole list after which it counts as unknown: a gateway cut off from the shard that keeps the
  /// list might accept a token that was revoked meanwhile.
  package static let unansweredRoundsMax = 30

  /// The parameters of list_revoked_tokens.
  package struct Request: Equatable, Sendable {
    /// The version up to which the list is known; 0: unknown.
    package var known: UInt64
    /// Asks for entries above this version.
    package var after: UInt64
    /// The round of the request. Answers to other rounds are ignored.
    package var round: UInt32
  }

  private enum State {
    case idle
    /// Waiting for the next part. `collected`: the list is read from its beginning, and applied as a whole at the end.
    case awaitingReply(Request, collected: [(id: TokenID, until: Int64)]?)
  }

  private let tokens: RevokedTokens
  private var state = State.idle
  private var known: UInt64 = 0
  private var round: UInt32 = 0
  private var unansweredRounds = 0

  package init(_ tokens: RevokedTokens) { self.tokens = tokens }

  /// Start a round when its time has come.
  ///
  /// - Parameter isReady: whether the store takes requests.
  /// - Returns: the request to send; nil while a round is in progress.
  package mutating func roundIsDue(isReady: Bool) -> Request? {
    unansweredRounds += 1
    if unansweredRounds == Self.unansweredRoundsMax { tokens.expire() }
    guard isReady, case .idle = state else { return nil }
    return nextRound()
  }

  private mutating func nextRound() -> Request {
    round &+= 1
    return begin(Request(known: known, after: known, round: round), nil)
  }

  private mutating func begin(_ request: Request, _ collected: [(id: TokenID, until: Int64)]?) -> Request {
    state = .awaitingReply(request, collected: collected)
    return request
  }

  /// Handle the store's answer.
  ///
  /// - Returns: the next request; nil: the list is complete.
  package mutating func answered(_ list: RevokedTokensReply, round: UInt32) -> Request? {
    guard case .awaitingReply(let request, var collected) = state, request.round == round else { return nil }
    let part = list.revocations.map {
      (id: TokenID(Array($0.id.utf8)), until: $0.until.milliseconds)
    }
    if list.isAnew { collected = [] }
    if collected == nil { tokens.add(part, version: list.version) } else { collected! += part }
    if list.hasMore, let last = list.revocations.last {
      // The version of the first part. If a token is restored after it, the store restarts the list.
      let known = list.isAnew || request.known == 0 ? list.version : request.known
      return begin(Request(known: known, after: last.version, round: round), collected)
    }
    if let collected { tokens.replace(collected, version: list.version) }
    tokens.confirm(version: list.version, ended: list.ended.milliseconds)
    known = list.version
    unansweredRounds = 0
    state = .idle
    return nil
  }

  /// Handle a failed request.
  package mutating func failed(round: UInt32) {
    if case .awaitingReply(let request, _) = state, request.round == round { state = .idle }
  }

  /// Handle a new connection to the store, whose list is unknown.
  ///
  /// - Returns: the request to send.
  package mutating func reconnected() -> Request {
    known = 0
    tokens.clearVersions()
    return nextRound()
  }
}
