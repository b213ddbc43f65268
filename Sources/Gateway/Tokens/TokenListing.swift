internal import ReceiptModel
package import ReceiptWire

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
