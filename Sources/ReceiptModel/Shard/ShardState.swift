/// One shard: a deterministic state machine (docs/contribute/architecture.md). It reads no clock, draws no random
/// number and does no I/O.
///
/// A command is *decided* into effects (`ShardState+Marks.swift` and others), and effects are *assigned* (here). The
/// same function assigns effects just decided and effects read back from the log or a page.
package struct ShardState: ~Copyable, Sendable {
  package let id: ShardID
  /// The time of the last decision, or of the last batch that was read. It never goes back (R20), and is logged with
  /// the next batch.
  package private(set) var time = Timestamp.none
  package private(set) var nextChannel = ChannelNumber(1)
  package private(set) var types = ChannelTypeTable()
  /// Users' settings, mostly non-default ones (R7).
  package private(set) var settings = UserSettingsTable()
  /// The channels and users' channel indexes in memory.
  private(set) var directory = ChannelDirectory()
  /// Pending membership changes, and the progress of those sent and received (R13, R14).
  package private(set) var outbox: Outbox
  /// Accepted webhooks, remembered so that none is processed twice.
  package private(set) var webhooks = WebhookTable()
  /// Individually revoked tokens; kept in one shard of the store.
  package private(set) var revokedTokens = RevokedTokenTable()
  /// Consumers of the feed (R21).
  package private(set) var consumers = FeedConsumerTable()
  /// Pending reminders and expiries of messages (R9, R22).
  package private(set) var timers = TimerTable()
  package private(set) var pushJobs = PushJobTable()
  /// This shard holds ids that builds without wide ids (before 0.9.0, see CHANGELOG.md) reject.
  package private(set) var hasWideIDs = false
  private let passing = PassedByAddress()

  /// - Parameter shardCount: number of shards in the store; determines users' home shards.
  package init(id: ShardID, shardCount: Int = 1) {
    self.id = id
    outbox = Outbox(shardCount: shardCount)
  }

  /// Channels and users' channel indexes in memory.
  package var loadedCount: Int { directory.loadedCount }

  /// Their size in bytes.
  package var residentBytes: Int { directory.residentBytes }

  // MARK: Time

  /// Advance the shard's time to the clock, and return it: the time of a decision made now (R20).
  package mutating func advance(clock: Timestamp) -> Timestamp {
    time = max(time, clock)
    return time
  }

  // MARK: Channels in memory

  /// Number of slots, including free ones.
  package var slotCount: Int { directory.slotCount }

  /// Return whether this slot holds a channel.
  package func isLoaded(_ slot: ChannelSlot) -> Bool { directory.isLoaded(slot) }

  /// Return the slot of a loaded channel, by its cid.
  package func slot(of cid: RawSpan) -> ChannelSlot? { directory.slot(of: cid) }

  /// Return the slot of a user's channel index, if loaded.
  package func index(of user: RawSpan) -> ChannelSlot? { directory.index(of: user) }

  /// Return the slot of a loaded channel, by its number.
  package func slot(numbered number: ChannelNumber) -> ChannelSlot? { directory.slot(numbered: number) }

  /// Return the slot of the loaded channel or index with this number. Requires ``keepIndexNumbers(_:)``.
  package func loadedSlot(numbered number: ChannelNumber) -> ChannelSlot? {
    directory.loadedSlot(numbered: number)
  }

  /// Keep the numbers of users' indexes too, for a shard that follows another one's log, or forget them.
  package mutating func keepIndexNumbers(_ isWanted: Bool) { directory.keepIndexNumbers(isWanted) }

  /// Return the slot of the channel or the user's index with this name.
  package func slot(named name: [UInt8]) -> ChannelSlot? { directory.slot(named: name) }

  /// Return the shards for which changes were queued since the last call.
  package mutating func takeQueued() -> [ShardID] { outbox.takeQueued() }

  /// A loaded channel, or one of its threads.
  package subscript(slot: ChannelSlot) -> ChannelState {
    // The address is used only while the shard is borrowed for this access, so nothing moves meanwhile.
    @inline(__always)
    unsafeAddress { directory.address(of: slot) }
    @inline(__always)
    unsafeMutableAddress { directory.mutableAddress(of: slot) }
  }

  /// Load a channel with nothing but its head, as given by its `channelAssigned` effect.
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
      type: isIndex ? ChannelState.noType : types.position(typeName)
    )
    channel.settingsSeen = settings.changeCount
    return directory.insert(channel)
  }

  /// Evict a channel from memory.
  package mutating func remove(_ slot: ChannelSlot) { directory.remove(slot) }

  /// Return the effective options of a channel: its type's, overridden by its own. A thread has its channel's options,
  /// except that new members start read and replies have no acknowledgement requests (R15).
  package func options(_ slot: ChannelSlot) -> ChannelTypeOptions {
    let channel = slot.channel
    var options = types.options(self[channel].type).applying(self[channel].ownOptions)
    if slot.isThread {
      options.history = .visible
      options.readAcksReceipts = .never
    }
    return options
  }

  // MARK: Assignment

  /// Assign an effect that is addressed to a channel in memory, not to the shard.
  package mutating func assign(_ effect: ChannelEffect, to slot: ChannelSlot) {
    guard effect.traits.contains(.takesRoom) else { return directory.assignMark(effect, to: slot) }
    assignLarge(effect, to: slot)
  }

  /// Assign an effect that may change the channel's size.
  @inline(never)
  private mutating func assignLarge(_ effect: ChannelEffect, to slot: ChannelSlot) {
    if case .channelDeleted(let cid) = effect {
      assert(Array(cid.utf8) == self[slot].cid, "a deletion names its channel, or an index with the index's name")
      return remove(slot)
    }
    directory.assign(effect, to: slot)
    guard !settings.isEmpty else { return }
    if case .rowAssigned(let row, _) = effect { applySettings(row, slot) }
    if case .inThread(let parent, .rowAssigned(let row, _)) = effect, let index = self[slot].threads.index(of: parent) {
      applySettings(row, slot.thread(index))
    }
  }

  /// Assign an effect addressed to the shard's own pages.
  package mutating func assign(_ effect: ShardEffect) {
    switch effect {
    case .channelTypeAssigned(let record):
      types.assign(record)
    case .typeSettled(let name, let version):
      types.settle(name, version: version)
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
    case .membershipsConfirmed(let shard, let number):
      outbox.assignConfirmed(shard, through: number)
    case .membershipsReceived(let shard, let number):
      outbox.assignReceived(shard, through: number)
    case .indexEpochAssigned(let epoch):
      outbox.assign(epoch: epoch)
    case .webhookNoted(let key, let until):
      webhooks.record(key, until: until, at: time)
    case .tokenRevoked(let revocation):
      revokedTokens.assign(revocation, at: time)
    case .consumer(let effect):
      consumers.assign(effect)
    case .timerAssigned(let number, let timer):
      timers.assign(number, timer)
    case .timerRemoved(let number):
      timers.remove(number)
    case .pushJob(let effect):
      pushJobs.assign(effect)
    case .idsWidened:
      hasWideIDs = true
    case .sessionAssigned:
      // Sessions are part of the log, not of the model.
      break
    }
  }

  /// Advance the shard's time to that of a batch or page that is read back.
  package mutating func assign(time: Timestamp) { self.time = max(self.time, time) }

  // MARK: Numbers to names

  /// Call `body` with a member's user id, as bytes.
  package func withUser<Result>(_ slot: ChannelSlot, _ row: MemberOrdinal, _ body: (RawSpan) -> Result) -> Result {
    body(self[slot].users.id(self[slot].rows.user(row)))
  }

  /// Call `body` with a message's id, as bytes; empty for position 0.
  package func withMessage<Result>(
    _ slot: ChannelSlot,
    _ sequence: SequenceNumber,
    _ body: (RawSpan) -> Result
  ) -> Result {
    self[slot].messages.withID(sequence, body)
  }

  // MARK: Pages

  /// Return the effects that reproduce a page's current state; empty for an empty page.
  package func effects(of page: PageID, in slot: ChannelSlot) -> [Effect] { self[slot].effects(of: page) }

  /// Return the effects that reproduce one of the shard's own pages; empty for an empty page.
  package func effects(ofOwn page: PageID) -> [Effect] {
    switch page {
    case .shardHead:
      [.shard(.countersAssigned(nextChannel: nextChannel, time: time))] + (hasWideIDs ? [.shard(.idsWidened)] : [])
    case .types: types.effects
    case .users(let number): settings.effects(of: number)
    case .outbox(let number): outbox.effects(of: number)
    case .index: outbox.indexEffects
    case .webhooks(let number): webhooks.effects(of: number, at: time)
    case .tokens: revokedTokens.effects
    case .consumers: consumers.effects
    case .timers(let number): timers.effects(of: number)
    case .pushJob(let number): pushJobs.effects(of: number)
    default: preconditionFailure("page \(page) belongs to a channel")
    }
  }

  /// Drop a step segment's bytes from memory, once they are on storage.
  package mutating func dropSegment(_ slot: ChannelSlot, _ rowPage: UInt32, _ segment: UInt32) {
    directory.dropSegment(slot, rowPage, segment)
  }

  // MARK: Users' settings in channels

  /// Copy its members' changed settings into a channel (R7). Call this before any decision or query on the channel.
  /// Costs one comparison if nothing has changed.
  @inline(__always)
  package mutating func refresh(_ slot: ChannelSlot) {
    if self[slot].settingsSeen != settings.changeCount { applyChangedSettings(slot) }
  }

  private mutating func applyChangedSettings(_ slot: ChannelSlot) {
    let rowCount = self[slot].rows.rowCount
    if let changed = settings.changes(since: self[slot].settingsSeen), changed.count < rowCount {
      for number in changed {
        let hides = settings.hides(number)
        settings.withUser(number) { user in
          directory[slot].hide(user, read: hides.read, delivered: hides.delivered)
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
