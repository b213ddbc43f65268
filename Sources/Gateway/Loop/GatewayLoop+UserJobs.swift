internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// Performs what ``UserWalk`` says, for one request each. A client that has gone away ends it: that is seen with the
/// next answer of the store.
extension GatewayLoop {
  /// Throws where as many jobs are under way as may be; nothing was done then.
  func checkJobs() throws(Problem) {
    guard userJobs.count + userLists.count < limits.userJobs else { throw Problem(.storeBusy) }
    guard store.shardCount > 0 else { throw Problem(.storeUnavailable) }
  }

  /// Begins to go over the channels.
  func beginJob(_ job: UserJob) {
    let index = userJobs.insert(job)
    perform(job.walk.begin(), job, index)
  }

  /// Keeps a job whose mark comes first; returns the token for that.
  func keepMark(_ job: UserJob) -> UInt64 {
    job.inFlight += 1
    return pending.insert(Self.request(job, userJobs.insert(job), .jobMark, 0))
  }

  /// The mark was not sent.
  func dropMark(_ token: UInt64) {
    guard let request = pending.remove(token) else { return }
    userJobs.remove(request.gather)
  }

  // MARK: Answers

  func jobReplied(_ request: PendingRequest, _ kind: FrameKind, _ payload: RawSpan) {
    guard let job = userJobs[request.gather] else { return }
    job.inFlight -= 1
    if isGoing(job) {
      do throws(WireError) {
        let steps = try note(request, payload, job)
        perform(steps, job, request.gather)
      } catch {
        storeIsMistaken(error, kind)
        end(job, Problem(.internalError))
      }
    }
    release(job, request.gather)
  }

  func jobFailed(_ request: PendingRequest, _ problem: Problem) {
    guard let job = userJobs[request.gather] else { return }
    job.inFlight -= 1
    if isGoing(job) {
      if case .marking = job.stage {
        end(job, problem)
      } else {
        perform(Self.failure(of: request.shape, Int(request.entry), problem, job), job, request.gather)
      }
    }
    release(job, request.gather)
  }

  /// Whether somebody waits for it still.
  private func isGoing(_ job: UserJob) -> Bool {
    switch job.stage {
    case .ended: return false
    case .marking, .walking:
      guard case .answer = job.purpose else { return true }
      if connections.connection(job.connection)?.isOpen(job.stream) ?? false { return true }
      job.stage = .ended
      return false
    }
  }

  private func release(_ job: UserJob, _ index: UInt32) {
    if case .ended = job.stage, job.inFlight == 0 { userJobs.remove(index) }
  }

  private func note(
    _ request: PendingRequest,
    _ payload: RawSpan,
    _ job: UserJob
  ) throws(WireError) -> [UserWalk.Step] {
    var reader = FieldReader(payload)
    let entry = Int(request.entry)
    switch request.shape {
    case .jobMark:
      let row = try RowFields(&reader)
      RowJSON.writeAnswer(row, try reader.uncounted(), into: &job.row)
      job.stage = .walking
      return job.walk.begin()
    case .jobList: return try job.walk.listed(entry, &reader)
    case .jobCount: return try job.walk.counted(entry, &reader)
    case .jobAnnounce: return job.walk.announced(entry)
    case .jobLocate: return try job.walk.located(&reader)
    case .jobDetail: return try job.walk.looked(entry, &reader)
    case .jobThreads: return try job.walk.threadsListed(entry, &reader)
    case .jobMarkThread: return job.walk.threadMarked(entry)
    default: return job.walk.marked(entry, nil)
    }
  }

  private static func failure(
    of shape: ReplyShape,
    _ entry: Int,
    _ problem: Problem,
    _ job: UserJob
  ) -> [UserWalk.Step] {
    switch shape {
    case .jobList: job.walk.listFailed(entry, problem)
    case .jobCount, .jobAnnounce: job.walk.countFailed(entry, problem)
    case .jobLocate, .jobDetail: job.walk.lookFailed(problem)
    default: job.walk.marked(entry, problem.code)
    }
  }

  // MARK: Steps

  private func perform(_ steps: [UserWalk.Step], _ job: UserJob, _ index: UInt32) {
    // A request that is refused at once makes more steps, or ends it.
    var waiting = steps[...]
    while let step = waiting.popFirst() { waiting += perform(step, job, index) }
    if job.walk.isDone { end(job, nil) }
    release(job, index)
  }

  private func perform(_ step: UserWalk.Step, _ job: UserJob, _ index: UInt32) -> [UserWalk.Step] {
    switch step {
    case .list(let user):
      return list(job, index, user, .jobList, cursor: job.walk.cursor(of: user), limit: UserWalk.listMax)
    case .locate(let cursor, let limit): return list(job, index, 0, .jobLocate, cursor: cursor, limit: limit)
    case .count(let frame):
      let token = keep(job, index, .jobCount, frame)
      let shard = job.walk.shard(of: frame)
      let isSent = store.send(.unreadCounts, shard: shard, name: nil, token: token, issued: job.issued) {
        job.walk.writeCounts(frame, into: &$0)
      }
      return isSent ? [] : refused(token, job)
    case .announce(let frame):
      let token = keep(job, index, .jobAnnounce, frame)
      let shard = job.walk.shard(of: frame)
      let user = job.walk.users[0].id
      let isSent = store.send(.announceRow, shard: shard, name: user.span.bytes, token: token) {
        job.walk.writeAnnouncement(frame, into: &$0)
      }
      return isSent ? [] : refused(token, job)
    case .mark(let mark):
      let token = keep(job, index, .jobMarkAll, mark)
      let cid = job.walk.channel(of: mark)
      let user = job.walk.users[0].id
      let isSent = store.send(.markRead, cid: cid.span.bytes, token: token, issued: job.issued) { buffer in
        buffer.writeField(user.span.bytes)
        buffer.writeEmptyField()
        buffer.writeOptional(nil)
      }
      return isSent ? [] : refused(token, job)
    case .threads(let mark):
      let token = keep(job, index, .jobThreads, mark)
      let cid = job.walk.channel(of: mark)
      let user = job.walk.users[0].id
      let cursor = job.walk.threadCursor(of: mark)
      let isSent = store.send(.userThreads, cid: cid.span.bytes, token: token, issued: job.issued) { buffer in
        buffer.writeField(user.span.bytes)
        buffer.writeInteger(ShardState.ThreadSelection.unread.rawValue)
        buffer.writeVarint(limits.rowsPerPage)
        buffer.writeOptional(cursor.map { UInt64($0) })
      }
      return isSent ? [] : refused(token, job)
    case .markThread(let mark):
      let token = keep(job, index, .jobMarkThread, mark)
      let cid = job.walk.channel(of: mark)
      let parent = job.walk.thread(of: mark)
      let user = job.walk.users[0].id
      let isSent = store.send(
        .markRead,
        cid: cid.span.bytes,
        token: token,
        issued: job.issued,
        thread: parent.span.bytes
      ) { buffer in
        buffer.writeField(user.span.bytes)
        buffer.writeEmptyField()
        buffer.writeOptional(nil)
      }
      return isSent ? [] : refused(token, job)
    case .detail(let channel):
      let token = keep(job, index, .jobDetail, channel)
      let cid = job.walk.page?.channel(channel) ?? []
      let user = job.walk.users[0].id
      let isSent = store.send(.readState, cid: cid.span.bytes, token: token, issued: job.issued) { buffer in
        // As the user sees it: their own row comes first.
        buffer.writeVarint(0)
        buffer.writeField(user.span.bytes)
        buffer.writeVarint(1)
        buffer.writeOptional(nil)
      }
      return isSent ? [] : refused(token, job)
    }
  }

  private func list(
    _ job: UserJob,
    _ index: UInt32,
    _ user: Int,
    _ shape: ReplyShape,
    cursor: UInt64?,
    limit: Int
  ) -> [UserWalk.Step] {
    let token = keep(job, index, shape, user)
    let id = job.walk.users[user].id
    let home = ShardID.owning(id.span.bytes, count: store.shardCount)
    let isSent = store.send(
      .listChannels,
      shard: home,
      name: id.span.bytes,
      token: token,
      issued: job.issued
    ) { buffer in
      buffer.writeVarint(0)
      buffer.writeVarint(limit)
      buffer.writeOptional(cursor)
    }
    return isSent ? [] : refused(token, job)
  }

  private func keep(_ job: UserJob, _ index: UInt32, _ shape: ReplyShape, _ entry: Int) -> UInt64 {
    job.inFlight += 1
    return pending.insert(Self.request(job, index, shape, entry))
  }

  private func refused(_ token: UInt64, _ job: UserJob) -> [UserWalk.Step] {
    guard let request = pending.remove(token) else { return [] }
    job.inFlight -= 1
    return Self.failure(of: request.shape, Int(request.entry), Problem(.storeBusy), job)
  }

  private static func request(
    _ job: UserJob,
    _ index: UInt32,
    _ shape: ReplyShape,
    _ entry: Int
  ) -> PendingRequest {
    PendingRequest(
      stream: job.stream,
      connection: job.connection,
      gather: index,
      entry: UInt32(entry),
      shape: shape,
      route: job.route,
      isServer: job.isServer
    )
  }

  // MARK: The end

  /// Answers, where that has not been done.
  ///
  /// - Parameter problem: nil: what has come of the walk.
  private func end(_ job: UserJob, _ problem: Problem?) {
    guard isGoing(job) else { return }
    job.stage = .ended
    switch job.purpose {
    case .answer: break
    case .totals(let user):
      let problem = problem ?? job.walk.problem
      return totalsCounted(user, problem == nil ? job.walk.users[0].totals : nil)
    case .announcement(let gather): return announced(gather, problem ?? job.walk.problem)
    case .settling(let spread): return settlingAnnounced(spread, isDone: (problem ?? job.walk.problem) == nil)
    }
    guard let connection = connections.connection(job.connection) else { return }
    connections.markDirty(job.connection)
    // Where it ended with the request itself nobody else ends the turn.
    endTurnSoon()
    let isBatch = job.route == .unreadOfUsers
    if let problem = problem ?? (isBatch ? nil : job.walk.problem) {
      return answer(Self.shown(problem, job), job.route.rawValue, job.stream, connection)
    }
    connection.respond(job.stream, status: 200) { UnreadJSON.write(job, into: &$0) }
    counters.answered(job.route.rawValue, status: 200)
  }

  /// Not a code whose title says that nothing was changed, where something was.
  private static func shown(_ problem: Problem, _ job: UserJob) -> Problem {
    guard problem.status == 503 || problem.status == 500 else { return problem }
    if job.row.readableBytes > 0 {
      let detail =
        "the position was moved, and what is unread could not be counted; ask for it, or repeat the request"
      return Problem(.outcomeUnknown, detail)
    }
    if job.walk.hasMarked {
      return Problem(.outcomeUnknown, "not every channel was marked read; repeat the request")
    }
    return problem
  }
}
