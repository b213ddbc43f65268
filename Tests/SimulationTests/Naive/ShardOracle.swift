import ReceiptModel
import ReceiptWire
import StoreEngine

/// A command of a session.
struct CommandKey: Hashable {
  var session: SessionID
  var counter: UInt64
}

/// The simulation's state of one shard: its expected content in memory and in storage, by the naive model, the requests
/// waiting for channels, and the applied commands.
struct ShardOracle {
  /// A command that changed something, and is not in storage yet.
  struct Pending {
    var place: Int
    /// The log index of its batch, once the batch is closed.
    var index: UInt64?
    var content: RequestContent
    var time: Int64
  }

  enum Applied {
    /// Applied as the change with this index.
    case changed(Int)
    /// Applied without a change.
    case same
  }

  /// A request waiting for its channel.
  struct Waiting {
    var request: Request
    var connection: Connection
  }

  var live = NaiveShard()
  private(set) var durable = NaiveShard()
  private(set) var pending: [Pending] = []
  private var lastPlace = 0
  /// The number of changes in storage.
  private(set) var durableChangeCount = 0
  private var channelPlace: [String: Int] = [:]
  private var typesPlace = 0
  private var usersPlace = 0
  private var webhooksPlace = 0
  private var tokensPlace = 0
  private(set) var taken: [CommandKey: Applied] = [:]
  private(set) var time: Int64 = 0
  // Since the last start
  private(set) var inMemory: Set<String> = []
  /// Channels that have been in memory since the start, evicted ones included: their log tail has been applied.
  private(set) var loadedSinceStart: Set<String> = []
  /// The requested channels, and the read that will load each; nil while the read waits for memory.
  var loading: [ChannelReference: UInt32?] = [:]
  var waiting: [String: [Waiting]] = [:]
  /// Requests that wait for a slice, in the order in which they began to wait.
  var postponed: [Waiting] = []
  private var deletions: [String: Int] = [:]
  /// Channels with a deletion begun since the last start, or begun before and not finished.
  var begunDeletions: Set<ChannelNumber> = []
  /// Unfinished deletions from before, until their channels are loaded.
  var unfinishedDeletions: [ChannelNumber: String] = [:]
  /// The cids of the channels, by their numbers.
  var names: [ChannelNumber: String] = [:]

  /// Record that a channel is in memory, if it exists.
  mutating func recordLoaded(_ cid: String) {
    guard live.channels[cid] != nil else { return }
    inMemory.insert(cid)
    loadedSinceStart.insert(cid)
  }

  /// Record that a channel is not in memory.
  mutating func recordEvicted(_ cid: String) { inMemory.remove(cid) }

  /// Decide a request as the shard should. Return the reply, and the number of changes that must be in storage
  /// before the reply is sent. The channel is in memory, if one of that cid exists.
  mutating func decide(_ request: Request, session: SessionID, clock: Int64) -> (reply: Reply, needs: Int) {
    let content = request.content
    time = max(time, clock)
    guard content.isCommand else {
      let now = time
      let reply = live.query(content, at: now)
      // The reply that a webhook is unknown reveals nothing.
      return (reply, reply == .known(false) ? 0 : needs(content))
    }
    let key = CommandKey(session: session, counter: request.counter)
    let isDuplicate = taken[key] != nil
    if !isDuplicate, let newest = live.newestMessageTimeBeforeJoin(content) { time = max(time, newest + 1) }
    let now = time
    let outcome = live.perform(content, at: now, isDuplicate: isDuplicate)
    if let cid = content.cid {
      recordLoaded(cid)
      if live.channels[cid] == nil { recordEvicted(cid) }
    }
    if !isDuplicate, !outcome.isRefused {
      taken[key] = .same
      if outcome.hasChanged {
        if content.kind == .deleteChannel, let cid = content.cid { deletions[cid, default: 0] += 1 }
        lastPlace += 1
        taken[key] = .changed(lastPlace)
        pending.append(Pending(place: lastPlace, content: content, time: now))
        if let cid = content.cid {
          channelPlace[cid] = lastPlace
        } else if content.webhook != nil {
          webhooksPlace = lastPlace
        } else if content.isAboutTokens {
          tokensPlace = lastPlace
        } else if content.settingsUser != nil {
          usersPlace = lastPlace
        } else {
          typesPlace = lastPlace
        }
      }
    }
    if case .refused(NaiveShard.Code.invalidField) = outcome.reply { return (outcome.reply, 0) }
    // An unknown outcome reveals nothing.
    if case .refused(NaiveShard.Code.outcomeUnknown) = outcome.reply { return (outcome.reply, 0) }
    return (outcome.reply, needs(content))
  }

  /// How often a channel of this name has been deleted.
  func deletionCount(of cid: String) -> Int { deletions[cid, default: 0] }

  private func needs(_ content: RequestContent) -> Int {
    if content.webhook != nil { return webhooksPlace }
    if content.isAboutTokens { return tokensPlace }
    guard let cid = content.cid else { return content.settingsUser == nil ? typesPlace : usersPlace }
    let place = channelPlace[cid] ?? 0
    return live.channels[cid] == nil ? place : max(place, typesPlace, usersPlace)
  }

  var hasOpen: Bool { pending.last.map { $0.index == nil } ?? false }

  /// All decisions so far are in batches up to this one.
  mutating func closed(_ index: UInt64) {
    for position in pending.indices.reversed() {
      guard pending[position].index == nil else { break }
      pending[position].index = index
    }
  }

  /// A batch has been written to storage.
  mutating func persisted(_ index: UInt64) {
    var count = 0
    for change in pending {
      guard let its = change.index, its <= index else { break }
      _ = durable.perform(change.content, at: change.time, isDuplicate: false)
      durableChangeCount = change.place
      count += 1
    }
    pending.removeFirst(count)
  }

  /// Restart the shard from storage. Return errors in its memory of the sessions' unanswered commands.
  mutating func restart(
    _ sessions: [SessionID: SessionRecord],
    time: Int64,
    unanswered: [CommandKey]
  ) -> String? {
    self.time = time
    live = durable
    pending = []
    lastPlace = durableChangeCount
    channelPlace = [:]
    typesPlace = 0
    usersPlace = 0
    webhooksPlace = 0
    tokensPlace = 0
    inMemory = []
    loadedSinceStart = []
    loading = [:]
    waiting = [:]
    postponed = []
    for key in unanswered {
      let isDuplicate = sessions[key.session]?.hasApplied(key.counter) ?? false
      switch taken[key] {
      case .changed(let place) where place <= durableChangeCount:
        if !isDuplicate { return "\(key) is on storage, and would be applied again" }
      case .changed:
        if isDuplicate { return "\(key) is lost, but its resend would be answered as if it were not" }
        taken[key] = nil
      case .same:
        if !isDuplicate { taken[key] = nil }
      case nil:
        if isDuplicate { return "\(key) was never applied, but its resend would be answered as if it were" }
      }
    }
    return nil
  }
}
