internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Event subscriptions of one event loop: which streams get which channels, what to request from the store for that,
/// and up to which time events are complete. A pure state machine: actions come out in order from
/// ``takeActions()``, and each reply goes in exactly once.
///
/// A stream is *opened* in steps: subscribe to its user, list the user's channels, and subscribe to each of them, in
/// frames of at most 1,024 channels of one shard. The number of concurrent openings is limited. Further streams wait,
/// and beyond a second limit they are refused. A channel is subscribed to once, however many streams have it.
///
/// The *time* is the lowest "complete through" of all shards with subscriptions (docs/architecture.md, "Events"). Every
/// event up to it was delivered to every stream without pending replies, so it is the id of their events.
struct EventHub {
  /// A handle of a stream.
  typealias Ref = SlotIndex
  typealias ChannelIndex = NamedTable<Channel>.Index
  typealias UserIndex = NamedTable<User>.Index

  struct Limits {
    /// Streams in all.
    var streams = 50_000
    /// Streams of one user.
    var streamsPerUser = 100
    /// Streams being opened at once.
    var openings = 64
    /// Streams waiting to be opened.
    var waiting = 10_000
    /// Channels of one stream.
    var channelsPerStream = 10_000
    /// Channels of the event loop; the store takes 2²⁰ for each connection.
    var channels = 1 << 20
    /// Channels of all streams together, counted once per stream. Each takes some 40 bytes.
    var attachments = 5_000_000
    /// Subscribe requests in flight, of at most 1,024 channels each.
    var frames = 64
    /// How much earlier than its id a resuming stream replays its user's joins and leaves, in milliseconds. The user's
    /// index lags slightly behind the channels' shards, and an id does not wait for it.
    var membershipMargin: Int64 = 60_000

    init() {}
  }

  /// An action to perform.
  enum Action: Hashable {
    /// Send subscribe_user; its reply is ``userSubscribed(_:through:)`` or ``userFailed(_:_:)``.
    case subscribeUser(index: UserIndex, name: String)
    /// Send subscribe_user with *on* 0; its reply is ``userUnsubscribed(_:)`` or ``userUnsubscribeFailed(_:)``.
    case unsubscribeUser(index: UserIndex, name: String)
    /// Send list_channels for the stream. A resuming stream also asks for channels left and deleted since its id. The
    /// reply is ``listed(_:_:next:)`` or ``listFailed(_:_:)``.
    case list(Ref, user: String, issued: UInt32?, cursor: UInt64?, since: Timestamp?)
    /// Subscribe to ``cids(of:)`` in ``shard(of:)``; its reply is ``subscribed(_:through:isComplete:)`` or
    /// ``subscribeFailed(_:_:)``.
    case subscribe(frame: Int, since: Timestamp?)
    /// Unsubscribe from ``cids(of:)`` in ``shard(of:)``; its reply is ``unsubscribed(_:)`` or
    /// ``unsubscribeFailed(_:)``.
    case unsubscribe(frame: Int)
    /// Answer 200; events follow.
    case begin(Ref)
    /// The stream is subscribed to all of its channels: from here on its events have ids.
    case live(Ref)
    /// Tell the client to query its state again.
    case reset(Ref)
    /// Answer with this problem; the stream is already removed.
    case refuse(Ref, ProblemCode, detail: String)
    /// End a stream that has begun and cannot continue; its client should reconnect with its last id. Already removed.
    case end(Ref)
    /// Report that the stream's user has left this channel, according to the user's index.
    case left(Ref, cid: String, at: Timestamp)
    /// Report that a channel of the user was deleted while the client was away; another channel may have its name by
    /// now.
    case deleted(Ref, cid: String, at: Timestamp)
  }

  /// The recipients of a subscription's replay.
  enum ReplayRecipients: Equatable {
    /// These streams only.
    case streams([Ref])
    /// These streams, whose user has joined: events of an earlier channel of the same name are not for them.
    case newMembers([Ref])
    /// All streams of the channel.
    case allStreams
    /// This stream only, and only the removal of its user, a former member.
    case formerMember(Ref)
  }

  let limits: Limits
  var streams = SlotTable<Stream>()
  /// Attachments of all streams together.
  private(set) var attachmentCount = 0
  var channels = NamedTable<Channel>()
  private var idleChannels: [ChannelIndex] = []
  var users = NamedTable<User>()
  private var idleUsers: [UserIndex] = []
  var progress = EventProgress()
  var frames = SubscribeFrames()
  var queue = OpeningQueue()
  /// Whether ``startOpenings()`` runs.
  var isStartingOpenings = false
  var leaves = LeaveQueue()
  private var actions: [Action] = []

  /// Maximum channels of one frame (Proto/frames.md).
  static let cidsPerFrame = 1_024

  init(limits: Limits = Limits()) { self.limits = limits }

  // MARK: Queries

  /// Streams in any phase.
  var streamCount: Int { streams.count }
  var channelCount: Int { channels.count }
  var userCount: Int { users.count }
  /// Streams waiting to be opened or relisted.
  var waitingCount: Int { queue.count }
  /// Streams being opened or relisted.
  var openings: Int { queue.inProgress }
  /// 0: the store is not known yet.
  var shardCount: Int { progress.shardCount }
  /// See ``EventHub``; nil: there is no subscription.
  var time: Timestamp? { progress.time }

  /// Take the actions added since the last call.
  mutating func takeActions() -> [Action] {
    var taken: [Action] = []
    swap(&taken, &actions)
    return taken
  }

  var hasActions: Bool { !actions.isEmpty }

  mutating func emit(_ action: Action) { actions.append(action) }

  /// Return the index of a channel; nil: no stream has it.
  func index(ofChannel cid: String) -> ChannelIndex? { channels.index(of: cid) }

  /// Return the streams of a channel.
  func refs(ofChannel index: ChannelIndex) -> [Ref] {
    (channels[index]?.streams ?? []).map { ref($0) }
  }

  func index(ofUser name: String) -> UserIndex? { name.isEmpty ? nil : users.index(of: name) }

  func refs(ofUser index: UserIndex) -> [Ref] { (users[index]?.streams ?? []).map { ref($0) } }

  /// Return the viewer of a stream, for an event whose subject has this index.
  func viewer(_ ref: Ref, subject: UserIndex?) -> EventViewer {
    guard let user = streams[ref]?.user else { return .server }
    return .user(isSubject: user == subject)
  }

  /// Return whether events of this stream carry the ``time``.
  func hasID(_ ref: Ref) -> Bool {
    exists(ref) && streams[ref]?.phase == .live && streams[ref]?.pending == 0
  }

  func ref(_ slot: UInt32) -> Ref { streams.index(slot: slot) }

  /// Return whether a stream exists. Like ``subscript(_:)`` but without a copy, for use with every event.
  func exists(_ ref: Ref) -> Bool { streams.contains(ref) }

  subscript(ref: Ref) -> Stream? { streams[ref] }

  // MARK: Shards

  func home(of name: String) -> Int {
    let bytes = Array(name.utf8)
    return Int(ShardID.owning(bytes.span.bytes, count: shardCount).rawValue)
  }

  /// Record that a shard's events are complete through this time.
  mutating func completed(_ shard: ShardID, through: Timestamp) {
    progress.completed(shard, through: through)
  }

  // MARK: Attachments

  /// Attach a stream to a channel, and cancel a pending leave; nil: a limit is reached.
  mutating func attach(_ ref: Ref, _ cid: String, joinedAt: Timestamp) -> ChannelIndex? {
    if let index = index(ofChannel: cid), streams[ref]?.attached[index] != nil {
      streams[ref]?.attached[index]?.joinedAt = joinedAt
      streams[ref]?.attached[index]?.endsAt = 0
      return index
    }
    guard attachmentCount < limits.attachments, let index = findOrInsert(channel: cid),
      let count = channels[index]?.streams.count
    else { return nil }
    streams[ref]?.attached[index] = Attachment(index: UInt32(count), joinedAt: joinedAt)
    channels[index]?.streams.append(ref.slot)
    attachmentCount += 1
    return index
  }

  /// Detach a stream from a channel.
  mutating func detach(_ ref: Ref, _ channel: ChannelIndex) {
    guard let index = streams[ref]?.attached.removeValue(forKey: channel)?.index,
      let last = channels[channel]?.streams.popLast()
    else { return }
    attachmentCount -= 1
    if last != ref.slot {
      channels[channel]?.streams[Int(index)] = last
      streams[slot: last]?.attached[channel]?.index = index
    }
    release(channel: channel)
  }

  // MARK: Subscriptions without streams

  /// Mark a channel without streams to be unsubscribed at the next tick.
  mutating func release(channel index: ChannelIndex) {
    guard let channel = channels[index], channel.streams.isEmpty, channel.frames == 0, !channel.isIdle
    else {
      return
    }
    channels[index]?.isIdle = true
    idleChannels.append(index)
  }

  /// Mark a user without streams to be unsubscribed at the next tick.
  mutating func release(user index: UserIndex) {
    guard let user = users[index], user.streams.isEmpty, !user.isIdle else { return }
    users[index]?.isIdle = true
    idleUsers.append(index)
  }

  mutating func forget(user index: UserIndex) {
    if let user = users[index] { users.remove(index, named: user.name) }
  }

  /// Unsubscribe channels that have no streams any more.
  mutating func unsubscribeIdleChannels() {
    var ending: [ChannelIndex] = []
    for index in idleChannels {
      channels[index]?.isIdle = false
      guard let channel = channels[index], channel.streams.isEmpty, channel.frames == 0 else { continue }
      if channel.isLive {
        channels[index]?.isLive = false
        progress.subscriptionRemoved(channel.shard)
      }
      if channel.mayBeSubscribed { ending.append(index) } else { forget(channel: index) }
    }
    idleChannels = []
    for (shard, indexes) in byShard(ending).enumerated() {
      for start in stride(from: 0, to: indexes.count, by: Self.cidsPerFrame) {
        let part = Array(indexes[start..<min(start + Self.cidsPerFrame, indexes.count)])
        for index in part {
          channels[index]?.mayBeSubscribed = false
          channels[index]?.frames += 1
        }
        let frame = Frame(shard: shard, channels: part, since: nil, purpose: .end)
        emit(.unsubscribe(frame: frames.begin(frame)))
      }
    }
  }

  mutating func forget(channel index: ChannelIndex) {
    guard let channel = channels[index] else { return }
    channels.remove(index, named: channel.cid)
  }

  /// Unsubscribe users who have no streams any more.
  mutating func unsubscribeIdleUsers() {
    for index in idleUsers {
      users[index]?.isIdle = false
      guard let user = users[index], user.streams.isEmpty, !user.isSubscribing, user.unsubscribesInFlight == 0
      else {
        continue
      }
      if user.isLive {
        users[index]?.isLive = false
        progress.subscriptionRemoved(user.home)
      }
      if user.mayBeSubscribed {
        users[index]?.mayBeSubscribed = false
        users[index]?.unsubscribesInFlight += 1
        emit(.unsubscribeUser(index: index, name: user.name))
      } else {
        forget(user: index)
      }
    }
    idleUsers = []
  }

  /// Remove all subscriptions, before those of another store. The numbers of streams and frames are not used again:
  /// replies to earlier ones may be pending.
  mutating func removeAllSubscriptions() {
    let kept = (actions, streams, frames)
    self = EventHub(limits: limits)
    (actions, streams, frames) = kept
    frames.removeAll()
  }
}
