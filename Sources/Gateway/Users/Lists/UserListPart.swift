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
    try begin(.receipts(parameters.choice == 1 ? .acknowledged : .pending), parameters: parameters, match, context)
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
    let job = UserListJob(context, scan)
    jobs.insert(job)
    perform(scan.begin(), job)
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
          perform(actions, job)
        } catch {
          loop.logMalformedReply(error, kind)
          end(job, Problem(.internalError))
        }
      case .failure(let failure): fail(request, failure.problem, job)
      }
    }
    jobs.removeIfDone(job)
  }

  private func fail(_ request: UserListStoreRequest, _ problem: Problem, _ job: UserListJob) {
    var refused: Int?
    if case .entries(let channel) = request { refused = Int(channel) }
    do throws(WireError) {
      perform(try job.scan.refused(refused, problem), job)
    } catch {
      end(job, Problem(.internalError))
    }
  }

  // MARK: Actions

  private func perform(_ actions: [UserListScan.Action], _ job: UserListJob) {
    for action in actions where !job.isEnded { perform(action, job) }
    if job.scan.isDone { end(job, nil) }
    jobs.removeIfDone(job)
  }

  private func perform(_ action: UserListScan.Action, _ job: UserListJob) {
    switch action {
    case .list(let cursor, let limit): list(job, .list, cursor: cursor, limit: limit)
    case .locate(let cursor, let limit): list(job, .locate, cursor: cursor, limit: limit)
    case .query(let channel):
      let cid = job.scan.channel(channel)
      // One more for every five channels.
      loop.rates.charge(4, to: &job.request)
      send(job.scan.kind, to: .channel(cid.span.bytes), job, .entries(channel: UInt32(channel))) {
        job.scan.writeRequest(channel, into: &$0)
      }
    }
  }

  private func list(_ job: UserListJob, _ request: UserListStoreRequest, cursor: UInt64?, limit: Int) {
    let user = job.scan.user
    let home = ShardID.owning(user.span.bytes, count: loop.store.shardCount)
    send(.listChannels, to: .shard(home, name: user.span.bytes), job, request) {
      $0.writeListChannels(withAll: false, limit: limit, cursor: cursor)
    }
  }

  private func send(
    _ kind: FrameKind,
    to destination: StoreDestination,
    _ job: UserListJob,
    _ request: UserListStoreRequest,
    _ fields: (inout ByteBuffer) -> Void
  ) {
    let pending = job.pendingRequest(.userList(job.index, request))
    if loop.trySend(kind, to: destination, pending, issued: job.request.issued, fields) {
      job.inFlight += 1
    } else {
      fail(request, Problem(.storeBusy), job)
    }
  }

  private func end(_ job: UserListJob, _ problem: Problem?) {
    guard job.isStillWanted(on: loop) else { return }
    job.end()
    job.respond(problem ?? job.scan.problem, on: loop) { OwnListJSON.write(job.scan, into: &$0) }
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
  var scan: UserListScan

  init(_ context: RequestContext, _ scan: UserListScan) {
    self.scan = scan
    super.init(.client(context))
  }
}
