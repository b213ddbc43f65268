internal import DequeModule
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Which streams of one event loop are told of which channels, what has to be asked of the store for that, and up to
/// when everything was told. A pure state machine: what has to be done comes out as steps, in order, of
/// ``takeSteps()``; answers go in again, each exactly once.
///
/// A stream is *opened* in steps: its user is subscribed to, the user's channels are listed, and each is subscribed to,
/// a frame for every 1,024 of a shard. Only so many streams are opened at once; the others wait, and beyond a bound are
/// turned away. A channel is subscribed to once, however many streams have it.
///
/// The *time* is the least "complete through" of all shards in which there are subscriptions (DESIGN.md, "Events"):
/// every event up to it has been told to every stream that waits for nothing, so it is their events' id.
struct EventHub {
  /// A stream; a later one in the same place has another generation.
  struct Ref: Hashable, Sendable {
    var place: UInt32
    var generation: UInt32

    init(place: UInt32, generation: UInt32) {
      self.place = place
      self.generation = generation
    }
  }

  struct Limits {
    /// Streams in all.
    var streams = 50_000
    /// Streams of one user.
    var streamsPerUser = 100
    /// Streams that are opened at once.
    var openings = 64
    /// Streams that wait for that.
    var waiting = 10_000
    /// Channels of one stream.
    var channelsPerStream = 10_000
    /// Channels in all; the store takes 2²⁰ for each connection.
    var channels = 1 << 20
    /// Channels of all streams together, each as often as streams have it. One takes some 40 bytes.
    var attachments = 5_000_000
    /// Subscriptions asked for at once, of at most 1,024 channels each.
    var frames = 64
    /// How much earlier than its id a stream that goes on asks what its user has joined and left, in milliseconds. Who
    /// is a member of what a user's index learns from the channels' shards a little later, and an id does not wait for
    /// that.
    var membershipMargin: Int64 = 60_000

    init() {}
  }

  /// What a stream is opened for.
  struct Request {
    /// Nil: a server's stream of the channels that it names.
    var user: String?
    /// A server asks.
    var isServer: Bool
    /// When the user's token was issued; see ``Caller``.
    var issued: UInt32?
    /// Nil: all of the user's.
    var channels: [String]?
    var start: EventCursor.Start

    init(
      user: String?,
      isServer: Bool = false,
      issued: UInt32? = nil,
      channels: [String]? = nil,
      start: EventCursor.Start = .live
    ) {
      self.user = user
      self.isServer = isServer
      self.issued = issued
      self.channels = channels
      self.start = start
    }
  }

  /// What has to be done.
  enum Step: Hashable {
    /// subscribe_user; its answer is ``userSubscribed(_:through:)`` or ``userFailed(_:_:)``.
    case subscribeUser(place: UInt32, name: String)
    /// The same with *on* 0; its answer is ``userUnsubscribed(_:)`` or ``userUnsubscribeFailed(_:)``.
    case unsubscribeUser(place: UInt32, name: String)
    /// list_channels for the stream, where it goes on from a time with what was left and what was deleted since; its
    /// answer is ``listed(_:_:next:)`` or ``listFailed(_:_:)``.
    case list(Ref, user: String, issued: UInt32?, cursor: UInt64?, since: Timestamp?)
    /// subscribe to
    /// ``cids(of:)`` in ``shard(of:)``; its answer is ``subscribed(_:through:isComplete:)`` or ``subscribeFailed(_:_:)``.
    case subscribe(frame: Int, since: Timestamp?)
    /// unsubscribe from
    /// ``cids(of:)`` in ``shard(of:)``; its answer is ``unsubscribed(_:)`` or ``unsubscribeFailed(_:)``.
    case unsubscribe(frame: Int)
    /// Answer 200: events follow.
    case begin(Ref)
    /// All of its channels are subscribed to: its events have ids from here on.
    case live(Ref)
    /// Tell it to ask anew.
    case reset(Ref)
    /// Answer with this problem; the stream has been forgotten.
    case refuse(Ref, ProblemCode, detail: String)
    /// It has begun and cannot go on: its client is to come again with its last id. Forgotten.
    case end(Ref)
    /// Their user has left this channel, by the word of their index.
    case left(Ref, cid: String, at: Timestamp)
    /// A channel that their user was a member of was deleted while they were away; another one may have its name.
    case deleted(Ref, cid: String, at: Timestamp)
  }

  /// A subscription's answer: who is told what it says of each channel.
  enum Told: Equatable {
    /// These streams.
    case streams([Ref])
    /// These, whose user has joined: to them it is new, whatever had its name before.
    case newMembers([Ref])
    /// All who have the channel.
    case everybody
    /// This stream, of its user's leaving alone: it had the channel once.
    case formerMember(Ref)
  }

  // MARK: State

  /// How far a stream has come.
  enum Phase: Equatable {
    /// For its turn to be opened. Becomes `subscribingUser`, of a server `subscribing`.
    case waiting
    /// Its user is subscribed to. Becomes `listing`.
    case subscribingUser
    /// Its user's channels are listed. Becomes `subscribing`.
    case listing
    /// Its channels are subscribed to. Becomes `live`.
    case subscribing
    case live
  }

  /// How far a live stream has come that is gone over again, as changes of its user's channels may have been missed.
  enum Relisting: Equatable {
    case none
    /// For its turn. Becomes `subscribingUser`.
    case waiting
    /// Its user is subscribed to. Becomes `listing`.
    case subscribingUser
    /// Becomes `none`.
    case listing
  }

  struct Stream {
    let request: Request
    let generation: UInt32
    /// Its user's place; nil: a server's.
    let user: UInt32?
    var phase = Phase.waiting
    var start: EventCursor.Start
    var relisting = Relisting.none
    /// It has to be gone over again once it is live.
    var isStale = false
    /// 200 was answered.
    var hasBegun = false
    /// Answers without which its events have no id.
    var pending = 0
    var attached: [UInt32: Attachment] = [:]
    /// Cids listed so far, and those that are gone.
    var found: [(cid: String, joinedAt: Timestamp)] = []
    var gone: [String] = []
    /// Channels that were deleted since the time from which the stream goes on, by the word of the index.
    var deleted: [(cid: String, at: Timestamp)] = []
    /// Of those listed: joined after the time from which the stream goes on, so told from their joining on (R6).
    var joined: [ExactText: Timestamp] = [:]
    /// Of the named channels.
    var named: Set<ExactText>?
  }

  /// A channel of a stream.
  struct Attachment {
    /// The stream's place among the channel's.
    var index: UInt32
    /// The tick with which it is over, as its user has left by the word of their index; 0: they have not.
    var endsAt: UInt32 = 0
    /// When its user joined, by the word of their index.
    var joinedAt: Timestamp
  }

  struct Channel {
    let cid: String
    let shard: Int
    var streams: [UInt32] = []
    /// The store has been told, and has answered.
    var isLive = false
    /// The store may keep a subscription to it, also where the answer was a refusal or came too late.
    var mayBeKept = false
    /// Frames under way that name it.
    var frames = 0
    /// It is among those that are looked at for nobody's.
    var isIdle = false
  }

  struct User {
    let name: String
    let home: Int
    var streams: [UInt32] = []
    var isLive = false
    var isAsked = false
    /// As of a channel.
    var mayBeKept = false
    /// Unsubscriptions without an answer.
    var endings = 0
    var isIdle = false
  }

  struct Shard {
    /// Nil: nothing is subscribed to.
    var through: Timestamp?
    /// Channels and users that are live.
    var subscriptions = 0
    /// Frames without whose answers not all that was subscribed to is told.
    var resyncs = 0
    /// The least that those answered.
    var resynced: Timestamp?
  }

  enum Purpose: Equatable {
    case open(Ref)
    case attach([Ref])
    case gone(Ref)
    /// After a loss, for all.
    case resync
    /// Nobody has these channels any more.
    case end
  }

  struct Frame {
    let shard: Int
    let channels: [UInt32]
    let since: Timestamp?
    let purpose: Purpose
  }

  /// What a stream is to be told where the channel's own word does not come. Of no meaning once its attachment says
  /// otherwise.
  struct Leaving {
    let ref: Ref
    let channel: UInt32
    let at: Timestamp
    let endsAt: UInt32
  }

  let limits: Limits
  /// 0: the store is not known yet.
  private(set) var shardCount = 0
  var streams: [Stream?] = []
  /// Channels of all streams together.
  var attachmentCount = 0
  var freeStreams: [UInt32] = []
  var nextGeneration: UInt32 = 1
  var channels: [Channel?] = []
  var freeChannels: [UInt32] = []
  var channelPlaces: [ExactText: UInt32] = [:]
  var idleChannels: [UInt32] = []
  var users: [User?] = []
  var freeUsers: [UInt32] = []
  var userPlaces: [ExactText: UInt32] = [:]
  var idleUsers: [UInt32] = []
  var shards: [Shard] = []
  var frames: [Int: Frame] = [:]
  var nextFrame = 0
  /// Frames that are not sent yet.
  var due = Deque<Frame>()
  /// Frames that failed and are sent again with the next tick.
  var retries: [Frame] = []
  /// Streams that wait to be opened, or gone over again, and some that have gone meanwhile.
  var waiting = Deque<Ref>()
  /// Those of them that have gone.
  var waitingGone = 0
  /// Streams that could not be gone over again; they wait from the next tick on.
  var relistings: [Ref] = []
  /// Streams that are opened or gone over now.
  var openings = 0
  /// Those that are leaving, in the order in which that ends.
  var leaving = Deque<Leaving>()
  var ticks: UInt32 = 0
  var steps: [Step] = []
  /// See ``EventHub``; nil: nothing is subscribed to.
  private(set) var time: Timestamp?

  /// Of one frame (Proto/frames.md).
  static let cidsPerFrame = 1_024
  /// So many ticks may pass until a channel's own word of a leaving is waited for no longer.
  static let leavingTicks: UInt32 = 5

  init(limits: Limits = Limits()) { self.limits = limits }

  // MARK: What there is

  /// Streams, whatever they wait for.
  var streamCount: Int { streams.count - freeStreams.count }
  var channelCount: Int { channels.count - freeChannels.count }
  var userCount: Int { users.count - freeUsers.count }
  /// Streams that wait for their turn to be opened.
  var waitingCount: Int { waiting.count + relistings.count - waitingGone }

  /// What has to be done since this was called last.
  mutating func takeSteps() -> [Step] {
    defer { steps.removeAll(keepingCapacity: true) }
    return steps
  }

  var hasSteps: Bool { !steps.isEmpty }

  /// A channel that somebody has.
  func place(ofChannel cid: String) -> UInt32? { channelPlaces[ExactText(cid)] }

  /// Streams that have a channel.
  func refs(ofChannel place: UInt32) -> [Ref] {
    (channels[Int(place)]?.streams ?? []).map { ref($0) }
  }

  func place(ofUser name: String) -> UInt32? { name.isEmpty ? nil : userPlaces[ExactText(name)] }

  func refs(ofUser place: UInt32) -> [Ref] { (users[Int(place)]?.streams ?? []).map { ref($0) } }

  /// Who the stream is for, of an event whose subject has this place.
  func viewer(_ ref: Ref, subject: UInt32?) -> EventViewer {
    guard let user = streams[Int(ref.place)]?.user else { return .server }
    return .user(isSubject: user == subject)
  }

  /// Whether events of this stream carry the ``time``.
  func hasID(_ ref: Ref) -> Bool {
    isThere(ref) && streams[Int(ref.place)]?.phase == .live && streams[Int(ref.place)]?.pending == 0
  }

  func ref(_ place: UInt32) -> Ref { Ref(place: place, generation: streams[Int(place)]?.generation ?? 0) }

  /// As ``subscript(_:)`` without a copy, for what is asked with every event.
  func isThere(_ ref: Ref) -> Bool {
    Int(ref.place) < streams.count && streams[Int(ref.place)]?.generation == ref.generation
  }

  subscript(ref: Ref) -> Stream? {
    guard Int(ref.place) < streams.count, let stream = streams[Int(ref.place)],
      stream.generation == ref.generation
    else { return nil }
    return stream
  }

  // MARK: Shards

  mutating func shardsAreKnown(_ count: Int) {
    guard shardCount == 0 else { return }
    shardCount = count
    shards = Array(repeating: Shard(), count: count)
  }

  func home(of name: String) -> Int {
    let bytes = Array(name.utf8)
    return Int(ShardID.owning(bytes.span.bytes, count: shardCount).rawValue)
  }

  /// Everything in this shard was told up to here.
  mutating func passed(_ shard: ShardID, through: Timestamp) {
    let shard = Int(shard.rawValue)
    guard shard < shardCount, let known = shards[shard].through, shards[shard].resyncs == 0, through > known
    else {
      return
    }
    shards[shard].through = through
    findTime()
  }

  mutating func subscriptionAdded(_ shard: Int, through: Timestamp) {
    shards[shard].subscriptions += 1
    guard shards[shard].through == nil else { return }
    shards[shard].through = through
    findTime()
  }

  mutating func subscriptionRemoved(_ shard: Int) {
    shards[shard].subscriptions -= 1
    guard shards[shard].subscriptions == 0, shards[shard].resyncs == 0 else { return }
    shards[shard].through = nil
    findTime()
  }

  private mutating func findTime() {
    var least: Timestamp?
    for shard in shards {
      guard let through = shard.through else { continue }
      least = least.map { min($0, through) } ?? through
    }
    time = least
  }

  mutating func resyncEnded(_ shard: Int, through: Timestamp?) {
    shards[shard].resyncs -= 1
    if let through { shards[shard].resynced = shards[shard].resynced.map { min($0, through) } ?? through }
    guard shards[shard].resyncs == 0 else { return }
    let resynced = shards[shard].resynced
    shards[shard].resynced = nil
    if shards[shard].subscriptions == 0 {
      shards[shard].through = nil
      findTime()
    } else if let resynced {
      passed(ShardID(UInt16(shard)), through: resynced)
    }
  }
}
