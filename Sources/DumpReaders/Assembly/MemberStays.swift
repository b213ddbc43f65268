/// The stays of a channel's members, in the order of their lines: by join. A member whose join the dump does not tell
/// has been there since the channel was created.
struct MemberStays {
  private(set) var stays: [DumpMember] = []

  init(_ members: [DumpMember], _ changes: [DumpMembershipChange], _ leftOut: inout LeftOutCounts) {
    struct Key: Hashable {
      var user: ExactID
      var joinedAt: DumpTime?
    }
    var known: [Key: Int] = [:]
    for member in members {
      let key = Key(user: ExactID(member.user), joinedAt: member.joinedAt)
      if let index = known[key] {
        stays[index] = member
        leftOut.add("repeated members")
      } else {
        known[key] = stays.count
        stays.append(member)
      }
    }
    stays += Self.stays(changes)
    let order = stays.indices.sorted { Self.isOrdered((stays[$0], $0), before: (stays[$1], $1)) }
    stays = order.map { stays[$0] }
  }

  /// Make stays of joins and leaves. A leave that nothing precedes ends a stay since the channel was created.
  private static func stays(_ changes: [DumpMembershipChange]) -> [DumpMember] {
    var stays: [DumpMember] = []
    /// Indexes of the stays that have not ended.
    var open: [ExactID: Int] = [:]
    var seen: Set<ExactID> = []
    for index in changes.indices.sorted(by: { (changes[$0].at, $0) < (changes[$1].at, $1) }) {
      let change = changes[index]
      let user = ExactID(change.user)
      let isFirst = seen.insert(user).inserted
      switch change.kind {
      case .join:
        // A member's further joins are changes of their profile.
        guard open[user] == nil else { continue }
        open[user] = stays.count
        stays.append(DumpMember(user: change.user, joinedAt: change.at, origin: change.origin))
      case .leave:
        if let stay = open.removeValue(forKey: user) {
          stays[stay].leftAt = change.at
        } else if isFirst {
          stays.append(DumpMember(user: change.user, leftAt: change.at, origin: change.origin))
        }
      case .invitation: break
      }
    }
    return stays
  }

  /// By join, then stays that have ended, then as in the dump.
  private static func isOrdered(_ left: (DumpMember, Int), before right: (DumpMember, Int)) -> Bool {
    switch (left.0.joinedAt, right.0.joinedAt) {
    case (nil, .some): return true
    case (.some, nil): return false
    case (.some(let first), .some(let second)) where first != second: return first < second
    default: return (left.0.leftAt == nil ? 1 : 0, left.1) < (right.0.leftAt == nil ? 1 : 0, right.1)
    }
  }
}
