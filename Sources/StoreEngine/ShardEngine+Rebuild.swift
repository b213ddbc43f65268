import NIOCore
import ReceiptModel
import ReceiptWire

/// One part of the rebuilding of the index, at work in one shard: every channel is looked at and what it knows of its
/// users queued again, or every index, and what was not confirmed is removed. First what is in memory, by slot, then
/// the rest, by number: each is read by number for its name, then by name as for a request.
struct IndexRebuild {
  enum Step {
    /// The next slot or number is to be looked for.
    case looking
    /// Being read by number.
    case naming(ChannelNumber)
    /// Being read by name.
    case loading([UInt8], ChannelNumber)
    case queuing(ChannelSlot, ChannelNumber, ShardState.MembershipScan)
    case sweeping(ChannelSlot, ChannelNumber, place: UInt32)
    /// All was looked at; the changes up to this one have to be in the index.
    case sending(through: UInt64)
  }

  var phase: RebuildFields.Phase
  var epoch: UInt64
  /// Channels with numbers below this are looked at; later ones are of the epoch already.
  let end: UInt64
  var step = Step.looking
  var nextSlot = 0
  var nextNumber: UInt64 = 1
  /// Numbers that were found nowhere: what was read in from the log's tail meanwhile is in memory only, perhaps in a
  /// slot that was passed. Looked for once more.
  var missing: [UInt64] = []
  var isSecondRound = false
  /// Numbers that are done, a bit each.
  private var done: [UInt64]
  private(set) var doneCount: UInt64 = 0
  var entries: UInt64 = 0
  /// What could not be read is read again then, in the loop's elapsed time.
  var retryAt: Int64 = 0

  init(phase: RebuildFields.Phase, epoch: UInt64, end: ChannelNumber) {
    self.phase = phase
    self.epoch = epoch
    self.end = end.rawValue
    done = Array(repeating: 0, count: Int(end.rawValue / 64) + 1)
  }

  /// The slot that is being looked at, which stays in memory.
  var slot: ChannelSlot? {
    switch step {
    case .queuing(let slot, _, _), .sweeping(let slot, _, _): slot
    case .looking, .naming, .loading, .sending: nil
    }
  }

  func isDone(_ number: UInt64) -> Bool { done[Int(number / 64)] >> (number % 64) & 1 != 0 }

  mutating func finish(_ number: UInt64) {
    guard !isDone(number) else { return }
    done[Int(number / 64)] |= 1 << (number % 64)
    doneCount += 1
  }

  var fields: RebuildFields {
    RebuildFields(phase: phase, epoch: epoch, channelsDone: doneCount, channels: end - 1, entries: entries)
  }
}

/// Rebuilding users' indexes from the channels (R13, R14), a slice at a time; requests are served between.
extension ShardEngine {
  /// Slots that are looked at in one slice.
  private static let slotsPerSlice = 1_024

  // MARK: The request

  /// Asked for the part that is under way, or that has come to its end, it tells how far that is; so whoever drives a
  /// rebuild asks for the same part until it is done.
  func rebuildIndex(_ header: FrameHeader, _ payload: RawSpan, _ lane: ReplyLane) throws(WireError) {
    var reader = FieldReader(payload)
    let asked = try reader.byte()
    let epoch = try reader.varint()
    try reader.end()
    guard let phase = RebuildFields.Phase(rawValue: asked) else {
      return refuse(header, .invalidField, "phase: 0 (ask), 1 (send again), 2 (sweep)", lane)
    }
    if phase == .none {
      guard epoch == 0 else { return refuse(header, .invalidField, "epoch: 0 with phase 0", lane) }
    } else if !isUnderWay(phase, epoch), !isFinished(phase, epoch) {
      guard rebuild == nil else {
        return refuse(header, .busy, retryAfterMilliseconds: 1_000, "another rebuild is under way", lane)
      }
      guard epoch > 0, epoch >= state.outbox.epoch, epoch <= Outbox.numberMax else {
        return refuse(header, .invalidField, "epoch: at least \(max(1, state.outbox.epoch))", lane)
      }
      begin(phase, epoch)
    }
    let fields = rebuild?.fields ?? finishedFields
    reply(header, departure(isGathering ? gatheringIndex : closed), lane) { fields.write(into: &$0) }
  }

  private func isUnderWay(_ phase: RebuildFields.Phase, _ epoch: UInt64) -> Bool {
    rebuild.map { $0.phase == phase && $0.epoch == epoch } ?? false
  }

  private func isFinished(_ phase: RebuildFields.Phase, _ epoch: UInt64) -> Bool {
    rebuild == nil && rebuilt.map { $0.phase == phase && $0.epoch == epoch } ?? false
  }

  /// Nothing is under way: what came to its end last, or, since the start, nothing.
  private var finishedFields: RebuildFields {
    var fields =
      rebuilt
      ?? RebuildFields(
        phase: .none,
        epoch: state.outbox.epoch,
        channelsDone: 0,
        channels: state.nextChannel.rawValue - 1,
        entries: 0
      )
    fields.phase = .none
    return fields
  }

  private func begin(_ phase: RebuildFields.Phase, _ epoch: UInt64) {
    if epoch > state.outbox.epoch {
      effects.removeAll(keepingCapacity: true)
      effects.append(.indexEpochAssigned(epoch))
      carryOut(nil, session: nil)
    }
    rebuild = IndexRebuild(phase: phase, epoch: epoch, end: state.nextChannel)
    loop.works(self)
  }

  // MARK: At work

  /// One slice. Whatever is read comes back to it.
  func goOnRebuilding() {
    var slots = Self.slotsPerSlice
    while loop.changesLeft > 0, let step = rebuild?.step {
      switch step {
      case .looking:
        guard loop.elapsedMilliseconds >= rebuild?.retryAt ?? 0, look(&slots) else { return }
      case .naming:
        return
      case .loading(let name, let number):
        guard arrived(name, number) else { return }
      case .queuing(let slot, let number, var scan):
        // What is on its way already may be half of what may be; the rest is for those who join now.
        guard state.outbox.count < configuration.changesPendingMax else { return }
        queueAgain(slot, number, &scan)
      case .sweeping(let slot, let number, var place):
        sweep(slot, number, &place)
      case .sending(let through):
        guard areTaken(through: through) else { return }
        rebuilt = rebuild?.fields
        rebuild = nil
      }
    }
    if rebuild != nil { loop.works(self) }
  }

  /// Finds what is next, in memory, then on storage.
  ///
  /// - Returns: false where that takes another turn.
  private func look(_ slots: inout Int) -> Bool {
    guard let end = rebuild?.end else { return false }
    while let next = rebuild?.nextSlot, next < state.slotCount {
      guard slots > 0 else {
        loop.works(self)
        return false
      }
      slots -= 1
      rebuild?.nextSlot += 1
      let slot = ChannelSlot(UInt32(next))
      if state.isLoaded(slot), state[slot].number.rawValue < end, start(slot) { return true }
    }
    while let next = rebuild?.nextNumber, next < end {
      guard slots > 0 else {
        loop.works(self)
        return false
      }
      slots -= 1
      rebuild?.nextNumber += 1
      if rebuild?.isDone(next) == false { return read(ChannelNumber(next)) }
    }
    if rebuild?.isSecondRound == false, rebuild?.missing.isEmpty == false {
      rebuild?.isSecondRound = true
      rebuild?.nextSlot = 0
      return true
    }
    if let next = rebuild?.missing.popLast() {
      return rebuild?.isDone(next) == false ? read(ChannelNumber(next)) : true
    }
    let through = rebuild?.phase == .sendingAgain ? state.outbox.last : 0
    rebuild?.step = .sending(through: through)
    return true
  }

  /// Reads a channel for its name; always false, since that takes another turn.
  private func read(_ number: ChannelNumber) -> Bool {
    let reference = ChannelReference.number(number)
    guard loads[reference] == nil else {
      // Of the log's tail, and being read in anyway.
      retryLater(number)
      return false
    }
    rebuild?.step = .naming(number)
    load(reference, as: reference, isForName: true, isBehind: true)
    return false
  }

  private func retryLater(_ number: ChannelNumber) {
    rebuild?.missing.append(number.rawValue)
    rebuild?.step = .looking
    rebuild?.retryAt = loop.elapsedMilliseconds + configuration.changesRetryMilliseconds
  }

  /// A channel was read for its name, or could not be.
  func nameRead(_ reference: ChannelReference, _ result: Result<StoredChannel?, StorageError>) {
    guard case .number(let number) = reference, case .naming(number)? = rebuild?.step else { return }
    do throws(StorageError) {
      let stored: StoredChannel?
      switch result {
      case .success(let found): stored = found
      case .failure(let error): throw error
      }
      rebuild?.step = .looking
      guard let name = try name(of: number, stored) else {
        // Deleted long since, or in memory only.
        if rebuild?.isSecondRound == true {
          rebuild?.finish(number.rawValue)
        } else {
          rebuild?.missing.append(number.rawValue)
        }
        return
      }
      rebuild?.step = .loading(name, number)
      let isWanted =
        IndexName.isIndex(name) == (rebuild?.phase == .sweeping) && deletions.index(absent: name) == nil
      if !isWanted {
        finishRebuilding(number)
      } else if state.slot(named: name) == nil {
        let reference = ChannelReference.cid(name)
        if loads[reference] == nil { load(storageReference(reference), as: reference, isBehind: true) }
      }
    } catch {
      loop.reports(error)
      if case .failed = error { retryLater(number) } else { finishRebuilding(number) }
    }
  }

  /// The name of a channel that is on storage, or was created in the log's tail; nil: there is none of that number.
  func name(of number: ChannelNumber, _ stored: StoredChannel?) throws(StorageError) -> [UInt8]? {
    let place = "shard \(state.id.rawValue), channel \(number.rawValue), head page"
    if let head = stored?.pages.first, head.page == .head,
      case .channelAssigned(number, let cid, _, _)? = try Self.page(head.bytes, place).effects.first
    {
      return Array(cid.utf8)
    }
    if let head = tail.head(of: number) { return Array(head.cid.utf8) }
    guard stored == nil else { throw .corrupt("\(place): is missing") }
    return nil
  }

  /// - Returns: false where what is wanted is still being read.
  private func arrived(_ name: [UInt8], _ number: ChannelNumber) -> Bool {
    if let slot = state.slot(named: name), state[slot].number == number {
      rebuild?.step = .looking
      if !start(slot) { finishRebuilding(number) }
      return true
    }
    guard loads[.cid(name)] == nil else { return false }
    // Deleted meanwhile, or its name leads to another one now.
    finishRebuilding(number)
    return true
  }

  /// A read by name has failed.
  func rebuildUnreadable(_ reference: ChannelReference, _ error: StorageError) {
    guard case .loading(let name, let number)? = rebuild?.step, reference == .cid(name) else { return }
    if case .failed = error { retryLater(number) } else { finishRebuilding(number) }
  }

  private func finishRebuilding(_ number: ChannelNumber) {
    rebuild?.finish(number.rawValue)
    rebuild?.step = .looking
  }

  /// Begins with what is in a slot.
  ///
  /// - Returns: whether there is something to do.
  private func start(_ slot: ChannelSlot) -> Bool {
    let number = state[slot].number
    guard let rebuild, !rebuild.isDone(number.rawValue) else { return false }
    // Its users are told that it is gone.
    guard !state[slot].isEnding else {
      finishRebuilding(number)
      return false
    }
    switch (rebuild.phase, state[slot].isIndex) {
    case (.sendingAgain, false):
      self.rebuild?.step = .queuing(slot, number, ShardState.MembershipScan())
    case (.sweeping, true):
      self.rebuild?.step = .sweeping(slot, number, place: 0)
    default:
      finishRebuilding(number)
      return false
    }
    return true
  }

  private func queueAgain(
    _ slot: ChannelSlot,
    _ number: ChannelNumber,
    _ scan: inout ShardState.MembershipScan
  ) {
    guard state.isLoaded(slot), state[slot].number == number, !state[slot].isEnding else {
      return finishRebuilding(number)
    }
    effects.removeAll(keepingCapacity: true)
    var left = loop.changesLeft
    let isDone = state.decideAgain(slot, &scan, limit: &left, into: &effects)
    loop.changesLeft = min(left, loop.changesLeft - 1)
    rebuild?.entries += UInt64(effects.count)
    if !effects.isEmpty { carryOut(nil, session: nil) }
    if isDone { finishRebuilding(number) } else { rebuild?.step = .queuing(slot, number, scan) }
  }

  private func sweep(_ slot: ChannelSlot, _ number: ChannelNumber, _ place: inout UInt32) {
    guard let epoch = rebuild?.epoch, state.isLoaded(slot), state[slot].number == number else {
      return finishRebuilding(number)
    }
    effects.removeAll(keepingCapacity: true)
    let first = place
    let limit = loop.changesLeft
    let isDone = state.decideSweep(slot, from: &place, epoch: epoch, limit: limit, into: &effects)
    loop.changesLeft -= max(1, Int(place - first))
    rebuild?.entries += UInt64(place - first)
    if !effects.isEmpty {
      loop.counters.indexEntries += UInt64(effects.count)
      carryOut(slot, session: nil)
    }
    if isDone { finishRebuilding(number) } else { rebuild?.step = .sweeping(slot, number, place: place) }
  }
}
