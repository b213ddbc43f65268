internal import HTTP2Session
internal import NIOCore
internal import Operations
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// The scans over users' channels in progress: performs the actions of ``UserChannelScan``. A job ends early if its
/// client disconnects, which the next store reply detects.
final class UserScanPart: GatewayPart {
  private var jobs = JobTable<UserScanJob>()

  /// Jobs in progress.
  var count: Int { jobs.count }

  /// Whether the loop's limit has room for another job over a user's channels.
  var hasRoom: Bool { count + loop.userLists.count < loop.limits.userJobs }

  /// Check that another job may start; throws where the limit of the loop or of the user is reached, or the store is
  /// unavailable.
  func checkRoom(for context: RequestContext) throws(Problem) {
    guard hasRoom else { throw Problem(.storeBusy) }
    let key = context.userKey
    if key != 0 {
      let own = jobs.count(of: key) + loop.userLists.count(of: key)
      guard own < loop.limits.userJobsPerUser else { throw Problem(.storeBusy) }
    }
    guard loop.store.shardCount > 0 else { throw Problem(.storeUnavailable) }
  }

  /// Start a scan over the channels.
  func begin(_ job: UserScanJob) {
    jobs.insert(job)
    perform(job.scan.begin(), job)
  }

  /// Start a job that marks a channel first, and count the totals after that.
  ///
  /// - Throws: `store_busy`.
  func begin(
    _ job: UserScanJob,
    marking kind: FrameKind,
    at destination: StoreDestination,
    _ fields: (inout ByteBuffer) -> Void
  ) throws(Problem) {
    jobs.insert(job)
    let pending = job.pendingRequest(.userScan(job.index, .firstMark))
    guard loop.trySend(kind, to: destination, pending, issued: job.request.issued, fields) else {
      jobs.remove(job)
      throw Problem(.storeBusy)
    }
    job.inFlight += 1
  }

  // MARK: Responses

  func completed(_ index: SlotIndex, _ request: UserScanStoreRequest, with result: StoreResult) {
    guard let job = jobs.requestEnded(index) else { return }
    if job.isStillWanted(on: loop) {
      switch result {
      case .reply(let kind, let payload):
        do throws(WireError) {
          let actions = try apply(request, payload, job)
          perform(actions, job)
        } catch {
          loop.logMalformedReply(error, kind)
          end(job, Problem(.internalError))
        }
      case .failure(let failure):
        if case .firstMark = request {
          end(job, failure.problem)
        } else {
          perform(Self.failure(of: request, failure.problem, job), job)
        }
      }
    }
    jobs.removeIfDone(job)
  }

  private func apply(
    _ request: UserScanStoreRequest,
    _ payload: RawSpan,
    _ job: UserScanJob
  ) throws(WireError) -> [UserChannelScan.Action] {
    var reader = FieldReader(payload)
    switch request {
    case .firstMark:
      RowJSON.writeResponse(try MarkReply(payload), into: &job.row)
      return job.scan.begin()
    case .list(let user): return try job.scan.listed(Int(user), &reader)
    case .count(let frame): return try job.scan.counted(Int(frame), &reader)
    case .announce(let frame): return job.scan.announced(Int(frame))
    case .locate: return try job.scan.located(&reader)
    case .detail(let channel): return try job.scan.readStateReceived(Int(channel), &reader)
    case .threads(let mark): return try job.scan.threadsListed(Int(mark), &reader)
    case .markThread(let mark): return job.scan.threadMarked(Int(mark))
    case .mark(let mark): return job.scan.marked(Int(mark), nil)
    }
  }

  private static func failure(
    of request: UserScanStoreRequest,
    _ problem: Problem,
    _ job: UserScanJob
  ) -> [UserChannelScan.Action] {
    switch request {
    case .list(let user): job.scan.listFailed(Int(user), problem)
    case .count(let frame), .announce(let frame): job.scan.countFailed(Int(frame), problem)
    case .locate, .detail: job.scan.readStateFailed(problem)
    case .mark(let mark), .threads(let mark), .markThread(let mark): job.scan.marked(Int(mark), problem.code)
    // The job ends with the problem instead.
    case .firstMark: []
    }
  }

  // MARK: Actions

  private func perform(_ actions: [UserChannelScan.Action], _ job: UserScanJob) {
    performAll(actions) { perform($0, job) }
    if job.scan.isDone { end(job, nil) }
    jobs.removeIfDone(job)
  }

  private func perform(_ action: UserChannelScan.Action, _ job: UserScanJob) -> [UserChannelScan.Action] {
    let user = job.scan.users[0].id
    switch action {
    case .list(let user): return list(job, of: user, .list(user: UInt32(user)), cursor: job.scan.cursor(of: user))
    case .locate(let cursor, let limit): return list(job, of: 0, .locate, cursor: cursor, limit: limit)
    case .count(let frame):
      loop.rates.charge(job.scan.channelCount(of: frame), to: &job.request)
      let shard = StoreDestination.shard(job.scan.shard(of: frame), name: nil)
      return trySend(.unreadCounts, to: shard, job, .count(frame: UInt32(frame))) {
        job.scan.writeCounts(frame, into: &$0)
      }
    case .announce(let frame):
      let shard = StoreDestination.shard(job.scan.shard(of: frame), name: user.span.bytes)
      return trySend(.announceRow, to: shard, job, .announce(frame: UInt32(frame))) {
        job.scan.writeAnnouncement(frame, into: &$0)
      }
    case .mark(let mark):
      loop.rates.charge(4, to: &job.request)
      let cid = job.scan.channel(of: mark)
      return markRead(.channel(cid.span.bytes), job, .mark(UInt32(mark)))
    case .threads(let mark):
      loop.rates.charge(4, to: &job.request)
      let (limit, cursor, cid) = (loop.limits.rowsPerPage, job.scan.threadCursor(of: mark), job.scan.channel(of: mark))
      return trySend(.userThreads, to: .channel(cid.span.bytes), job, .threads(mark: UInt32(mark))) {
        $0.writeOwnList(
          user: user.span.bytes,
          selection: ShardState.ThreadSelection.unread.rawValue,
          limit: limit,
          below: cursor.map { SequenceNumber($0) }
        )
      }
    case .markThread(let mark):
      let (cid, parent) = (job.scan.channel(of: mark), job.scan.thread(of: mark))
      let thread = StoreDestination.channel(cid.span.bytes, thread: parent.span.bytes)
      return markRead(thread, job, .markThread(mark: UInt32(mark)))
    case .detail(let channel):
      let cid = job.scan.page?.channel(channel) ?? []
      return trySend(.readState, to: .channel(cid.span.bytes), job, .detail(channel: UInt32(channel))) {
        // The user's own view, in which their own row comes first.
        $0.writeRowPage(viewer: user.span.bytes, isServer: false, limit: 1, cursor: nil)
      }
    }
  }

  private func list(
    _ job: UserScanJob,
    of user: Int,
    _ request: UserScanStoreRequest,
    cursor: UInt64?,
    limit: Int = UserChannelScan.listMax
  ) -> [UserChannelScan.Action] {
    let id = job.scan.users[user].id
    let home = ShardID.owning(id.span.bytes, count: loop.store.shardCount)
    return trySend(.listChannels, to: .shard(home, name: id.span.bytes), job, request) {
      $0.writeListChannels(withAll: false, limit: limit, cursor: cursor)
    }
  }

  private func markRead(
    _ destination: StoreDestination,
    _ job: UserScanJob,
    _ request: UserScanStoreRequest
  ) -> [UserChannelScan.Action] {
    let user = job.scan.users[0].id
    return trySend(.markRead, to: destination, job, request) {
      $0.writeMark(user: user.span.bytes, message: RawSpan(), epoch: nil)
    }
  }

  private func trySend(
    _ kind: FrameKind,
    to destination: StoreDestination,
    _ job: UserScanJob,
    _ request: UserScanStoreRequest,
    _ fields: (inout ByteBuffer) -> Void
  ) -> [UserChannelScan.Action] {
    let pending = job.pendingRequest(.userScan(job.index, request))
    guard loop.trySend(kind, to: destination, pending, issued: job.request.issued, fields) else {
      return Self.failure(of: request, Problem(.storeBusy), job)
    }
    job.inFlight += 1
    return []
  }

  // MARK: End of a job

  /// End a job and answer its request, unless it has ended already.
  ///
  /// - Parameter problem: nil: the scan's own result counts.
  private func end(_ job: UserScanJob, _ problem: Problem?) {
    guard job.isStillWanted(on: loop) else { return }
    job.end()
    switch job.purpose {
    case .response: break
    case .totals(let user):
      let problem = problem ?? job.scan.problem
      return loop.totals.counted(user, problem == nil ? job.scan.users[0].totals : nil)
    case .announcement(let change): return loop.valueChanges.announced(change, problem ?? job.scan.problem)
    case .settlement(let settlement):
      return loop.settlement.announced(settlement, isDone: (problem ?? job.scan.problem) == nil)
    }
    let isBatch = job.request.route == .unreadOfUsers
    let shown = problem ?? (isBatch ? nil : job.scan.problem)
    job.respond(shown.map { Self.shown($0, job) }, on: loop) { UnreadJSON.write(job, into: &$0) }
  }

  /// Replace a code whose title says that nothing was changed if something was.
  private static func shown(_ problem: Problem, _ job: UserScanJob) -> Problem {
    guard problem.status == 503 || problem.status == 500 else { return problem }
    if job.row.readableBytes > 0 {
      let detail =
        "the position was moved, but the unread totals could not be counted; query them, or repeat the request"
      return Problem(.outcomeUnknown, detail)
    }
    if job.scan.hasMarked {
      return Problem(.outcomeUnknown, "not every channel was marked read; repeat the request")
    }
    return problem
  }

  // MARK: Metrics

  override func collect(into samples: inout MetricSamples) {
    samples.gauge(
      "tidemark_gateway_user_jobs",
      help: "Requests in progress that visit all channels of a user.",
      Double(count)
    )
  }
}

/// The store requests of a ``UserScanJob``, with the index of the user, frame, mark or channel in its scan.
enum UserScanStoreRequest {
  /// The mark that the request itself asks for.
  case firstMark
  case list(user: UInt32)
  case count(frame: UInt32)
  case mark(UInt32)
  case threads(mark: UInt32)
  case markThread(mark: UInt32)
  case locate
  case detail(channel: UInt32)
  case announce(frame: UInt32)
}

/// A request that visits all channels of one or several users (``UserChannelScan``).
final class UserScanJob: Job {
  /// What the result is for.
  enum Purpose {
    /// The response to its request.
    case response
    /// `notification.totals` of this user.
    case totals(user: String)
    /// A privacy change of a user, whose PUT is this fan-out.
    case announcement(change: SlotIndex)
    /// A privacy change that ``SettlementRounds`` completes.
    case settlement(Int)
  }

  /// One of `user_ids`: the user's index in the scan, or why it was refused.
  enum Entry {
    case user(Int)
    /// Nil: the entry is no string.
    case refused(id: [UInt8]?, ProblemCode)
  }

  let purpose: Purpose
  var scan: UserChannelScan
  /// In the order of the request.
  let entries: [Entry]
  /// `{"read": row}` of the first mark; empty where there was none.
  var row = ByteBuffer()

  init(_ context: RequestContext, _ scan: UserChannelScan, entries: [Entry] = []) {
    purpose = .response
    self.scan = scan
    self.entries = entries
    super.init(.client(context))
  }

  /// A job without an HTTP/2 request of its own.
  init(_ purpose: Purpose, _ scan: UserChannelScan) {
    self.purpose = purpose
    self.scan = scan
    entries = []
    super.init(.gateway(as: .unreadOfUser))
  }
}
