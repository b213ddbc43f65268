/// Where a loaded channel, or one of its threads, stands in its shard's memory. It is valid until the channel is let
/// go.
package struct ChannelSlot: Hashable, Sendable {
  /// The channel's: whatever is kept of a channel beside its state, for all its threads together, goes by this.
  package var rawValue: UInt32
  /// 0: the channel itself; else 1 + a thread's place in it (R15).
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
  /// One of this channel's threads.
  package func thread(_ place: Int) -> ChannelSlot { ChannelSlot(rawValue, thread: UInt32(place) + 1) }
}

internal import BasicContainers

/// One shard: a deterministic state machine (DESIGN.md section 3). It reads no clock, draws no random number and
/// touches no I/O.
///
/// A command is *decided* into effects (`ShardState+Commands.swift`), and effects are *assigned* (here), by the same
/// function whether they were decided just now or are read back from the log or a page.
package struct ShardState: ~Copyable, Sendable {
  package let id: ShardID
  /// The last time logged; a shard's time never falls (R20).
  package private(set) var time = Timestamp.none
  package private(set) var nextChannel = ChannelNumber(1)
  package private(set) var types: [ChannelTypeRecord] = []
  private var typePositions: [String: Int] = [:]
  /// By their places: the options before the last change, for those who watch a channel.
  private var typeOptionsBefore: [Int: ChannelTypeOptions] = [:]
  /// Users' settings, non-default ones above all (R7).
  package private(set) var settings = UserSettingsTable()
  /// Slots; one that is free holds ``ChannelState/vacant()``.
  private(set) var channels = UniqueArray<ChannelState>()
  private var freeSlots: [UInt32] = []
  private var directory = HashIndex()
  /// Users' indexes of channels, which are kept as channels are: by user, apart from the channels, so that no request
  /// for a channel finds one.
  private var indexes = HashIndex()
  /// Channels by their numbers, for tickets; users' indexes are not in here.
  private var numbers = HashIndex()
  /// Changes of memberships that are on their way, and how far they are sent and taken (R13, R14).
  package private(set) var outbox: Outbox
  /// Webhooks that were taken, and are remembered so that none is taken twice.
  package private(set) var webhooks = WebhookTable()
  /// Tokens that are revoked one by one; in one shard of the store.
  package private(set) var revokedTokens = RevokedTokenTable()
  /// Ids have come into the shard that builds of before 2027 do not take.
  package private(set) var hasWideIDs = false
  private let passing = PassedByAddress()

  /// - Parameter shardCount: of the whole store; users' home shards are found with it.
  package init(id: ShardID, shardCount: Int = 1) {
    self.id = id
    outbox = Outbox(shardCount: shardCount)
  }

  /// Channels in memory, and users' indexes of channels.
  package var loadedCount: Int { directory.count + indexes.count }
  /// What they occupy, in bytes.
  package private(set) var residentBytes = 0

  /// A channel has become larger in memory, or smaller.
  mutating func addResident(_ bytes: Int) { residentBytes += bytes }

  // MARK: Time

  /// The shard's time for what is decided now: max(clock, last logged time) (R20).
  package mutating func advance(clock: Timestamp) -> Timestamp {
    time = max(time, clock)
    return time
  }

  // MARK: Channels in memory

  /// Slots, free ones included.
  package var slotCount: Int { channels.count }

  /// Whether a channel is in this slot.
  package func isLoaded(_ slot: ChannelSlot) -> Bool { self[slot].number != ChannelState.vacantNumber }

  /// The slot of a loaded channel.
  package func slot(of cid: RawSpan) -> ChannelSlot? {
    directory.find(StableHash.hash(cid)) { slot in
      channels[Int(slot)].hasCID(cid)
    }
    .map(ChannelSlot.init)
  }

  /// The slot of a user's index of channels that is in memory.
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

  /// Numbers are given one after the other: this spreads them over all bits.
  private static func hash(_ number: ChannelNumber) -> UInt64 { number.rawValue &* 0x9E37_79B9_7F4A_7C15 }

  /// The slot of what is kept under this name, a channel or a user's index.
  package func slot(named name: [UInt8]) -> ChannelSlot? {
    IndexName.isIndex(name)
      ? index(of: name.span.bytes.extracting(droppingFirst: IndexName.userOffset(name)))
      : slot(of: name.span.bytes)
  }

  /// Changes for these shards were queued since this was asked last.
  package mutating func takeQueued() -> [ShardID] { outbox.takeQueued() }

  /// A loaded channel, or one of its threads.
  package subscript(slot: ChannelSlot) -> ChannelState {
    // By address, as the arrays under it are: an accessor that yields in two ways has to take memory for each access,
    // which made a mark cost twice the instructions. The address is used while the shard is borrowed for this access,
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

  /// Puts a channel with nothing but its head into memory, as its `channelAssigned` effect says.
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

  /// Lets a channel go from memory.
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

  /// The options in force in a channel: its type's with its own laid over them. In a thread they are the channel's, but
  /// that whoever joins starts read, and that no reply has a receipt (R15).
  package func options(_ slot: ChannelSlot) -> ChannelTypeOptions {
    let channel = slot.channel
    var options = types[self[channel].type].options.applying(self[channel].ownOptions)
    if slot.isThread {
      options.history = .visible
      options.readAcksReceipts = .never
    }
    return options
  }

  /// Channel types that a store may have set: all of them travel in one frame when they are listed.
  package static let typesMax = 1_024

  /// The types that were set; the others have the defaults and are known only because a channel is of them.
  package var typesSet: [ChannelTypeRecord] { types.filter { $0.version > 0 } }

  /// Whether a type that was never set may be set.
  package var hasRoomForType: Bool { typesSet.count < Self.typesMax }

  /// The record of a channel type; of one never set, version 0 and the defaults.
  package func channelType(_ name: String) -> ChannelTypeRecord {
    typePositions[name].map { types[$0] } ?? ChannelTypeRecord(name: name)
  }

  /// The options of a type before it was changed last, while the shard is in memory.
  func optionsBefore(ofType position: Int) -> ChannelTypeOptions {
    typeOptionsBefore[position] ?? types[position].options
  }

  /// Where a type's record stands, made with the defaults if it is not known yet. That is memory only: nothing is
  /// logged for it.
  private mutating func typePosition(_ name: String) -> Int {
    if let position = typePositions[name] { return position }
    types.append(ChannelTypeRecord(name: name))
    typePositions[name] = types.count - 1
    return types.count - 1
  }

  // MARK: Assignment

  /// Assigns an effect addressed to a channel in memory.
  package mutating func assign(_ effect: Effect, to slot: ChannelSlot) {
    guard effect.takesRoom else {
      // A mark adds a few bytes to its page's tail of steps, which may have to grow for it.
      let before = channels[Int(slot.rawValue)].steps.byteCount
      channels[Int(slot.rawValue)].assign(effect)
      residentBytes += channels[Int(slot.rawValue)].steps.byteCount - before
      return
    }
    assignLarge(effect, to: slot)
  }

  /// Assigns an effect that may take room or give it back.
  @inline(never)
  private mutating func assignLarge(_ effect: Effect, to slot: ChannelSlot) {
    if case .channelDeleted = effect { return remove(slot) }
    residentBytes -= self[slot].byteCount
    channels[Int(slot.rawValue)].assign(effect)
    residentBytes += self[slot].byteCount
    guard !settings.isEmpty else { return }
    if case .rowAssigned(_, let row, _) = effect { showAsSet(row, slot) }
    if case .inThread(let parent, .rowAssigned(_, let row, _)) = effect,
      let place = self[slot].threads.place(of: parent)
    {
      showAsSet(row, slot.thread(place))
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
      outbox.assignTaken(shard, through: number)
    case .indexEpochAssigned(let epoch):
      outbox.assign(epoch: epoch)
    case .webhookNoted(let key, let until):
      webhooks.note(key, until: until, at: time)
    case .tokenRevoked(let revocation):
      revokedTokens.assign(revocation, at: time)
    case .idsWidened:
      hasWideIDs = true
    case .sessionAssigned:
      // Sessions belong to the log, not to the model.
      break
    default:
      preconditionFailure("addressed to a channel")
    }
  }

  /// Takes over the time of a batch or page that is read back.
  package mutating func assign(time: Timestamp) { self.time = max(self.time, time) }

  // MARK: Names of numbers

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

  /// The effects that make a page as it is now; empty where there is nothing on it.
  package func effects(of page: PageID, in slot: ChannelSlot) -> [Effect] { self[slot].effects(of: page) }

  /// The effects that make the types page.
  package var typeEffects: [Effect] {
    typesSet.flatMap { record -> [Effect] in
      let assigned = Effect.channelTypeAssigned(record)
      return record.isSettled
        ? [assigned, .typeSettled(name: record.name, version: record.version)] : [assigned]
    }
  }

  /// The effects that make a page of users' settings.
  package func userEffects(_ page: UInt32) -> [Effect] { settings.effects(of: page) }

  /// The effects that make a page of remembered webhooks.
  package func webhookEffects(_ page: UInt32) -> [Effect] { webhooks.effects(of: page, at: time) }

  /// The effects that make the page of revoked tokens.
  package var tokenEffects: [Effect] { revokedTokens.effects }

  // MARK: Users' settings in channels

  /// Takes over into a channel what has changed in its members' settings since it was last looked at (R7). To be called
  /// before anything is decided or asked about the channel; where nothing has changed it is one comparison.
  @inline(__always)
  package mutating func refresh(_ slot: ChannelSlot) {
    if self[slot].settingsSeen != settings.changeCount { takeOverSettings(slot) }
  }

  private mutating func takeOverSettings(_ slot: ChannelSlot) {
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
      for row in 0..<rowCount { showAsSet(MemberOrdinal(UInt32(row)), slot) }
    }
    self[slot].settingsSeen = settings.changeCount
  }

  private mutating func showAsSet(_ row: MemberOrdinal, _ slot: ChannelSlot) {
    guard self[slot].rows.isActive(row) else { return }
    let number = withUser(slot, row) { settings.find($0) }
    let hides = number.map { settings.hides($0) } ?? (read: false, delivered: false)
    self[slot].rows.hide(row, read: hides.read, delivered: hides.delivered)
  }
}
