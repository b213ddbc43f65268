@testable import NaiveReceiptModel
@testable import ReceiptModel

/// A client's view of a channel, built from its events alone. Comparing it with the answers to queries shows missing
/// events.
struct EventDerivedView {
  /// The channel itself, under key 0, and its threads, under their parents' sequence numbers.
  struct Room {
    /// By user: the row as others see it.
    var shown: [String: RowView] = [:]
    /// By user: the row as the user's own devices see it.
    var own: [String: OwnPosition] = [:]
    var messages: [UInt32: Message] = [:]
  }

  struct OwnPosition: Hashable {
    var read: UInt32
    var at: Int
    var epoch: Int
    /// Whether the channel is flagged unread as a whole.
    var isFlagged = false
  }

  struct Message {
    var id: String
    var status = MessageStatus.sent
    var isDeleted = false
    var receipt = AcknowledgementStatus.none
  }

  let number: ChannelNumber
  /// Whether the view is updated by resuming after gaps instead of by live events.
  let resumes: Bool
  private(set) var rooms: [UInt32: Room] = [0: Room()]
  private(set) var members: Set<String> = []
  private(set) var options: ChannelTypeOptions
  private var truncatedThrough: UInt32 = 0

  /// Create the view of a channel that was just created and has had no events yet.
  init(_ state: borrowing ShardState, _ slot: ChannelSlot, resumes: Bool) {
    self.resumes = resumes
    number = state[slot].number
    options = state.options(slot)
  }

  /// Create the view by querying everything.
  init(asking state: inout ShardState, _ slot: ChannelSlot) {
    self.init(state, slot, resumes: true)
    state.refresh(slot)
    truncatedThrough = state[slot].messages.truncatedThrough.rawValue
    var places = [slot]
    for place in 0..<state[slot].threads.count { places.append(slot.thread(place)) }
    for place in places {
      state.refresh(place)
      var room = Room()
      for position in 0..<state[place].rows.rowCount {
        let row = MemberOrdinal(UInt32(position))
        guard state[place].rows.isActive(row) else { continue }
        let user = Self.user(row, state, place)
        if !place.isThread { members.insert(user) }
        room.shown[user] = state.view(place, state.shownRow(place, row, withOwnDetails: false))
        room.own[user] = Self.own(row, state, place)
      }
      for number in 0..<state[place].messages.newest.rawValue {
        let sequence = SequenceNumber(number + 1)
        room.messages[sequence.rawValue] = Message(
          id: state[place].messages.text(sequence),
          status: state.status(place, sequence).status,
          isDeleted: state[place].messages.flags(sequence).contains(.deleted),
          receipt: state[place].acknowledgementStatus(sequence, at: .none)
        )
      }
      rooms[state[place].parent.rawValue] = room
    }
  }

  // MARK: Applying events

  mutating func apply(_ event: ChannelEvent, _ state: borrowing ShardState, _ slot: ChannelSlot) {
    switch event {
    case .row(let row): apply(row, state, slot)
    case .messageNew(let thread, let sequence, let moves):
      let place = Self.place(thread, state, slot)!
      apply(moves, of: sequence, thread, state, place)
      // Repeated after a gap, it is the same message.
      guard rooms[thread.rawValue]?.messages[sequence.rawValue] == nil else { return }
      rooms[thread.rawValue, default: Room()].messages[sequence.rawValue] = Message(
        id: state[place].messages.text(sequence),
        receipt: state[place].acknowledgementTable.isRequested(sequence) ? .processing : .none
      )
    case .messageDeleted(let thread, let sequence, _):
      rooms[thread.rawValue, default: Room()].messages[sequence.rawValue, default: Message(id: "")]
        .isDeleted =
        true
    case .truncated(let sequence, _): truncatedThrough = max(truncatedThrough, sequence.rawValue)
    case .updated: options = state.options(slot)
    case .memberAdded(let row, _):
      let user = Self.user(row, state, slot)
      members.insert(user)
      let joined = Self.joined(row, state, slot)
      // A member who joins again is in no thread.
      for room in rooms.keys { (rooms[room]!.shown[user], rooms[room]!.own[user]) = (nil, nil) }
      rooms[0]!.shown[user] = joined
      rooms[0]!.own[user] = OwnPosition(
        read: UInt32(joined.lastRead),
        at: joined.lastReadAt,
        epoch: 0
      )
    case .memberRemoved(let user, _):
      members.remove(user)
      for room in rooms.keys {
        rooms[room]!.shown[user] = nil
        rooms[room]!.own[user] = nil
      }
    case .status(let thread, let run, _):
      let place = Self.place(thread, state, slot)!
      for number in run.from.rawValue...run.to.rawValue
      where state[place].messages.sender(SequenceNumber(number)) == run.sender {
        rooms[thread.rawValue]?.messages[number]?.status = run.status
      }
    case .acknowledgement(let sequence, _, _):
      rooms[0]!.messages[sequence.rawValue]?.receipt = state[slot].acknowledgementStatus(
        sequence,
        at: .none
      )
    }
  }

  private mutating func apply(
    _ event: ChannelEvent.RowEvent,
    _ state: borrowing ShardState,
    _ slot: ChannelSlot
  ) {
    let place = Self.place(event.thread, state, slot)!
    let user = Self.user(event.row, state, place)
    if event.showsRead || event.showsDelivered || event.showsRow {
      let shown = state.view(place, state.shownRow(place, event.row, withOwnDetails: false))
      rooms[event.thread.rawValue, default: Room()].shown[user] = shown
    }
    if event.isRead || event.isUnread {
      rooms[event.thread.rawValue, default: Room()].own[user] = Self.own(event.row, state, place)
    }
  }

  /// The positions that a message gives its sender.
  private mutating func apply(
    _ moves: ChannelEvent.SenderMoves,
    of sequence: SequenceNumber,
    _ thread: SequenceNumber,
    _ state: borrowing ShardState,
    _ place: ChannelSlot
  ) {
    let user = state[place].users.text(state[place].messages.sender(sequence))
    let (id, number) = (state[place].messages.text(sequence), Int(sequence.rawValue))
    let at = Int(state[place].messages.registeredAt(sequence).milliseconds)
    let room = thread.rawValue
    if moves.contains(.read) {
      let epoch = rooms[room]?.own[user]?.epoch ?? 0
      rooms[room, default: Room()].own[user] = OwnPosition(read: sequence.rawValue, at: at, epoch: epoch)
    }
    guard moves.contains(.readShown) || moves.contains(.deliveredShown) else { return }
    // No event has the time of joining a thread.
    var joinedAt: Int64 = 0
    if let row = state[place].rows.row(of: state[place].messages.sender(sequence)) {
      joinedAt = state[place].rows.joinedAt(row).milliseconds
    }
    let none = RowView(
      user: user,
      lastReadAt: Int(joinedAt),
      lastRead: 0,
      lastReadID: "",
      lastDeliveredAt: 0,
      lastDelivered: 0,
      lastDeliveredID: ""
    )
    var shown = rooms[room]?.shown[user] ?? none
    if moves.contains(.readShown) { (shown.lastRead, shown.lastReadID, shown.lastReadAt) = (number, id, at) }
    (shown.lastDelivered, shown.lastDeliveredID, shown.lastDeliveredAt) = (number, id, at)
    rooms[room, default: Room()].shown[user] = shown
  }

  private static func place(
    _ thread: SequenceNumber,
    _ state: borrowing ShardState,
    _ slot: ChannelSlot
  ) -> ChannelSlot? {
    thread == .zero ? slot : state[slot].threads.index(of: thread).map { slot.thread($0) }
  }

  private static func user(_ row: MemberOrdinal, _ state: borrowing ShardState, _ slot: ChannelSlot)
    -> String
  {
    state[slot].users.text(state[slot].rows.user(row))
  }

  private static func own(_ row: MemberOrdinal, _ state: borrowing ShardState, _ slot: ChannelSlot)
    -> OwnPosition
  {
    let own = state.ownRow(slot, row)
    return OwnPosition(
      read: own.lastReadSequence.rawValue,
      at: Int(own.lastRead.milliseconds),
      epoch: Int(own.own!.unreadEpoch),
      isFlagged: own.own!.isFlaggedUnread
    )
  }

  /// The positions that joining gives a member (R6), which all members know.
  private static func joined(
    _ row: MemberOrdinal,
    _ state: borrowing ShardState,
    _ slot: ChannelSlot
  )
    -> RowView
  {
    let joinedAt = state[slot].rows.joinedAt(row).milliseconds
    let joined = state[slot].rows.joined(row)
    let read = state[slot].rows.hidesHistory(row) ? .zero : joined
    return state.view(
      slot,
      ShownRow(
        row: row,
        joined: joined,
        lastRead: Timestamp(milliseconds: joinedAt),
        lastReadSequence: read,
        lastDelivered: read == .zero ? .none : Timestamp(milliseconds: joinedAt),
        lastDeliveredSequence: read,
        own: nil
      )
    )
  }

  // MARK: Comparing with queries

  /// The first difference between the view and the answers to queries; nil if there is none.
  func fault(_ state: inout ShardState, _ slot: ChannelSlot) -> String? {
    state.refresh(slot)
    if options != state.options(slot) { return "the options are \(state.options(slot).settings)" }
    if truncatedThrough != state[slot].messages.truncatedThrough.rawValue {
      return
        "truncated through \(state[slot].messages.truncatedThrough.rawValue), not \(truncatedThrough)"
    }
    var active: Set<String> = []
    for position in 0..<state[slot].rows.rowCount
    where state[slot].rows.isActive(.init(UInt32(position))) {
      active.insert(Self.user(MemberOrdinal(UInt32(position)), state, slot))
    }
    if members != active { return "members are \(active.sorted()), not \(members.sorted())" }
    if let fault = fault(rooms[0]!, state, slot) { return fault }
    for place in 0..<state[slot].threads.count where !state[slot].isClosed(place) {
      let thread = slot.thread(place)
      state.refresh(thread)
      let parent = state[thread].parent.rawValue
      if let fault = fault(rooms[parent] ?? Room(), state, thread) {
        return "thread of \(parent): \(fault)"
      }
    }
    return nil
  }

  private func fault(_ room: Room, _ state: borrowing ShardState, _ place: ChannelSlot) -> String? {
    for position in 0..<state[place].rows.rowCount {
      let row = MemberOrdinal(UInt32(position))
      guard state[place].rows.isActive(row) else { continue }
      let user = Self.user(row, state, place)
      var shown = state.view(place, state.shownRow(place, row, withOwnDetails: false))
      // A thread's rows are compared by positions only: no event has the time of joining a thread.
      if place.isThread {
        shown.joined = room.shown[user]?.joined ?? 0
        if shown.lastRead == 0 { shown.lastReadAt = room.shown[user]?.lastReadAt ?? 0 }
      }
      let own = Self.own(row, state, place)
      // A client cannot know whether a member hidden in a thread was visible there before a gap.
      if state[place].rows.isUnseen(row, state.options(place)), resumes { continue }
      // In a thread, no event reports a member without a position, nor the time of joining.
      let hadPosition = room.shown[user].map { $0.lastDelivered > 0 } ?? false
      if !place.isThread || shown.lastDelivered > 0 || hadPosition, room.shown[user] != shown {
        return "\(user) is shown as \(shown), known as \(room.shown[user] as Any)"
      }
      if !place.isThread || own.read > 0 || room.own[user] != nil, room.own[user] != own {
        return "own row of \(user) is \(own), known as \(room.own[user] as Any)"
      }
    }
    let newest = state[place].messages.newest.rawValue
    for number in 0..<newest {
      let sequence = SequenceNumber(number + 1)
      let isDeleted = state[place].messages.flags(sequence).contains(.deleted)
      let known = room.messages[sequence.rawValue]
      if isDeleted
        != (known?.isDeleted ?? false || sequence.rawValue <= truncatedThrough && !place.isThread)
      {
        return "message \(sequence.rawValue): deleted \(isDeleted), known as \(known as Any)"
      }
      if isDeleted { continue }
      guard let known, known.id == state[place].messages.text(sequence) else {
        return "message \(sequence.rawValue) is not known"
      }
      let status = state.status(place, sequence).status
      if known.status != status { return "\(known.id) is \(status), known as \(known.status)" }
      let receipt = state[place].acknowledgementStatus(sequence, at: .none)
      if known.receipt != receipt {
        return "receipt of \(known.id) is \(receipt), known as \(known.receipt)"
      }
    }
    return nil
  }
}
