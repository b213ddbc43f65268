/// The oracle's revoked tokens.
struct NaiveTokens {
  /// All changes, of which each token's last one counts; their indexes are the versions.
  var changes: [(token: String, until: Int64)] = []

  func until(_ token: String, at time: Int64) -> Int64? {
    changes.last { $0.token == token }.flatMap { $0.until > time ? $0.until : nil }
  }

  func answer(_ token: String, at time: Int64) -> Reply {
    .token(until: until(token, at: time) ?? 0, version: UInt64(changes.count))
  }

  mutating func revoke(_ token: String, until: Int64, at time: Int64) -> NaiveShard.Outcome {
    if until != 0, !((time + 1)...(time + 3_660 * 86_400_000)).contains(until) {
      return .refused(NaiveShard.Code.invalidField)
    }
    let hasChanged = until != (self.until(token, at: time) ?? 0)
    if hasChanged { changes.append((token, until)) }
    return NaiveShard.Outcome(reply: answer(token, at: time), hasChanged: hasChanged)
  }

  func list(known: UInt64, after: UInt64, at time: Int64) -> Reply {
    let takenBack = changes.lastIndex { $0.until == 0 }.map { $0 + 1 } ?? 0
    let isAnew = known == 0 || known > changes.count || known < takenBack
    var tokens: [String] = []
    for (place, change) in changes.enumerated() where isAnew || place + 1 > after {
      let isLast = !changes[(place + 1)...].contains { $0.token == change.token }
      if isLast, change.until > time {
        tokens.append("\(change.token) until \(change.until) by \(place + 1)")
      }
    }
    return .tokens(version: UInt64(changes.count), isAnew: isAnew, tokens)
  }
}
