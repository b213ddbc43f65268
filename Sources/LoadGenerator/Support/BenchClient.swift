internal import CommandOutput
internal import Foundation
internal import GatewayClient
internal import HTTP2Session
internal import Operations
internal import Synchronization

/// Client of the gateway's API for a bench: sets up channels and messages and checks responses. Owns one connection;
/// calls may overlap. Its calls carry a server token unless they name another.
final class BenchClient: Sendable {
  /// Lifetime of a bench's tokens; every run is shorter.
  static let tokenLifetime = Duration.seconds(12 * 3600)
  /// Members or messages of one set-up request.
  static let batchSize = 1_000

  let token: String
  private let endpoint: Endpoint
  private let connection: Mutex<Connection>

  /// Connection of the calls, and the task that replaces it after the gateway has closed it.
  private struct Connection: Sendable {
    var client: AsyncHTTP2Client
    var reconnect: Task<AsyncHTTP2Client, any Error>?
  }

  private init(_ endpoint: Endpoint, tokenIssuer: TokenIssuer) async throws {
    self.endpoint = endpoint
    token = try await tokenIssuer.server(lifetime: Self.tokenLifetime)
    connection = Mutex(Connection(client: try await AsyncHTTP2Client.connect(to: endpoint)))
  }

  /// Open a client, run `body`, close the client.
  static func with<Outcome>(
    _ endpoint: Endpoint,
    tokenIssuer: TokenIssuer,
    _ body: (BenchClient) async throws -> Outcome
  ) async throws -> Outcome {
    let client = try await BenchClient(endpoint, tokenIssuer: tokenIssuer)
    return try await withCleanup {
      try await body(client)
    } cleanUp: {
      await client.close()
    }
  }

  private func close() async {
    // The task stores its connection before it ends.
    _ = try? await connection.withLock { $0.reconnect }?.value
    await connection.withLock { $0.client }.close()
  }

  // MARK: Calls

  /// Make a call. It is repeated once on a new connection if the gateway has closed the old one, as it does after three
  /// idle minutes: every call of a bench may be repeated.
  func call(_ method: HTTP2Method, _ path: String, _ body: String? = nil, token: String? = nil) async throws
    -> HTTPCallResponse
  {
    let bytes = body.map { Array($0.utf8) }
    let current = connection.withLock { $0.client }
    do {
      return try await current.call(method, path, body: bytes, token: token ?? self.token)
    } catch CallError.closed {
      let next = try await replacement(of: current)
      return try await next.call(method, path, body: bytes, token: token ?? self.token)
    }
  }

  /// Return the connection that replaces a closed one. Calls that overlap share one new connection.
  private func replacement(of failed: AsyncHTTP2Client) async throws -> AsyncHTTP2Client {
    let (current, reconnect) = connection.withLock { connection in
      if connection.client === failed, connection.reconnect == nil {
        connection.reconnect = Task { try await self.reconnect(insteadOf: failed) }
      }
      return (connection.client, connection.reconnect)
    }
    return try await reconnect?.value ?? current
  }

  /// Open and store a connection. At most one task runs this at a time.
  private func reconnect(insteadOf failed: AsyncHTTP2Client) async throws -> AsyncHTTP2Client {
    do {
      let next = try await AsyncHTTP2Client.connect(to: endpoint)
      connection.withLock { $0 = Connection(client: next) }
      await failed.close()
      return next
    } catch {
      connection.withLock { $0.reconnect = nil }
      throw error
    }
  }

  /// Make a call and return the text of its response.
  ///
  /// - Throws: ``LoadError`` for a response with another status.
  @discardableResult
  func expect(
    _ method: HTTP2Method,
    _ path: String,
    _ body: String? = nil,
    statuses: Set<Int> = [200, 201],
    token: String? = nil
  ) async throws -> String {
    let response = try await call(method, path, body, token: token)
    guard statuses.contains(response.status) else {
      throw LoadError("\(method.name) \(path): status \(response.status): \(response.text.prefix(300))")
    }
    return response.text
  }

  /// Make a call and decode its response.
  func decode<Answer: Decodable>(
    _ method: HTTP2Method,
    _ path: String,
    _ body: String? = nil,
    token: String? = nil
  ) async throws -> Answer {
    let text = try await expect(method, path, body, token: token)
    do {
      return try JSONDecoder().decode(Answer.self, from: Data(text.utf8))
    } catch {
      throw LoadError("\(method.name) \(path): unexpected answer: \(text.prefix(300))")
    }
  }

  func get<Answer: Decodable>(_ path: String) async throws -> Answer { try await decode(.get, path) }

  // MARK: Set-up

  /// Return quoted, comma-separated strings in brackets. Names of a bench need no escapes.
  static func array(_ texts: some Sequence<String>) -> String {
    "[" + texts.map { "\"\($0)\"" }.joined(separator: ",") + "]"
  }

  /// Create a channel with these members, or add them to it.
  ///
  /// - Parameter progress: called before each batch with the members added so far.
  func putChannel(_ cid: String, members: [String], progress: (Int) -> Void = { _ in }) async throws {
    for start in stride(from: 0, to: members.count, by: Self.batchSize) {
      progress(start)
      let batch = members[start..<min(start + Self.batchSize, members.count)]
      try await expect(.put, "/v1/channels/\(cid)", #"{"members":\#(Self.array(batch))}"#)
    }
  }

  /// Register messages in batches, in order.
  ///
  /// - Parameters:
  ///   - numbers: numbers to make the messages of.
  ///   - sender: empty for none.
  ///   - fields: called before each batch for further members of its messages, each behind a comma.
  ///   - progress: called after each batch with the messages registered so far.
  func register(
    _ numbers: Range<Int>,
    sender: String = "",
    fields: () throws -> String = { "" },
    progress: (Int) -> Void = { _ in },
    _ message: (Int) -> (cid: String, id: String)
  ) async throws {
    let author = sender.isEmpty ? "" : #","user_id":"\#(sender)""#
    for start in stride(from: numbers.lowerBound, to: numbers.upperBound, by: Self.batchSize) {
      let batch = start..<min(start + Self.batchSize, numbers.upperBound)
      let further = try author + fields()
      let entries = batch.map { number in
        let (cid, id) = message(number)
        return #"{"cid":"\#(cid)","id":"\#(id)"\#(further)}"#
      }
      let text = try await expect(.post, "/v1/messages", #"{"messages":[\#(entries.joined(separator: ","))]}"#)
      guard !text.contains(#""code""#) else { throw LoadError("messages were refused: \(text.prefix(300))") }
      progress(batch.upperBound - numbers.lowerBound)
      try Task.checkCancellation()
    }
  }

  /// Mark messages of several channels read for a user.
  ///
  /// - Returns: whether the gateway has applied all of them.
  func markRead(_ user: String, _ messages: some Sequence<(cid: String, id: String)>) async throws -> Bool {
    let entries = messages.map { #""\#($0.cid)":"\#($0.id)""# }.joined(separator: ",")
    let body = #"{"user_id":"\#(user)","read_by_channel":{\#(entries)}}"#
    let response = try await call(.post, "/v1/channels/read", body)
    return response.status == 200 && !response.text.contains(#""ok":false"#)
  }

  /// Return all pages of a channel's read state.
  ///
  /// - Parameter page: called after each page.
  func readState(_ cid: String, page: () -> Void = {}) async throws -> [ReadStateResponse.Row] {
    var rows: [ReadStateResponse.Row] = []
    var cursor: String? = ""
    while let next = cursor {
      let path = "/v1/channels/\(cid)/read-state?limit=100" + (next.isEmpty ? "" : "&cursor=\(next)")
      let response: ReadStateResponse = try await get(path)
      rows += response.read
      cursor = response.next
      page()
    }
    return rows
  }
}
