extension NaiveModel {
  /// A move of a watermark.
  struct Step: Sendable {
    let to: Int
    let at: Int
    let isHidden: Bool
    /// Whether the step's time is no longer kept.
    var isForgotten = false
  }

  /// The positions that a membership's history results in.
  struct Positions: Sendable {
    /// The position that joining set: others see it while the member hides (R7).
    var start = 0
    var readSteps: [Step] = []
    var deliveredSteps: [Step] = []
    var marker: Int?
    var epoch = 0
    /// Whether the channel is flagged unread as a whole.
    var isFlagged = false

    var watermark: Int { readSteps.last?.to ?? start }
    var delivered: Int { deliveredSteps.last?.to ?? 0 }
    var own: Int { marker.map { min($0, watermark) } ?? watermark }
  }

  /// A time, exact or an upper bound (R17).
  struct Moment: Hashable, Sendable {
    var at: Int
    var isExact = true
    /// A bound that rises with the member's further moves; lists in order of time have it last.
    var isBound = false
    /// Where one of two combined times is a bound: the other's time.
    var elsewhere: Int?
    var place: Int { elsewhere ?? (isBound ? .max : at) }

    /// Equality ignores these fields: the order of the list shows them.
    static func == (a: Moment, b: Moment) -> Bool { a.at == b.at && a.isExact == b.isExact }
    func hash(into hasher: inout Hasher) { hasher.combine(at) }

    /// Of two equal times, an exact one makes the result exact.
    static func earlier(_ a: Moment?, _ b: Moment?) -> Moment? {
      guard let a, let b else { return a ?? b }
      var earlier = a.at < b.at || a.at == b.at && a.isExact ? a : b
      earlier.elsewhere = min(a.place, b.place)
      return earlier
    }
  }

  /// Replay a member's history from the join on (R2 to R6).
  func positions(_ member: Membership) -> Positions {
    var at = Positions()
    at.start = member.hidesHistory || member.isInThread ? 0 : member.joinedAfter
    func isOlder(_ epoch: Int?) -> Bool { epoch != nil && epoch! < at.epoch }
    for (number, act) in member.acts.enumerated() {
      let isForgotten = number < member.droppedActTimes
      func step(_ to: Int, _ time: Int, _ isHidden: Bool) -> Step {
        Step(to: to, at: time, isHidden: isHidden, isForgotten: isForgotten)
      }
      switch act {
      case .read(let n, let epoch, let time, let isHidden):
        if n > at.watermark { at.readSteps.append(step(n, time, isHidden)) }
        if !isOlder(epoch) { at.isFlagged = false }
        if let marker = at.marker, !isOlder(epoch) {
          at.marker = max(marker, n)
          if at.marker! >= at.watermark { at.marker = nil }
        }
      case .delivered(let n, let time, let isHidden):
        if n > at.delivered { at.deliveredSteps.append(step(n, time, isHidden)) }
      case .unread(let m, let epoch):
        if m > at.watermark || isOlder(epoch) || at.marker == m - 1 { continue }
        at.marker = m - 1
        at.epoch += 1
      case .flagged(let epoch):
        if at.isFlagged || isOlder(epoch) { continue }
        at.isFlagged = true
        at.epoch += 1
      case .readOrSentInThread: at.isFlagged = false
      case .posted(let n, let time, let hidesRead, let hidesDelivered):
        at.readSteps.append(step(n, time, hidesRead))
        at.deliveredSteps.append(step(n, time, hidesDelivered))
        at.marker = nil
        at.isFlagged = false
      }
    }
    return at
  }

  /// The unread epoch of a member, 0 for other users.
  func epoch(_ cid: String, _ user: String) -> Int {
    guard let channel = channels[cid], let row = channel.main.membership(user) else { return 0 }
    return positions(channel.main.memberships[row]).epoch
  }

  /// When a watermark first reached message `n`, of which only the last `kept` moves keep their time (R17).
  ///
  /// - Parameter shownSince: what others are shown for a hidden move; nil for the member's own eyes, which see
  ///   everything.
  static func reached(_ n: Int, _ steps: [Step], kept: Int, shownSince: Int?) -> Moment {
    func shown(_ step: Step, isExact: Bool) -> Moment {
      if step.isHidden, let shownSince { return Moment(at: shownSince, isExact: false) }
      return Moment(at: step.at, isExact: isExact)
    }
    let place = steps.firstIndex { $0.to >= n }!
    let dropped = (steps.lastIndex(where: \.isForgotten) ?? -1) + 1
    let forgotten = max(0, steps.count - kept, dropped)
    // The start of the first move after the dropped ones is unknown.
    let isFirstKept = dropped > 0 && place == dropped
    if place >= forgotten, !isFirstKept { return shown(steps[place], isExact: true) }
    let isNoneKept = forgotten == steps.count
    let bound = isNoneKept ? steps.last! : steps[forgotten]
    var moment = shown(bound, isExact: false)
    // The bound of a hidden move is the time when its user last showed again, and does not rise.
    moment.isBound = isNoneKept || !bound.isHidden || shownSince == nil
    return moment
  }
}
