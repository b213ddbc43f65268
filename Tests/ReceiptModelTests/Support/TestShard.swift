@testable import NaiveReceiptModel
@testable import ReceiptModel

/// A real ``ShardState`` driven by plain ``Command``s as a store drives it. It decides, assigns each effect, keeps a
/// log of batches, writes pages, and rebuilds from pages and log.
final class TestShard {
  /// The content of one durable append.
  struct Batch: Sendable {
    var index: LogIndex
    var time: Timestamp
    var effects: [Effect]
  }

  /// A page as it was written: it includes all batches up to `index`.
  struct StoredPage: Sendable {
    var index: LogIndex
    var effects: [Effect]
  }

  struct PageKey: Hashable, Sendable {
    var channel: ChannelNumber
    var page: PageID
  }

  var state: ShardState
  private(set) var slots: [ChannelNumber: ChannelSlot] = [:]
  private(set) var log: [Batch] = []
  private(set) var pages: [PageKey: StoredPage] = [:]
  /// The shard's own pages: channel types, users' settings.
  private(set) var shardPages: [PageID: StoredPage] = [:]
  /// Effects since the last ``seal()``. One batch gathers several commands (docs/contribute/architecture.md).
  private var open: [Effect] = []
  /// The number of effects of the last command.
  private(set) var lastEffectCount = 0
  /// Violations that no answer shows: of invariants, and effects of a refused command.
  var faults: [String] = []
  /// Times in threads dropped since the last call of `takeDroppedTimes` (`TestShard+Histories.swift`).
  var forgotten: [DroppedTimes] = []
  /// Changes of watched channels that are not reported yet, by channel number (`EventStory.swift`).
  var pending: [ChannelNumber: PendingChannelEvents]?
  /// By cid, in order of creation.
  var tickets: [String: [TicketPlace]] = [:]
  /// Whether everything is checked after each command, instead of only the state that it touched.
  var checksEverything = false

  /// The channel's slot. Its copies of the members' settings are refreshed, as every query requires.
  func slot(_ cid: String) -> ChannelSlot? {
    let cid = Array(cid.utf8)
    guard let slot = state.slot(of: cid.span.bytes) else { return nil }
    state.refresh(slot)
    return slot
  }

  let shardCount: Int

  init(id: ShardID = ShardID(3), shardCount: Int = 1) {
    self.shardCount = shardCount
    state = ShardState(id: id, shardCount: shardCount)
  }

  // MARK: Commands

  func perform(_ command: Command, clock: Int) -> Outcome {
    if let outcome = performExtended(command, clock: clock) { return outcome }
    let time = state.advance(clock: Timestamp(milliseconds: Int64(clock)))
    var effects: [Effect] = []
    do throws(Refusal) {
      switch command {
      case .put(let cid, let settings, let members): try decidePut(cid, settings, members, time, &effects)
      case .patchType(let name, let settings):
        state.types.decidePatch(name, OptionPatch(settings), at: state.time, into: &effects)
      case .assignType(let name, let version, let settings):
        let options = ChannelTypeOptions().applying(OptionPatch(settings))
        let record = ChannelTypeRecord(name: name, version: UInt64(version), options: options)
        state.types.decideAssign(record, at: state.time, into: &effects)
      case .change(let cid, let add, let remove):
        try state.decideMembers(
          loaded(cid),
          add: add.map(ShardState.NewMember.init),
          remove: remove,
          at: add.isEmpty
            ? time : state.advance(clock: time, forMembersOf: slot(cid)),
          into: &effects
        )
      case .patchUser(let user, let showsRead, let showsDelivered, let revoked):
        let patch = UserSettingsPatch(
          showsRead: showsRead,
          showsDelivered: showsDelivered,
          tokensRevokedBefore: revoked.map { Timestamp(milliseconds: Int64($0)) }
        )
        state.settings.decidePatch(user, patch, at: time, into: &effects)
      case .assignUser(let user):
        state.settings.decideAssign(UserSettings(user), at: state.time, into: &effects)
      case .acknowledge(let cid, let user, let messages, let note):
        return try acknowledge(cid, user, messages, note, time)
      case .post, .delete, .read, .delivered, .unread:
        let decided = try decideInChannel(command, time, &effects)
        apply(effects)
        return finish(decided)
      case .inThread, .truncate, .deleteChannel, .eraseMember, .eraseUser, .assignErased, .readAll, .push,
        .ticket, .redeem, .member:
        preconditionFailure("performed above")
      }
    } catch {
      if !effects.isEmpty { faults.append("refused with \(error), but left \(effects.count) effects") }
      lastEffectCount = 0
      return .refused(error.wireName)
    }
    let isNew = effects.contains { if case .shard(.countersAssigned) = $0 { true } else { false } }
    apply(effects)
    switch command {
    case .patchType(let name, _), .assignType(let name, _, _):
      let record = state.types.record(name)
      return .type(version: Int(record.version), settings: record.options.settings)
    case .patchUser(let user, _, _, _): return .user(settings(of: user))
    case .assignUser(let user): return .user(settings(of: user.user))
    case .put(let cid, _, _), .change(let cid, _, _):
      let slot = slot(cid)!
      return .channel(
        isNew: isNew,
        members: state[slot].rows.activeCount,
        newest: Int(state[slot].messages.newest.rawValue)
      )
    default:
      preconditionFailure("answered above")
    }
  }

  /// Acknowledge one after the other: each is assigned before the next is decided.
  private func acknowledge(
    _ cid: String,
    _ user: String,
    _ messages: [String],
    _ note: String,
    _ time: Timestamp
  ) throws(Refusal) -> Outcome {
    let (slot, user) = (try loaded(cid), Array(user.utf8))
    let row = try state.member(user.span.bytes, in: slot)
    var count = 0
    var codes: [String] = []
    for message in messages {
      let message = Array(message.utf8)
      var effects: [Effect] = []
      do throws(Refusal) {
        try state.decideAcknowledge(
          slot,
          row,
          message: message.span.bytes,
          note: note,
          at: time,
          into: &effects
        )
        codes.append("ok")
      } catch {
        if !effects.isEmpty { faults.append("refused with \(error), but left \(effects.count) effects") }
        codes.append(error.wireName)
      }
      apply(effects)
      count += effects.count
    }
    lastEffectCount = count
    return .acknowledged(codes)
  }

  /// Advance the clock without a command.
  func pass(to clock: Int) { _ = state.advance(clock: Timestamp(milliseconds: Int64(clock))) }

  /// The result of a decision, read once its effects are assigned.
  private enum Decided {
    case row(ChannelSlot, MemberOrdinal)
    case message(ChannelSlot, SequenceNumber, isNew: Bool)
    case outcome(Outcome)
  }

  private func finish(_ decided: Decided) -> Outcome {
    switch decided {
    case .row(let slot, let row): .row(view(slot, state.ownRow(slot, row)))
    case .message(let slot, let sequence, let isNew):
      .message(
        sequence: Int(sequence.rawValue),
        isNew: isNew,
        refusal: state.acknowledgementRequestRefusal(slot, sequence).wireName
      )
    case .outcome(let outcome): outcome
    }
  }

  private func decidePut(
    _ cid: String,
    _ settings: Settings,
    _ members: [MemberSpec],
    _ time: Timestamp,
    _ effects: inout [Effect]
  ) throws(Refusal) {
    let members = members.map(ShardState.NewMember.init)
    let options = OptionPatch(settings)
    if let slot = slot(cid) {
      let time = members.isEmpty ? time : state.advance(clock: time, forMembersOf: slot)
      try state.decideUpdate(slot, options: options, members: members, at: time, into: &effects)
    } else {
      try state.decideCreate(cid: cid, options: options, members: members, at: time, into: &effects)
    }
  }

  private func decideInChannel(
    _ command: Command,
    _ time: Timestamp,
    _ effects: inout [Effect]
  ) throws(Refusal) -> Decided {
    switch command {
    case .post(
      let cid,
      let id,
      let sender,
      let created,
      let isSilent,
      let requestsAcknowledgement,
      let moves,
      let mentions
    ):
      let (id, sender) = (Array(id.utf8), Array(sender.utf8))
      let slot = try loaded(cid)
      let message = NewMessage(
        id: id.span.bytes,
        sender: sender.span.bytes,
        created: Timestamp(milliseconds: Int64(created)),
        isSilent: isSilent,
        requestsAcknowledgement: requestsAcknowledgement,
        movesPosition: moves,
        mentions: .init(mentions)
      )
      let registration = try state.decideRegister(slot, message, at: time, into: &effects)
      switch registration {
      case .created(let sequence):
        return .message(slot, sequence, isNew: true)
      case .known(let sequence):
        return .message(state.targetSlot(of: id.span.bytes, in: slot), sequence, isNew: false)
      }
    case .delete(let cid, let id):
      let id = Array(id.utf8)
      let sequence = try state.decideDelete(loaded(cid), id: id.span.bytes, at: time, into: &effects)
      return .outcome(.position(Int(sequence.rawValue)))
    case .read(let cid, let user, let message, let epoch):
      let (slot, user, message) = (try loaded(cid), Array(user.utf8), Array(message.utf8))
      let marked = try state.decideRead(
        slot,
        user: user.span.bytes,
        message: message.span.bytes,
        epoch: epoch.map(UInt32.init),
        at: time,
        into: &effects
      )
      return .row(slot, marked.row)
    case .delivered(let cid, let user, let message):
      let (slot, user, message) = (try loaded(cid), Array(user.utf8), Array(message.utf8))
      let marked = try state.decideDelivered(
        slot,
        user: user.span.bytes,
        message: message.span.bytes,
        at: time,
        into: &effects
      )
      return .row(slot, marked.row)
    case .unread(let cid, let user, let message, let epoch):
      let (slot, user, message) = (try loaded(cid), Array(user.utf8), Array(message.utf8))
      if message.isEmpty {
        let row = try state.decideFlagUnread(
          slot,
          user: user.span.bytes,
          epoch: epoch.map(UInt32.init),
          at: state.time,
          into: &effects
        )
        return .row(slot, row)
      }
      let row = try state.decideUnread(
        slot,
        user: user.span.bytes,
        message: message.span.bytes,
        epoch: epoch.map(UInt32.init),
        at: state.time,
        into: &effects
      )
      return .row(slot, row)
    case .put, .change, .patchType, .assignType, .patchUser, .assignUser, .acknowledge, .inThread, .truncate,
      .deleteChannel, .eraseMember, .eraseUser, .assignErased, .readAll, .push, .ticket, .redeem, .member:
      preconditionFailure("not a command within a channel")
    }
  }

  func apply(_ effects: [Effect]) {
    for effect in effects {
      recordDroppedTimes(effect)
      if pending != nil { recordBeforeAssign(effect) }
      state.assign(addressed: effect, slots: &slots)
      if pending != nil { recordAfterAssign(effect) }
      check(changedBy: effect)
    }
    lastEffectCount = effects.count
    open += effects
    if checksEverything { checkAll() }
  }

  // MARK: Invariants

  private func check(changedBy effect: Effect) {
    #if DEBUG
      guard case .channel(let number, let effect) = effect, let slot = slots[number] else { return }
      if let fault = state[slot].checkInvariants(changedBy: effect) {
        faults.append("after \(effect): \(fault)")
      }
    #endif
  }

  func checkAll() {
    #if DEBUG
      if let fault = state.checkInvariants() { faults.append(fault) }
    #endif
  }

  // MARK: Log, pages and recovery

  /// End a batch. Pages are written only between batches, since a log index stands for a whole batch.
  func seal() {
    guard !open.isEmpty else { return }
    log.append(Batch(index: (log.last?.index ?? .zero).next, time: state.time, effects: open))
    open = []
  }

  var isSealed: Bool { open.isEmpty }

  /// All pages of a channel.
  func pageKeys(_ number: ChannelNumber) -> [PageKey] {
    let slot = slots[number]!
    let rowPages = (state[slot].rows.rowCount + 255) / 256
    let segments = (Int(state[slot].messages.newest.rawValue) + 255) / 256
    return [PageKey(channel: number, page: .head)]
      + (0..<rowPages).map { PageKey(channel: number, page: .rows(UInt32($0))) }
      + (0..<segments).map { PageKey(channel: number, page: .segment(UInt32($0))) }
      + acknowledged(slot).map { PageKey(channel: number, page: .acknowledgements($0)) }
      + threadPages(slot).map { PageKey(channel: number, page: $0) }
      + (0..<state[slot].memberships.pageCount).map { PageKey(channel: number, page: .memberships($0)) }
  }

  /// Messages with acknowledgements.
  private func acknowledged(_ slot: ChannelSlot) -> [SequenceNumber] {
    (0..<state[slot].messages.newest.rawValue).map { SequenceNumber($0 + 1) }
      .filter { !state.effects(of: .acknowledgements($0), in: slot).isEmpty }
  }

  /// Segments of steps that are not in storage yet.
  func stepKeys(_ number: ChannelNumber) -> [PageKey] {
    let slot = slots[number]!
    let rowPages = (state[slot].rows.rowCount + 255) / 256
    return (0..<UInt32(rowPages)).flatMap { rowPage in
      state[slot].steps.segments(rowPage).filter { state[slot].steps.segment(rowPage, $0) != nil }
        .map { PageKey(channel: number, page: .steps(rowPage, $0)) }
    }
  }

  /// All pages of all channels.
  var allPageKeys: [PageKey] { slots.keys.sorted().flatMap { pageKeys($0) + stepKeys($0) } }

  /// Write one page with its current content.
  func writePage(_ key: PageKey) {
    precondition(isSealed, "a page includes whole batches")
    let index = log.last?.index ?? .zero
    let slot = slots[key.channel]!
    pages[key] = StoredPage(index: index, effects: state.effects(of: key.page, in: slot))
    // From now on the segment is read from storage on request.
    if case .steps(let rowPage, let segment) = key.page { state.dropSegment(slot, rowPage, segment) }
  }

  /// The bytes of a segment of steps, from memory or storage.
  func steps(_ number: ChannelNumber, _ rowPage: UInt32, _ segment: UInt32) -> [UInt8] {
    if let bytes = state[slots[number]!].steps.segment(rowPage, segment) { return bytes }
    let stored = pages[PageKey(channel: number, page: .steps(rowPage, segment))]?.effects.first
    guard case .channel(_, .stepsSealed(_, _, let bytes)) = stored else {
      faults.append("segment \(segment) of the steps of row page \(rowPage) is nowhere")
      return []
    }
    return bytes
  }

  /// Merge segments of steps, where that is worth it.
  func trim(_ number: ChannelNumber) -> Bool {
    let slot = slots[number]!
    var hasTrimmed = false
    for rowPage in 0..<UInt32((state[slot].rows.rowCount + 255) / 256) where state.needsTrim(slot, rowPage) {
      let range = state[slot].steps.segments(rowPage)
      let segments = range.map { steps(number, rowPage, $0) }
      var effects: [Effect] = []
      if !state.decideTrim(slot, rowPage, range, segments, into: &effects) {
        faults.append("a damaged segment")
      }
      if !effects.isEmpty { hasTrimmed = true }
      apply(effects)
    }
    return hasTrimmed
  }

  /// Write the shard's own pages.
  func writeShardPages() {
    precondition(isSealed, "a page includes whole batches")
    let index = log.last?.index ?? .zero
    shardPages[.types] = StoredPage(index: index, effects: state.effects(ofOwn: .types))
    for page in 0..<(UInt32(state.settings.count) + PageID.usersPerPage - 1) / PageID.usersPerPage {
      shardPages[.users(page)] = StoredPage(index: index, effects: state.effects(ofOwn: .users(page)))
    }
    for page in outboxPages {
      shardPages[.outbox(page)] = StoredPage(index: index, effects: state.effects(ofOwn: .outbox(page)))
    }
    shardPages[.index] = StoredPage(index: index, effects: state.effects(ofOwn: .index))
    var timerPages = Set(shardPages.keys.filter { if case .timers = $0 { true } else { false } })
    state.timers.forEach { number, _ in timerPages.insert(.timers(PageID.timerPage(of: number))) }
    var jobPages = Set(shardPages.keys.filter { if case .pushJob = $0 { true } else { false } })
    state.pushJobs.forEach { number, _ in jobPages.insert(.pushJob(number)) }
    for page in timerPages.union(jobPages) {
      shardPages[page] = StoredPage(index: index, effects: state.effects(ofOwn: page))
    }
  }

  private var outboxPages: Range<UInt32> {
    0..<UInt32(min(PageID.outboxPages, state.outbox.last / PageID.changesPerOutboxPage + 1))
  }

  /// Another shard, built from the stored data of this one.
  struct Copy: ~Copyable {
    var state: ShardState
    var slots: [ChannelNumber: ChannelSlot]

    func digest() -> ShardDigest { ShardDigest(state, slots) }
  }

  /// A new shard with every logged effect assigned in order.
  func replayed() -> Copy {
    var fresh = ShardState(id: state.id, shardCount: shardCount)
    var slots: [ChannelNumber: ChannelSlot] = [:]
    for batch in log {
      fresh.assign(time: batch.time)
      for effect in batch.effects { fresh.assign(addressed: effect, slots: &slots) }
    }
    for slot in slots.values { fresh.refresh(slot) }
    return Copy(state: fresh, slots: slots)
  }

  /// A new shard from the stored pages, each with its own log index, and the later log effects of each page.
  ///
  /// Each page gets its own tail before the next page is read. Reading all pages first and then the tail in log order
  /// would fail. A segment with an older page than its successor's lacks messages until its tail is assigned, and
  /// messages must be assigned without gaps.
  ///
  /// - Parameter shuffle: reorders the row pages; segments must be in rising order.
  func recovered(shuffle: ([PageID]) -> [PageID] = { $0 }) -> Copy {
    precondition(isSealed, "what is not in the log is lost")
    var fresh = ShardState(id: state.id, shardCount: shardCount)
    var slots: [ChannelNumber: ChannelSlot] = [:]
    var tails: [PageKey: [Effect]] = [:]
    var numbers: Set<ChannelNumber> = Set(pages.keys.map(\.channel))
    var deleted: Set<ChannelNumber> = []
    for (_, page) in shardPages.sorted(by: { $0.key.order < $1.key.order }) {
      for effect in page.effects { fresh.assign(effect) }
    }
    for batch in log {
      fresh.assign(time: batch.time)
      for effect in batch.effects {
        guard let channel = effect.channel else {
          if batch.index > shardPages[effect.page]?.index ?? .zero { fresh.assign(effect) }
          continue
        }
        if case .channel(_, .channelDeleted) = effect { deleted.insert(channel) }
        let key = PageKey(channel: channel, page: effect.page)
        numbers.insert(channel)
        if batch.index > pages[key]?.index ?? .zero { tails[key, default: []].append(effect) }
      }
    }
    let keys = Set(tails.keys).union(pages.keys)
    for number in numbers.subtracting(deleted).sorted() {
      let own = keys.filter { $0.channel == number }.map(\.page)
      let rowPages = shuffle(own.filter(\.isRows).sorted { $0.order < $1.order })
      let segments = own.filter { !$0.isRows && $0 != .head }.sorted { $0.order < $1.order }
      for page in [.head] + rowPages + segments {
        let key = PageKey(channel: number, page: page)
        // Segments of steps in storage stay there.
        let stored = page.isSteps ? [] : pages[key]?.effects ?? []
        for effect in stored + (tails[key] ?? []) {
          fresh.assign(addressed: effect, slots: &slots)
        }
      }
    }
    for slot in slots.values { fresh.refresh(slot) }
    return Copy(state: fresh, slots: slots)
  }

  /// Replace the shard by its recovery from pages and log, as after a crash.
  func crash(shuffle: ([PageID]) -> [PageID] = { $0 }) {
    let clock = state.time
    let copy = recovered(shuffle: shuffle)
    slots = copy.slots
    state = copy.state
    let logged = log.last?.time ?? .none
    if state.time != logged { faults.append("recovered at \(state.time), not at \(logged)") }
    _ = state.advance(clock: clock)
    checkAll()
  }

  /// Every answer of the shard.
  func digest() -> ShardDigest {
    for slot in slots.values { state.refresh(slot) }
    return ShardDigest(state, slots)
  }

  /// Evict a channel, and load it from pages with its current content.
  func evictAndLoad(_ number: ChannelNumber) {
    seal()
    for key in stepKeys(number) { writePage(key) }
    let effects = pageKeys(number).flatMap { state.effects(of: $0.page, in: slots[number]!) }
    state.remove(slots[number]!)
    slots[number] = nil
    for effect in effects { state.assign(addressed: effect, slots: &slots) }
    checkAll()
  }
}

extension PageID {
  var isSteps: Bool { if case .steps = self { true } else { false } }
  var isRows: Bool { if case .rows = self { true } else { false } }

  /// Within pages of one kind.
  var order: UInt32 {
    switch self {
    case .rows(let number), .segment(let number), .users(let number), .steps(_, let number),
      .webhooks(let number), .timers(let number), .pushJob(let number),
      .memberships(let number), .outbox(let number), .threadRows(_, let number),
      .threadSegment(_, let number):
      number
    case .acknowledgements(let sequence): sequence.rawValue
    case .head, .types, .shardHead, .index, .tokens, .consumers: 0
    }
  }
}

extension ShardState {
  /// Assign an effect to its target; a channel that is not in memory is created by its head.
  mutating func assign(addressed effect: Effect, slots: inout [ChannelNumber: ChannelSlot]) {
    switch effect {
    case .channel(let number, .channelDeleted): assign(effect, to: slots.removeValue(forKey: number)!)
    case .channel(let number, .channelAssigned(let cid, let created, let own)) where slots[number] == nil:
      slots[number] = insert(number, cid: cid, created: created, own: own)
    case .channel(let number, let effect): assign(effect, to: slots[number]!)
    case .shard(let effect): assign(effect)
    }
  }
}

extension ShardState {
  /// Assign an effect to the shard, or to the channel in the slot.
  mutating func assign(_ effect: Effect, to slot: ChannelSlot? = nil) {
    switch effect {
    case .channel(_, let effect): assign(effect, to: slot!)
    case .shard(let effect): assign(effect)
    }
  }
}
