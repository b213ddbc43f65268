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
/// The *time* is the lowest "complete through" of all shards with subscriptions (docs/contribute/architecture.md,
/// "Events"). Every event up to it was delivered to every stream without pending replies, so it is the id of their
/// events.
struct EventHub {
  /// A handle of a stream.
  typealias Ref = SlotIndex
  typealias ChannelIndex = ChannelSubscriptions.Index
  typealias UserIndex = UserSubscriptions.Index

  struct Limits {
    /// Streams in all.
    var streams = 50_000
    /// Streams of one user.
    var streamsPerUser = 100
    /// Streams being opened at once.
    var openings = 64
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
  var streams: HubStreamTable
  var attachments = ChannelAttachments()
  var channels = ChannelSubscriptions()
  var users = UserSubscriptions()
  var progress = EventProgress()
  var frames = SubscribeFrames()
  /// Whether ``startOpenings()`` runs.
  private var isStartingOpenings = false
  private var actions: [Action] = []

  /// Maximum channels of one frame (Proto/frames.md).
  static let cidsPerFrame = 1_024

  init(limits: Limits = Limits(), waiting: WaitingLimits = WaitingLimits()) {
    self.limits = limits
    streams = HubStreamTable(waitingMax: waiting.openings)
  }

  // MARK: Queries

  /// Streams in any phase.
  var streamCount: Int { streams.count }
  var channelCount: Int { channels.count }
  var userCount: Int { users.count }
  /// Streams waiting to be opened or relisted.
  var waitingCount: Int { streams.waitingCount }
  /// Streams being opened or relisted.
  var openings: Int { streams.openings }
  /// Attachments of all streams together.
  var attachmentCount: Int { attachments.count }
  /// 0: the store is not known yet.
  var shardCount: Int { progress.shardCount }
  /// See ``EventHub``; nil: there is no subscription.
  var time: Timestamp? { progress.time }

  /// Take the actions added since the last call. Debug builds check the invariants, which hold after each event.
  mutating func takeActions() -> [Action] {
    assertInvariants()
    var taken: [Action] = []
    swap(&taken, &actions)
    return taken
  }

  mutating func emit(_ action: Action) { actions.append(action) }

  /// Return the index of a channel; nil: no stream has it.
  func index(ofChannel cid: String) -> ChannelIndex? { channels.index(of: cid) }

  /// Return the streams of a channel.
  func refs(ofChannel index: ChannelIndex) -> [Ref] { attachments.streams(of: index).map { streams.ref(slot: $0) } }

  func index(ofUser name: String) -> UserIndex? { name.isEmpty ? nil : users.index(of: name) }

  func refs(ofUser index: UserIndex) -> [Ref] { (users[index]?.streams ?? []).map { streams.ref(slot: $0) } }

  /// Return the viewer of a stream, for an event whose subject has this index.
  func viewer(_ ref: Ref, subject: UserIndex?) -> EventViewer {
    guard let user = userIndex(of: ref) else { return .server }
    return .user(isSubject: user == subject)
  }

  /// Return the user of a stream; nil: a server's stream, or removed.
  func userIndex(of ref: Ref) -> UserIndex? { streams.read(ref) { $0.user } ?? nil }

  /// Return whether events of this stream carry the ``time``.
  func hasID(_ ref: Ref) -> Bool { streams.read(ref) { $0.isComplete } == true }

  /// A stream; nil: it was removed.
  subscript(ref: Ref) -> Stream? { _read { yield streams[ref] } }

  // MARK: Shards

  /// Return the shard that owns a channel, or a user's index.
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
    if let index = index(ofChannel: cid), attachments.isAttached(ref, index) {
      attachments.setJoined(ref, index, at: joinedAt)
      attachments.cancelLeave(ref, index)
      return index
    }
    guard attachmentCount < limits.attachments, let index = findOrInsert(channel: cid) else { return nil }
    attachments.attach(ref, index, joinedAt: joinedAt)
    return index
  }

  /// Detach a stream from a channel.
  mutating func detach(_ ref: Ref, _ channel: ChannelIndex) {
    if attachments.detach(ref, channel) { release(channel: channel) }
  }

  // MARK: Openings

  /// Start waiting openings and relistings, up to the limit. An opening that fails at once calls this again: the nested
  /// call starts none, so that stack depth does not grow with the number of waiting streams.
  mutating func startOpenings() {
    guard !isStartingOpenings else { return }
    isStartingOpenings = true
    defer { isStartingOpenings = false }
    while let ref = streams.takeSlot(limit: limits.openings) { begin(ref) }
  }

  // MARK: Subscriptions without streams

  /// Mark a channel without streams to be unsubscribed at the next tick.
  mutating func release(channel index: ChannelIndex) {
    if attachments.hasNoStreams(index) { channels.markIdle(index) }
  }

  /// Unsubscribe channels that have no streams any more.
  mutating func unsubscribeIdleChannels() {
    let unused = channels.takeUnused(attachments)
    for shard in unused.endedShards { progress.subscriptionRemoved(shard) }
    for (shard, indexes) in byShard(unused.subscribed).enumerated() {
      for part in Self.parts(of: indexes) {
        channels.unsubscribeAdded(part)
        let frame = Frame(shard: shard, channels: part, since: nil, purpose: .end)
        emit(.unsubscribe(frame: frames.begin(frame)))
      }
    }
  }

  /// Divide the channels of one shard among frames.
  static func parts(of indexes: [ChannelIndex]) -> [[ChannelIndex]] {
    stride(from: 0, to: indexes.count, by: cidsPerFrame).map {
      Array(indexes[$0..<min($0 + cidsPerFrame, indexes.count)])
    }
  }

  /// Unsubscribe users who have no streams any more.
  mutating func unsubscribeIdleUsers() {
    let unused = users.takeUnused()
    for shard in unused.endedShards { progress.subscriptionRemoved(shard) }
    for (index, name) in unused.subscribed { emit(.unsubscribeUser(index: index, name: name)) }
  }

  /// Remove all subscriptions, before those of another store. All streams are closed. Their numbers and those of frames
  /// are not used again: replies to earlier ones may be pending.
  mutating func removeAllSubscriptions() {
    attachments = ChannelAttachments()
    channels = ChannelSubscriptions()
    users = UserSubscriptions()
    progress = EventProgress()
    frames.removeAll()
  }

  // MARK: Invariants

  /// The first broken invariant; nil: there is none. They hold between events.
  var brokenInvariant: String? {
    if let broken = streams.brokenInvariant ?? attachments.brokenInvariant { return broken }
    if let broken = channels.brokenInvariant(attachments) ?? users.brokenInvariant(streams) { return broken }
    var replies: [Ref: Int] = [:]
    var named: [ChannelIndex: Int] = [:]
    for frame in frames.all {
      for ref in frame.purpose.waitingStreams { replies[ref, default: 0] += 1 }
      for index in frame.channels { named[index, default: 0] += 1 }
    }
    for ref in streams.refs {
      guard let stream = streams[ref] else { continue }
      let relisting = stream.isRelisting ? 1 : 0
      if stream.pending != replies[ref, default: 0] + relisting { return "pending replies of stream \(ref.slot)" }
    }
    for index in channels.indexes where channels[index]?.frames != named[index, default: 0] {
      return "frames of channel \(index.slot)"
    }
    let live =
      channels.indexes.compactMap { channels[$0].flatMap { $0.isLive ? $0.shard : nil } }
      + users.indexes.compactMap { users[$0].flatMap { $0.isLive ? $0.home : nil } }
    for shard in 0..<shardCount where progress.subscriptions(shard) != live.count(where: { $0 == shard }) {
      return "subscriptions of shard \(shard)"
    }
    return nil
  }

  /// Check the invariants in debug builds, while the tables are small: the check reads all of them.
  private func assertInvariants() {
    assert(streamCount > 64 || channelCount > 256 || brokenInvariant == nil, "broken: \(brokenInvariant ?? "")")
  }
}
