internal import FeedClient
internal import Logging
internal import Operations
internal import Synchronization

/// Performs one job: asks who lacks the message, issues tickets, counts badges, sends, and writes the results.
struct JobRunner: Sendable {
  private let context: PushContext
  private let job: PushJob
  private let origin: PushJobOrigin
  /// Ends the job: the process stops, or the job was cancelled.
  private let stop: StopSignal
  /// Time of the last attempt, in milliseconds since 1970: a push is not sent after its `ttl`.
  private let deadline: Int64

  init(_ context: PushContext, _ job: PushJob, _ origin: PushJobOrigin, stop: StopSignal) {
    self.context = context
    self.job = job
    self.origin = origin
    self.stop = stop
    deadline = Times.now + min(context.task.retryMilliseconds, job.content.ttlSeconds * 1_000)
  }

  /// - Returns: whether the job is done; false: it is one of the queue, and was stopped.
  /// - Throws: ``PushStreams/OutputClosed``.
  func run() async throws -> Bool {
    let counts = ResultCounts()
    try await withThrowingDiscardingTaskGroup { group in
      for users in Self.chunks(of: job.users) {
        group.addTask { try await self.push(to: users, counts) }
      }
    }
    // A job of the queue that was stopped is given back.
    if case .queue = origin, counts.hasStopped { return false }
    context.metrics.jobEnded("done")
    try await context.streams.write(PushResultLine.done(origin, job: job, counts: counts.values))
    return true
  }

  /// Results of a job, by label.
  private final class ResultCounts: Sendable {
    private let counts = Mutex<(values: [String: Int], hasStopped: Bool)>(([:], false))
    var values: [String: Int] { counts.withLock { $0.values } }
    /// Whether a device was not tried to the end.
    var hasStopped: Bool { counts.withLock { $0.hasStopped } }

    func add(_ outcome: PushOutcome) {
      counts.withLock { counts in
        counts.values[outcome.label, default: 0] += 1
        if outcome == JobRunner.stopped { counts.hasStopped = true }
      }
    }
  }

  /// Split users so that one query about a message takes each part.
  static func chunks(of users: [PushJob.User]) -> [[PushJob.User]] {
    var chunks: [[PushJob.User]] = []
    var byteCount = 0
    for user in users where !user.devices.isEmpty {
      // An escaped byte takes three.
      let size = user.id.utf8.count * 3 + 1
      if chunks.isEmpty || chunks[chunks.count - 1].count >= FeedGateway.statusUsersMax
        || byteCount + size > FeedGateway.statusPathBytesMax
      {
        chunks.append([])
        byteCount = 0
      }
      chunks[chunks.count - 1].append(user)
      byteCount += size
    }
    return chunks
  }

  // MARK: Users

  private func push(to users: [PushJob.User], _ counts: ResultCounts) async throws {
    if stop.isStopped { return try await finish(users, Self.stopped, counts) }
    let pending: [PushJob.User]
    switch await lacking(users) {
    case .failure(let refusal):
      return try await finish(users, refusal.outcome, counts)
    case .success(let statuses):
      for (user, skipped) in zip(users, statuses) {
        if let skipped { try await finish([user], skipped, counts) }
      }
      pending = zip(users, statuses).filter { $0.1 == nil }.map(\.0)
    }
    guard !pending.isEmpty else { return }
    let tickets: [FeedGateway.TicketRequest: FeedGateway.Ticket]
    switch await self.tickets(pending) {
    case .failure(let refusal): return try await finish(pending, refusal.outcome, counts)
    case .success(let issued): tickets = issued
    }
    let badges = await badges(pending)
    try await withThrowingDiscardingTaskGroup { group in
      for user in pending {
        for device in user.devices {
          let ticket = tickets[ticketRequest(user, device)] ?? .refused(code: "internal_error")
          group.addTask { try await self.push(to: device, of: user, ticket, badge: badges[user.id] ?? nil, counts) }
        }
      }
    }
  }

  private func finish(_ users: [PushJob.User], _ outcome: PushOutcome, _ counts: ResultCounts) async throws {
    for user in users {
      for device in user.devices { try await finish(user, device, outcome, attempts: 0, counts) }
    }
  }

  private func finish(
    _ user: PushJob.User,
    _ device: PushDevice,
    _ outcome: PushOutcome,
    attempts: Int,
    reportCode: String? = nil,
    _ counts: ResultCounts
  ) async throws {
    counts.add(outcome)
    context.metrics.deviceEnded(outcome, provider: device.provider)
    let line = PushResultLine.device(
      origin,
      job: job,
      userID: user.id,
      device: device,
      outcome: outcome,
      attempts: attempts,
      reportCode: reportCode
    )
    try await context.streams.write(line)
  }

  // MARK: Gateway

  /// Why the gateway did not answer a call.
  private struct Refusal: Error {
    var outcome: PushOutcome
    var code: String
  }

  /// Call the gateway, and repeat the call until the deadline while that may help.
  private func ask<Value: Sendable>(_ call: @Sendable () async throws -> Value) async -> Result<Value, Refusal> {
    var attempts = 0
    while true {
      do {
        return .success(try await context.gatewaySlots.with(call))
      } catch {
        attempts += 1
        let error = error as? GatewayError ?? GatewayError("\(error)")
        let code = error.code.isEmpty ? "gateway_unavailable" : error.code
        // A backend registers a message before it pushes it, but its request may still be on the way.
        let mayBeRegistered = code == "message_not_found" && attempts == 1
        let delay = RetrySchedule.backoff(afterAttempts: attempts, jitter: Double.random(in: 0...1), max: 10_000)
        guard error.isRetryable || mayBeRegistered, Times.now + delay <= deadline else {
          return .failure(Refusal(outcome: Self.outcome(of: error, code: code), code: code))
        }
        context.log(.warning, "A call to the gateway is repeated", ["reason": "\(error)"])
        guard await stop.wait(milliseconds: delay) else {
          return .failure(Refusal(outcome: Self.stopped, code: code))
        }
      }
    }
  }

  /// Time after which a job of the queue looks again whether a paused provider is open, in milliseconds.
  private static let pausedMilliseconds: Int64 = 5_000

  private static let stopped = PushOutcome.failed(
    code: "stopped",
    detail: "the worker stops, or the job was cancelled"
  )

  private static func outcome(of error: GatewayError, code: String) -> PushOutcome {
    switch error.status {
    case 404: .skipped(code: code)
    case 400: .rejected(code: code, detail: error.description)
    default: .failed(code: code, detail: error.description)
    }
  }

  /// Return for each user why they are skipped; nil for those who lack the message.
  private func lacking(_ users: [PushJob.User]) async -> Result<[PushOutcome?], Refusal> {
    let result = await ask { [context, job] in
      let statuses = try await context.gateway.statuses(
        cid: job.content.cid,
        messageID: job.content.messageID,
        userIDs: users.map(\.id)
      )
      for case .refused(let code) in statuses where GatewayError.isRetryable(code: code) {
        throw GatewayError(entry: code)
      }
      return statuses
    }
    return result.map { statuses in
      statuses.map { status in
        switch status {
        case .sent: nil
        case .delivered: context.task.skip == .delivered ? .skipped(code: "delivered") : nil
        case .read: .skipped(code: "read")
        case .refused(let code): .skipped(code: code)
        }
      }
    }
  }

  private func deviceLabel(_ device: PushDevice) -> String {
    device.label ?? context.task.providers[device.provider]?.kind.deviceLabel ?? "other"
  }

  private func ticketRequest(_ user: PushJob.User, _ device: PushDevice) -> FeedGateway.TicketRequest {
    FeedGateway.TicketRequest(
      cid: job.content.cid,
      message_id: job.content.messageID,
      user_id: user.id,
      device: deviceLabel(device)
    )
  }

  /// Issue a ticket for each user and kind of device.
  private func tickets(
    _ users: [PushJob.User]
  ) async -> Result<[FeedGateway.TicketRequest: FeedGateway.Ticket], Refusal> {
    let requests = Array(Set(users.flatMap { user in user.devices.map { ticketRequest(user, $0) } }))
    var issued: [FeedGateway.TicketRequest: FeedGateway.Ticket] = [:]
    for start in stride(from: 0, to: requests.count, by: FeedGateway.ticketsMax) {
      let part = Array(requests[start..<min(start + FeedGateway.ticketsMax, requests.count)])
      let result = await ask { [context] in
        let tickets = try await context.gateway.tickets(part, ttlSeconds: context.task.ticketSeconds)
        for case .refused(let code) in tickets where GatewayError.isRetryable(code: code) {
          throw GatewayError(entry: code)
        }
        return tickets
      }
      switch result {
      case .failure(let refusal): return .failure(refusal)
      case .success(let tickets): for (request, ticket) in zip(part, tickets) { issued[request] = ticket }
      }
    }
    return .success(issued)
  }

  /// Count badges. Without an answer the pushes have none.
  private func badges(_ users: [PushJob.User]) async -> [String: Int64?] {
    guard context.task.sendsBadge else { return [:] }
    do {
      let counts = try await context.gatewaySlots.with { try await context.gateway.badges(users.map(\.id)) }
      return Dictionary(zip(users.map(\.id), counts)) { first, _ in first }
    } catch {
      context.log(.warning, "Badges could not be counted; pushes are sent without", ["reason": "\(error)"])
      return [:]
    }
  }

  // MARK: Devices

  private func push(
    to device: PushDevice,
    of user: PushJob.User,
    _ ticket: FeedGateway.Ticket,
    badge: Int64?,
    _ counts: ResultCounts
  ) async throws {
    var machine = DeviceMachine(deadline: deadline)
    let outcome: PushOutcome
    switch ticket {
    case .refused(let code): outcome = .skipped(code: code)
    case .issued(let text):
      let notification = PushNotification(content: job.content, ticket: text, badge: badge)
      outcome = await deliver(notification, to: device, of: user, &machine)
    }
    var reportCode: String?
    if case .accepted = outcome, context.task.report == .accepted { reportCode = await report(device, of: user) }
    try await finish(user, device, outcome, attempts: machine.attempts, reportCode: reportCode, counts)
  }

  private func deliver(
    _ notification: PushNotification,
    to device: PushDevice,
    of user: PushJob.User,
    _ machine: inout DeviceMachine
  ) async -> PushOutcome {
    guard let (provider, slots) = context.providers[device.provider] else {
      return .rejected(code: "unknown_provider", detail: "the tasks file has no provider of that name")
    }
    var action = DeviceMachine.Action.attempt
    while true {
      switch action {
      case .finish(let outcome): return outcome
      case .attempt:
        let step = await slots.with { await attempt(notification, device, provider, machine) }
        (action, machine) = (step.action, step.machine)
      case .wait(let until):
        guard await stop.wait(milliseconds: max(until - Times.now, 0)) else { return Self.stopped }
        // The user may have read the message meanwhile.
        switch await lacking([user]) {
        case .failure(let refusal): return refusal.outcome
        case .success(let statuses): action = statuses.first.flatMap { $0 }.map { .finish($0) } ?? .attempt
        }
      }
    }
  }

  /// A step of a device's machine.
  private struct Step: Sendable {
    var action: DeviceMachine.Action
    var machine: DeviceMachine
  }

  private func attempt(
    _ notification: PushNotification,
    _ device: PushDevice,
    _ provider: any PushProvider,
    _ machine: DeviceMachine
  ) async -> Step {
    if stop.isStopped { return Step(action: .finish(Self.stopped), machine: machine) }
    var machine = machine
    let connection: PushServiceConnection
    do throws(PushAnswer) {
      connection = try provider.open(device)
    } catch {
      return Step(action: machine.answered(error, now: Times.now, jitter: Double.random(in: 0...1)), machine: machine)
    }
    defer { provider.close(connection) }
    switch connection.admit(now: Times.now) {
    case .wait(let until): return Step(action: machine.delayed(until: until), machine: machine)
    case .refuse(let code):
      // A job of the queue waits for the provider: its caller does not hear that it failed.
      if case .queue = origin {
        return Step(action: machine.delayed(until: Times.now + Self.pausedMilliseconds), machine: machine)
      }
      return Step(action: machine.refused(code: code), machine: machine)
    case .send:
      context.metrics.requestStarted(device.provider)
      let start = ContinuousClock.now
      let answer = await provider.send(notification, to: device, on: connection, now: Times.now)
      context.metrics.requestEnded(device.provider, answer, seconds: start.duration(to: .now) / .seconds(1))
      if connection.answered(answer, now: Times.now) {
        context.metrics.set(isPaused: connection.isPaused, device.provider)
        if connection.isPaused {
          context.log(.error, "A push provider refuses the credentials and is paused", ["answer": "\(answer)"])
        }
      }
      return Step(action: machine.answered(answer, now: Times.now, jitter: Double.random(in: 0...1)), machine: machine)
    }
  }

  /// Mark the message delivered.
  ///
  /// - Returns: the code of a refusal.
  private func report(_ device: PushDevice, of user: PushJob.User) async -> String? {
    let ack = FeedGateway.Ack(
      cid: job.content.cid,
      message_id: job.content.messageID,
      user_id: user.id,
      provider: context.task.providers[device.provider]?.kind.label ?? "other",
      device: deviceLabel(device)
    )
    let result = await ask { [context] in
      let code = try await context.gateway.acknowledge(ack)
      if let code, GatewayError.isRetryable(code: code) { throw GatewayError(entry: code) }
      return code
    }
    switch result {
    case .success(let code): return code
    case .failure(let refusal): return refusal.code
    }
  }
}
