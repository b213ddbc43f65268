internal import ReceiptModel
package import ReceiptWire

/// Reads the store's list of revoked tokens into ``RevokedTokens``, round by round: a pure machine, which says what to
/// ask for next (Proto/frames.md, 0x35).
package struct TokenListing {
  /// After so many rounds without the whole list it is not known any more: whoever is cut off from the shard that keeps
  /// it might accept what was revoked meanwhile.
  package static let unansweredRoundsMax = 30

  /// What list_revoked_tokens is to say.
  package struct Question: Equatable, Sendable {
    /// The version up to which the list is known; 0: it is not.
    package var known: UInt64
    /// What is asked for has a higher version.
    package var after: UInt64
    /// Which round it is of. An answer to another one is not looked at.
    package var round: UInt32
  }

  private enum State {
    case idle
    /// The next part is asked for. `collected`: the list is read from its beginning, and takes effect as a whole.
    case asking(Question, collected: [(id: TokenID, until: Int64)]?)
  }

  private let tokens: RevokedTokens
  private var state = State.idle
  private var known: UInt64 = 0
  private var round: UInt32 = 0
  private var unansweredRounds = 0

  package init(_ tokens: RevokedTokens) { self.tokens = tokens }

  /// It is time for the next round.
  ///
  /// - Parameter canAsk: the store takes requests.
  /// - Returns: what to ask for; nil while a round is under way.
  package mutating func roundIsDue(canAsk: Bool) -> Question? {
    unansweredRounds += 1
    if unansweredRounds == Self.unansweredRoundsMax { tokens.expire() }
    guard canAsk, case .idle = state else { return nil }
    return nextRound()
  }

  private mutating func nextRound() -> Question {
    round &+= 1
    return ask(Question(known: known, after: known, round: round), nil)
  }

  private mutating func ask(_ question: Question, _ collected: [(id: TokenID, until: Int64)]?) -> Question {
    state = .asking(question, collected: collected)
    return question
  }

  /// The store has answered.
  ///
  /// - Returns: what to ask for next; nil: the list is known.
  package mutating func answered(_ answer: RevokedTokenListFields, round: UInt32) -> Question? {
    guard case .asking(let question, var collected) = state, question.round == round else { return nil }
    let part = answer.revocations.map {
      (id: TokenID(Array($0.id.utf8)), until: $0.until.milliseconds)
    }
    if answer.isAnew { collected = [] }
    if collected == nil { tokens.add(part, version: answer.version) } else { collected! += part }
    if answer.hasMore, let last = answer.revocations.last {
      // The version that the first part was of: what is taken back after that has the store begin anew.
      let known = answer.isAnew || question.known == 0 ? answer.version : question.known
      return ask(Question(known: known, after: last.version, round: round), collected)
    }
    if let collected { tokens.replace(collected, version: answer.version) }
    tokens.confirm(version: answer.version, ended: answer.ended.milliseconds)
    known = answer.version
    unansweredRounds = 0
    state = .idle
    return nil
  }

  /// The store did not answer a question.
  package mutating func failed(round: UInt32) {
    if case .asking(let question, _) = state, question.round == round { state = .idle }
  }

  /// There is another connection to the store: nothing is known of its list.
  ///
  /// - Returns: what to ask for.
  package mutating func reconnected() -> Question {
    known = 0
    tokens.forgetVersions()
    return nextRound()
  }
}
