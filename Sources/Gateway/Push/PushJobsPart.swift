internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// The name of a push job: its shard, and the random number by which the shard knows it. With the number of a claim, it
/// names the job as one worker has it.
struct PushJobID: Hashable {
  let shard: ShardID
  let key: UInt64
  /// 0: none.
  let claim: UInt64

  init(shard: ShardID, key: UInt64, claim: UInt64 = 0) {
    self.shard = shard
    self.key = key
    self.claim = claim
  }

  /// Parse `shard-key` or `shard-key-claim`, the key in hexadecimal digits. Each id has one spelling.
  init?(_ text: RawSpan, shardCount: Int) {
    let text = String(decoding: text.bytes, as: UTF8.self)
    let parts = text.split(separator: "-", omittingEmptySubsequences: false)
    guard parts.count == 2 || parts.count == 3, let shard = UInt16(parts[0]), Int(shard) < shardCount,
      let key = UInt64(parts[1], radix: 16), let claim = parts.count == 2 ? 0 : UInt64(parts[2])
    else { return nil }
    self.init(shard: ShardID(shard), key: key, claim: claim)
    guard self.text == text else { return nil }
  }

  var text: String {
    let digits = String(key, radix: 16)
    let name = "\(shard.rawValue)-" + String(repeating: "0", count: 16 - digits.count) + digits
    return claim == 0 ? name : "\(name)-\(claim)"
  }
}

/// A request about push jobs.
final class PushJobRequest: ShardRequest {
  enum Kind {
    case put(PushJobID)
    case claim
    case update
  }

  let kind: Kind
  /// Shards that have answered with a reply.
  var replyCount = 0
  /// Users of a job that were accepted.
  var accepted: UInt64 = 0
  var jobs: [(id: PushJobID, job: PushJob)] = []
  /// Shards of a claim that are not asked yet.
  var shardsToAsk: ArraySlice<ShardID> = []
  var limit = 0
  var leaseMilliseconds: UInt64 = 0
  var hasMore = false
  var unknown: [PushJobID] = []

  init(_ context: RequestContext, _ kind: Kind) {
    self.kind = kind
    super.init(context)
  }
}

/// Push jobs: durable in their messages' shards until a worker has finished them (docs/api/push-send.md).
final class PushJobsPart: GatewayPart {
  /// Maximum number of jobs that one request claims or finishes.
  static let jobsMax: Int64 = 1_000
  private static let jobsDefault: Int64 = 100
  static let leaseSecondsMax: Int64 = 600
  private static let leaseSecondsDefault: Int64 = 10
  /// Maximum size of the jobs that one claim gets from all shards, in bytes. A shard gives at most 512 KiB at a time.
  private static let claimBytesMax = 4 << 20

  private var requests = SlotTable<PushJobRequest>()
  /// First shard of the next claim, so that each shard comes first at times.
  private var nextShard = 0

  // MARK: Routes

  /// Handle `POST /v1/push/jobs`.
  func putJob(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let key = UInt64.random(in: 1...UInt64.max)
    let fields = try PushJobFields(try loop.object(request, .putPushJob), key: key)
    let shard = try loop.homeShard(of: fields.cid.span.bytes)
    let job = PushJobRequest(context, .put(PushJobID(shard: shard, key: key)))
    let index = requests.insert(job)
    send(.putPushJob, job, index, to: .channel(fields.cid.span.bytes), shard) { fields.request.write(into: &$0) }
    close(job, index)
  }

  /// Handle `POST /v1/push/jobs/claim`.
  func claimJobs(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let body = try loop.object(request, .claimPushJobs)
    let lease = try body.optionalInteger("lease_seconds", in: 1...Self.leaseSecondsMax) ?? Self.leaseSecondsDefault
    let job = PushJobRequest(context, .claim)
    job.limit = Int(try body.optionalInteger("limit", in: 1...Self.jobsMax) ?? Self.jobsDefault)
    job.leaseMilliseconds = UInt64(lease * 1_000)
    let shardCount = try loop.knownShardCount()
    job.shardsToAsk = (0..<shardCount).map { ShardID(UInt16((nextShard + $0) % shardCount)) }[...]
    nextShard = (nextShard + 1) % shardCount
    let index = requests.insert(job)
    askForJobs(job, index)
    close(job, index)
  }

  /// Ask shards for jobs, each for its share of what is left of the limit: all of them, or as many as the limit allows.
  private func askForJobs(_ job: PushJobRequest, _ index: SlotIndex) {
    let left = job.limit - job.jobs.count
    let shards = job.shardsToAsk.prefix(left)
    guard !shards.isEmpty else { return }
    job.shardsToAsk = job.shardsToAsk.dropFirst(shards.count)
    let claim = ClaimPushJobsRequest(
      milliseconds: job.leaseMilliseconds,
      limit: UInt64(left / shards.count),
      byteCountMax: UInt64(Self.claimBytesMax / shards.count)
    )
    for shard in shards {
      send(.claimPushJobs, job, index, to: .shard(shard, name: nil), shard) { claim.write(into: &$0) }
    }
  }

  /// Handle `POST /v1/push/jobs/renew`.
  func renewJobs(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let body = try loop.object(request, .renewPushJobs)
    guard let lease = try body.optionalInteger("lease_seconds", in: 0...Self.leaseSecondsMax) else {
      throw body.missing("lease_seconds")
    }
    try update(try ids(body), isDone: false, milliseconds: UInt64(lease * 1_000), context)
  }

  /// Handle `POST /v1/push/jobs/done`.
  func finishJobs(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    try update(try ids(try loop.object(request, .finishPushJobs)), isDone: true, milliseconds: 0, context)
  }

  private func ids(_ body: JSONValue) throws(Problem) -> [PushJobID] {
    let shardCount = try loop.knownShardCount()
    let list = try body.requiredArray("ids", countMax: Int(Self.jobsMax))
    var ids: [PushJobID] = []
    var elements = list.elements
    while let element = elements.next() {
      guard let id = PushJobID(try element.asString(), shardCount: shardCount) else {
        throw element.error("is not the id of a push job")
      }
      ids.append(id)
    }
    return ids
  }

  private func update(
    _ ids: [PushJobID],
    isDone: Bool,
    milliseconds: UInt64,
    _ context: RequestContext
  ) throws(Problem) {
    let job = PushJobRequest(context, .update)
    let index = requests.insert(job)
    for (shard, ids) in Dictionary(grouping: ids, by: \.shard) {
      let fields = UpdatePushJobsRequest(
        isDone: isDone,
        milliseconds: milliseconds,
        jobs: ids.map { UpdatePushJobsRequest.Job(key: $0.key, claim: $0.claim) }
      )
      send(.updatePushJobs, job, index, to: .shard(shard, name: nil), shard) { fields.write(into: &$0) }
    }
    close(job, index)
  }

  // MARK: Shards

  private func send(
    _ frame: FrameKind,
    _ job: PushJobRequest,
    _ index: SlotIndex,
    to destination: StoreDestination,
    _ shard: ShardID,
    _ fields: (inout ByteBuffer) -> Void
  ) {
    job.send(frame, to: destination, .pushJob(index, shard: shard.rawValue), on: loop, fields)
  }

  func completed(_ index: SlotIndex, _ shard: UInt16, with result: StoreResult) {
    guard let job = requests[index] else { return }
    job.receive(result, on: loop) { kind, payload throws(WireError) in
      try receive(kind, payload, ShardID(shard), of: job)
      job.replyCount += 1
    }
    close(job, index)
  }

  private func receive(
    _ kind: FrameKind,
    _ payload: RawSpan,
    _ shard: ShardID,
    of job: PushJobRequest
  ) throws(WireError) {
    switch kind {
    case .putPushJob: job.accepted = try PutPushJobReply(payload).accepted
    case .claimPushJobs:
      let reply = try PushJobsReply(payload)
      job.jobs += reply.jobs.map { (PushJobID(shard: shard, key: $0.job.key, claim: $0.claim), $0.job) }
      if reply.hasMore { job.hasMore = true }
    default:
      job.unknown += try UpdatePushJobsReply(payload).unknown.map {
        PushJobID(shard: shard, key: $0.key, claim: $0.claim)
      }
    }
  }

  /// Answer when the last shard has answered.
  private func close(_ job: PushJobRequest, _ index: SlotIndex) {
    guard job.endsWaiting() else { return }
    if case .claim = job.kind {
      // Whoever has jobs gets them now: their leases are running. So does nobody who has gone.
      if job.jobs.isEmpty, job.replyCount > 0, isAwaited(job) {
        askForJobs(job, index)
        guard !job.isWaiting else { return }
      }
      // Jobs that were claimed are passed on, even if other shards do not answer.
      if job.replyCount > 0 { job.problem = nil }
      if !job.shardsToAsk.isEmpty { job.hasMore = true }
    }
    requests.remove(index)
    answer(job)
  }

  // MARK: Answers

  private func isAwaited(_ job: PushJobRequest) -> Bool {
    loop.connections.answering(job.context.stream, on: job.context.connection) != nil
  }

  private func answer(_ job: PushJobRequest) {
    let context = job.context
    guard let connection = loop.connections.answering(context.stream, on: context.connection) else { return }
    if let problem = job.problem {
      return loop.answer(problem, route: context.route, stream: context.stream, connection: connection)
    }
    var status = 200
    if case .put = job.kind { status = 202 }
    loop.respond(context.route, stream: context.stream, connection: connection, status: status) { buffer in
      switch job.kind {
      case .put(let id): buffer.writeString(#"{"id":"\#(id.text)","users":\#(job.accepted)}"#)
      case .claim: Self.write(job.jobs, hasMore: job.hasMore, into: &buffer)
      case .update:
        let ids = job.unknown.map { #""\#($0.text)""# }.joined(separator: ",")
        buffer.writeString(#"{"unknown":[\#(ids)]}"#)
      }
    }
  }

  /// Write `{"jobs":[{"id","created_at","expires_at","job"}],"more"}`.
  private static func write(_ jobs: [(id: PushJobID, job: PushJob)], hasMore: Bool, into buffer: inout ByteBuffer) {
    buffer.writeStaticString("{\"jobs\":[")
    for (position, entry) in jobs.enumerated() {
      if position > 0 { buffer.writeStaticString(",") }
      buffer.writeString(#"{"id":"\#(entry.id.text)","created_at":"#)
      buffer.writeTimestamp(entry.job.createdAt)
      buffer.writeStaticString(",\"expires_at\":")
      buffer.writeTimestamp(entry.job.expiresAt)
      buffer.writeStaticString(",\"job\":")
      // The content is an object with at least a cid: the users go before its end.
      buffer.writeBytes(entry.job.content.dropLast())
      buffer.writeStaticString(",\"users\":[")
      for (number, user) in entry.job.users.enumerated() {
        buffer.writeStaticString(number > 0 ? ",{\"user_id\":" : "{\"user_id\":")
        buffer.writeJSONString(user.id.span.bytes)
        buffer.writeStaticString(",\"devices\":")
        buffer.writeBytes(user.devices)
        buffer.writeStaticString("}")
      }
      buffer.writeStaticString("]}}")
    }
    buffer.writeString("],\"more\":\(hasMore)}")
  }
}
