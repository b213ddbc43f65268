import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import TestSupport

/// A request that can be sent again, to any loop.
struct RecordedRequest {
  var kind: FrameKind
  var name: String?
  /// nil for a query.
  var counter: UInt64?
  var shard: UInt16
  var thread: String?
  var fields = ByteBuffer()

  /// Sends the request. The turn does not end.
  func send(by gateway: Gateway) {
    gateway.send(kind, name, counter: counter, shard: shard, thread: thread) { payload in
      payload.writeImmutableBuffer(fields)
    }
  }
}

/// Random commands and queries for the channels, users, tokens and webhooks of a store with few shards.
struct RandomRequests {
  private var random: SplitMix64
  private let shardCount: Int
  private var counter: UInt64 = 0
  private var newest: [String: Int] = [:]
  private var newestReply: [String: Int] = [:]
  /// Time of the last request, in milliseconds, for expiries.
  var clock: Int64 = 0

  static let cids = (0..<10).map { "\($0 % 3 == 0 ? "dm" : "team"):c\($0)" }
  /// So many members that its deletion takes slices.
  static let crowded = "dm:crowded"
  static let users = (0..<9).map { "user\($0)" }
  /// Long ids, so that adding all is a wide request.
  static let crowd = (0..<40).map { "crowd\($0)-of-a-thousand-people" }

  init(seed: UInt64, shardCount: Int) {
    random = SplitMix64(seed: seed ^ 0xC0DE)
    self.shardCount = shardCount
  }

  private func shard(_ name: String) -> UInt16 {
    ShardID.owning(Array(name.utf8).span.bytes, count: shardCount).rawValue
  }

  private mutating func command(
    _ kind: FrameKind,
    _ name: String,
    shard: UInt16? = nil,
    thread: String? = nil,
    _ fields: (inout ByteBuffer) -> Void = { _ in }
  ) -> RecordedRequest {
    counter += 1
    var request = RecordedRequest(
      kind: kind,
      name: name,
      counter: counter,
      shard: shard ?? self.shard(name),
      thread: thread
    )
    fields(&request.fields)
    return request
  }

  private mutating func user() -> String { random.pick(Self.users) }

  private mutating func message(_ cid: String) -> String {
    let last = newest[cid, default: 0]
    return "m\(max(0, last - random.below(random.oneIn(4) ? last + 1 : 10)))"
  }

  private static func write(_ users: [String], into buffer: inout ByteBuffer) {
    buffer.writeVarint(users.count)
    for user in users {
      buffer.writeField(user)
      buffer.writeEmptyField()
    }
  }

  // MARK: Commands

  /// A random command. The first ones create the channels.
  mutating func next() -> RecordedRequest {
    if counter < UInt64(Self.cids.count) { return put(Self.cids[Int(counter)], Self.users) }
    let cid = random.oneIn(3) ? Self.cids[0] : random.pick(Self.cids)
    switch random.below(100) {
    case 0..<18: return post(cid)
    case 18..<56: return mark(cid)
    case 56..<68: return inThread(cid)
    case 68..<74: return change(cid)
    case 74..<78: return removal(cid)
    case 78..<83: return settings()
    case 83..<87: return push(cid)
    case 87..<93: return crowd()
    case 93..<96: return acknowledge(cid)
    default: return member(cid)
    }
  }

  private mutating func put(_ cid: String, _ users: [String]) -> RecordedRequest {
    var options = OptionPatch()
    options.keptSteps = UInt16(random.below(4))
    return command(.putChannel, cid) { payload in
      payload.writeOptionPatch(options)
      Self.write(users, into: &payload)
    }
  }

  private mutating func post(_ cid: String, inThread parent: String? = nil) -> RecordedRequest {
    var id = message(cid)
    if parent != nil {
      newestReply[cid, default: 0] += 1
      id = "r\(newestReply[cid]!)"
    } else if !random.oneIn(8) {
      newest[cid, default: 0] += 1
      id = "m\(newest[cid]!)"
    }
    let sender = random.oneIn(10) ? "" : user()
    let mentions = random.oneIn(4) ? [user()] : []
    let flags = (random.oneIn(8) ? 1 : 0) | (random.oneIn(3) ? 2 : 0) | (mentions.isEmpty ? 0 : 16)
    return command(.registerMessage, cid, thread: parent) { payload in
      payload.writeField(id)
      payload.writeField(sender)
      payload.writeTime(.none)
      payload.writeVarint(flags)
      guard !mentions.isEmpty else { return }
      payload.writeVarint(mentions.count)
      for user in mentions { payload.writeField(user) }
    }
  }

  private mutating func mark(_ cid: String, inThread parent: String? = nil) -> RecordedRequest {
    let kind = random.pick([.markRead, .markRead, .markRead, .markDelivered, .markUnread] as [FrameKind])
    let user = user()
    var to = random.oneIn(3) ? "" : message(cid)
    if parent != nil, !to.isEmpty { to = "r\(max(1, newestReply[cid, default: 1] - random.below(4)))" }
    if kind == .markUnread, to.isEmpty { to = message(cid) }
    return command(kind, cid, thread: parent) { payload in
      payload.writeField(user)
      payload.writeField(to)
      if kind != .markDelivered { payload.writeOptional(nil) }
    }
  }

  private mutating func inThread(_ cid: String) -> RecordedRequest {
    let parent = "m\(max(1, newest[cid, default: 1] / 8 * 8))"
    return random.oneIn(2) ? post(cid, inThread: parent) : mark(cid, inThread: parent)
  }

  private mutating func change(_ cid: String) -> RecordedRequest {
    if random.oneIn(3) { return put(cid, [user()]) }
    let (add, remove) = ([user()], [user()])
    return command(.changeMembers, cid) { payload in
      Self.write(add, into: &payload)
      payload.writeVarint(remove.count)
      for user in remove { payload.writeField(user) }
    }
  }

  private mutating func removal(_ cid: String) -> RecordedRequest {
    let (user, message) = (user(), message(cid))
    switch random.below(8) {
    case 0..<3: return command(.deleteMessage, cid) { $0.writeField(message) }
    case 3: return command(.truncateChannel, cid) { $0.writeField(message) }
    case 4..<6: return command(.eraseMember, cid) { $0.writeField(user) }
    default: return command(.deleteChannel, cid)
    }
  }

  private mutating func crowd() -> RecordedRequest {
    switch random.below(4) {
    case 0: return command(.deleteChannel, Self.crowded)
    case 1: return post(Self.crowded)
    default: return put(Self.crowded, Self.crowd)
    }
  }

  private mutating func settings() -> RecordedRequest {
    let user = user()
    let shows = (UInt64(random.below(4)), UInt64(random.below(4)))
    let until = clock + Int64(random.below(3_000))
    let isRevoked = UInt8(random.oneIn(4) ? 0 : 1)
    let version = UInt64(1 + random.below(40))
    switch random.below(4) {
    case 0:
      return command(.patchUser, user) { payload in
        payload.writeVarint(shows.0)
        payload.writeVarint(shows.1 & shows.0)
        payload.writeTime(.none)
      }
    case 1:
      return command(.revokeToken, "token\(random.below(12))", shard: 0) { payload in
        payload.writeInteger(isRevoked)
        payload.writeTime(Timestamp(milliseconds: isRevoked == 1 ? until : 0))
      }
    case 2:
      var options = OptionPatch()
      options.readEvents = random.oneIn(2)
      let name = random.pick(["team", "dm"])
      return command(.patchChannelType, name, shard: UInt16(random.below(shardCount))) {
        $0.writeOptionPatch(options)
      }
    default:
      return command(.assignUser, user, shard: UInt16(random.below(shardCount))) { payload in
        payload.writeVarint(version)
        payload.writeVarint(shows.0)
        for _ in 0..<3 { payload.writeTime(.none) }
      }
    }
  }

  /// Add a push job, or report some.
  private mutating func pushJob(_ cid: String) -> RecordedRequest {
    let key = UInt64(random.below(60))
    if random.oneIn(3) {
      var request = RecordedRequest(kind: .updatePushJobs, counter: 0, shard: UInt16(random.below(shardCount)))
      counter += 1
      request.counter = counter
      let jobs = [key, key + 1].map { UpdatePushJobsRequest.Job(key: $0, claim: 0) }
      UpdatePushJobsRequest(isDone: true, milliseconds: 0, jobs: jobs).write(into: &request.fields)
      return request
    }
    let put = PutPushJobRequest(
      message: Array(message(cid).utf8),
      key: key,
      milliseconds: UInt64(1 + random.below(3_000)),
      content: Array("{}".utf8),
      users: [user(), user()].map { PushJob.User(id: Array($0.utf8), devices: Array("[]".utf8)) }
    )
    return command(.putPushJob, cid) { put.write(into: &$0) }
  }

  private mutating func push(_ cid: String) -> RecordedRequest {
    if random.oneIn(3) { return pushJob(cid) }
    let until = clock + Int64(random.below(3_000))
    if random.oneIn(2) {
      return command(.noteWebhook, "hook\(random.below(30))") {
        $0.writeTime(Timestamp(milliseconds: until))
      }
    }
    let (user, message) = (user(), message(cid))
    return command(.acknowledgePush, cid) { payload in
      payload.writeField(user)
      payload.writeField(message)
      payload.writeTime(.none)
      payload.writeVarint(0)
    }
  }

  private mutating func acknowledge(_ cid: String) -> RecordedRequest {
    let (user, message) = (user(), message(cid))
    return command(.acknowledge, cid) { payload in
      payload.writeField(user)
      payload.writeField("seen")
      payload.writeVarint(1)
      payload.writeField(message)
    }
  }

  private mutating func member(_ cid: String) -> RecordedRequest {
    let (user, flags) = (user(), random.below(8))
    return command(.setMember, cid) { payload in
      payload.writeField(user)
      payload.writeField(flags & 4 == 0 ? "" : "admin")
      payload.writeVarint(flags)
    }
  }

  // MARK: Queries

  /// Queries for the whole content of the store.
  func audit() -> [RecordedRequest] {
    var all: [RecordedRequest] = []
    func query(
      _ kind: FrameKind,
      _ name: String?,
      shard: UInt16? = nil,
      _ fields: (inout ByteBuffer) -> Void = { _ in }
    ) {
      var request = RecordedRequest(kind: kind, name: name, shard: shard ?? name.map(self.shard) ?? 0)
      fields(&request.fields)
      all.append(request)
    }
    for cid in Self.cids + [Self.crowded] {
      query(.getChannel, cid)
      query(.readState, cid) { payload in
        payload.writeVarint(1)
        payload.writeField("")
        payload.writeVarint(100)
        payload.writeOptional(nil)
      }
      let ids = (0..<newest[cid, default: 0]).suffix(60).map { "m\($0)" }
      let replies = (0..<newestReply[cid, default: 0]).suffix(30).map { "r\($0)" }
      guard !ids.isEmpty else { continue }
      query(.statuses, cid) { payload in
        payload.writeVarint(1)
        payload.writeEmptyField()
        payload.writeVarint(ids.count + replies.count)
        for id in ids + replies { payload.writeField(id) }
      }
    }
    for user in Self.users {
      query(.getUser, user)
      query(.listChannels, user) { payload in
        payload.writeVarint(3)
        payload.writeVarint(100)
        payload.writeOptional(nil)
        payload.writeTime(Timestamp(milliseconds: clock - 1_000_000))
      }
    }
    for shard in 0..<UInt16(shardCount) {
      query(.listChannelTypes, nil, shard: shard)
      query(.listUnsettled, nil, shard: shard)
    }
    query(.listRevokedTokens, nil, shard: 0) { payload in
      payload.writeVarint(0)
      payload.writeVarint(0)
    }
    for number in 0..<30 { query(.webhookKnown, "hook\(number)") }
    return all
  }
}
