internal import Foundation
internal import HTTP2Session
internal import LocalStack

/// Row of a read state, as in Proto/openapi.yaml.
// The names are the API's own.
// swift-format-ignore: AlwaysUseLowerCamelCase
struct RowAnswer: Decodable, Hashable {
  struct User: Decodable, Hashable { var id: String }
  var user: User
  var last_read: String?
  var last_read_seq: Int
  var last_delivered_at: String?
  var last_delivered_seq: Int
  var unread_messages: Int?
  var first_unread_message_id: String?
}

/// Status of a message.
// swift-format-ignore: AlwaysUseLowerCamelCase
struct StatusAnswer: Decodable {
  var message_id: String
  var seq: Int
  var status: MessageView.Status
  var read_count: Int
  var delivered_count: Int
  var unread_count: Int
  var member_count: Int
}

private struct RowsAnswer: Decodable { var read: [RowAnswer] }
private struct RowDocument: Decodable { var read: RowAnswer }
private struct StatusesAnswer: Decodable { var statuses: [StatusAnswer] }
private struct RegisteredAnswer: Decodable {
  struct Message: Decodable { var seq: Int }
  var message: Message
}
private struct TicketsAnswer: Decodable { var tickets: [String] }
private struct DeliveredAnswer: Decodable {
  struct Result: Decodable { var ok: Bool }
  var results: [Result]
}

/// API calls of the demo's people, each with their own token, and of their chat backend.
struct DemoClient: Sendable {
  let caller: AsyncHTTP2Client
  let cid: String
  /// Tokens by user id.
  let tokens: [String: String]
  let serverToken: String

  // MARK: The chat backend

  func createChannel(members: [String]) async throws {
    let answer = try await send(.put, "", ["members": members], token: serverToken)
    try check(answer, 201, "PUT channel")
  }

  /// - Returns: the message's sequence number.
  func register(_ id: String, sender: String) async throws -> Int {
    let answer = try await send(.post, "/messages", ["id": id, "user_id": sender], token: serverToken)
    try check(answer, 201, "POST message")
    return try decode(RegisteredAnswer.self, answer).message.seq
  }

  /// Request a ticket, as a push worker does before it sends the push.
  func ticket(for message: String, of user: String) async throws -> String {
    let body = ["tickets": [["cid": cid, "message_id": message, "user_id": user]]]
    let answer = try await caller.call(
      .post,
      "/v1/push/tickets",
      body: Array(try JSONEncoder().encode(body)),
      token: serverToken
    )
    try check(answer, 200, "POST tickets")
    guard let ticket = try decode(TicketsAnswer.self, answer).tickets.first else {
      throw StackError("POST tickets: \(answer.text)")
    }
    return ticket
  }

  // MARK: People

  /// Acknowledge delivery, as a person's phone does when a push arrives.
  func delivered(_ id: String, by user: String) async throws {
    let body = ["latest_delivered_messages": [["cid": cid, "id": id]]]
    let answer = try await caller.call(
      .post,
      "/v1/channels/delivered",
      body: Array(try JSONEncoder().encode(body)),
      token: token(user)
    )
    try check(answer, 201, "POST delivered")
    guard try decode(DeliveredAnswer.self, answer).results.allSatisfy(\.ok) else {
      throw StackError("POST delivered: \(answer.text)")
    }
  }

  /// - Returns: the person's own row; nil if the store was not reached in time (503), so that the caller can retry.
  func read(_ id: String, by user: String) async throws -> RowAnswer? {
    let answer = try await send(.post, "/read", ["message_id": id], token: token(user))
    if answer.status == 503 { return nil }
    try check(answer, 200, "POST read")
    return try decode(RowDocument.self, answer).read
  }

  func unread(from id: String, by user: String) async throws -> RowAnswer {
    let answer = try await send(.post, "/unread", ["message_id": id], token: token(user))
    try check(answer, 200, "POST unread")
    return try decode(RowDocument.self, answer).read
  }

  func readState(seenBy user: String) async throws -> [RowAnswer] {
    let answer = try await caller.call(.get, "/v1/channels/\(cid)/read-state", token: token(user))
    try check(answer, 200, "GET read-state")
    return try decode(RowsAnswer.self, answer).read
  }

  func statuses(of ids: [String], seenBy user: String) async throws -> [StatusAnswer] {
    let answer = try await send(.post, "/receipts/query", ["message_ids": ids], token: token(user))
    try check(answer, 200, "POST receipts/query")
    return try decode(StatusesAnswer.self, answer).statuses
  }

  // MARK: Calls

  private func token(_ user: String) -> String { tokens[user] ?? "" }

  private func send(
    _ method: HTTP2Method,
    _ path: String,
    _ body: some Encodable,
    token: String
  ) async throws -> HTTPCallResponse {
    try await caller.call(
      method,
      "/v1/channels/\(cid)\(path)",
      body: Array(try JSONEncoder().encode(body)),
      token: token
    )
  }

  private func check(_ answer: HTTPCallResponse, _ status: Int, _ what: String) throws {
    guard answer.status == status else {
      throw StackError("\(what) was answered \(answer.status), expected \(status): \(answer.text)")
    }
  }

  private func decode<Value: Decodable>(_ type: Value.Type, _ answer: HTTPCallResponse) throws -> Value {
    do {
      return try JSONDecoder().decode(type, from: Data(answer.body))
    } catch {
      throw StackError("an answer of another shape than expected: \(answer.text)")
    }
  }
}
