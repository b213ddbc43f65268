import DequeModule

/// The shards with something that goes on in slices, of each kind the one whose turn is next first.
struct SliceTurns {
  var isAsked = false
  /// Those with queries that go on.
  var slicing: Deque<ShardEngine> = []
  /// Those with more to do for users' indexes than one turn has room for.
  var working: Deque<ShardEngine> = []
  /// Those with requests that wait for a slice.
  var postponing: Deque<ShardEngine> = []
  /// Which of postponed requests and arrivals have the first part of a slice, by turns.
  var isArrivalsTurn = false
}

/// What is too much for one turn and goes on in slices: long queries, wide changes and reads, work for users' indexes.
extension StoreLoop {
  /// Goes on with what is too much for one turn, one slice of it, in a turn of its own: what came in meanwhile has had
  /// its turn, and what comes in now is next.
  package func slice() {
    guard !isHalted else { return }
    turns.isAsked = false
    if mayGather { goOn() }
    if let place = turns.slicing.firstIndex(where: { !$0.isBatchFull }) {
      let shard = turns.slicing.remove(at: place)
      shard.goOn()
      if !shard.slicedQueries.isEmpty { turns.slicing.append(shard) }
    }
    askForSlice()
    endTurn()
  }

  /// Whether there is room behind the commit that is under way for more of what is wide.
  private var mayGather: Bool { !commits.isUnderWay || gatheredBytes < configuration.gatheredBytesMax }

  /// One slice of everything but long queries.
  private func goOn() {
    refill()
    turns.isArrivalsTurn.toggle()
    if turns.isArrivalsTurn { takeArrived() }
    goOnWithPostponed()
    if !turns.isArrivalsTurn { takeArrived() }
    for _ in turns.working.indices where changesLeft > 0 {
      guard let place = turns.working.firstIndex(where: { !$0.isBatchFull }) else { break }
      let shard = turns.working.remove(at: place)
      shard.isWorking = false
      shard.goOnWithIndexes()
      shard.goOnWalking()
    }
  }

  func refill() {
    changesLeft = configuration.changesPerTurn
    entriesLeft = configuration.entriesPerTurn
  }

  /// One request of each shard by turns.
  private func goOnWithPostponed() {
    while entriesLeft > 0, let shard = turns.postponing.popFirst() {
      shard.goOnWithPostponed()
      if !shard.postponed.isEmpty { turns.postponing.append(shard) }
    }
  }

  /// Where a shard's batch is full, its work in slices goes on when that is closed; where there is no room behind the
  /// commit, at its end.
  func askForSlice() {
    guard !turns.isAsked else { return }
    let isWanted =
      turns.working.contains { !$0.isBatchFull } || !turns.postponing.isEmpty || loads.hasArrived
    guard turns.slicing.contains(where: { !$0.isBatchFull }) || isWanted && mayGather else { return }
    turns.isAsked = true
    driver.sliceLater()
  }

  // MARK: For the shards

  /// The first request of a shard has come that waits for a slice.
  func postpones(_ shard: ShardEngine) {
    turns.postponing.append(shard)
    askForSlice()
  }

  /// The first query of a shard has come that goes on in slices.
  func slices(_ shard: ShardEngine) {
    turns.slicing.append(shard)
    askForSlice()
  }

  /// A shard has more to do for indexes, in a later turn.
  func works(_ shard: ShardEngine) {
    guard !shard.isWorking else { return }
    shard.isWorking = true
    turns.working.append(shard)
    askForSlice()
  }
}
