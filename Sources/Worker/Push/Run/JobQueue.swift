internal import FeedClient
internal import Logging
internal import Operations
internal import Synchronization

/// The jobs of `POST /v1/push/jobs`: claims them, renews the claims while they are in flight, and reports them when
/// their last result is written. Any number of workers may share the queue.
final class JobQueue: Sendable {
  /// Time after which another worker gets the jobs of one that is gone.
  private static let leaseSeconds = 10
  private static let renewMilliseconds: Int64 = 3_000
  /// Pauses between two looks, in milliseconds.
  private static let idleMilliseconds: Int64 = 500
  private static let busyMilliseconds: Int64 = 50
  private static let failureMilliseconds: Int64 = 1_000
  private static let jobsMax = 256
  /// Attempts to report the last jobs when the process stops.
  private static let lastReportsMax = 5
  /// Age up to which a job is sent whatever its `ttl`: it was queued a moment ago.
  private static let freshSeconds: Int64 = 5

  private let context: PushContext
  private let state = Mutex(State())

  init(_ context: PushContext) { self.context = context }

  private struct State {
    /// Jobs in flight by their names without the claim, each with its newest claim and the signal that ends it.
    var inFlight: [Substring: (id: String, stop: StopSignal)] = [:]
    /// Jobs whose results are written, and whether they are done; if not, they are given back.
    var toReport: [String: Bool] = [:]
  }

  /// Serve until the process stops, and the jobs in flight have ended and are reported.
  func serve() async throws {
    // A call that hangs must not hold up the renewals.
    let renewals = Task { await renewUntilCancelled() }
    defer { renewals.cancel() }
    try await withThrowingDiscardingTaskGroup { group in
      while !context.stop.isStopped {
        var pause = await report() ? Self.idleMilliseconds : Self.failureMilliseconds
        do {
          if try await claim(&group) { pause = 0 }
        } catch let error as GatewayError {
          log("Push jobs cannot be claimed", error)
          pause = Self.failureMilliseconds
        }
        if hasJobs { pause = min(pause, Self.busyMilliseconds) }
        if pause > 0 { _ = await context.stop.wait(milliseconds: pause) }
      }
      for job in state.withLock({ Array($0.inFlight.values) }) { job.stop.stop() }
      while state.withLock({ !$0.inFlight.isEmpty }) { try await Task.sleep(for: .milliseconds(Self.busyMilliseconds)) }
    }
    await reportLast()
  }

  private var hasJobs: Bool { state.withLock { !$0.inFlight.isEmpty || !$0.toReport.isEmpty } }

  private func log(_ message: Logger.Message, _ error: any Error) {
    context.log(.warning, message, ["reason": "\(error)"])
  }

  /// Report the jobs that have ended since the last report, when the process stops. Jobs that cannot be reported are
  /// sent again by another worker when their lease ends.
  private func reportLast() async {
    for _ in 0..<Self.lastReportsMax {
      if await report() { return }
      try? await Task.sleep(for: .milliseconds(Self.failureMilliseconds))
    }
  }

  // MARK: Claiming

  /// Claim as many jobs as there is room for, and begin them.
  ///
  /// - Returns: whether there may be more.
  private func claim(_ group: inout ThrowingDiscardingTaskGroup<any Error>) async throws -> Bool {
    let room = Self.jobsMax - state.withLock { $0.inFlight.count + $0.toReport.count }
    guard room > 0 else { return false }
    let (jobs, hasMore) = try await context.gateway.claimJobs(limit: room, leaseSeconds: Self.leaseSeconds)
    for claimed in jobs { begin(claimed, &group) }
    return hasMore && jobs.count < room
  }

  private func begin(_ claimed: ClaimedJob, _ group: inout ThrowingDiscardingTaskGroup<any Error>) {
    let (name, stop) = (Self.name(claimed.id), StopSignal())
    // After a stall, a job may come again that this worker still has: it goes on under the new claim.
    let isNew = state.withLock { state in
      guard let known = state.inFlight[name] else {
        state.inFlight[name] = (claimed.id, stop)
        return true
      }
      state.inFlight[name] = (claimed.id, known.stop)
      return false
    }
    guard isNew else { return }
    group.addTask { [self] in
      var isDone = false
      defer { end(name, isDone: isDone) }
      do {
        isDone = try await perform(claimed, stop)
      } catch {
        context.stop.stop()
        throw error
      }
    }
  }

  /// Send a job.
  ///
  /// - Returns: whether it is done; false: it was stopped.
  private func perform(_ claimed: ClaimedJob, _ stop: StopSignal) async throws -> Bool {
    let origin = PushJobOrigin.queue(claimed.id)
    let job: PushJob
    do throws(PushJobError) {
      job = try Self.fresh(claimed)
    } catch {
      context.metrics.jobEnded("invalid")
      try await context.streams.write(PushResultLine.error(origin, error))
      return true
    }
    return try await JobRunner(context, job, origin, stop: stop).run()
  }

  /// Return a job with what is left of its `ttl`.
  private static func fresh(_ claimed: ClaimedJob) throws(PushJobError) -> PushJob {
    var job = try claimed.job.get()
    guard claimed.ageSeconds <= max(job.content.ttlSeconds, freshSeconds) else {
      throw PushJobError(code: "expired", detail: "the job waited for longer than its ttl")
    }
    job.content.ttlSeconds = max(0, job.content.ttlSeconds - claimed.ageSeconds)
    return job
  }

  private func end(_ name: Substring, isDone: Bool) {
    state.withLock { state in
      guard let job = state.inFlight.removeValue(forKey: name) else { return }
      state.toReport[job.id] = isDone
    }
  }

  /// Return the name of a job without its claim, the third part.
  private static func name(_ id: String) -> Substring {
    let parts = id.split(separator: "-", omittingEmptySubsequences: false)
    return parts.count < 3 ? id[...] : id[..<parts[1].endIndex]
  }

  // MARK: Reports

  /// Report the jobs that are done, and give those back that the worker has stopped.
  ///
  /// - Returns: whether all of them are reported.
  private func report() async -> Bool {
    let ended = state.withLock { $0.toReport }
    var areReported = true
    // A shard that does not answer keeps its own jobs only.
    for (_, ids) in Dictionary(grouping: ended.keys, by: { $0.prefix { $0 != "-" } }) {
      let done = ids.filter { ended[$0] == true }
      let stopped = ids.filter { ended[$0] == false }
      do {
        if !done.isEmpty { try await context.gateway.finishJobs(done) }
        if !stopped.isEmpty { _ = try await context.gateway.renewJobs(stopped, leaseSeconds: 0) }
        state.withLock { state in
          for id in ids { state.toReport[id] = nil }
        }
      } catch {
        log("Push jobs cannot be reported", error)
        areReported = false
      }
    }
    return areReported
  }

  /// Renew the claims on the jobs in flight, and end jobs that no longer exist or that another worker has.
  private func renewUntilCancelled() async {
    while (try? await Task.sleep(for: .milliseconds(Self.renewMilliseconds))) != nil {
      let ids = state.withLock { $0.inFlight.values.map(\.id) + Array($0.toReport.keys) }
      guard !ids.isEmpty else { continue }
      do {
        let unknown = try await context.gateway.renewJobs(ids, leaseSeconds: Self.leaseSeconds)
        for id in unknown {
          let lost = state.withLock { state in state.inFlight[Self.name(id)].flatMap { $0.id == id ? $0.stop : nil } }
          lost?.stop()
        }
      } catch {
        log("The claims on push jobs cannot be renewed", error)
      }
    }
  }
}
