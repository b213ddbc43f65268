internal import Synchronization

/// The way to one push service: connections, token, and what the service has asked for.
final class PushServiceConnection: Sendable {
  let endpoint: CheckedEndpoint
  private let tokens: TokenCache
  private let gate: Mutex<ProviderGate>

  init(endpoint: CheckedEndpoint, tokens: TokenCache, pauseMilliseconds: Int64) {
    self.endpoint = endpoint
    self.tokens = tokens
    gate = Mutex(ProviderGate(pauseMilliseconds: pauseMilliseconds))
  }

  /// Make one request with a token. A token that has expired is discarded.
  ///
  /// - Parameters:
  ///   - path: from "/".
  ///   - now: in milliseconds since 1970.
  ///   - headers: return the request's headers with the token.
  ///   - classify: return the answer of a response.
  func post(
    _ path: String,
    body: [UInt8],
    now: Int64,
    headers: (_ token: String) -> [(String, String)],
    classify: (EndpointResponse) -> PushAnswer
  ) async -> PushAnswer {
    let token: String
    do {
      token = try await tokens.token(now: now)
    } catch {
      // A service that issues tokens has answers of its own.
      return error as? PushAnswer ?? .internalError(error)
    }
    switch await endpoint.post(path, headers: headers(token), body: body) {
    case .success(let response):
      let answer = classify(response)
      if answer == .tokenExpired { await tokens.discard(token) }
      return answer
    case .failure(let failure): return PushAnswer(failure)
    }
  }

  func admit(now: Int64) -> ProviderGate.Admission { gate.withLock { $0.admit(now: now) } }

  /// - Returns: whether the answer has paused or resumed the provider.
  func answered(_ answer: PushAnswer, now: Int64) -> Bool {
    gate.withLock { gate in
      let wasPaused = gate.isPaused
      gate.answered(answer, now: now)
      return gate.isPaused != wasPaused
    }
  }

  var isPaused: Bool { gate.withLock { $0.isPaused } }
}

/// Cache of a token that authenticates the sender. Concurrent callers share one renewal.
actor TokenCache {
  /// A token and the time for which it is used.
  struct Issued: Sendable {
    var token: String
    var usableMilliseconds: Int64
  }

  private let issue: @Sendable (_ now: Int64) async throws -> Issued
  private var current: (task: Task<Issued, any Error>, issuedAt: Int64)?

  init(_ issue: @escaping @Sendable (_ now: Int64) async throws -> Issued) { self.issue = issue }

  /// Return a token that is still usable.
  ///
  /// - Parameter now: in milliseconds since 1970.
  func token(now: Int64) async throws -> String {
    if let current {
      // A failed renewal is not kept.
      if let issued = try? await current.task.value, now < current.issuedAt + issued.usableMilliseconds {
        return issued.token
      }
      if self.current?.task == current.task { self.current = nil }
    }
    if let current { return try await current.task.value.token }
    let task = Task { [issue] in try await issue(now) }
    current = (task, now)
    return try await task.value.token
  }

  /// Issue another token next time, unless that has happened already.
  func discard(_ token: String) async {
    guard let current, let issued = try? await current.task.value, issued.token == token else { return }
    if self.current?.task == current.task { self.current = nil }
  }
}
