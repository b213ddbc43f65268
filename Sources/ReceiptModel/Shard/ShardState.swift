/// The slot of a loaded channel, or of one of its threads, in its shard's memory. Valid until the channel is evicted.
package struct ChannelSlot: Hashable, Sendable {
  /// The channel's slot number. Data kept beside a channel's state, for all its threads together, is keyed by it.
  package var rawValue: UInt32
  /// 0: the channel itself; else 1 + the index of a thread in it (R15).
  package let thread: UInt32

  package init(_ rawValue: UInt32) {
    self.rawValue = rawValue
    thread = 0
  }

  private init(_ rawValue: UInt32, thread: UInt32) {
    self.rawValue = rawValue
    self.thread = thread
  }

  package var isThread: Bool { thread > 0 }
  /// The slot of the channel itself.
  package var channel: ChannelSlot { ChannelSlot(rawValue) }
  /// The slot of one of this channel's threads.
  package func thread(_ place: Int) -> ChannelSlot { ChannelSlot(rawValue, thread: UInt32(place) + 1) }
}

internal import BasicContainers

/// One shard: a deterministic state machine (docs/architecture.md). It reads no clock, draws no random number and does
/// no I/O.
///
/// A command is *decided* into effects (`ShardState+Commands.swift`), and effects are *assigned* (here). The same
/// function assigns effects just decided and effects read back from the log or a page.
package struct ShardState: ~Copyable, Sendable {
  package let id: ShardID
  /// The last logged time; a shard's time never goes back (R20).
  package private(set) var time = Timestamp.none
  package private(set) var nextChannel = ChannelNumber(1)
  package private(set) var types: [ChannelTypeRecord] = []
  private var typePositions: [String: Int] = [:]
  /// By type index: the options before the last change, for channels with subscribers.
  private var typeOptionsBefore: [Int: ChannelTypeOptions] = [:]
  /// Users' settings, mostly non-default ones (R7).
  package private(set) var settings = UserSettingsTable()
  /// Channel slots; a free slot holds ``ChannelState/vacant()``.
  private(set) var channels = UniqueArray<ChannelState>()
  private var freeSlots: [UInt32] = []
  private var directory = HashIndex()
  /// Users' channel indexes, stored like channels, by user. Kept out of ``directory``, so that no request for a channel
  /// finds one.
  private var indexes = HashIndex()
  /// Channels by number, for tickets; without users' indexes.
  private var numbers = HashIndex()
  /// Pending membership changes, and the progress of those sent and received (R13, R14).
  package private(set) var outbox: Outbox
  /// Accepted webhooks, remembered so that none is processed twice.
  package private(set) var webhooks = WebhookTable()
  /// Individually revoked tokens; kept in one shard of the store.
  package private(set) var revokedTokens = RevokedTokenTable()
  /// This shard holds ids that builds from before 2027 reject.
  package private(set) var hasWideIDs = false
  private let passing = PassedByAddress()

  /// - Parameter shardCount: number of shards in the store; determines users' home shards.
  package init(id: ShardID, shardCount: Int = 1) {
    self.id = id
    outbox = Outbox(shardCount: shardCount)
  }

  /// Channels and users' channel indexes in memory.
  package var loadedCount: Int { directory.count + indexes.count }
  /// Their size in bytes.
  package private(set) var residentBytes = 0

  /// Adjusts ``residentBytes`` after a channel has grown or shrunk.
  mutating func addResident(_ bytes: Int) { residentBytes += bytes }

  // MARK: Time

  /// The shard's time for a decision made now: max(clock, last logged time) (R20).
  package mutating func advance(clock: Timestamp) -> Timestamp {
    time = max(time, clock)
    return time
  }

  // MARK: Channels in memory

  /// Number of slots, including free ones.
  package var slotCount: Int { channels.count }

  /// Whether this slot holds a channel.
  package func isLoaded(_ slot: ChannelSlot) -> Bool { self[slot].number != ChannelState.vacantNumber }

  /// The slot of a loaded channel, by its cid.
  package func slot(of cid: RawSpan) -> ChannelSlot? {
    directory.find(StableHash.hash(cid)) { slot in
      channels[Int(slot)].hasCID(cid)
    }
    .map(ChannelSlot.init)
  }

  /// The slot of a user's channel index, if loaded.
  package func index(of user: RawSpan) -> ChannelSlot? {
    indexes.find(StableHash.hash(user)) { slot in
      channels[Int(slot)].withIndexOwner { $0.isEqual(to: user) }
    }
    .map { ChannelSlot($0) }
  }

  /// The slot of a loaded channel, by its number.
  package func slot(numbered number: ChannelNumber) -> ChannelSlot? {
    numbers.find(Self.hash(number)) { channels[Int($0)].number == number }.map { ChannelSlot($0) }
  }

  /// Spreads consecutive channel numbers over all bits.
  private static func hash(_ number: ChannelNumber) -> UInt64 { number.rawValue &* 0x9E37_79B9_7F4A_7C15 }

  /// The slot of the channel or the user's index with this name.
  package func slot(named name: [UInt8]) -> ChannelSlot? {
    IndexName.isIndex(name)
      ? index(of: name.span.bytes.extracting(droppingFirst: IndexName.userOffset(name)))
      : slot(of: name.span.bytes)
  }

  /// Returns the shards for which changes were queued since the last call.
  package mutating func takeQueued() -> [ShardID] { outbox.takeQueued() }

  /// A loaded channel, or one of its threads.
  package subscript(slot: ChannelSlot) -> ChannelState {
    // By address, like the arrays under it. A yielding accessor with two branches allocates memory for each access,
    // which doubled the instructions of a mark. The address is used only while the shard is borrowed for this access,
    // so nothing moves meanwhile.
    @inline(__always)
    unsafeAddress {
      precondition(Int(slot.rawValue) < channels.count, "no such slot")
      let channel =
        channels.span.withUnsafeBufferPointer { $0.baseAddress.unsafelyUnwrapped } + Int(slot.rawValue)
      return slot.thread == 0 ? channel : channel.pointee.threads.address(of: Int(slot.thread) - 1)
    }
    @inline(__always)
    unsafeMutableAddress {
      precondition(Int(slot.rawValue) < channels.count, "no such slot")
      var span = channels.mutableSpan
      let channel =
        span.withUnsafeMutableBufferPointer { $0.baseAddress.unsafelyUnwrapped } + Int(slot.rawValue)
      return slot.thread == 0 ? channel : channel.pointee.threads.mutableAddress(of: Int(slot.thread) - 1)
    }
  }

  /// Loads a channel with nothing but its head, as given by its `channelAssigned` effect.
  package mutating func insert(_ number: ChannelNumber, cid: String, created: Timestamp, own: OptionPatch)
    -> ChannelSlot
  {
    let bytes = Array(cid.utf8)
    let isIndex = IndexName.isIndex(bytes)
    let typeName = String(decoding: bytes.prefix { $0 != UInt8(ascii: ":") }, as: UTF8.self)
    var channel = ChannelState(
      number: number,
      cid: bytes,
      created: created,
      ownOptions: own,
      type: isIndex ? ChannelState.noType : typePosition(typeName)
    )
    let slot: UInt32
    if let free = freeSlots.popLast() {
      slot = free
    } else {
      slot = UInt32(channels.count)
      channels.append(.vacant())
    }
    channel.settingsSeen = settings.changeCount
    residentBytes += channel.byteCount
    channels[Int(slot)] = channel
    if isIndex {
      indexes.insert(channels[Int(slot)].withIndexOwner { StableHash.hash($0) }, slot)
    } else {
      directory.insert(StableHash.hash(bytes.span.bytes), slot)
      numbers.insert(Self.hash(number), slot)
    }
    return ChannelSlot(slot)
  }

  /// Evicts a channel from memory.
  package mutating func remove(_ slot: ChannelSlot) {
    if self[slot].isIndex {
      indexes.remove(self[slot].withIndexOwner { StableHash.hash($0) }, slot.rawValue)
    } else {
      directory.remove(StableHash.hash(self[slot].cid.span.bytes), slot.rawValue)
      numbers.remove(Self.hash(self[slot].number), slot.rawValue)
    }
    residentBytes -= self[slot].byteCount
    channels[Int(slot.rawValue)] = .vacant()
    freeSlots.append(slot.rawValue)
  }

  /// The effective options of a channel: its type's, overridden by its own. A thread has its channel's options, except
  /// that new members start read and replies have no receipts (R15).
  package func options(_ slot: ChannelSlot) -> ChannelTypeOptions {
    let channel = slot.channel
    var options = types[self[channel].type].options.applying(self[channel].ownOptions)
    if slot.isThread {
      options.history = .visible
      options.readAcksReceipts = .never
    }
    return options
  }

  /// Maximum number of channel types with set options: a listing sends all of them in one frame.
  package static let typesMax = 1_024

  /// The types whose options were set. Other types have the defaults, and are known only because a channel has that
  /// type.
  package var typesSet: [ChannelTypeRecord] { types.filter { $0.version > 0 } }

  /// Whether another type can be set.
  package var hasRoomForType: Bool { typesSet.count < Self.typesMax }

  /// The record of a channel type; version 0 and the defaults if it was never set.
  package func channelType(_ name: String) -> ChannelTypeRecord {
    typePositions[name].map { types[$0] } ?? ChannelTypeRecord(name: name)
  }

  /// A type's options before its last change since the shard was loaded.
  func optionsBefore(ofType position: Int) -> ChannelTypeOptions {
    typeOptionsBefore[position] ?? types[position].options
  }

  /// The index of a type's record. Adds a record with the defaults for an unknown type; that is in memory only and not
  /// logged.
  private mutating func typePosition(_ name: String) -> Int {
    if let position = typePositions[name] { return position }
    types.append(ChannelTypeRecord(name: name))
    typePositions[name] = types.count - 1
    return types.count - 1
  }

  // MARK: Assignment

  /// Assigns an effect that is addressed to a channel in memory, not to the shard.
  package mutating func assign(_ effect: Effect, to slot: ChannelSlot) {
    guard effect.takesRoom else {
      // A mark appends a few bytes to its page's tail of steps, which may grow.
      let before = channels[Int(slot.rawValue)].steps.byteCount
      channels[Int(slot.rawValue)].assign(effect)
      residentBytes += channels[Int(slot.rawValue)].steps.byteCount - before
      return
    }
    assignLarge(effect, to: slot)
  }

  /// Assigns an effect that may change the channel's size.
  @inline(never)
  private mutating func assignLarge(_ effect: Effect, to slot: ChannelSlot) {
    if case .channelDeleted = effect { return remove(slot) }
    residentBytes -= self[slot].byteCount
    channels[Int(slot.rawValue)].assign(effect)
    residentBytes += self[slot].byteCount
    guard !settings.isEmpty else { return }
    if case .rowAssigned(_, let row, _) = effect { applySettings(row, slot) }
    if case .inThread(let parent, .rowAssigned(_, let row, _)) = effect,
      let place = self[slot].threads.place(of: parent)
    {
      applySettings(row, slot.thread(place))
    }
  }

  /// Assigns an effect addressed to the shard's own pages.
  package mutating func assign(_ effect: Effect) {
    switch effect {
    case .channelTypeAssigned(let record):
      let position = typePosition(record.name)
      typeOptionsBefore[position] = types[position].options
      types[position] = record
    case .typeSettled(let name, let version):
      let position = typePosition(name)
      if types[position].version == version { types[position].isSettled = true }
    case .userAssigned(let number, let record):
      settings.assign(number, record)
    case .userSettled(let number, let version):
      settings.settle(number, version)
    case .userErased(let number, let version, let hash, let time):
      settings.erase(number, version: version, hash: hash, at: time)
    case .countersAssigned(let next, let time):
      nextChannel = next
      assign(time: time)
    case .membershipQueued(let number, let change):
      outbox.queue(number, change)
    case .membershipsSent(let shard, let number):
      outbox.assignSent(shard, through: number)
    case .membershipsTaken(let shard, let number):
      outbox.assignReceived(shard, through: number)
    case .indexEpochAssigned(let epoch):
      outbox.assign(epoch: epoch)
    case .webhookNoted(let key, let until):
      webhooks.note(key, until: until, at: time)
    case .tokenRevoked(let revocation):
      revokedTokens.assign(revocation, at: time)
    case .idsWidened:
      hasWideIDs = true
    case .sessionAssigned:
      // Sessions are part of the log, not of the model.
      break
    default:
      preconditionFailure("effect is addressed to a channel, not to the shard")
    }
  }

  /// Advances the shard's time to that of a batch or page that is read back.
  package mutating func assign(time: Timestamp) { self.time = max(self.time, time) }

  // MARK: Numbers to names

  /// A member's user id, as bytes.
  package func withUser<Result>(_ slot: ChannelSlot, _ row: MemberOrdinal, _ body: (RawSpan) -> Result)
    -> Result
  {
    body(self[slot].users.id(self[slot].rows.user(row)))
  }

  /// A message's id, as bytes; empty for position 0.
  package func withMessage<Result>(
    _ slot: ChannelSlot,
    _ sequence: SequenceNumber,
    _ body: (RawSpan) -> Result
  ) -> Result {
    self[slot].messages.withID(sequence, body)
  }

  // MARK: Pages

  /// The effects that reproduce a page's current state; empty for an empty page.
  package func effects(of page: PageID, in slot: ChannelSlot) -> [Effect] { self[slot].effects(of: page) }

  /// The effects that reproduce the types page.
  package var typeEffects: [Effect] {
    typesSet.flatMap { record -> [Effect] in
      let assigned = Effect.channelTypeAssigned(record)
      return record.isSettled
        ? [assigned, .typeSettled(name: record.name, version: record.version)] : [assigned]
    }
  }

  /// The effects that reproduce a page of users' settings.
  package func userEffects(_ page: UInt32) -> [Effect] { settings.effects(of: page) }

  /// The effects that reproduce a page of remembered webhooks.
  package func webhookEffects(_ page: UInt32) -> [Effect] { webhooks.effects(of: page, at: time) }

  /// The effects that reproduce the page of revoked tokens.
  package var tokenEffects: [Effect] { revokedTokens.effects }

  // MARK: Users' settings in channels

  /// Copies its members' changed settings into a channel (R7). Call this before any decision or query on the channel.
  /// Costs one comparison if nothing has changed.
  @inline(__always)
  package mutating func refresh(_ slot: ChannelSlot) {
    if self[slot].settingsSeen != settings.changeCount { applyChangedSettings(slot) }
  }

  private mutating func applyChangedSettings(_ slot: ChannelSlot) {
    let position = Int(slot.rawValue)
    let rowCount = self[slot].rows.rowCount
    if let changed = settings.changes(since: self[slot].settingsSeen), changed.count < rowCount {
      for number in changed {
        let hides = settings.hides(number)
        settings.withUser(number) { user in
          if slot.isThread {
            let place = Int(slot.thread) - 1
            channels[position].threads[place].hide(user, read: hides.read, delivered: hides.delivered)
          } else {
            channels[position].hide(user, read: hides.read, delivered: hides.delivered)
          }
        }
      }
    } else {
      for row in 0..<rowCount { applySettings(MemberOrdinal(UInt32(row)), slot) }
    }
    self[slot].settingsSeen = settings.changeCount
  }

  private mutating func applySettings(_ row: MemberOrdinal, _ slot: ChannelSlot) {
    guard self[slot].rows.isActive(row) else { return }
    let number = withUser(slot, row) { settings.find($0) }
    let hides = number.map { settings.hides($0) } ?? (read: false, delivered: false)
    self[slot].rows.hide(row, read: hides.read, delivered: hides.delivered)
  }
}
