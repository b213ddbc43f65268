/// An independent oracle (STYLE.md, habit 12): written from the rules of DESIGN.md, apart from the code that it checks. It keeps
/// whole histories in arrays and dictionaries, and answers by going through them: no column, prefix, index or marker trick.
struct NaiveModel: Sendable {
  /// Something that a member did; positions are worked out from the first to the last of these.
  enum Act: Sendable {
    case read(to: Int, epoch: Int?, at: Int)
    case delivered(to: Int, at: Int)
    case unread(from: Int, epoch: Int?)
    case posted(Int, at: Int)
  }

  /// From one join to its leave. Joining again is another membership (R6).
  struct Membership: Sendable {
    let user: String
    var role: String
    /// How many messages there were.
    let joinedAfter: Int
    let joinedAt: Int
    let hidesHistory: Bool
    var hasLeft = false
    var acts: [Act] = []
  }

  struct Message: Sendable {
    let id: String
    let sender: String
    let isSilent: Bool
    let registeredAt: Int
    let createdAt: Int
    var isDeleted = false
  }

  struct Channel: Sendable {
    var own: Settings
    var memberships: [Membership] = []
    var messages: [Message] = []
    /// Where in `messages` an id stands.
    var places: [String: Int] = [:]
  }

  struct ChannelType: Sendable {
    var version = 0
    var settings = NaiveModel.defaults
  }

  /// Where a membership's history has led.
  struct Positions: Sendable {
    var watermark = 0
    /// 0: never moved.
    var movedAt = 0
    var delivered = 0
    var deliveredAt = 0
    var marker: Int?
    var epoch = 0

    var own: Int { marker.map { min($0, watermark) } ?? watermark }
  }

  static let defaults: Settings = [
    "read_events": "true", "delivery_events": "true", "mark_unread": "private", "history": "visible",
  ]

  private(set) var channels: [String: Channel] = [:]
  private(set) var types: [String: ChannelType] = [:]
  private var now = 0

  // MARK: Commands

  mutating func perform(_ command: Command, clock: Int) -> Outcome {
    // R20: time never falls.
    now = max(now, clock)
    switch command {
    case .put(let cid, let settings, let members): return put(cid, settings, members)
    case .change(let cid, let add, let remove): return change(cid, add, remove)
    case .post(let cid, let id, let sender, let created, let isSilent):
      return post(cid, id, sender, created, isSilent)
    case .delete(let cid, let id): return delete(cid, id)
    case .read(let cid, let user, let message, let epoch):
      return act(cid, user, message, emptyIsNewest: true) { .read(to: $0, epoch: epoch, at: $1) }
    case .delivered(let cid, let user, let message):
      return act(cid, user, message, emptyIsNewest: true) { .delivered(to: $0, at: $1) }
    case .unread(let cid, let user, let message, let epoch):
      let isOff = channels[cid] != nil && settings(cid)["mark_unread"] == "off"
      return act(cid, user, message, isOff: isOff) { n, _ in .unread(from: n, epoch: epoch) }
    case .patchType(let name, let settings):
      var type = types[name] ?? ChannelType()
      let value = type.settings.merging(settings) { $1 }
      if value != type.settings || type.version == 0 {
        type.version += 1
        type.settings = value
      }
      types[name] = type
      return .type(version: type.version, settings: type.settings)
    case .assignType(let name, let version, let settings):
      if version > types[name]?.version ?? 0 {
        types[name] = ChannelType(version: version, settings: Self.defaults.merging(settings) { $1 })
      }
      let type = types[name] ?? ChannelType()
      return .type(version: type.version, settings: type.settings)
    }
  }

  private mutating func put(_ cid: String, _ settings: Settings, _ members: [Seat]) -> Outcome {
    let isNew = channels[cid] == nil
    channels[cid, default: Channel(own: [:])].own.merge(settings) { $1 }
    join(cid, members)
    return .channel(isNew: isNew, members: currentMembers(cid).count, newest: channels[cid]!.messages.count)
  }

  private mutating func change(_ cid: String, _ add: [Seat], _ remove: [String]) -> Outcome {
    guard channels[cid] != nil else { return .refused("channel_not_found") }
    for user in remove {
      if let current = membership(cid, user) { channels[cid]!.memberships[current].hasLeft = true }
    }
    join(cid, add)
    return .channel(isNew: false, members: currentMembers(cid).count, newest: channels[cid]!.messages.count)
  }

  private mutating func join(_ cid: String, _ seats: [Seat]) {
    let hidesHistory = settings(cid)["history"] == "hidden"
    for seat in seats {
      if let current = membership(cid, seat.user) {
        if !seat.role.isEmpty { channels[cid]!.memberships[current].role = seat.role }
        continue
      }
      channels[cid]!.memberships.append(
        Membership(
          user: seat.user,
          role: seat.role,
          joinedAfter: channels[cid]!.messages.count,
          joinedAt: now,
          hidesHistory: hidesHistory
        )
      )
    }
  }

  private mutating func post(
    _ cid: String,
    _ id: String,
    _ sender: String,
    _ created: Int,
    _ isSilent: Bool
  ) -> Outcome {
    guard channels[cid] != nil else { return .refused("channel_not_found") }
    if let known = channels[cid]!.places[id] {
      if channels[cid]!.messages[known].isDeleted { return .refused("message_deleted") }
      return .message(sequence: known + 1, isNew: false)
    }
    channels[cid]!.places[id] = channels[cid]!.messages.count
    channels[cid]!.messages.append(
      Message(
        id: id,
        sender: sender,
        isSilent: isSilent,
        registeredAt: now,
        createdAt: created == 0 ? now : created
      )
    )
    let sequence = channels[cid]!.messages.count
    if let row = membership(cid, sender) {
      channels[cid]!.memberships[row].acts.append(.posted(sequence, at: now))
    }
    return .message(sequence: sequence, isNew: true)
  }

  private mutating func delete(_ cid: String, _ id: String) -> Outcome {
    guard channels[cid] != nil else { return .refused("channel_not_found") }
    guard let place = channels[cid]!.places[id] else { return .refused("message_not_found") }
    channels[cid]!.messages[place].isDeleted = true
    return .position(place + 1)
  }

  private mutating func act(
    _ cid: String,
    _ user: String,
    _ message: String,
    emptyIsNewest: Bool = false,
    isOff: Bool = false,
    _ make: (Int, Int) -> Act
  ) -> Outcome {
    guard channels[cid] != nil else { return .refused("channel_not_found") }
    guard let row = membership(cid, user) else { return .refused("not_a_member") }
    guard !isOff else { return .refused("mark_unread_off") }
    var sequence = channels[cid]!.messages.count
    if !(emptyIsNewest && message.isEmpty) {
      guard let place = channels[cid]!.places[message] else { return .refused("message_not_found") }
      sequence = place + 1
    }
    channels[cid]!.memberships[row].acts.append(make(sequence, now))
    return .row(ownRow(cid, row))
  }

  // MARK: Rules

  /// Goes through a member's history from the join on (R2 to R6).
  func positions(_ member: Membership) -> Positions {
    var at = Positions()
    at.watermark = member.hidesHistory ? 0 : member.joinedAfter
    func isOlder(_ epoch: Int?) -> Bool { epoch != nil && epoch! < at.epoch }
    for act in member.acts {
      switch act {
      case .read(let n, let epoch, let time):
        if n > at.watermark {
          at.watermark = n
          at.movedAt = time
        }
        if let marker = at.marker, !isOlder(epoch) {
          at.marker = max(marker, n)
          if at.marker! >= at.watermark { at.marker = nil }
        }
      case .delivered(let n, let time):
        if n > at.delivered {
          at.delivered = n
          at.deliveredAt = time
        }
      case .unread(let m, let epoch):
        if m > at.watermark || isOlder(epoch) || at.marker == m - 1 { continue }
        at.marker = m - 1
        at.epoch += 1
      case .posted(let n, let time):
        at.watermark = n
        at.movedAt = time
        at.delivered = n
        at.deliveredAt = time
        at.marker = nil
      }
    }
    return at
  }

  func settings(_ cid: String) -> Settings {
    let type = types[String(cid.split(separator: ":")[0])] ?? ChannelType()
    return type.settings.merging(channels[cid]!.own) { $1 }
  }

  private func membership(_ cid: String, _ user: String) -> Int? {
    channels[cid]!.memberships.firstIndex { $0.user == user && !$0.hasLeft }
  }

  private func currentMembers(_ cid: String) -> [Membership] {
    channels[cid]!.memberships.filter { !$0.hasLeft }
  }

  // MARK: Answers

  private func ownRow(_ cid: String, _ row: Int) -> RowView {
    let member = channels[cid]!.memberships[row]
    let at = positions(member)
    return view(cid, member, at, read: at.own, received: at.delivered, implied: at.watermark, hasOwn: true)
  }

  /// - Parameters:
  ///   - read: the read position to show.
  ///   - received: the delivered position to show.
  ///   - implied: the read position that delivery follows from (R3).
  private func view(
    _ cid: String,
    _ member: Membership,
    _ at: Positions,
    read: Int,
    received: Int,
    implied: Int,
    hasOwn: Bool,
    showsReadTime: Bool = true
  ) -> RowView {
    let messages = channels[cid]!.messages
    func id(_ n: Int) -> String { n == 0 ? "" : messages[n - 1].id }
    let readAt = showsReadTime && at.movedAt != 0 ? at.movedAt : member.joinedAt
    let delivered = max(received, implied)
    var own: RowView.OwnView?
    if hasOwn {
      let unread = (0..<messages.count).filter { place in
        let message = messages[place]
        return place + 1 > at.own && !(member.hidesHistory && place < member.joinedAfter)
          && message.sender != member.user && !message.isSilent && !message.isDeleted
      }
      own = RowView.OwnView(
        unread: unread.count,
        firstUnreadID: unread.first.map { messages[$0].id } ?? "",
        epoch: at.epoch
      )
    }
    return RowView(
      user: member.user,
      lastReadAt: readAt,
      lastRead: read,
      lastReadID: id(read),
      lastDeliveredAt: delivered == 0 ? 0 : received >= implied ? at.deliveredAt : readAt,
      lastDelivered: delivered,
      lastDeliveredID: id(delivered),
      own: own
    )
  }

  /// Everything that can be asked of one channel at one moment; the members' histories are gone through once.
  func answers(_ cid: String) -> Answers {
    Answers(
      model: self,
      cid: cid,
      settings: settings(cid),
      members: currentMembers(cid).map { ($0, positions($0)) }
    )
  }

  struct Answers {
    let model: NaiveModel
    let cid: String
    let settings: Settings
    /// In join order.
    let members: [(membership: Membership, at: Positions)]

    private var readEvents: Bool { settings["read_events"] == "true" }
    private var deliveryEvents: Bool { settings["delivery_events"] == "true" }

    /// The read position that others see (R4, R8).
    private func shownRead(_ at: Positions) -> Int {
      if !readEvents { return 0 }
      return settings["mark_unread"] == "public" ? at.own : at.watermark
    }

    private func shownDelivered(_ at: Positions) -> Int { deliveryEvents ? at.delivered : 0 }

    func ownRow(_ user: String) -> RowView? {
      guard let (member, at) = members.first(where: { $0.membership.user == user }) else { return nil }
      return model.view(
        cid,
        member,
        at,
        read: at.own,
        received: at.delivered,
        implied: at.watermark,
        hasOwn: true
      )
    }

    func shownRow(_ user: String, hasOwn: Bool) -> RowView? {
      guard let (member, at) = members.first(where: { $0.membership.user == user }) else { return nil }
      return model.view(
        cid,
        member,
        at,
        read: shownRead(at),
        received: shownDelivered(at),
        implied: shownRead(at),
        hasOwn: hasOwn,
        showsReadTime: readEvents
      )
    }

    /// All rows, in the order of R12, or the refusal's name.
    func readState(_ viewer: Viewer) -> Result<[RowView], NamedRefusal> {
      var rows: [RowView] = []
      if let user = viewer.user {
        guard let own = ownRow(user) else { return .failure(NamedRefusal(name: "not_a_member")) }
        rows.append(own)
      }
      for (member, _) in members.reversed() where member.user != viewer.user {
        rows.append(shownRow(member.user, hasOwn: viewer.isServer)!)
      }
      return .success(rows)
    }

    func status(_ id: String) -> StatusResult {
      guard let place = model.channels[cid]!.places[id] else { return .refused("message_not_found") }
      return status(at: place + 1)
    }

    func status(at n: Int) -> StatusResult {
      let message = model.channels[cid]!.messages[n - 1]
      if message.isDeleted { return .refused("message_deleted") }
      var expected = 0
      var readers = 0
      var receivers = 0
      for (member, at) in members where member.joinedAfter < n && member.user != message.sender {
        expected += 1
        let hasRead = shownRead(at) >= n
        if hasRead { readers += 1 }
        if hasRead || shownDelivered(at) >= n { receivers += 1 }
      }
      return .status(
        StatusView(
          sequence: n,
          word: readers > 0 ? "read" : receivers > 0 ? "delivered" : "sent",
          readCount: readers,
          deliveredCount: receivers,
          unreadCount: expected - readers,
          memberCount: expected,
          readEvents: readEvents,
          deliveryEvents: deliveryEvents,
          createdAt: message.createdAt
        )
      )
    }
  }
}

/// A refusal by the wire's name of its error.
struct NamedRefusal: Error, Hashable, Sendable {
  var name: String
}
