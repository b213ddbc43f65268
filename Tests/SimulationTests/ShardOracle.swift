import ReceiptModel
import StoreEngine

/// A command of a session.
struct CommandKey: Hashable {
  var session: SessionID
  var counter: UInt64
}

/// What the simulation knows of one shard: what it holds in memory and on storage, by the naive model; what waits for
/// channels; what was applied.
struct ShardOracle {
  /// A command that changed something, and is not on storage yet.
  struct Pending {
    var place: Int
    /// The log index of its batch, once it is closed.
    var index: UInt64?
    var ask: Ask
    var time: Int64
  }

  enum Taken {
    /// Applied, as the change with this place.
    case changed(Int)
    /// Nothing had to be changed.
    case same
  }

  /// A request that waits for its channel.
  struct Waiting {
    var request: Request
    var connection: Connection
  }

  var live = NaiveShard()
  private(set) var durable = NaiveShard()
  private(set) var pending: [Pending] = []
  private var lastPlace = 0
  /// Changes up to here are on storage.
  private(set) var durablePlace = 0
  private var channelPlace: [String: Int] = [:]
  private var typesPlace = 0
  private var usersPlace = 0
  private var webhooksPlace = 0
  private var tokensPlace = 0
  private(set) var taken: [CommandKey: Taken] = [:]
  private(set) var time: Int64 = 0
  // Since the last start
  private(set) var inMemory: Set<String> = []
  /// Channels that have been in memory, whether they still are or not: they have taken over what the log's tail had of
  /// them.
  private(set) var wereInMemory: Set<String> = []
  /// What is asked for, and the read that will bring it; nil while that waits for room in memory.
  var loading: [ChannelReference: UInt32?] = [:]
  var waiting: [String: [Waiting]] = [:]
  /// Channels whose deletion was begun since the last start, or before it and not brought to its end.
  var begun: Set<ChannelNumber> = []
  /// Those of before, as long as they have not come into memory.
  var endings: [ChannelNumber: String] = [:]
  /// The names of the channels, by their numbers.
  var names: [ChannelNumber: String] = [:]

  /// Decides a request as the shard should. Returns the answer, and the place that has to be on storage before it
  /// leaves. The channel is in memory, if there is one of that name.
  mutating func takeIn(_ cid: String) {
    guard live.channels[cid] != nil else { return }
    inMemory.insert(cid)
    wereInMemory.insert(cid)
  }

  mutating func letGo(_ cid: String) { inMemory.remove(cid) }

  mutating func decide(_ request: Request, session: SessionID, clock: Int64) -> (answer: Answer, needs: Int) {
    let ask = request.ask
    time = max(time, clock)
    guard ask.isCommand else {
      let now = time
      let answer = live.query(ask, at: now)
      // That a webhook is not known tells of nothing.
      return (answer, answer == .known(false) ? 0 : needs(ask))
    }
    let key = CommandKey(session: session, counter: request.counter)
    let isCovered = taken[key] != nil
    if !isCovered, let newest = live.newestBeforeJoining(ask) { time = max(time, newest + 1) }
    let now = time
    let outcome = live.perform(ask, at: now, isCovered: isCovered)
    if let cid = ask.cid {
      takeIn(cid)
      if live.channels[cid] == nil { letGo(cid) }
    }
    if !isCovered, !outcome.isRefused {
      taken[key] = .same
      if outcome.hasChanged {
        lastPlace += 1
        taken[key] = .changed(lastPlace)
        pending.append(Pending(place: lastPlace, ask: ask, time: now))
        if let cid = ask.cid {
          channelPlace[cid] = lastPlace
        } else if ask.webhook != nil {
          webhooksPlace = lastPlace
        } else if ask.isAboutTokens {
          tokensPlace = lastPlace
        } else if ask.settingsUser != nil {
          usersPlace = lastPlace
        } else {
          typesPlace = lastPlace
        }
      }
    }
    if case .refused(NaiveShard.Code.invalidField) = outcome.answer { return (outcome.answer, 0) }
    // That the outcome is unknown tells of nothing.
    if case .refused(23) = outcome.answer { return (outcome.answer, 0) }
    return (outcome.answer, needs(ask))
  }

  private func needs(_ ask: Ask) -> Int {
    if ask.webhook != nil { return webhooksPlace }
    if ask.isAboutTokens { return tokensPlace }
    guard let cid = ask.cid else { return ask.settingsUser == nil ? typesPlace : usersPlace }
    let place = channelPlace[cid] ?? 0
    return live.channels[cid] == nil ? place : max(place, typesPlace, usersPlace)
  }

  var hasOpen: Bool { pending.last.map { $0.index == nil } ?? false }

  /// Everything decided so far is in batches up to this one.
  mutating func closed(_ index: UInt64) {
    for position in pending.indices.reversed() {
      guard pending[position].index == nil else { break }
      pending[position].index = index
    }
  }

  /// A batch is on storage.
  mutating func persisted(_ index: UInt64) {
    var count = 0
    for change in pending {
      guard let its = change.index, its <= index else { break }
      _ = durable.perform(change.ask, at: change.time, isCovered: false)
      durablePlace = change.place
      count += 1
    }
    pending.removeFirst(count)
  }

  /// The shard starts again from storage. Returns what is wrong with what it remembers of the sessions' unanswered
  /// commands.
  mutating func restart(
    _ sessions: [SessionID: SessionRecord],
    time: Int64,
    unanswered: [CommandKey]
  ) -> String? {
    self.time = time
    live = durable
    pending = []
    lastPlace = durablePlace
    channelPlace = [:]
    typesPlace = 0
    usersPlace = 0
    webhooksPlace = 0
    tokensPlace = 0
    inMemory = []
    wereInMemory = []
    loading = [:]
    waiting = [:]
    for key in unanswered {
      let isCovered = sessions[key.session]?.covers(key.counter) ?? false
      switch taken[key] {
      case .changed(let place) where place <= durablePlace:
        if !isCovered { return "\(key) is on storage, and would be applied again" }
      case .changed:
        if isCovered { return "\(key) is lost, but its resend would be answered as if it were not" }
        taken[key] = nil
      case .same:
        if !isCovered { taken[key] = nil }
      case nil:
        if isCovered { return "\(key) was never applied, but its resend would be answered as if it were" }
      }
    }
    return nil
  }
}
