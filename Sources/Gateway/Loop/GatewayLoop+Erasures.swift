internal import HTTP2Session
internal import Logging
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// A user who is being erased, and who is told when that is done.
final class ErasureJob {
  /// Who waits for it.
  enum Waiter {
    /// A request, until its time is up.
    case stream(HTTP2StreamHandle, connection: UInt32, route: Route)
    /// A round of ``Settling``: the number of the value.
    case settling(Int)
    /// Nobody any more.
    case none
  }

  var erasure: Erasure
  var waiter: Waiter
  /// Requests to the store without an answer.
  var inFlight = 0
  /// The end of a request's time.
  var timeout: Scheduled<Void>?

  init(_ erasure: Erasure, _ waiter: Waiter) {
    self.erasure = erasure
    self.waiter = waiter
  }
}

/// Performs what ``Erasure`` says.
extension GatewayLoop {
  /// `DELETE /v1/users/{user}`.
  func deleteUser(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    guard store.shardCount > 0 else { throw Problem(.storeUnavailable) }
    guard erasures.count - freeErasures.count < limits.erasures else { throw Problem(.storeBusy) }
    let erasure = Erasure(
      user: match.subject.withUnsafeBytes { Array($0) },
      shardCount: store.shardCount
    )
    let job = ErasureJob(
      erasure,
      .stream(context.stream, connection: context.connection, route: match.route)
    )
    let index = insert(job)
    job.timeout = eventLoop.assumeIsolated().scheduleTask(in: limits.erasureTimeout) {
      self.eraseTimedOut(job)
      self.endTurn()
    }
    go(job, index) { $0.start() }
  }

  /// Goes on with what another gateway has begun, or this one.
  func erase(_ settings: UserSettings, shardCount: Int, settling value: Int) -> Bool {
    let user = Array(settings.user.utf8)
    let isUnderWay = erasures.contains { $0?.erasure.user == user }
    if isUnderWay || isClosed { return false }
    logger.debug("Going on with the erasing of a user", metadata: ["version": "\(settings.version)"])
    let job = ErasureJob(Erasure(user: user, settings: settings, shardCount: shardCount), .settling(value))
    let index = insert(job)
    go(job, index) { $0.start() }
    return true
  }

  /// Nobody is there to go on any more: those that wait for the time to pass end. All others hear from the store.
  func endErasures() {
    for (index, job) in erasures.enumerated() where job?.inFlight == 0 {
      if let job { go(job, UInt32(index)) { $0.failed() } }
    }
  }

  private func insert(_ job: ErasureJob) -> UInt32 {
    if let index = freeErasures.popLast() {
      erasures[Int(index)] = job
      return index
    }
    erasures.append(job)
    return UInt32(erasures.count - 1)
  }

  // MARK: Answers

  func erasureReplied(_ request: PendingRequest, _ kind: FrameKind, _ payload: RawSpan) {
    guard let job = erasures[Int(request.gather)] else { return }
    job.inFlight -= 1
    do throws(WireError) {
      var reader = FieldReader(payload)
      let steps = try note(request, job, &reader)
      perform(steps, job, request.gather)
    } catch {
      storeIsMistaken(error, kind)
      if job.erasure.isBeginning { answer(job, Problem(.internalError)) }
      go(job, request.gather) { $0.failed() }
    }
  }

  func erasureFailed(_ request: PendingRequest, _ problem: Problem) {
    guard let job = erasures[Int(request.gather)] else { return }
    job.inFlight -= 1
    if job.erasure.isBeginning { answer(job, problem) }
    go(job, request.gather) { Self.fail(&$0, request.shape, Int(request.entry), problem.code) }
  }

  private func note(
    _ request: PendingRequest,
    _ job: ErasureJob,
    _ reader: inout FieldReader
  ) throws(WireError) -> [Erasure.Step] {
    let steps: [Erasure.Step]
    switch request.shape {
    case .erasureBegun: steps = job.erasure.begun(try reader.userSettings())
    case .erasureAssigned: return job.erasure.assigned()
    case .erasureChecked:
      let (version, isErasing) = try reader.erasing()
      steps = job.erasure.checked(version: version, isErasing: isErasing)
    case .erasureForgot:
      let (_, isErasing) = try reader.erasing()
      steps = job.erasure.forgot(isErasing: isErasing)
    case .erasureListed:
      var cids: [[UInt8]] = []
      for _ in 0..<(try reader.count(elementBytesMin: ChannelEntryFields.byteCountMin)) {
        cids.append(try reader.string().withUnsafeBytes { Array($0) })
        _ = try reader.optional32()
        _ = try reader.byte()
        _ = try reader.time()
      }
      steps = job.erasure.listed(cids, next: try reader.optional())
    case .erasurePurged:
      let round = try reader.varint()
      steps = job.erasure.purged(ShardID(UInt16(request.entry)), round == 0 ? .done : .awaits(round))
    default:
      let result: Erasure.OnErase = try reader.byte() == 1 ? .erased : .wasGone
      steps = job.erasure.erased(Int(request.entry), result)
    }
    try reader.end()
    return steps
  }

  private static func fail(
    _ erasure: inout Erasure,
    _ shape: ReplyShape,
    _ entry: Int,
    _ code: ProblemCode
  ) -> [Erasure.Step] {
    switch shape {
    case .erasureErased:
      // A channel that is gone knows nobody.
      erasure.erased(entry, code == .channelNotFound ? .wasGone : .failed)
    case .erasurePurged where code != .notImplemented:
      erasure.purged(ShardID(UInt16(entry)), .failed)
    default: erasure.failed()
    }
  }

  // MARK: Steps

  private func go(_ job: ErasureJob, _ index: UInt32, _ event: (inout Erasure) -> [Erasure.Step]) {
    let steps = event(&job.erasure)
    perform(steps, job, index)
  }

  private func perform(_ steps: [Erasure.Step], _ job: ErasureJob, _ index: UInt32) {
    // A request that is refused at once makes more steps, or ends it.
    var waiting = steps[...]
    while let step = waiting.popFirst() { waiting += perform(step, job, index) }
    guard let isDone = job.erasure.isDone else { return }
    ended(job, isDone: isDone)
    if job.inFlight == 0, erasures[Int(index)] === job {
      erasures[Int(index)] = nil
      freeErasures.append(index)
    }
  }

  private func perform(_ step: Erasure.Step, _ job: ErasureJob, _ index: UInt32) -> [Erasure.Step] {
    guard job.erasure.isDone == nil else { return [] }
    let home = job.erasure.home
    switch step {
    case .begin:
      return ask(.patchUser, home, job, index, .erasureBegun) { buffer in
        buffer.writeVarint(8)
        buffer.writeVarint(0)
        buffer.writeTime(.none)
      }
    case .assign(let shard):
      let value = SharedValue.user(job.erasure.settings)
      return ask(.assignUser, shard, job, index, .erasureAssigned) { value.writeAssignment(into: &$0) }
    case .check: return ask(.getUser, home, job, index, .erasureChecked) { _ in }
    case .list(let cursor):
      return ask(.listChannels, home, job, index, .erasureListed) { buffer in
        buffer.writeVarint(1)
        buffer.writeVarint(UserWalk.listMax)
        buffer.writeOptional(cursor)
      }
    case .erase(let number):
      let user = job.erasure.user
      let cid = job.erasure.channel(number)
      return ask(.eraseMember, nil, job, index, .erasureErased, number, cid) { buffer in
        buffer.writeField(user.span.bytes)
      }
    case .forget(let shard):
      let version = job.erasure.forgottenVersion
      return ask(.assignUser, shard, job, index, .erasureForgot) { buffer in
        buffer.writeVarint(version)
        buffer.writeVarint(8)
        for _ in 0..<3 { buffer.writeTime(.none) }
      }
    case .purge(let shard):
      let round = job.erasure.round(shard)
      return ask(.purge, shard, job, index, .erasurePurged, Int(shard.rawValue), []) { $0.writeVarint(round) }
    case .wait(let milliseconds):
      if isClosed { return job.erasure.failed() }
      eventLoop.assumeIsolated().scheduleTask(in: .milliseconds(Int64(milliseconds))) {
        guard self.erasures[Int(index)] === job else { return }
        self.go(job, index) { $0.waited() }
        self.endTurn()
      }
      return []
    }
  }

  /// - Parameters:
  ///   - shard: nil where it follows from the name, a cid.
  ///   - name: nil: the user; empty: the kind has none.
  private func ask(
    _ kind: FrameKind,
    _ shard: ShardID?,
    _ job: ErasureJob,
    _ index: UInt32,
    _ shape: ReplyShape,
    _ entry: Int = 0,
    _ name: [UInt8]? = nil,
    _ fields: (inout ByteBuffer) -> Void
  ) -> [Erasure.Step] {
    let request = PendingRequest(
      stream: HTTP2StreamHandle(slot: 0, generation: 0),
      connection: 0,
      gather: index,
      entry: UInt32(entry),
      shape: shape,
      route: .deleteUser,
      isServer: true
    )
    let token = pending.insert(request)
    let name = name ?? job.erasure.user
    let isSent =
      if let shard {
        if name.isEmpty {
          store.send(kind, shard: shard, name: nil, token: token, fields)
        } else {
          store.send(kind, shard: shard, name: name.span.bytes, token: token, fields)
        }
      } else {
        store.send(kind, cid: name.span.bytes, token: token, fields)
      }
    if isSent {
      job.inFlight += 1
      return []
    }
    _ = pending.remove(token)
    if job.erasure.isBeginning { answer(job, Problem(.storeBusy)) }
    return Self.fail(&job.erasure, shape, entry, .storeBusy)
  }

  // MARK: Who waits

  private func ended(_ job: ErasureJob, isDone: Bool) {
    if isDone { counters.usersErased &+= 1 }
    switch job.waiter {
    case .none: break
    case .settling(let value):
      job.waiter = .none
      settlingErased(value, isDone: isDone)
    case .stream(let stream, let index, let route):
      guard isDone else { return answer(job, Self.partlyErased) }
      job.timeout?.cancel()
      job.waiter = .none
      guard let connection = connections.connection(index), connection.isOpen(stream) else { return }
      connections.markDirty(index)
      let user = job.erasure.user
      connection.respond(stream, status: 200) { buffer in
        buffer.writeStaticString("{\"user_id\":")
        buffer.writeWithOutputRawSpan(minimumWritableBytes: OutputRawSpan.jsonStringByteMax(user.count)) {
          $0.jsonString(user.span.bytes)
        }
        buffer.writeStaticString(",\"erased\":true}")
      }
      counters.answered(route.rawValue, status: 200)
      endTurnSoon()
    }
  }

  /// The erasing goes on without its request.
  private func eraseTimedOut(_ job: ErasureJob) { answer(job, Self.partlyErased) }

  private func answer(_ job: ErasureJob, _ problem: Problem) {
    guard case .stream(let stream, let index, let route) = job.waiter else { return }
    job.timeout?.cancel()
    job.waiter = .none
    guard let connection = connections.connection(index), connection.isOpen(stream) else { return }
    connections.markDirty(index)
    answer(problem, route.rawValue, stream, connection)
    endTurnSoon()
  }

  private static var partlyErased: Problem {
    Problem(
      .outcomeUnknown,
      "the user is being erased and that goes on by itself; repeat the request to know its end"
    )
  }
}

extension FieldReader {
  /// Of user settings, whether they are of a user who is being erased; what has been erased is not.
  @_lifetime(self: copy self)
  fileprivate mutating func erasing() throws(WireError) -> (version: UInt64, isErasing: Bool) {
    _ = try string()
    let version = try varint()
    let flags = try varint()
    for _ in 0..<3 { _ = try time() }
    return (version, flags & 4 != 0 && flags & 8 == 0)
  }
}
