internal import HTTP2Session
internal import NIOCore

/// A request that goes over all channels of a user, or of a few (``UserWalk``).
final class UserJob {
  enum Stage {
    /// Their position is moved first; the totals are those after it. Becomes `walking`.
    case marking
    case walking
    /// Answered, or nobody is there to be answered.
    case ended
  }

  /// What it is done for.
  enum Purpose {
    /// The answer to its request.
    case answer
    /// `notification.totals` of this user.
    case totals(user: String)
    /// A change of what a user hides, whose PUT this is the gather of.
    case announcement(gather: UInt32)
    /// Such a change that ``Settling`` finishes.
    case settling(spread: Int)
  }

  /// One of `user_ids`: the user's place in the walk, or why there is none.
  enum Entry {
    case user(Int)
    /// Nil: no string.
    case refused(id: [UInt8]?, ProblemCode)
  }

  let purpose: Purpose
  let connection: UInt32
  let stream: HTTP2StreamHandle
  let route: Route
  let isServer: Bool
  /// When the caller's token was issued; see ``Caller``.
  let issued: UInt32?
  var walk: UserWalk
  /// In the order of the request.
  let entries: [Entry]
  var stage: Stage
  /// `{"read": row}` of the mark that came first; empty where there was none.
  var row = ByteBuffer()
  /// Requests to the store without an answer.
  var inFlight = 0

  init(_ context: RequestContext, _ route: Route, _ walk: UserWalk, _ stage: Stage, entries: [Entry] = []) {
    purpose = .answer
    connection = context.connection
    stream = context.stream
    isServer = context.caller.isServer
    issued = context.caller.issued
    self.route = route
    self.walk = walk
    self.stage = stage
    self.entries = entries
  }

  /// One that no request of HTTP/2 waits for by itself.
  init(_ purpose: Purpose, _ walk: UserWalk) {
    self.purpose = purpose
    connection = 0
    stream = HTTP2StreamHandle(slot: 0, generation: 0)
    isServer = true
    issued = nil
    route = .unreadOfUser
    self.walk = walk
    stage = .walking
    entries = []
  }
}

/// The jobs of one loop, at most so many. A job keeps its place until the last answer for it is in, so that none meets
/// another job.
struct JobTable<Job: AnyObject> {
  private var jobs: [Job?] = []
  private var free: [UInt32] = []

  var count: Int { jobs.count - free.count }

  subscript(index: UInt32) -> Job? { jobs[Int(index)] }

  mutating func insert(_ job: Job) -> UInt32 {
    if let index = free.popLast() {
      jobs[Int(index)] = job
      return index
    }
    jobs.append(job)
    return UInt32(jobs.count - 1)
  }

  mutating func remove(_ index: UInt32) {
    guard jobs[Int(index)] != nil else { return }
    jobs[Int(index)] = nil
    free.append(index)
  }
}
