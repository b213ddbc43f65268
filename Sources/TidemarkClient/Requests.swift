import Foundation

/// Makes requests with the user's token.
actor Requests {
  /// Bytes of a response that is read as a whole.
  private static let bodyMax = 16 << 20

  nonisolated let transport: any Transport
  private let tokenProvider: @Sendable () async throws -> String
  /// Time until a request without an answer fails.
  private let limit: Duration
  private var token: Task<String, any Error>?
  private var isClosed = false

  init(
    transport: any Transport,
    limit: Duration,
    tokenProvider: @escaping @Sendable () async throws -> String
  ) {
    self.transport = transport
    self.limit = limit
    self.tokenProvider = tokenProvider
  }

  deinit { token?.cancel() }

  /// Fail all requests, also later ones.
  func close() {
    isClosed = true
    token?.cancel()
    transport.close()
  }

  /// The app's token; another one if it is the refused one.
  private func token(after refused: String?) async throws -> String {
    while let current = token {
      let value = try await current.value
      if value != refused { return value }
      // Another request may have asked for a new one meanwhile.
      if token == current { token = nil }
    }
    let (limit, provider) = (limit, tokenProvider)
    let asked = Task { try await withDeadline(limit) { try await provider() } }
    token = asked
    do {
      return try await asked.value
    } catch {
      if token == asked { token = nil }
      throw error
    }
  }

  /// Open a request. The app is asked for another token once if the server refuses the present one.
  ///
  /// - Throws: ``TidemarkError``.
  func open(
    _ method: String,
    _ path: String,
    headers: [String: String] = [:],
    body: Data? = nil
  ) async throws -> TransportResponse {
    var all = headers
    all["accept"] = all["accept"] ?? "application/json"
    if body != nil { all["content-type"] = "application/json" }
    var refused: String?
    while true {
      let token: String
      let response: TransportResponse
      do {
        token = try await self.token(after: refused)
        guard !isClosed else { throw TidemarkError.lostConnection("the client is closed") }
        all["authorization"] = "Bearer \(token)"
        response = try await transport.open(
          TransportRequest(method: method, path: path, headers: all, body: body)
        )
      } catch {
        throw TidemarkError.lostConnection(String(describing: error))
      }
      if response.status < 300 { return response }
      let problem = try? JSON.decode(Problem.self, from: await response.wholeBody(max: Self.bodyMax))
      if response.status == 401, refused == nil {
        refused = token
        continue
      }
      throw TidemarkError(
        status: response.status,
        code: problem?.code ?? "status_\(response.status)",
        detail: problem?.detail ?? "",
        retryAfter: response.headers["retry-after"].flatMap(Int.init).map { .seconds($0) }
      )
    }
  }

  /// Make a request and read its whole answer.
  ///
  /// - Throws: ``TidemarkError``; `CancellationError` if the task is cancelled.
  func json<Answer: Decodable>(_ method: String, _ path: String, body: Data? = nil) async throws -> Answer {
    do {
      let data = try await withDeadline(limit) {
        try await self.open(method, path, body: body).wholeBody(max: Self.bodyMax)
      }
      return try JSON.decode(from: data)
    } catch {
      if error is DeadlineExceeded { transport.reset() }
      try Task.checkCancellation()
      throw TidemarkError.from(error)
    }
  }

  /// Make a request with a body.
  func json<Answer: Decodable>(
    _ method: String,
    _ path: String,
    _ body: some Encodable & Sendable
  ) async throws -> Answer {
    try await json(method, path, body: JSON.encode(body))
  }
}

/// The body of a refusal.
private struct Problem: Decodable {
  var code: String?
  var detail: String?
}

extension TransportResponse {
  /// Read the body to its end.
  func wholeBody(max: Int) async throws -> Data {
    var data = Data()
    for try await chunk in chunks {
      data += chunk
      guard data.count <= max else { throw TidemarkError.lostConnection("the response has more than \(max) bytes") }
    }
    // A cancelled stream ends like a complete one.
    try Task.checkCancellation()
    return data
  }
}

/// Parts of paths.
enum Path {
  private static let unreserved = CharacterSet(
    charactersIn: "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
  )

  /// An id as a part of a path or a query.
  static func encode(_ id: String) -> String { id.addingPercentEncoding(withAllowedCharacters: unreserved) ?? "" }

  static func channel(_ cid: CID) -> String {
    "/v1/channels/"
      + cid.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
      .map { encode(String($0)) }.joined(separator: ":")
  }

  static func user(_ user: String) -> String { "/v1/users/" + encode(user) }
}
