internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// The pages of users' own acknowledgement requests and threads in progress: performs the actions of ``UserListScan``.
/// After its client has disconnected, a job stops with the store's next reply.
final class UserListPart: GatewayPart {
  private var jobs = JobTable<UserListJob>()

  /// Jobs in progress.
  var count: Int { jobs.count }

  /// Return the number of jobs in progress of one user.
  func count(of userKey: UInt64) -> Int { jobs.count(of: userKey) }

  // MARK: Routes

  /// Handle `GET /v1/users/{user}/receipts?state=&limit=&cursor=`.
  func receiptsOfUser(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    try context.check(match.subject)
    let parameters = try OwnListParameters(
      match.query,
      loop.scratch,
      loop.limits,
      choice: "state",
      of: "pending",
      "acknowledged"
    )
    try begin(
      .receipts(parameters.choice == 1 ? .acknowledged : .pending),
      parameters: parameters,
      match,
      context
    )
  }

  /// Handle `GET /v1/users/{user}/threads?unread=&limit=&cursor=`.
  func threadsOfUser(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    try context.check(match.subject)
    let parameters = try OwnListParameters(
      match.query,
      loop.scratch,
      loop.limits,
      choice: "unread",
      of: "false",
      "true"
    )
    try begin(.threads(unreadOnly: parameters.choice == 1), parameters: parameters, match, context)
  }

  private func begin(
    _ subject: UserListScan.Subject,
    parameters: OwnListParameters,
    _ match: borrowing RouteMatch,
    _ context: RequestContext
  ) throws(Problem) {
    try loop.userScans.checkRoom(for: context)
    if let cursor = parameters.cursor, !UserListScan.isValid(cursor, of: subject) {
      throw Problem(.invalidCursor)
    }
    let scan = UserListScan(
      subject,
      user: match.subject.withUnsafeBytes { Array($0) },
      limit: parameters.limit,
      from: parameters.cursor,
      channelsMax: loop.limits.countedChannels
    )
    let job = UserListJob(context, match.route, scan)
    let index = jobs.insert(job)
    perform(scan.begin(), job, index)
  }

  // MARK: Responses

  func completed(_ index: SlotIndex, _ request: UserListStoreRequest, with result: StoreResult) {
    guard let job = jobs.requestEnded(index) else { return }
    if job.isStillWanted(on: loop) {
      switch result {
      case .reply(let kind, let payload):
        do throws(WireError) {
          var reader = FieldReader(payload)
          let actions: [UserListScan.Action]
          switch request {
          case .list: actions = try job.scan.listed(&reader)
          case .locate: actions = try job.scan.located(&reader)
          case .entries(let channel): actions = try job.scan.answered(Int(channel), payload)
          }
          perform(actions, job, index)
        } catch {
          loop.logMalformedReply(error, kind)
          end(job, Problem(.internalError))
        }
      case .failure(let failure): fail(request, failure.problem, job: job, index: index)
      }
    }
    jobs.removeIfDone(job, index)
  }

  private func fail(
    _ request: UserListStoreRequest,
    _ problem: Problem,
    job: UserListJob,
    index: SlotIndex
  ) {
    var refused: Int?
    if case .entries(let channel) = request { refused = Int(channel) }
    do throws(WireError) {
      perform(try job.scan.refused(refused, problem), job, index)
    } catch {
      end(job, Problem(.internalError))
    }
  }

  // MARK: Actions

  private func perform(_ actions: [UserListScan.Action], _ job: UserListJob, _ index: SlotIndex) {
    for action in actions where !job.isEnded { perform(action, job, index) }
    if job.scan.isDone { end(job, nil) }
    jobs.removeIfDone(job, index)
  }

  private func perform(_ action: UserListScan.Action, _ job: UserListJob, _ index: SlotIndex) {
    switch action {
    case .list(let cursor, let limit): list(job, index, .list, cursor: cursor, limit: limit)
    case .locate(let cursor, let limit): list(job, index, .locate, cursor: cursor, limit: limit)
    case .query(let channel):
      let (request, cid) = (
        UserListStoreRequest.entries(channel: UInt32(channel)), job.scan.channel(channel)
      )
      job.inFlight += 1
      // One more for every five channels.
      loop.rates.charge(4, to: &job.request)
      let pending = job.pendingRequest(.userList(index, request))
      let isSent = loop.trySend(
        job.scan.kind,
        to: .channel(cid.span.bytes),
        pending,
        issued: job.request.issued
      ) {
        job.scan.writeRequest(channel, into: &$0)
      }
      if !isSent { refuse(request, job, index) }
    }
  }

  private func list(
    _ job: UserListJob,
    _ index: SlotIndex,
    _ request: UserListStoreRequest,
    cursor: UInt64?,
    limit: Int
  ) {
    let user = job.scan.user
    let home = ShardID.owning(user.span.bytes, count: loop.store.shardCount)
    job.inFlight += 1
    let pending = job.pendingRequest(.userList(index, request))
    let isSent = loop.trySend(
      .listChannels,
      to: .shard(home, name: user.span.bytes),
      pending,
      issued: job.request.issued
    ) {
      $0.writeListChannels(withAll: false, limit: limit, cursor: cursor)
    }
    if !isSent { refuse(request, job, index) }
  }

  private func refuse(_ request: UserListStoreRequest, _ job: UserListJob, _ index: SlotIndex) {
    job.inFlight -= 1
    fail(request, Problem(.storeBusy), job: job, index: index)
  }

  private func end(_ job: UserListJob, _ problem: Problem?) {
    guard job.isStillWanted(on: loop) else { return }
    job.end()
    guard let connection = loop.connections.answering(job.request.stream, on: job.request.connection) else {
      return
    }
    loop.endTurnSoon()
    if let problem = problem ?? job.scan.problem {
      return loop.answer(
        problem,
        route: job.request.route,
        stream: job.request.stream,
        connection: connection
      )
    }
    loop.respond(job.request.route, stream: job.request.stream, connection: connection) {
      OwnListJSON.write(job.scan, into: &$0)
    }
  }
}

/// The query parameters of pages of a user's own acknowledgement requests and threads.
private struct OwnListParameters {
  let limit: Int
  /// Nil: the first page.
  let cursor: UserListScan.Cursor?
  /// The chosen value of the parameter `name`: 0 is the first value, or absent; 1 is the second.
  let choice: Int

  init(
    _ query: RawSpan,
    _ scratch: PathScratch,
    _ limits: GatewayLimits,
    choice name: StaticString,
    of first: StaticString,
    _ second: StaticString
  ) throws(Problem) {
    var limit = limits.rowsPerPage
    var cursor: UserListScan.Cursor?
    var choice = 0
    var reader = QueryReader(query, scratch)
    while let parameter = try reader.next() {
      // An empty value counts as absent.
      if parameter.value.isEmpty { continue }
      if parameter.name.equals("limit") {
        limit = try limits.pageLimit(parameter.value)
      } else if parameter.name.equals("cursor") {
        guard let given = UserListScan.Cursor(parameter.value) else { throw Problem(.invalidCursor) }
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

/// The store requests of a ``UserListJob``.
enum UserListStoreRequest {
  case list
  case locate
  /// The entries of a channel, by its index in the scan.
  case entries(channel: UInt32)
}

/// A request for a page of a user's own acknowledgement requests or threads (``UserListScan``).
final class UserListJob: Job {
  var request: ScanRequest
  var scan: UserListScan
  /// Requests to the store in flight.
  var inFlight = 0
  private(set) var isEnded = false
  var respondsToClient: Bool { true }

  init(_ context: RequestContext, _ route: Route, _ scan: UserListScan) {
    request = ScanRequest(context, route)
    self.scan = scan
  }

  func end() { isEnded = true }
}
