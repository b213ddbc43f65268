import Foundation

/// The user's event stream, over as many connections as it takes.
actor EventStream {
  /// What the stream tells its client, one after the other.
  struct Callbacks: Sendable {
    /// The stream is open; whether events since the last connection follow.
    var opened: @Sendable (_ isResumed: Bool) async -> Void
    /// An event; nil: one that this version cannot read.
    var event: @Sendable (Event?) async -> Void
    /// The connection is lost or refused. Returns whether to connect again.
    var lost: @Sendable (TidemarkError) async -> Bool
  }

  private let requests: Requests
  /// The server sends something at least every 15 s. After this silence the connection is given up.
  private let silence: Duration
  private let callbacks: Callbacks
  private var backoff: Backoff
  /// Where to resume.
  private var last: String?
  private var heardAt = ContinuousClock.now
  /// Until the next connection; nil: there is one.
  private var pause: Task<Void, Never>?

  init(
    requests: Requests,
    silence: Duration,
    random: @escaping @Sendable () -> Double,
    callbacks: Callbacks
  ) {
    self.requests = requests
    self.silence = silence
    self.callbacks = callbacks
    backoff = Backoff(random: random)
  }

  /// Follow the stream until the task is cancelled, or the client does not want it any more.
  func run() async {
    while !Task.isCancelled {
      let failure: TidemarkError
      do {
        try await follow()
        failure = .lostConnection("the event stream has ended")
      } catch {
        failure = .from(error)
      }
      guard !Task.isCancelled, await callbacks.lost(failure) else { return }
      await wait(for: backoff.next(least: failure.retryAfter))
    }
  }

  private func wait(for duration: Duration) async {
    let pause = Task { _ = try? await Task.sleep(for: duration) }
    self.pause = pause
    await withTaskCancellationHandler {
      await pause.value
    } onCancel: {
      pause.cancel()
    }
    self.pause = nil
  }

  /// Connect now, if it is not connected.
  func hurry() {
    backoff.reset()
    pause?.cancel()
  }

  /// Follow one connection to its end.
  private func follow() async throws {
    heardAt = .now
    try await withThrowingTaskGroup(of: Void.self) { group in
      defer { group.cancelAll() }
      group.addTask { try await self.read() }
      group.addTask { try await self.watch() }
      try await group.next()
    }
  }

  private func read() async throws {
    var headers = ["accept": "text/event-stream"]
    headers["last-event-id"] = last
    let response = try await requests.open("GET", "/v1/events?totals=true", headers: headers)
    var parser = EventParser()
    var isOpen = false
    for try await chunk in response.chunks {
      heardAt = .now
      if !isOpen {
        isOpen = true
        backoff.reset()
        await callbacks.opened(last != nil)
      }
      for block in try parser.push(chunk) {
        if let data = block.data, !data.isEmpty {
          try Task.checkCancellation()
          await callbacks.event(try? JSON.decode(from: Data(data.utf8)))
        }
        if let id = block.id, !id.isEmpty { last = id }
      }
    }
  }

  /// Throw after a silence.
  private func watch() async throws {
    while true {
      let left = silence - (ContinuousClock.now - heardAt)
      guard left > .zero else { break }
      try await Task.sleep(for: left)
    }
    requests.transport.reset()
    throw TidemarkError.lostConnection("the event stream is silent")
  }
}
