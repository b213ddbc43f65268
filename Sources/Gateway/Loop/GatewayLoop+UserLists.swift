internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// A request for a page of a user's own receipts or threads (``UserListWalk``).
final class UserListJob {
  let connection: UInt32
  let stream: HTTP2StreamHandle
  let route: Route
  let isServer: Bool
  /// When the caller's token was issued; see ``Caller``.
  let issued: UInt32?
  var walk: UserListWalk
  /// Requests to the store without an answer.
  var inFlight = 0
  var isEnded = false

  init(_ context: RequestContext, _ route: Route, _ walk: UserListWalk) {
    connection = context.connection
    stream = context.stream
    isServer = context.caller.isServer
    issued = context.caller.issued
    self.route = route
    self.walk = walk
  }
}

/// Runs the steps of a ``UserListWalk``. After the client has disconnected it stops with the store's next reply.
extension GatewayLoop {
  // MARK: Routes

  /// `GET /v1/users/{user}/receipts?state=&limit=&cursor=`.
  func receiptsOfUser(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    try Self.check(match.subject, context)
    let parameters = try OwnListParameters(match.query, self, choice: "state", of: "pending", "acknowledged")
    try begin(.receipts(parameters.choice == 1 ? .acknowledged : .pending), parameters, match, context)
  }

  /// `GET /v1/users/{user}/threads?unread=&limit=&cursor=`.
  func threadsOfUser(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    try Self.check(match.subject, context)
    let parameters = try OwnListParameters(match.query, self, choice: "unread", of: "false", "true")
    try begin(.threads(unreadOnly: parameters.choice == 1), parameters, match, context)
  }

  private func begin(
    _ subject: UserListWalk.Subject,
    _ parameters: OwnListParameters,
    _ match: borrowing RouteMatch,
    _ context: RequestContext
  ) throws(Problem) {
    try checkJobs()
    if let cursor = parameters.cursor, !UserListWalk.isOne(cursor, of: subject) {
      throw Problem(.invalidCursor)
    }
    let walk = UserListWalk(
      subject,
      user: match.subject.withUnsafeBytes { Array($0) },
      limit: parameters.limit,
      from: parameters.cursor,
      channelsMax: limits.countedChannels
    )
    let job = UserListJob(context, match.route, walk)
    let index = userLists.insert(job)
    perform(walk.begin(), job, index)
  }

  // MARK: Answers

  func userListReplied(_ request: PendingRequest, _ kind: FrameKind, _ payload: RawSpan) {
    guard let job = userLists[request.gather] else { return }
    job.inFlight -= 1
    if isGoing(job) {
      do throws(WireError) {
        var reader = FieldReader(payload)
        let steps: [UserListWalk.Step]
        switch request.shape {
        case .ownList: steps = try job.walk.listed(&reader)
        case .ownPlace: steps = try job.walk.located(&reader)
        default: steps = try job.walk.answered(Int(request.entry), payload)
        }
        perform(steps, job, request.gather)
      } catch {
        storeIsMistaken(error, kind)
        end(job, Problem(.internalError))
      }
    }
    release(job, request.gather)
  }

  func userListFailed(_ request: PendingRequest, _ problem: Problem) {
    guard let job = userLists[request.gather] else { return }
    job.inFlight -= 1
    if isGoing(job) { fail(request, problem, job) }
    release(job, request.gather)
  }

  private func fail(_ request: PendingRequest, _ problem: Problem, _ job: UserListJob) {
    do throws(WireError) {
      let index = request.shape == .ownEntries ? Int(request.entry) : nil
      perform(try job.walk.refused(index, problem), job, request.gather)
    } catch {
      end(job, Problem(.internalError))
    }
  }

  /// Whether somebody waits for it still.
  private func isGoing(_ job: UserListJob) -> Bool {
    if job.isEnded { return false }
    if connections.connection(job.connection)?.isOpen(job.stream) ?? false { return true }
    job.isEnded = true
    return false
  }

  private func release(_ job: UserListJob, _ index: UInt32) {
    if job.isEnded, job.inFlight == 0 { userLists.remove(index) }
  }

  // MARK: Steps

  private func perform(_ steps: [UserListWalk.Step], _ job: UserListJob, _ index: UInt32) {
    for step in steps where !job.isEnded { perform(step, job, index) }
    if job.walk.isDone { end(job, nil) }
    release(job, index)
  }

  private func perform(_ step: UserListWalk.Step, _ job: UserListJob, _ index: UInt32) {
    job.inFlight += 1
    switch step {
    case .list(let cursor, let limit): list(job, index, .ownList, cursor: cursor, limit: limit)
    case .locate(let cursor, let limit): list(job, index, .ownPlace, cursor: cursor, limit: limit)
    case .ask(let channel):
      let token = pending.insert(Self.request(job, index, .ownEntries, channel))
      let cid = job.walk.channel(channel)
      let isSent = store.send(job.walk.kind, cid: cid.span.bytes, token: token, issued: job.issued) {
        job.walk.writeQuestion(channel, into: &$0)
      }
      if !isSent { refuse(token, job) }
    }
  }

  private func list(_ job: UserListJob, _ index: UInt32, _ shape: ReplyShape, cursor: UInt64?, limit: Int) {
    let token = pending.insert(Self.request(job, index, shape, 0))
    let user = job.walk.user
    let home = ShardID.owning(user.span.bytes, count: store.shardCount)
    let isSent = store.send(
      .listChannels,
      shard: home,
      name: user.span.bytes,
      token: token,
      issued: job.issued
    ) { buffer in
      buffer.writeVarint(0)
      buffer.writeVarint(limit)
      buffer.writeOptional(cursor)
    }
    if !isSent { refuse(token, job) }
  }

  private func refuse(_ token: UInt64, _ job: UserListJob) {
    guard let request = pending.remove(token) else { return }
    job.inFlight -= 1
    fail(request, Problem(.storeBusy), job)
  }

  private static func request(_ job: UserListJob, _ index: UInt32, _ shape: ReplyShape, _ entry: Int)
    -> PendingRequest
  {
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

  private func end(_ job: UserListJob, _ problem: Problem?) {
    guard isGoing(job) else { return }
    job.isEnded = true
    guard let connection = connections.connection(job.connection) else { return }
    connections.markDirty(job.connection)
    endTurnSoon()
    if let problem = problem ?? job.walk.problem {
      return answer(problem, job.route.rawValue, job.stream, connection)
    }
    connection.respond(job.stream, status: 200) { OwnListJSON.write(job.walk, into: &$0) }
    counters.answered(job.route.rawValue, status: 200)
  }
}

/// The query parameters of pages of a user's own receipts and threads.
private struct OwnListParameters {
  let limit: Int
  /// Nil: the first page.
  let cursor: UserListWalk.Cursor?
  /// Which of its two values the parameter of choice has; 0: the first, or it is absent.
  let choice: Int

  init(
    _ query: RawSpan,
    _ loop: GatewayLoop,
    choice name: StaticString,
    of first: StaticString,
    _ second: StaticString
  ) throws(Problem) {
    var limit = loop.limits.rowsPerPage
    var cursor: UserListWalk.Cursor?
    var choice = 0
    var reader = QueryReader(query, loop.scratch)
    while let parameter = try reader.next() {
      // An empty value counts as absent.
      if parameter.value.isEmpty { continue }
      if parameter.name.equals("limit") {
        limit = try loop.pageLimit(parameter.value)
      } else if parameter.name.equals("cursor") {
        guard let given = UserListWalk.Cursor(parameter.value) else { throw Problem(.invalidCursor) }
        cursor = given
      } else if parameter.name.equals(name) {
        choice = parameter.value.equals(second) ? 1 : 0
        guard choice == 1 || parameter.value.equals(first) else {
          throw Problem(.invalidQuery, "\(name) has to be \(first) or \(second)")
        }
      }
    }
    self.limit = limit
    self.cursor = cursor
    self.choice = choice
  }
}
