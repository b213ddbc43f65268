internal import ReceiptModel

/// Erases one user everywhere (R16), whoever of several gateways does it, and however often: the user is marked at home
/// as being erased, every shard is told, so that nothing new is made in their name; each channel that knows them
/// forgets them; every shard forgets their settings, the home shard last; every shard's log is cut behind all that.
///
/// It can be begun anew at any point: until the home shard has forgotten the user it holds them unsettled, and rounds
/// of ``Settling`` find them there. A pure state machine: what has to be asked comes out as steps, whose answers go in
/// again, each exactly once.
struct Erasure {
  /// What has to be done.
  enum Step: Equatable {
    /// patch_user at home, which begins; its answer is ``begun(_:)`` or ``failed()``.
    case begin
    /// assign_user of what ``settings`` says, to this shard; its answer is ``assigned()`` or ``failed()``.
    case assign(ShardID)
    /// get_user at home; its answer is ``checked(version:isErasing:)`` or ``failed()``.
    case check
    /// list_channels at home, of all that know the user; its answer is ``listed(_:next:)`` or ``failed()``.
    case list(cursor: UInt64?)
    /// erase_member of ``channel(_:)``; its answer is ``erased(_:_:)``.
    case erase(Int)
    /// assign_user that erases, with ``forgottenVersion``, to this shard; its answer is ``forgot(isErasing:)`` or
    /// ``failed()``.
    case forget(ShardID)
    /// purge of this shard, of ``round(_:)``; its answer is ``purged(_:_:)``.
    case purge(ShardID)
    /// ``waited()`` after so long.
    case wait(milliseconds: Int)
  }

  /// What came of an erase_member.
  enum OnErase: Equatable {
    /// The channel knew the user.
    case erased
    /// It did not, or is not there: the index will hear of it.
    case wasGone
    case failed
  }

  /// What came of a purge.
  enum OnPurge: Equatable {
    case done
    /// To be asked for again, with this round.
    case awaits(UInt64)
    /// To be asked for again as before.
    case failed
  }

  /// erase_member under way at once.
  static let erasesMax = 64
  /// purge under way at once.
  static let purgesMax = 16
  /// Passes, and askings to purge, one after the other that came no further, before it is left to others: some 50
  /// seconds for a caller, and three in a round of ``Settling``, which has others to look after.
  static let stallsMax = 60
  static let stallsMaxSettling = 8
  /// Between two of them at most.
  static let waitMax = 1_000

  /// Going over the list of channels once.
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
    /// Not asked yet, or to be asked again.
    var due: [ShardID]
    /// To be asked again after a while.
    var later: [ShardID] = []
    var inFlight = 0
    var stalls = 0
    /// Of each shard, what it is asked for; 0: it was not asked yet.
    var rounds: [UInt64]
  }

  private enum State {
    case idle
    /// The home shard is asked to begin. Becomes `telling`.
    case beginning
    /// So many shards have not answered that they refuse what is new. Becomes `checking`.
    case telling(Int)
    /// Whether the user is still being erased: others may have been quicker. Becomes `passing`, or `purging`.
    case checking(stalls: Int)
    /// The channels are gone over. Becomes `resting` or `checking`; where there was none, `forgetting`.
    case passing(Pass)
    /// Nothing came of the last pass: the index is told of erased members a little later. Becomes `checking`.
    case resting(stalls: Int)
    /// So many shards other than home have not answered. Becomes `forgettingAtHome`.
    case forgetting(Int)
    /// Becomes `purging`, or `telling` where the user was marked once more.
    case forgettingAtHome
    case purging(Purge)
    case restingPurge(Purge)
    /// For good; true: nothing of the user is left.
    case ended(Bool)
  }

  let user: [UInt8]
  let home: ShardID
  let shardCount: Int
  /// As the home shard holds them.
  private(set) var settings: UserSettings
  private var state = State.idle
  private let stallsMax: Int

  /// - Parameters:
  ///   - settings: found unsettled, being erased; nil: they are to be marked first.
  ///   - shardCount: at least 1.
  init(user: [UInt8], settings: UserSettings? = nil, shardCount: Int) {
    self.user = user
    self.stallsMax = settings == nil ? Self.stallsMax : Self.stallsMaxSettling
    self.shardCount = shardCount
    self.home = ShardID.owning(user.span.bytes, count: shardCount)
    self.settings = settings ?? UserSettings(user: String(decoding: user, as: UTF8.self))
  }

  /// Nil while it goes on.
  var isDone: Bool? {
    if case .ended(let isDone) = state { return isDone }
    return nil
  }

  /// What the home shard was asked for first may not have been done.
  var isBeginning: Bool {
    switch state {
    case .idle, .beginning: true
    default: false
    }
  }

  /// Above the version that says that the user is being erased.
  var forgottenVersion: UInt64 { settings.version + 1 }

  func channel(_ erase: Int) -> [UInt8] {
    if case .passing(let pass) = state { return pass.erasing[erase] ?? [] }
    return []
  }

  /// The round that a shard is to be asked for; 0: any that begins from now on.
  func round(_ shard: ShardID) -> UInt64 {
    if case .purging(let purge) = state { return purge.rounds[Int(shard.rawValue)] }
    return 0
  }

  // MARK: Events

  /// Begins, or goes on with what was found.
  mutating func start() -> [Step] {
    if settings.isErasing { return tell() }
    state = .beginning
    return [.begin]
  }

  /// The home shard has marked the user.
  mutating func begun(_ settings: UserSettings) -> [Step] {
    guard case .beginning = state, settings.isErasing else { return failed() }
    self.settings = settings
    return tell()
  }

  /// A shard refuses what is new of the user.
  mutating func assigned() -> [Step] {
    guard case .telling(let waiting) = state else { return [] }
    state = .telling(waiting - 1)
    return waiting > 1 ? [] : check(stalls: 0)
  }

  /// What the home shard holds before a pass.
  mutating func checked(version: UInt64, isErasing: Bool) -> [Step] {
    guard case .checking(let stalls) = state else { return [] }
    guard isErasing else { return purge() }
    settings.version = version
    state = .passing(Pass(stalls: stalls))
    return [.list(cursor: nil)]
  }

  /// Some of the channels that know the user.
  mutating func listed(_ cids: [[UInt8]], next: UInt64?) -> [Step] {
    guard case .passing(var pass) = state else { return [] }
    // A list that does not go on would be asked for without end.
    if let next, next <= pass.next ?? 0 { return failed() }
    pass.isListing = false
    pass.next = next
    pass.listed += cids.count
    pass.queue = cids
    return advance(pass)
  }

  /// A channel has forgotten the user, or not.
  mutating func erased(_ erase: Int, _ result: OnErase) -> [Step] {
    guard case .passing(var pass) = state else { return [] }
    pass.erasing[erase] = nil
    switch result {
    case .erased: pass.erased += 1
    case .wasGone: break
    case .failed: pass.hasFailed = true
    }
    return advance(pass)
  }

  /// A shard has forgotten the user's settings.
  ///
  /// - Parameter isErasing: it has not, for the user was marked once more.
  mutating func forgot(isErasing: Bool) -> [Step] {
    switch state {
    case .forgetting(let waiting) where waiting > 1:
      state = .forgetting(waiting - 1)
      return []
    case .forgetting:
      state = .forgettingAtHome
      return [.forget(home)]
    case .forgettingAtHome: return isErasing ? check(stalls: 0) : purge()
    default: return []
    }
  }

  /// A shard's log is cut behind all that was done, or not yet.
  mutating func purged(_ shard: ShardID, _ result: OnPurge) -> [Step] {
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

  mutating func waited() -> [Step] {
    switch state {
    case .resting(let stalls): return check(stalls: stalls)
    case .restingPurge(var purge):
      swap(&purge.due, &purge.later)
      return advance(purge)
    default: return []
    }
  }

  /// A shard did not say, or does not do it: this is left to whoever finds the user unsettled.
  mutating func failed() -> [Step] {
    if isDone == nil { state = .ended(false) }
    return []
  }

  // MARK: -

  private mutating func tell() -> [Step] {
    if shardCount == 1 { return check(stalls: 0) }
    state = .telling(shardCount - 1)
    return others.map { .assign($0) }
  }

  private var others: [ShardID] {
    (0..<shardCount).map { ShardID(UInt16($0)) }.filter { $0 != home }
  }

  private mutating func check(stalls: Int) -> [Step] {
    state = .checking(stalls: stalls)
    return [.check]
  }

  private mutating func advance(_ current: Pass) -> [Step] {
    var pass = current
    var steps: [Step] = []
    while pass.erasing.count < Self.erasesMax, let cid = pass.queue.popLast() {
      pass.erasing[pass.nextErase] = cid
      steps.append(.erase(pass.nextErase))
      pass.nextErase += 1
    }
    if !pass.erasing.isEmpty || pass.isListing {
      state = .passing(pass)
      return steps
    }
    if let next = pass.next {
      pass.isListing = true
      state = .passing(pass)
      return steps + [.list(cursor: next)]
    }
    return steps + passEnded(pass)
  }

  private mutating func passEnded(_ pass: Pass) -> [Step] {
    if pass.listed == 0 {
      if shardCount == 1 {
        state = .forgettingAtHome
        return [.forget(home)]
      }
      state = .forgetting(shardCount - 1)
      return others.map { .forget($0) }
    }
    if pass.erased > 0, !pass.hasFailed { return check(stalls: 0) }
    let stalls = pass.stalls + 1
    guard stalls <= stallsMax else { return failed() }
    state = .resting(stalls: stalls)
    return [Self.wait(stalls)]
  }

  private static func wait(_ stalls: Int) -> Step { .wait(milliseconds: min(waitMax, 10 << min(stalls, 10))) }

  private mutating func purge() -> [Step] {
    let due = (0..<shardCount).reversed().map { ShardID(UInt16($0)) }
    return advance(Purge(due: due, rounds: [UInt64](repeating: 0, count: shardCount)))
  }

  private mutating func advance(_ current: Purge) -> [Step] {
    var purge = current
    var steps: [Step] = []
    while purge.inFlight < Self.purgesMax, let shard = purge.due.popLast() {
      purge.inFlight += 1
      steps.append(.purge(shard))
    }
    if purge.inFlight > 0 {
      state = .purging(purge)
    } else if purge.later.isEmpty {
      state = .ended(true)
    } else {
      purge.stalls += 1
      guard purge.stalls <= stallsMax else { return failed() }
      state = .restingPurge(purge)
      steps.append(Self.wait(purge.stalls))
    }
    return steps
  }
}
