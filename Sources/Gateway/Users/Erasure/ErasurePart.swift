internal import HTTP2Session
internal import Logging
internal import NIOCore
internal import Operations
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// The users who are being erased: performs the actions of ``ErasureMachine``, by request and for ``SettlementPart``.
final class ErasurePart: GatewayPart {
  private var jobs = SlotTable<ErasureJob>()
  /// Users completely erased since the start.
  private(set) var erasedCount: UInt64 = 0

  /// Users who are being erased.
  var count: Int { jobs.count }

  /// The running erasures.
  var running: [ErasureMachine] { jobs.all.map(\.value.erasure) }

  /// Handle `DELETE /v1/users/{user}`. A repeated request joins the user's running erasure.
  func deleteUser(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    guard loop.store.shardCount > 0 else { throw Problem(.storeUnavailable) }
    let user = match.subject.withUnsafeBytes { Array($0) }
    if let job = jobs.all.first(where: { $0.value.erasure.user == user && $0.value.erasure.isDone == nil })?.value {
      job.requests.removeAll { !isWaiting($0) }
      guard job.requests.count < loop.limits.erasureRequests else { throw Problem(.storeBusy) }
      job.requests.append(request(context, after: job.homeRequests))
      return
    }
    guard count < loop.limits.erasures else { throw Problem(.storeBusy) }
    start(user, [request(context, after: 0)])
  }

  private func start(_ user: [UInt8], _ requests: [ErasureRequest]) {
    let job = ErasureJob(ErasureMachine(user: user, shardCount: loop.store.shardCount), requests: requests)
    let index = jobs.insert(job)
    advance(job, index) { $0.start() }
  }

  private func request(_ context: RequestContext, after homeRequests: Int) -> ErasureRequest {
    let request = ErasureRequest(context, after: homeRequests)
    request.timeout = loop.eventLoop.assumeIsolated().scheduleTask(in: loop.limits.erasureTimeout) { [loop] in
      // The erasure continues without its request.
      self.answer(request, Self.partlyErased)
      loop.endTurn()
    }
    return request
  }

  /// Return whether a request is not answered, and its client has not cancelled it.
  private func isWaiting(_ request: ErasureRequest) -> Bool {
    if request.isAnswered { return false }
    if loop.connections.connection(request.connection)?.isOpen(request.stream) ?? false { return true }
    request.end()
    return false
  }

  /// Continue an erasure that another gateway, or this one, has begun.
  func resume(_ settings: UserSettings, shardCount: Int, settlement: Int) -> Bool {
    let user = Array(settings.user.utf8)
    let isUnderWay = jobs.all.contains { $0.value.erasure.user == user }
    if isUnderWay || loop.isClosed { return false }
    loop.shared.logger.debug("Resuming the erasure of a user", metadata: ["version": "\(settings.version)"])
    let erasure = ErasureMachine(user: user, settings: settings, shardCount: shardCount)
    let job = ErasureJob(erasure, settlement: settlement)
    let index = jobs.insert(job)
    advance(job, index) { $0.start() }
    return true
  }

  /// End erasures that are waiting for a timer, at shutdown. The others end with their store requests.
  override func stop() {
    for (index, job) in jobs.all where job.inFlight == 0 { advance(job, index) { $0.failed() } }
  }

  // MARK: Replies

  func completed(_ index: SlotIndex, _ request: ErasureStoreRequest, with result: StoreResult) {
    guard let job = jobs[index] else { return }
    job.inFlight -= 1
    switch result {
    case .reply(let kind, let payload):
      do throws(WireError) {
        var reader = FieldReader(payload)
        let actions = try apply(request, job, &reader)
        perform(actions, job, index)
      } catch {
        loop.logMalformedReply(error, kind)
        if job.erasure.isBeginning { answerAll(job, Problem(.internalError)) }
        advance(job, index) { $0.failed() }
      }
    case .failure(let failure):
      let problem = failure.problem
      if job.erasure.isBeginning { answerAll(job, problem) }
      advance(job, index) { Self.fail(&$0, request, problem.code) }
    }
  }

  private func apply(
    _ request: ErasureStoreRequest,
    _ job: ErasureJob,
    _ reader: inout FieldReader
  ) throws(WireError) -> [ErasureMachine.Action] {
    let actions: [ErasureMachine.Action]
    switch request {
    case .begin:
      let settings = try reader.userSettings()
      if settings.isErasing { job.confirmedRequests = job.homeRequests }
      actions = job.erasure.begun(settings)
    case .assign: return job.erasure.assigned()
    case .check:
      let settings = try reader.userSettings()
      if settings.isErasing { job.confirmedRequests = job.homeRequests }
      actions = job.erasure.checked(version: settings.version, isErasing: settings.isErasing)
    case .forget: actions = job.erasure.forgot(isErasing: try reader.userSettings().isErasing)
    case .list:
      var cids: [[UInt8]] = []
      let next = try reader.channelList { cids.append($0.cid.bytes) }
      return job.erasure.listed(cids, next: next)
    case .purge(let shard):
      let round = try reader.varint()
      actions = job.erasure.purged(shard, round == 0 ? .done : .awaits(round))
    case .erase(let channel):
      let result: ErasureMachine.EraseResult = try reader.flag() ? .erased : .wasGone
      actions = job.erasure.erased(Int(channel), result)
    }
    try reader.end()
    return actions
  }

  private static func fail(
    _ erasure: inout ErasureMachine,
    _ request: ErasureStoreRequest,
    _ code: ProblemCode
  ) -> [ErasureMachine.Action] {
    switch request {
    case .erase(let channel):
      // The channel is gone, and with it the member.
      erasure.erased(Int(channel), code == .channelNotFound ? .wasGone : .failed)
    case .purge(let shard) where code != .notImplemented: erasure.purged(shard, .failed)
    default: erasure.failed()
    }
  }

  // MARK: Actions

  private func advance(
    _ job: ErasureJob,
    _ index: SlotIndex,
    _ event: (inout ErasureMachine) -> [ErasureMachine.Action]
  ) {
    let actions = event(&job.erasure)
    perform(actions, job, index)
  }

  private func perform(_ actions: [ErasureMachine.Action], _ job: ErasureJob, _ index: SlotIndex) {
    performAll(actions) { perform($0, job, index) }
    guard let isDone = job.erasure.isDone else { return }
    finish(job, isDone: isDone)
    if job.inFlight == 0 { jobs.remove(index) }
  }

  private func perform(_ action: ErasureMachine.Action, _ job: ErasureJob, _ index: SlotIndex) -> [ErasureMachine
    .Action]
  {
    guard job.erasure.isDone == nil else { return [] }
    let home = job.erasure.home
    switch action {
    case .begin:
      job.homeRequests += 1
      return trySend(.patchUser, to: home, job: job, index: index, request: .begin) { $0.writePatchErase() }
    case .assign(let shard):
      let value = SharedValue.user(job.erasure.settings)
      return trySend(.assignUser, to: shard, job: job, index: index, request: .assign) {
        value.writeAssignment(into: &$0)
      }
    case .check:
      job.homeRequests += 1
      return trySend(.getUser, to: home, job: job, index: index, request: .check) { _ in }
    case .list(let cursor):
      return trySend(.listChannels, to: home, job: job, index: index, request: .list) {
        $0.writeListChannels(withAll: true, limit: UserChannelScan.listMax, cursor: cursor)
      }
    case .erase(let number):
      let user = job.erasure.user
      let cid = job.erasure.channel(number)
      return trySend(
        .eraseMember,
        to: nil,
        job: job,
        index: index,
        request: .erase(channel: UInt32(number)),
        name: cid
      ) { buffer in
        buffer.writeField(user.span.bytes)
      }
    case .forget(let shard):
      let version = job.erasure.forgottenVersion
      return trySend(.assignUser, to: shard, job: job, index: index, request: .forget) {
        $0.writeAssignErased(version: version)
      }
    case .purge(let shard):
      let round = job.erasure.round(shard)
      return trySend(.purge, to: shard, job: job, index: index, request: .purge(shard), name: []) {
        $0.writeVarint(round)
      }
    case .wait(let milliseconds):
      if loop.isClosed { return job.erasure.failed() }
      loop.eventLoop.assumeIsolated().scheduleTask(in: .milliseconds(Int64(milliseconds))) { [loop] in
        guard self.jobs[index] === job else { return }
        self.advance(job, index) { $0.waited() }
        loop.endTurn()
      }
      return []
    }
  }

  /// - Parameters:
  ///   - shard: nil: derived from the name, a cid.
  ///   - name: nil: the user; empty: the frame kind has no name.
  private func trySend(
    _ kind: FrameKind,
    to shard: ShardID?,
    job: ErasureJob,
    index: SlotIndex,
    request: ErasureStoreRequest,
    name: [UInt8]? = nil,
    _ fields: (inout ByteBuffer) -> Void
  ) -> [ErasureMachine.Action] {
    let pending = PendingRequest(.erasure(index, request), route: .deleteUser, isServer: true, isPageQuery: false)
    let name = name ?? job.erasure.user
    let destination: StoreDestination =
      if let shard {
        .shard(shard, name: name.isEmpty ? nil : name.span.bytes)
      } else {
        .channel(name.span.bytes)
      }
    let isSent = loop.trySend(kind, to: destination, pending, fields)
    if isSent {
      job.inFlight += 1
      return []
    }
    if job.erasure.isBeginning { answerAll(job, Problem(.storeBusy)) }
    return Self.fail(&job.erasure, request, .storeBusy)
  }

  // MARK: Requests

  private func finish(_ job: ErasureJob, isDone: Bool) {
    if isDone { erasedCount &+= 1 }
    if let settlement = job.settlement {
      job.settlement = nil
      loop.settlement.erasureEnded(settlement, isDone: isDone)
    }
    guard isDone, !loop.isClosed else { return answerAll(job, Self.partlyErased) }
    // The id may have been used again before a request that came late.
    let late = job.requests.filter { $0.homeRequestsBefore >= job.confirmedRequests && isWaiting($0) }
    for request in job.requests where request.homeRequestsBefore < job.confirmedRequests {
      answer(request, erased: job.erasure.user)
    }
    job.requests = []
    if late.isEmpty { return }
    for request in late { request.homeRequestsBefore = 0 }
    start(job.erasure.user, late)
  }

  private func answer(_ request: ErasureRequest, erased user: [UInt8]) {
    if request.isAnswered { return }
    request.end()
    guard let connection = loop.connections.answering(request.stream, on: request.connection) else { return }
    loop.respond(request.route, stream: request.stream, connection: connection) { buffer in
      buffer.writeStaticString("{\"user_id\":")
      buffer.writeJSONString(user.span.bytes)
      buffer.writeStaticString(",\"erased\":true}")
    }
    loop.endTurnSoon()
  }

  private func answer(_ request: ErasureRequest, _ problem: Problem) {
    if request.isAnswered { return }
    request.end()
    loop.answer(problem, route: request.route, stream: request.stream, connection: request.connection)
    loop.endTurnSoon()
  }

  private func answerAll(_ job: ErasureJob, _ problem: Problem) {
    for request in job.requests { answer(request, problem) }
    job.requests = []
  }

  private static var partlyErased: Problem {
    Problem(.outcomeUnknown, "the erasure continues in the background; repeat the request to learn its result")
  }

  // MARK: Metrics

  override func collect(into samples: inout MetricSamples) {
    samples.gauge("tidemark_gateway_erasures", help: "Users who are being erased.", Double(count))
    samples.counter("tidemark_gateway_users_erased_total", help: "Users completely erased.", Int64(erasedCount))
  }
}

/// The store requests of an ``ErasureJob``.
enum ErasureStoreRequest {
  case begin
  case assign
  case check
  case list
  /// By the channel's number in the erasure.
  case erase(channel: UInt32)
  case forget
  case purge(ShardID)
}

/// A running erasure, and what waits for its end.
final class ErasureJob {
  var erasure: ErasureMachine
  /// The requests to answer.
  var requests: [ErasureRequest]
  /// The value of a round of ``SettlementRounds`` that waits.
  var settlement: Int?
  /// Requests to the store in flight.
  var inFlight = 0
  /// Requests to the home shard so far that tell whether the user is being erased. One at a time is in flight.
  var homeRequests = 0
  /// Those of them until the last reply that the user is being erased. The erasure covers what came before it was sent.
  var confirmedRequests = 0

  init(_ erasure: ErasureMachine, requests: [ErasureRequest] = [], settlement: Int? = nil) {
    self.erasure = erasure
    self.requests = requests
    self.settlement = settlement
  }
}

/// A request for an erasure, until its answer or its timeout.
final class ErasureRequest {
  let stream: HTTP2StreamHandle
  let connection: ConnectionIndex
  let route: Route
  /// The job's ``ErasureJob/homeRequests`` when the request came.
  var homeRequestsBefore: Int
  var timeout: Scheduled<Void>?
  /// Whether the request was answered, or its client has disconnected.
  private(set) var isAnswered = false

  init(_ context: RequestContext, after homeRequests: Int) {
    stream = context.stream
    connection = context.connection
    route = context.route
    homeRequestsBefore = homeRequests
  }

  func end() {
    isAnswered = true
    timeout?.cancel()
    timeout = nil
  }
}
