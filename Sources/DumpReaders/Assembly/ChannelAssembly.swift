/// Makes the lines of one channel out of its records, in the order that an import needs: the channel, its messages, the
/// replies of its threads, its members, and the participants of its threads.
struct ChannelAssembly {
  /// Maximum number of users whom a line may mention (Proto/openapi.yaml).
  private static let mentionsMax = 100

  private let channel: RecordCollector.Channel
  private let order: MessageOrder
  private let members: MemberStays
  private let positions: PositionTable
  /// What has no place in the lines; complete once they are written.
  private(set) var leftOut: LeftOutCounts

  init(_ channel: RecordCollector.Channel, _ records: [DumpRecord]) {
    var messages: [DumpMessage] = []
    var stays: [DumpMember] = []
    var changes: [DumpMembershipChange] = []
    var positions: [DumpPosition] = []
    var events: [ExactID: DumpTime] = [:]
    var deletions: [DumpDeletion] = []
    for record in records {
      switch record {
      case .message(let message): messages.append(message)
      case .member(let member): stays.append(member)
      case .membershipChange(let change): changes.append(change)
      case .position(let position): positions.append(position)
      case .event(let event): events[ExactID(event.id)] = event.at
      case .deletion(let deletion): deletions.append(deletion)
      }
    }
    var leftOut = LeftOutCounts()
    self.channel = channel
    // Redactions of reactions and of other events delete no message.
    deletions.removeAll { events[ExactID($0.message)] != nil }
    order = MessageOrder(messages, deletions: deletions, &leftOut)
    members = MemberStays(stays, changes, &leftOut)
    self.positions = PositionTable(positions, in: order, events: events, &leftOut)
    self.leftOut = leftOut
  }

  /// The members with a read position that others may not see. A line hides only the time of a position, so these users
  /// have to hide read receipts (R7).
  var hiddenReaders: [DumpMember] {
    let users = positions.owners.filter { positions[$0].read?.isHidden == true }.map(\.user)
    guard !users.isEmpty else { return [] }
    let hidden = Set(users)
    return members.stays.filter { $0.leftAt == nil && hidden.contains(ExactID($0.user)) }
  }

  /// Write the channel's lines, each with the place in the dump that it comes from.
  mutating func write(_ write: (DumpLine, DumpOrigin) throws -> Void) rethrows {
    try write(.channel(DumpLine.Channel(cid: channel.cid, createdAt: createdAt?.text)), channel.origin)
    for index in order.roots { try write(line(of: index), order.messages[index].origin) }
    for thread in order.threads {
      for index in order.history(thread) { try write(line(of: index), order.messages[index].origin) }
    }
    var origins: [ExactID: DumpOrigin] = [:]
    for stay in members.stays {
      if stay.leftAt == nil { origins[ExactID(stay.user)] = stay.origin }
      try write(line(of: stay), stay.origin)
    }
    for owner in positions.owners {
      guard let origin = origins[owner.user] else {
        leftOut.add("positions of users who are no members")
        continue
      }
      guard let thread = owner.thread?.text else { continue }
      guard order.index(of: thread) != nil, !order.history(thread).isEmpty else {
        leftOut.add("participants of threads without replies")
        continue
      }
      var member = DumpLine.Member(cid: channel.cid, user: owner.user.text, thread: order.id(of: thread))
      set(positions[owner], of: thread, in: &member)
      try write(.member(member), origin)
    }
  }

  /// The channel's creation, or else the earliest time that the dump has of it: without one, members would have joined
  /// at the time of the import, and have read nothing before.
  private var createdAt: DumpTime? {
    let stays = members.stays.flatMap { [$0.joinedAt, $0.leftAt] }.compactMap(\.self)
    return channel.createdAt ?? (order.messages.map(\.createdAt) + stays).min()
  }

  private mutating func line(of index: Int) -> DumpLine {
    let message = order.messages[index]
    var mentions: DumpLine.Message.Mentions?
    if message.mentionsAll {
      mentions = .all
    } else if !message.mentions.isEmpty {
      mentions = .users(Array(message.mentions.prefix(Self.mentionsMax)))
      leftOut.add(message.mentions.count - Self.mentionsMax, "mentions beyond \(Self.mentionsMax) in one message")
    }
    return .message(
      DumpLine.Message(
        cid: channel.cid,
        id: order.ids[index],
        user: message.sender,
        createdAt: message.createdAt.text,
        parent: message.parent.map(order.id),
        silent: message.isSilent ? true : nil,
        deleted: message.isDeleted ? true : nil,
        deletedAt: message.isDeleted ? message.deletedAt?.text : nil,
        mentions: mentions,
        movesPosition: message.movesPosition ? true : nil
      )
    )
  }

  private mutating func line(of stay: DumpMember) -> DumpLine {
    var member = DumpLine.Member(
      cid: channel.cid,
      user: stay.user,
      joinedAt: stay.joinedAt?.text,
      leftAt: stay.leftAt?.text,
      muted: stay.isMuted ? true : nil
    )
    if let role = stay.role {
      if ForeignID.isRole(role) { member.role = role } else { leftOut.add("roles with other characters") }
    }
    if stay.leftAt == nil { set(positions[.init(stay.user)], of: nil, in: &member) }
    return .member(member)
  }

  private func set(_ places: PositionTable.Places, of thread: String?, in member: inout DumpLine.Member) {
    let history = order.history(thread)
    if let read = places.read {
      member.read = order.ids[history[read.rank]]
      member.readAt = read.at?.text
      member.readHidden = read.isHidden ? true : nil
    }
    if let delivered = places.delivered {
      member.delivered = order.ids[history[delivered.rank]]
      member.deliveredAt = delivered.at?.text
      member.deliveredHidden = delivered.isHidden ? true : nil
    }
  }
}
