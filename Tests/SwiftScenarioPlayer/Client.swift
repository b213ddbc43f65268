import Foundation
import TidemarkClient

/// A transport that can be taken off the network.
final class Network: Transport, @unchecked Sendable {
  // `@unchecked`: access to the variable is under the lock.
  private let lock = NSLock()
  private var isOffline = false
  private var offlineSince = ContinuousClock.now
  private var resumesElsewhere = false
  private var resumedCount = 0
  private let transport: URLSessionTransport

  init(_ url: URL) { transport = URLSessionTransport(url: url) }

  func open(_ request: TransportRequest) async throws -> TransportResponse {
    if lock.withLock({ isOffline }) { throw Failure("offline") }
    var request = request
    if let id = request.headers["last-event-id"], takeResume() {
      // A stream that is resumed with an id of another store begins with `stream.reset`.
      request.headers["last-event-id"] = String(repeating: "0", count: 32) + id.dropFirst(32)
    }
    return try await transport.open(request)
  }

  private func takeResume() -> Bool {
    lock.withLock {
      guard resumesElsewhere else { return false }
      resumesElsewhere = false
      resumedCount += 1
      return true
    }
  }

  /// Resume the next event stream with an id of another store.
  func resumeElsewhere() { lock.withLock { resumesElsewhere = true } }

  /// Number of event streams that were resumed with such an id.
  var resumedElsewhere: Int { lock.withLock { resumedCount } }

  /// Time since the network was cut.
  var offlineDuration: Duration { lock.withLock { ContinuousClock.now - offlineSince } }

  func cut() {
    lock.withLock {
      isOffline = true
      offlineSince = ContinuousClock.now
    }
    reset()
  }

  func connect() { lock.withLock { isOffline = false } }

  func reset() { transport.reset() }

  func close() { transport.close() }
}

/// A client of the scenario, and what it was told.
@MainActor final class Client {
  /// What a step says about the client.
  struct Options {
    var user: String
    var store: any Store
    /// Whether readers of its changes end with an error.
    var readersThrow: Bool
    /// Lifetime of the first token.
    var tokenSeconds: Int?
  }

  let options: Options
  let network: Network
  private(set) var tidemark: Tidemark!
  private(set) var refused: [String] = []
  private(set) var tokens = 0
  private(set) var thrown = 0
  var automaticRead: AutoRead?

  init(_ options: Options, _ backend: Backend) {
    self.options = options
    network = Network(backend.settings.url)
    tidemark = Tidemark(
      url: backend.settings.url,
      user: options.user,
      store: options.store,
      transport: network
    ) { [weak self] in
      guard let self else { throw Failure("no client") }
      return try await self.makeToken(backend)
    }
    for _ in 0..<(options.readersThrow ? 4 : 0) {
      let changes = tidemark.changes
      Task { [weak self] in
        do {
          for await change in changes { throw Failure("a reader that throws at \(change)") }
        } catch {
          self?.thrown += 1
        }
      }
    }
    let changes = tidemark.changes
    Task { [weak self] in
      for await case .refused(let refusal) in changes {
        self?.refused.append("\(refusal.kind.rawValue) \(refusal.code)")
      }
    }
  }

  private func makeToken(_ backend: Backend) throws -> String {
    tokens += 1
    return try backend.token(
      ["user_id": .string(options.user)],
      seconds: tokens == 1 ? options.tokenSeconds ?? 3_600 : 3_600
    )
  }
}
