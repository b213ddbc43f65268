internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// A request about consumers.
final class ConsumerRequest: ShardRequest {
  enum Kind {
    case put(FeedFilters)
    case delete
    case list
    case get
    case commit
    case lease(FeedLeases.Request)
  }

  let kind: Kind
  let name: String
  /// Whether a shard has made the consumer.
  var isCreated = false
  /// The shards' consumers.
  var replies: [(shard: UInt16, reply: ConsumersReply)] = []
  var lease: LeasePartitionsReply?

  init(_ context: RequestContext, _ kind: Kind, name: String) {
    self.kind = kind
    self.name = name
    super.init(context)
  }
}

/// The filters of a consumer, as a request gives them.
struct FeedFilters {
  var kinds = FeedRecordKinds.all
  var channelTypes: [String] = []
}

/// Consumers of the change feed (R21): each shard has them all, with its own position.
final class FeedConsumersPart: GatewayPart {
  private var requests = SlotTable<ConsumerRequest>()

  // MARK: Routes

  /// Handle `PUT /v1/feed/consumers/{name}`.
  func putConsumer(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let body = try loop.object(request, .putConsumer)
    let filters = try FeedFilters(body)
    let start = try Self.start(body)
    let put = PutConsumerRequest(
      kinds: filters.kinds,
      channelTypes: filters.channelTypes,
      start: start.start,
      since: start.since
    )
    try send(.putConsumer, .put(filters), match, context, to: try allShards()) { put.write(into: &$0) }
  }

  /// Handle `DELETE /v1/feed/consumers/{name}`.
  func deleteConsumer(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    try send(.removeConsumer, .delete, match, context, to: try allShards()) { _ in }
  }

  /// Handle `GET /v1/feed/consumers`.
  func listConsumers(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    try send(.listConsumers, .list, match, context, to: try allShards()) { _ in }
  }

  /// Handle `GET /v1/feed/consumers/{name}`.
  func getConsumer(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    try send(.listConsumers, .get, match, context, to: try allShards()) { _ in }
  }

  /// Handle `POST /v1/feed/consumers/{name}/commit`.
  func commitConsumer(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let body = try loop.object(request, .commitConsumer)
    let shardCount = try loop.knownShardCount()
    let partition = try Self.partition(try body.required("partition"), shardCount)
    let shards = FeedCursor.shards(of: partition, shardCount: shardCount)
    var cursor: FeedCursor?
    if let value = body.optional("cursor") {
      guard let parsed = FeedCursor(try value.asString()), parsed.positions.count == shards.count,
        parsed.partition == partition
      else { throw value.error("is not a cursor of this partition") }
      cursor = parsed
    }
    let epoch = try body.optionalInteger("epoch", in: 1...Int64.max).map { UInt64($0) }
    var state: [UInt8]?
    if let text = try body.optionalString("state") { state = text.withUnsafeBytes { Array($0) } }
    guard cursor != nil || state != nil else { throw body.missing("cursor") }
    if let state, state.count > FeedConsumerTable.stateBytesMax {
      throw try body.required("state").error("may have at most \(FeedConsumerTable.stateBytesMax) bytes")
    }
    let job = ConsumerRequest(context, .commit, name: Self.text(match.subject))
    let index = requests.insert(job)
    for (offset, shard) in shards.enumerated() {
      let commit = FeedConsumerTable.Commit(
        position: cursor.map { ($0.positions[offset], $0.time) },
        // The state is kept in the partition's first shard.
        state: offset == 0 ? state : nil,
        epoch: epoch
      )
      let fields = CommitConsumerRequest(partition, commit)
      send(.commitConsumer, job, index, to: shard) { fields.write(into: &$0) }
    }
    close(job, index)
  }

  /// Handle `POST /v1/feed/consumers/{name}/lease`.
  func leaseConsumer(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let body = try loop.object(request, .leaseConsumer)
    let shardCount = try loop.knownShardCount()
    guard let count = try body.optionalInteger("partitions", in: 1...Int64(shardCount)) else {
      throw body.missing("partitions")
    }
    let seconds = try body.optionalInteger("ttl_seconds", in: 0...FeedLeases.millisecondsMax / 1_000) ?? 8
    var held: [UInt16] = []
    if var list = try body.optionalArray("held", countMax: shardCount)?.elements {
      while let value = list.next() {
        let partition = try Self.partition(value, shardCount)
        guard Int64(partition.count) == count else { throw value.error("has to be of \(count) partitions") }
        held.append(partition.index)
      }
    }
    let lease = FeedLeases.Request(
      worker: Self.text(try body.requiredString("worker")),
      partitionCount: UInt16(count),
      held: held,
      milliseconds: seconds * 1_000
    )
    let fields = LeasePartitionsRequest(lease)
    let home = try loop.homeShard(of: match.subject)
    try send(.leasePartitions, .lease(lease), match, context, to: [home]) { fields.write(into: &$0) }
  }

  // MARK: Sending

  private func allShards() throws(Problem) -> [ShardID] {
    (0..<(try loop.knownShardCount())).map { ShardID(UInt16($0)) }
  }

  private func send(
    _ frame: FrameKind,
    _ kind: ConsumerRequest.Kind,
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    to shards: [ShardID],
    _ fields: (inout ByteBuffer) -> Void
  ) throws(Problem) {
    let job = ConsumerRequest(context, kind, name: Self.text(match.subject))
    let index = requests.insert(job)
    for shard in shards { send(frame, job, index, to: shard, fields) }
    close(job, index)
  }

  private func send(
    _ frame: FrameKind,
    _ job: ConsumerRequest,
    _ index: SlotIndex,
    to shard: ShardID,
    _ fields: (inout ByteBuffer) -> Void
  ) {
    let name = Array(job.name.utf8)
    let target = ReplyTarget.consumer(index, shard: shard.rawValue)
    job.send(frame, to: .shard(shard, name: name.span.bytes), target, on: loop, fields)
  }

  /// Answer when the last shard has answered.
  private func close(_ job: ConsumerRequest, _ index: SlotIndex) {
    guard job.endsWaiting() else { return }
    requests.remove(index)
    answer(job)
  }

  func completed(_ index: SlotIndex, _ shard: UInt16, with result: StoreResult) {
    guard let job = requests[index] else { return }
    job.receive(result, on: loop) { kind, payload throws(WireError) in
      switch kind {
      case .putConsumer: if try FlagReply(payload).isSet { job.isCreated = true }
      case .listConsumers: job.replies.append((shard, try ConsumersReply(payload)))
      case .leasePartitions: job.lease = try LeasePartitionsReply(payload)
      default: break
      }
    }
    close(job, index)
  }

  // MARK: Answers

  private func answer(_ job: ConsumerRequest) {
    let context = job.context
    guard let connection = loop.connections.answering(context.stream, on: context.connection) else { return }
    if job.problem == nil, case .get = job.kind, job.replies.allSatisfy(\.reply.entries.isEmpty) {
      job.problem = Problem(.consumerNotFound)
    }
    if let problem = job.problem {
      return loop.answer(problem, route: context.route, stream: context.stream, connection: connection)
    }
    let status = job.isCreated ? 201 : 200
    loop.respond(context.route, stream: context.stream, connection: connection, status: status) { buffer in
      switch job.kind {
      case .put(let filters): FeedJSON.write(job.name, filters, into: &buffer)
      case .delete, .commit: buffer.writeStaticString("{}")
      case .list: FeedJSON.write(job.replies, now: loop.now, into: &buffer)
      case .get: FeedJSON.write(job.name, job.replies, now: loop.now, into: &buffer)
      case .lease(let request): if let lease = job.lease { FeedJSON.write(lease, request, into: &buffer) }
      }
    }
  }

  // MARK: Fields

  static func text(_ bytes: RawSpan) -> String { bytes.withUnsafeBytes { String(decoding: $0, as: UTF8.self) } }

  private static func partition(_ value: JSONValue, _ shardCount: Int) throws(Problem) -> FeedPartition {
    guard let partition = FeedPartition(try value.asString(), shardCount: shardCount) else {
      throw value.error("has to be i/n, as in 0/8, where i is below n, and n at most \(shardCount)")
    }
    return partition
  }

  private static func start(_ body: JSONValue) throws(Problem) -> (start: PutConsumerRequest.Start, since: Timestamp) {
    guard let text = try body.optionalNonNullString("from") else { return (.now, .none) }
    if text.equals("now") { return (.now, .none) }
    if text.equals("earliest") { return (.earliest, .none) }
    guard let time = CivilTime.milliseconds(parsing: text) else {
      throw try body.required("from").error("has to be now, earliest, or a time, as in 2026-01-31T12:00:00.000Z")
    }
    return (.time, Timestamp(milliseconds: time))
  }
}

extension FeedFilters {
  fileprivate init(_ body: JSONValue) throws(Problem) {
    for name in ["types", "channel_types"] as [StaticString] {
      // A missing variable must not widen what is told.
      guard let value = body.member(name) else { continue }
      if value.isNull || value.kind == .array && value.count == 0 {
        throw value.error("must be an array with at least one entry, or left out")
      }
    }
    if var types = try body.optionalArray("types", countMax: FeedRecordKinds.countMax)?.elements {
      while let value = types.next() {
        guard let kind = FeedRecordKind(name: FeedConsumersPart.text(try value.asString())) else {
          throw value.error("is not a type of records")
        }
        kinds.insert(kind)
      }
    }
    if var list = try body.optionalArray("channel_types", countMax: FeedConsumerTable.channelTypesMax)?.elements {
      while let value = list.next() {
        let type = try value.asString()
        guard Identifier.isType(type) else { throw value.error("is not the name of a channel type") }
        channelTypes.append(FeedConsumersPart.text(type))
      }
    }
    channelTypes = Array(Set(channelTypes)).sorted()
  }
}

extension KnownFields {
  static let putConsumer: KnownFields = ["from", "types", "channel_types"]
  static let commitConsumer: KnownFields = ["partition", "cursor", "epoch", "state"]
  static let leaseConsumer: KnownFields = ["worker", "partitions", "held", "ttl_seconds"]
}
