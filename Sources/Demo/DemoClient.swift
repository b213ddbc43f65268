internal import Foundation
internal import GatewayClient
internal import HTTP2Session
internal import LocalStack

/// Row of a read state, as in Proto/openapi.yaml.
// The names are the API's own.
// swift-format-ignore: AlwaysUseLowerCamelCase
struct RowResponse: Decodable, Hashable {
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
struct StatusResponse: Decodable {
  var message_id: String
  var seq: Int
  var status: MessageView.Status
  var read_count: Int
  var delivered_count: Int
  var unread_count: Int
  var member_count: Int
}

private struct RowsResponse: Decodable { var read: [RowResponse] }
private struct RowDocument: Decodable { var read: RowResponse }
private struct StatusesResponse: Decodable { var statuses: [StatusResponse] }
private struct RegisteredResponse: Decodable {
  struct Message: Decodable { var seq: Int }
  var message: Message
}
private struct TicketsResponse: Decodable { var tickets: [String] }
private struct DeliveredResponse: Decodable {
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
    let response = try await call(.put, channel, ["members": members], token: serverToken)
    try check(response, 201, "PUT channel")
  }

  /// - Returns: the message's sequence number.
  func register(_ id: String, sender: String) async throws -> Int {
    let body = ["id": id, "user_id": sender]
    let response = try await call(.post, channel + "/messages", body, token: serverToken)
    return try decode(RegisteredResponse.self, response, 201, "POST message").message.seq
  }

  /// Request a ticket, as a push worker does before it sends the push.
  func ticket(for message: String, of user: String) async throws -> String {
    let body = ["tickets": [["cid": cid, "message_id": message, "user_id": user]]]
    let response = try await call(.post, "/v1/push/tickets", body, token: serverToken)
    guard let ticket = try decode(TicketsResponse.self, response, 200, "POST tickets").tickets.first else {
      throw StackError("POST tickets: \(response.text)")
    }
    return ticket
  }

  /// Queue a push of a message to a person's iPhone.
  func queuePush(of message: String, to user: String, device: String) async throws {
    struct Device: Encodable { var provider = "ios", token: String }
    struct User: Encodable { var user_id: String, devices: [Device] }
    struct Job: Encodable { var cid: String, message_id: String, title: String, users: [User] }
    let users = [User(user_id: user, devices: [Device(token: device)])]
    let job = Job(cid: cid, message_id: message, title: "alice", users: users)
    try check(try await call(.post, "/v1/push/jobs", job, token: serverToken), 202, "POST push/jobs")
  }

  // MARK: People

  /// Acknowledge delivery, as a person's phone does when a push arrives.
  func delivered(_ id: String, by user: String) async throws {
    let body = ["latest_delivered_messages": [["cid": cid, "id": id]]]
    let response = try await call(.post, "/v1/channels/delivered", body, token: tokens[user])
    guard try decode(DeliveredResponse.self, response, 201, "POST delivered").results.allSatisfy(\.ok) else {
      throw StackError("POST delivered: \(response.text)")
    }
  }

  /// - Returns: the person's own row; nil if the store was not reached in time (503), so that the caller can retry.
  func read(_ id: String, by user: String) async throws -> RowResponse? {
    let response = try await call(.post, channel + "/read", ["message_id": id], token: tokens[user])
    return response.status == 503 ? nil : try decode(RowDocument.self, response, 200, "POST read").read
  }

  func unread(from id: String, by user: String) async throws -> RowResponse {
    let response = try await call(.post, channel + "/unread", ["message_id": id], token: tokens[user])
    return try decode(RowDocument.self, response, 200, "POST unread").read
  }

  func readState(seenBy user: String) async throws -> [RowResponse] {
    let response = try await caller.call(.get, channel + "/read-state", token: tokens[user])
    return try decode(RowsResponse.self, response, 200, "GET read-state").read
  }

  func statuses(of ids: [String], seenBy user: String) async throws -> [StatusResponse] {
    let response = try await call(.post, channel + "/receipts/query", ["message_ids": ids], token: tokens[user])
    return try decode(StatusesResponse.self, response, 200, "POST receipts/query").statuses
  }

  // MARK: Calls

  private var channel: String { "/v1/channels/\(cid)" }

  private func call(_ method: HTTP2Method, _ path: String, _ body: some Encodable, token: String?) async throws
    -> HTTPCallResponse
  {
    try await caller.call(method, path, body: Array(try JSONEncoder().encode(body)), token: token)
  }

  private func check(_ response: HTTPCallResponse, _ status: Int, _ what: String) throws {
    guard response.status == status else {
      throw StackError("\(what) was answered \(response.status), expected \(status): \(response.text)")
    }
  }

  private func decode<Value: Decodable>(
    _ type: Value.Type,
    _ response: HTTPCallResponse,
    _ status: Int,
    _ what: String
  ) throws -> Value {
    try check(response, status, what)
    do {
      return try JSONDecoder().decode(type, from: Data(response.body))
    } catch {
      throw StackError("an answer of another shape than expected: \(response.text)")
    }
  }
}
