internal import DequeModule
internal import ReceiptModel

/// The channels of an ``EventHub``, and what the store knows of them. A channel is kept while a stream has it, while a
/// frame names it, or while the store may have a subscription to it.
struct ChannelSubscriptions {
  typealias Index = NamedTable<Channel>.Index

  struct Channel {
    let cid: String
    let shard: Int
    /// Whether the store has confirmed the subscription.
    fileprivate(set) var isLive = false
    /// Whether the store may have a subscription to it, also after a refusal or a late reply.
    fileprivate var mayBeSubscribed = false
    /// Frames that name it: due, in flight, or to be sent again.
    fileprivate(set) var frames = 0
    /// Whether it is queued to be checked for remaining streams.
    fileprivate var isIdle = false
  }

  /// Channels whose last stream has gone.
  struct Unused {
    /// Channels to unsubscribe from.
    var subscribed: [Index] = []
    /// The shard of each channel that is no longer live.
    var endedShards: [Int] = []
  }

  private var channels = NamedTable<Channel>()
  private var idle: [Index] = []

  var count: Int { channels.count }

  /// The indexes in use, in order.
  var indexes: [Index] { channels.indexes }

  func index(of cid: String) -> Index? { channels.index(of: cid) }

  /// A channel; nil: the table does not have it.
  subscript(index: Index) -> Channel? { _read { yield channels[index] } }

  mutating func insert(_ cid: String, shard: Int) -> Index {
    channels.insert(Channel(cid: cid, shard: shard), named: cid)
  }

  // MARK: Frames

  /// Count a frame that names these channels.
  mutating func frameAdded(_ indexes: [Index]) {
    for index in indexes { channels[index]?.frames += 1 }
  }

  /// Count a frame that unsubscribes these channels.
  mutating func unsubscribeAdded(_ indexes: [Index]) {
    for index in indexes {
      channels[index]?.mayBeSubscribed = false
      channels[index]?.frames += 1
    }
  }

  /// End a frame that names a channel.
  mutating func frameEnded(_ index: Index) { channels[index]?.frames -= 1 }

  /// Record that the store has confirmed a subscription. True: the channel was not live before.
  mutating func confirm(_ index: Index) -> Bool {
    channels[index]?.mayBeSubscribed = true
    guard channels[index]?.isLive == false else { return false }
    channels[index]?.isLive = true
    return true
  }

  /// Record that the store may have a subscription: a failed request may have been carried out.
  mutating func suspectSubscription(_ index: Index) { channels[index]?.mayBeSubscribed = true }

  // MARK: Unused channels

  /// Queue a channel without streams for ``takeUnused(_:)``, unless a frame names it.
  mutating func markIdle(_ index: Index) {
    guard let channel = channels[index], channel.frames == 0, !channel.isIdle else { return }
    channels[index]?.isIdle = true
    idle.append(index)
  }

  /// Remove the unused channels among those marked idle, and return those that the store may have subscriptions to.
  mutating func takeUnused(_ attachments: ChannelAttachments) -> Unused {
    var unused = Unused()
    for index in idle {
      channels[index]?.isIdle = false
      guard let channel = channels[index], channel.frames == 0, attachments.hasNoStreams(index) else { continue }
      if let shard = end(index) { unused.endedShards.append(shard) }
      if channel.mayBeSubscribed {
        unused.subscribed.append(index)
      } else {
        channels.remove(index, named: channel.cid)
      }
    }
    idle = []
    return unused
  }

  /// Remove a channel without streams that was unsubscribed from. False: it is in use again.
  mutating func removeUnsubscribed(_ index: Index) -> Bool {
    guard let channel = channels[index], channel.frames == 0, !channel.mayBeSubscribed else { return false }
    if !channel.isIdle { channels.remove(index, named: channel.cid) }
    return true
  }

  /// Record a new connection to the store, which has no subscriptions: channels without streams are no longer live.
  ///
  /// - Parameter shards: the shards that the connection serves; nil: all.
  /// - Returns: the shard of each of them.
  mutating func connected(_ attachments: ChannelAttachments, _ shards: Set<Int>?) -> [Int] {
    var ended: [Int] = []
    for index in channels.indexes {
      if let shards, let channel = channels[index], !shards.contains(channel.shard) { continue }
      channels[index]?.mayBeSubscribed = false
      if attachments.hasNoStreams(index), let shard = end(index) { ended.append(shard) }
    }
    return ended
  }

  private mutating func end(_ index: Index) -> Int? {
    guard let channel = channels[index], channel.isLive else { return nil }
    channels[index]?.isLive = false
    return channel.shard
  }

  /// The first broken invariant; nil: there is none.
  func brokenInvariant(_ attachments: ChannelAttachments) -> String? {
    let marked = channels.indexes.filter { channels[$0]?.isIdle == true }
    if Set(idle) != Set(marked) || idle.count != marked.count { return "idle channels" }
    for index in channels.indexes {
      guard let channel = channels[index] else { continue }
      if attachments.hasNoStreams(index), channel.frames == 0, !channel.isIdle {
        return "unused channel \(channel.cid)"
      }
    }
    return nil
  }
}

extension EventHub {
  /// Why a frame subscribes or unsubscribes channels.
  enum Purpose: Equatable {
    case open(Ref)
    case attach([Ref])
    case former(Ref)
    /// Subscribe again after a loss, for all streams of the channels.
    case resync
    /// Unsubscribe channels without streams.
    case end

    /// The streams that wait for the reply.
    var waitingStreams: [Ref] {
      switch self {
      case .open(let ref), .former(let ref): [ref]
      case .attach(let refs): refs
      case .resync, .end: []
      }
    }
  }

  struct Frame {
    let shard: Int
    let channels: [ChannelIndex]
    let since: Timestamp?
    let purpose: Purpose
  }
}

/// The subscribe and unsubscribe requests of an ``EventHub``: in flight, due, and to be sent again. A number is used
/// once.
struct SubscribeFrames {
  private var inFlight: [Int: EventHub.Frame] = [:]
  private(set) var nextNumber = 0
  /// Frames not sent yet.
  private var due = Deque<EventHub.Frame>()
  /// Failed frames, to be sent again at the next tick.
  private var retries: [EventHub.Frame] = []

  /// A frame in flight.
  subscript(number: Int) -> EventHub.Frame? { inFlight[number] }

  mutating func append(_ frame: EventHub.Frame) { due.append(frame) }

  /// Send a frame again at the next tick.
  mutating func retry(_ frame: EventHub.Frame) { retries.append(frame) }

  mutating func tick() {
    due.append(contentsOf: retries)
    retries = []
  }

  /// Begin the next frame that is due, if fewer than `limit` are in flight.
  mutating func nextDue(limit: Int) -> (number: Int, frame: EventHub.Frame)? {
    guard inFlight.count < limit, let frame = due.popFirst() else { return nil }
    return (begin(frame), frame)
  }

  /// Put a frame in flight; returns its number.
  mutating func begin(_ frame: EventHub.Frame) -> Int {
    defer { nextNumber += 1 }
    inFlight[nextNumber] = frame
    return nextNumber
  }

  /// Remove an answered frame; nil where it was removed before.
  mutating func remove(_ number: Int) -> EventHub.Frame? { inFlight.removeValue(forKey: number) }

  /// All frames: in flight, due, and to be sent again.
  var all: [EventHub.Frame] { Array(inFlight.values) + due + retries }

  mutating func removeAll() {
    inFlight = [:]
    due = []
    retries = []
  }
}
