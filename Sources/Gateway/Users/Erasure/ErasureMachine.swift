internal import ReceiptModel

/// Erasure of one user everywhere (R16). Several gateways may do so at once, and repeatedly. The steps are:
///
/// 1. mark the user on the home shard as being erased;
/// 2. assign it to every shard, so that nothing new is made in the user's name;
/// 3. erase the member from each channel that knows the user;
/// 4. erase the user's settings on every shard, the home shard last;
/// 5. purge every shard's log of all that.
///
/// An erasure can restart at any point: until the home shard has forgotten the user, it lists them as unsettled, and
/// rounds of ``SettlementRounds`` find them there. A pure state machine: requests come out as actions, and each reply
/// goes in exactly once.
struct ErasureMachine {
  /// A request to send, or a time to wait.
  enum Action: Equatable {
    /// Send patch_user to the home shard, the first step; its reply is ``begun(_:)`` or ``failed()``.
    case begin
    /// Send assign_user with ``settings`` to this shard; its reply is ``assigned()`` or ``failed()``.
    case assign(ShardID)
    /// Send get_user to the home shard; its reply is ``checked(version:isErasing:)`` or ``failed()``.
    case check
    /// Send list_channels, of all that know the user, to the home shard; its reply is ``listed(_:next:)`` or
    /// ``failed()``.
    case list(cursor: UInt64?)
    /// Send erase_member for ``channel(_:)``; its reply is ``erased(_:_:)``.
    case erase(Int)
    /// Send an erasing assign_user with ``forgottenVersion`` to this shard; its reply is ``forgot(isErasing:)`` or
    /// ``failed()``.
    case forget(ShardID)
    /// Send purge for ``round(_:)`` to this shard; its reply is ``purged(_:_:)``.
    case purge(ShardID)
    /// Call ``waited()`` after this time.
    case wait(milliseconds: Int)
  }

  /// Result of an erase_member.
  enum EraseResult: Equatable {
    /// The channel knew the user.
    case erased
    /// The channel did not know the user, or is gone; the user's index learns of it later.
    case wasGone
    case failed
  }

  /// Result of a purge.
  enum PurgeResult: Equatable {
    case done
    /// Repeat the request with this round.
    case awaits(UInt64)
    /// Repeat the request unchanged.
    case failed
  }

  /// erase_member requests in flight at once.
  static let erasesMax = 64
  /// purge requests in flight at once.
  static let purgesMax = 16
  /// Consecutive passes or purge attempts without progress, after which the erasure is left to others. A caller's
  /// erasure takes some 50 seconds until then; one in a round of ``SettlementRounds``, which has other work, three.
  static let stallsMax = 60
  static let stallsMaxInBackground = 8
  /// Maximum wait between two attempts, in milliseconds.
  static let waitMax = 1_000

  /// State of one pass over the list of channels.
  private struct Pass {
    var stalls: Int
    var isListing = true
    var next: UInt64?
    var queue: [[UInt8]] = []
    var erasing: [Int: [UInt8]] = [:]
    var nextErase = 0
    var listed = 0
    var erased = 0
    var hasFailed = false
  }

  private struct Purge {
    /// Shards to ask, or to ask again, now.
    var due: [ShardID]
    /// Shards to ask again after a wait.
    var later: [ShardID] = []
    var inFlight = 0
    var stalls = 0
    /// The round to ask each shard for; 0: not asked yet.
    var rounds: [UInt64]
  }

  private enum State {
    case idle
    /// The home shard is asked to mark the user. Becomes `blockingNewWork`.
    case beginning
    /// That many shards have not yet confirmed that they refuse anything new. Becomes `checking`.
    case blockingNewWork(Int)
    /// Asks whether the user is still being erased: another gateway may have finished. Becomes `passing`, or `purging`.
    case checking(stalls: Int)
    /// A pass over the channels. Becomes `resting` or `checking`; where no channel was listed, `removingRecords`.
    case passing(Pass)
    /// The last pass made no progress: the index learns of erased members a little later. Becomes `checking`.
    case resting(stalls: Int)
    /// That many shards other than home have not answered. Becomes `removingHomeRecord`.
    case removingRecords(Int)
    /// Becomes `purging`, or `blockingNewWork` where the user was marked again.
    case removingHomeRecord
    case purging(Purge)
    case restingPurge(Purge)
    /// Final; true: nothing of the user is left.
    case ended(Bool)
  }

  let user: [UInt8]
  let home: ShardID
  let shardCount: Int
  /// The settings as the home shard has them.
  private(set) var settings: UserSettings
  private var state = State.idle
  private let stallsMax: Int

  /// - Parameters:
  ///   - settings: settings found unsettled, of a user being erased; nil: the user must be marked first.
  ///   - shardCount: at least 1.
  init(user: [UInt8], settings: UserSettings? = nil, shardCount: Int) {
    self.user = user
    self.stallsMax = settings == nil ? Self.stallsMax : Self.stallsMaxInBackground
    self.shardCount = shardCount
    self.home = ShardID.owning(user.span.bytes, count: shardCount)
    self.settings = settings ?? UserSettings(user: String(decoding: user, as: UTF8.self))
  }

  /// The result; nil while the erasure is in progress.
  var isDone: Bool? {
    if case .ended(let isDone) = state { return isDone }
    return nil
  }

  /// Whether the first request to the home shard may not have been applied.
  var isBeginning: Bool {
    switch state {
    case .idle, .beginning: true
    default: false
    }
  }

  /// A version above the one that marks the user as being erased.
  var forgottenVersion: UInt64 { settings.version + 1 }

  func channel(_ erase: Int) -> [UInt8] {
    if case .passing(let pass) = state { return pass.erasing[erase] ?? [] }
    return []
  }

  /// Return the round to ask a shard for; 0: any that begins from now on.
  func round(_ shard: ShardID) -> UInt64 {
    if case .purging(let purge) = state { return purge.rounds[Int(shard.rawValue)] }
    return 0
  }

  // MARK: Events

  /// Begin, or continue from the settings that were found.
  mutating func start() -> [Action] {
    if settings.isErasing { return assignToShards() }
    state = .beginning
    return [.begin]
  }

  /// Handle the home shard's reply that the user is marked.
  mutating func begun(_ settings: UserSettings) -> [Action] {
    guard case .beginning = state, settings.isErasing else { return failed() }
    self.settings = settings
    return assignToShards()
  }

  /// Handle a shard's confirmation that it refuses anything new of the user.
  mutating func assigned() -> [Action] {
    guard case .blockingNewWork(let waiting) = state else { return [] }
    state = .blockingNewWork(waiting - 1)
    return waiting > 1 ? [] : check(stalls: 0)
  }

  /// Handle the home shard's version and state before a pass.
  mutating func checked(version: UInt64, isErasing: Bool) -> [Action] {
    guard case .checking(let stalls) = state else { return [] }
    guard isErasing else { return purge() }
    settings.version = version
    state = .passing(Pass(stalls: stalls))
    return [.list(cursor: nil)]
  }

  /// Handle a page of the channels that know the user.
  mutating func listed(_ cids: [[UInt8]], next: UInt64?) -> [Action] {
    guard case .passing(var pass) = state else { return [] }
    // A list that does not advance would be requested endlessly.
    if let next, next <= pass.next ?? 0 { return failed() }
    pass.isListing = false
    pass.next = next
    pass.listed += cids.count
    pass.queue = cids
    return advance(pass)
  }

  /// Handle the result of an erase_member.
  mutating func erased(_ erase: Int, _ result: EraseResult) -> [Action] {
    guard case .passing(var pass) = state else { return [] }
    pass.erasing[erase] = nil
    switch result {
    case .erased: pass.erased += 1
    case .wasGone: break
    case .failed: pass.hasFailed = true
    }
    return advance(pass)
  }

  /// Handle a shard's reply that it has forgotten the user's settings.
  ///
  /// - Parameter isErasing: the shard has not forgotten them, because the user was marked again.
  mutating func forgot(isErasing: Bool) -> [Action] {
    switch state {
    case .removingRecords(let waiting) where waiting > 1:
      state = .removingRecords(waiting - 1)
      return []
    case .removingRecords:
      state = .removingHomeRecord
      return [.forget(home)]
    case .removingHomeRecord: return isErasing ? check(stalls: 0) : purge()
    default: return []
    }
  }

  /// Handle the result of a purge: the shard's log is cut behind the erasure, or not yet.
  mutating func purged(_ shard: ShardID, _ result: PurgeResult) -> [Action] {
    guard case .purging(var purge) = state else { return [] }
    purge.inFlight -= 1
    switch result {
    case .done: break
    case .awaits(let round):
      purge.rounds[Int(shard.rawValue)] = round
      purge.later.append(shard)
    case .failed: purge.later.append(shard)
    }
    return advance(purge)
  }

  mutating func waited() -> [Action] {
    switch state {
    case .resting(let stalls): return check(stalls: stalls)
    case .restingPurge(var purge):
      swap(&purge.due, &purge.later)
      return advance(purge)
    default: return []
    }
  }

  /// End the erasure after a failed request. The gateway that next finds the user unsettled continues it.
  mutating func failed() -> [Action] {
    if isDone == nil { state = .ended(false) }
    return []
  }

  // MARK: -

  private mutating func assignToShards() -> [Action] {
    if shardCount == 1 { return check(stalls: 0) }
    state = .blockingNewWork(shardCount - 1)
    return others.map { .assign($0) }
  }

  private var others: [ShardID] {
    (0..<shardCount).map { ShardID(UInt16($0)) }.filter { $0 != home }
  }

  private mutating func check(stalls: Int) -> [Action] {
    state = .checking(stalls: stalls)
    return [.check]
  }

  private mutating func advance(_ current: Pass) -> [Action] {
    var pass = current
    var actions: [Action] = []
    while pass.erasing.count < Self.erasesMax, let cid = pass.queue.popLast() {
      pass.erasing[pass.nextErase] = cid
      actions.append(.erase(pass.nextErase))
      pass.nextErase += 1
    }
    if !pass.erasing.isEmpty || pass.isListing {
      state = .passing(pass)
      return actions
    }
    if let next = pass.next {
      pass.isListing = true
      state = .passing(pass)
      return actions + [.list(cursor: next)]
    }
    return actions + passEnded(pass)
  }

  private mutating func passEnded(_ pass: Pass) -> [Action] {
    if pass.listed == 0 {
      if shardCount == 1 {
        state = .removingHomeRecord
        return [.forget(home)]
      }
      state = .removingRecords(shardCount - 1)
      return others.map { .forget($0) }
    }
    if pass.erased > 0, !pass.hasFailed { return check(stalls: 0) }
    let stalls = pass.stalls + 1
    guard stalls <= stallsMax else { return failed() }
    state = .resting(stalls: stalls)
    return [Self.wait(stalls)]
  }

  private static func wait(_ stalls: Int) -> Action { .wait(milliseconds: min(waitMax, 10 << min(stalls, 10))) }

  private mutating func purge() -> [Action] {
    let due = (0..<shardCount).reversed().map { ShardID(UInt16($0)) }
    return advance(Purge(due: due, rounds: [UInt64](repeating: 0, count: shardCount)))
  }

  private mutating func advance(_ current: Purge) -> [Action] {
    var purge = current
    var actions: [Action] = []
    while purge.inFlight < Self.purgesMax, let shard = purge.due.popLast() {
      purge.inFlight += 1
      actions.append(.purge(shard))
    }
    if purge.inFlight > 0 {
      state = .purging(purge)
    } else if purge.later.isEmpty {
      state = .ended(true)
    } else {
      purge.stalls += 1
      guard purge.stalls <= stallsMax else { return failed() }
      state = .restingPurge(purge)
      actions.append(Self.wait(purge.stalls))
    }
    return actions
  }
}
