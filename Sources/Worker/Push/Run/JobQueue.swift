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

  private let context: PushContext
  private let state = Mutex(State())

  init(_ context: PushContext) { self.context = context }

  private struct State {
    /// Jobs in flight, with the signal that ends them.
    var inFlight: [String: StopSignal] = [:]
    /// Jobs whose results are written, and whether each was sent in full.
    var ended: [String: Bool] = [:]
  }

  /// Serve until the process stops, and the jobs in flight have ended.
  func serve() async throws {
    try await withThrowingDiscardingTaskGroup { group in
      var nextRenewal: Int64 = 0
      while true {
        let isStopped = context.stop.isStopped
        if isStopped { endJobs() }
        var pause = Self.idleMilliseconds
        do {
          try await reportEnded()
          if Times.now >= nextRenewal {
            try await renew()
            nextRenewal = Times.now + Self.renewMilliseconds
          }
          if !isStopped, try await claim(&group) { pause = 0 }
          if hasJobs { pause = min(pause, Self.busyMilliseconds) }
        } catch let error as GatewayError {
          context.log(.warning, "The queue of push jobs cannot be reached", ["reason": "\(error)"])
          pause = Self.failureMilliseconds
        }
        guard isStopped else {
          if pause > 0 { _ = await context.stop.wait(milliseconds: pause) }
          continue
        }
        // Jobs that cannot be reported now are sent again by another worker, when their lease ends.
        guard hasJobsInFlight else { return }
        try await Task.sleep(for: .milliseconds(Self.busyMilliseconds))
      }
    }
  }

  private var hasJobs: Bool { state.withLock { !$0.inFlight.isEmpty || !$0.ended.isEmpty } }
  private var hasJobsInFlight: Bool { state.withLock { !$0.inFlight.isEmpty } }

  // MARK: Gateway

  /// Claim as many jobs as there is room for, and begin them.
  ///
  /// - Returns: whether there may be more.
  private func claim(_ group: inout ThrowingDiscardingTaskGroup<any Error>) async throws -> Bool {
    let room = Self.jobsMax - state.withLock { $0.inFlight.count + $0.ended.count }
    guard room > 0 else { return false }
    let (jobs, hasMore) = try await context.gateway.claimJobs(limit: room, leaseSeconds: Self.leaseSeconds)
    for claimed in jobs { begin(claimed, &group) }
    return hasMore && jobs.count < room
  }

  private func begin(_ claimed: ClaimedJob, _ group: inout ThrowingDiscardingTaskGroup<any Error>) {
    let stop = StopSignal()
    // A job whose lease had ended meanwhile may come again.
    let isNew = state.withLock { state in
      guard state.inFlight[claimed.id] == nil, state.ended[claimed.id] == nil else { return false }
      state.inFlight[claimed.id] = stop
      return true
    }
    guard isNew else { return }
    group.addTask { [self] in
      var isWhole = true
      do {
        switch claimed.job {
        case .failure(let error):
          context.metrics.jobEnded("invalid")
          try await context.streams.write(PushResultLine.error(.queue(claimed.id), error))
        case .success(var job):
          job.content.ttlSeconds = min(job.content.ttlSeconds, claimed.ttlSeconds)
          isWhole = try await JobRunner(context, job, .queue(claimed.id), stop: stop).run()
        }
      } catch {
        context.stop.stop()
        end(claimed.id, isWhole: false)
        throw error
      }
      end(claimed.id, isWhole: isWhole)
    }
  }

  private func end(_ id: String, isWhole: Bool) {
    state.withLock { state in
      state.inFlight[id] = nil
      state.ended[id] = isWhole
    }
  }

  private func endJobs() {
    for signal in state.withLock({ Array($0.inFlight.values) }) { signal.stop() }
  }

  /// Report the jobs that were sent, and give those back that the worker has stopped.
  private func reportEnded() async throws {
    let ended = state.withLock { $0.ended }
    let (done, stopped) = (ended.filter(\.value).map(\.key), ended.filter { !$0.value }.map(\.key))
    for part in Self.parts(of: done) { try await context.gateway.finishJobs(part) }
    for part in Self.parts(of: stopped) { _ = try await context.gateway.renewJobs(part, leaseSeconds: 0) }
    state.withLock { state in
      for id in ended.keys { state.ended[id] = nil }
    }
  }

  /// Renew the claims on the jobs in flight, and end those that no longer exist.
  private func renew() async throws {
    let ids = state.withLock { Array($0.inFlight.keys) }
    for part in Self.parts(of: ids) {
      let unknown = try await context.gateway.renewJobs(part, leaseSeconds: Self.leaseSeconds)
      for id in unknown { state.withLock { $0.inFlight[id] }?.stop() }
    }
  }

  private static func parts(of ids: [String]) -> [[String]] {
    stride(from: 0, to: ids.count, by: FeedGateway.jobsMax).map {
      Array(ids[$0..<min($0 + FeedGateway.jobsMax, ids.count)])
    }
  }
}
