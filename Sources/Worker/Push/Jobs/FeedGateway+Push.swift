package import FeedClient
internal import Foundation
internal import GatewayClient
internal import HTTP2Session

extension GatewayError {
  /// Codes of entries and of whole answers after which the same request may succeed.
  private static let retryableCodes: Set<String> = [
    "store_busy", "store_unavailable", "outcome_unknown", "clock_jump", "data_directory_lost", "internal_error",
  ]

  /// Whether the same request may succeed later.
  package var isRetryable: Bool {
    status == 0 || status == 429 || (status >= 500 && status != 501) || Self.isRetryable(code: code)
  }

  /// Whether an entry with this code may succeed later.
  package static func isRetryable(code: String) -> Bool { retryableCodes.contains(code) }
}

extension FeedGateway {
  /// How a message stands with a user.
  package enum MemberStatus: Sendable, Hashable {
    case sent
    case delivered
    case read
    /// Such as `member_not_found` or `not_expected`.
    case refused(code: String)
  }

  /// Most users of one query.
  package static let statusUsersMax = 100
  /// Most bytes of users' escaped ids in its path.
  package static let statusPathBytesMax = 8_192

  private struct MembersAnswer: Decodable {
    struct Member: Decodable {
      var status: String?
      var code: String?
    }
    var members: [Member]
  }

  /// Return how a message stands with some users, in their order.
  ///
  /// - Parameter userIDs: at most ``statusUsersMax``, whose names take at most ``statusPathBytesMax`` bytes escaped.
  package func statuses(cid: String, messageID: String, userIDs: [String]) async throws -> [MemberStatus] {
    let users = userIDs.map(\.queryEscaped).joined(separator: ",")
    let path = "/v1/channels/\(cid.queryEscaped)/messages/\(messageID.queryEscaped)/members?user_ids=\(users)"
    let answer: MembersAnswer = try await decode(call(.get, path))
    guard answer.members.count == userIDs.count else { throw GatewayError("the gateway answered for other users") }
    return answer.members.map { member in
      switch member.status {
      case "read": .read
      case "delivered": .delivered
      case "sent": .sent
      default: .refused(code: member.code ?? "internal_error")
      }
    }
  }

  /// A ticket that is requested. The names are those of the API.
  package struct TicketRequest: Encodable, Sendable, Hashable {
    package var cid: String
    package var message_id: String
    package var user_id: String
    package var device: String
  }

  private struct TicketsRequest: Encodable {
    var tickets: [TicketRequest]
    var ttl: Int64
  }

  /// A ticket, or why there is none.
  package enum Ticket: Decodable, Sendable, Hashable {
    case issued(String)
    case refused(code: String)

    private struct Refusal: Decodable {
      var code: String
    }

    /// Decode an entry of the answer.
    package init(from decoder: any Decoder) throws {
      let container = try decoder.singleValueContainer()
      if let text = try? container.decode(String.self) {
        self = .issued(text)
      } else {
        self = .refused(code: try container.decode(Refusal.self).code)
      }
    }
  }

  /// Most tickets of one request.
  package static let ticketsMax = 1_000

  private struct TicketsAnswer: Decodable {
    var tickets: [Ticket]
  }

  /// Issue tickets, in the order of the requests.
  package func tickets(_ requests: [TicketRequest], ttlSeconds: Int64) async throws -> [Ticket] {
    let body = TicketsRequest(tickets: requests, ttl: ttlSeconds)
    let answer: TicketsAnswer = try await decode(call(.post, "/v1/push/tickets", body))
    guard answer.tickets.count == requests.count else { throw GatewayError("the gateway answered for other tickets") }
    return answer.tickets
  }

  private struct UnreadRequest: Encodable {
    var user_ids: [String]
  }

  private struct UnreadAnswer: Decodable {
    struct User: Decodable {
      var total_unread_count: Int64?
    }
    var users: [User]
  }

  /// Most users of one query.
  package static let badgesMax = 100

  /// Count the unread messages of users, in their order; nil where that failed.
  package func badges(_ userIDs: [String]) async throws -> [Int64?] {
    let answer: UnreadAnswer = try await decode(call(.post, "/v1/unread", UnreadRequest(user_ids: userIDs)))
    guard answer.users.count == userIDs.count else { throw GatewayError("the gateway answered for other users") }
    return answer.users.map(\.total_unread_count)
  }

  /// A delivery that is reported by name. The names are those of the API.
  package struct Ack: Encodable, Sendable, Hashable {
    package var cid: String
    package var message_id: String
    package var user_id: String
    package var provider: String
    package var device: String
  }

  private struct AcksRequest: Encodable {
    var acks: [Ack]
  }

  private struct AcksAnswer: Decodable {
    struct Result: Decodable {
      var ok: Bool
      var code: String?
    }
    var results: [Result]
  }

  /// Mark a message delivered.
  ///
  /// - Returns: the code of a refusal; nil if the message is delivered.
  package func acknowledge(_ ack: Ack) async throws -> String? {
    let answer: AcksAnswer = try await decode(call(.post, "/v1/push/acks", AcksRequest(acks: [ack])))
    guard let result = answer.results.first else { throw GatewayError("the gateway answered no ack") }
    return result.ok ? nil : result.code ?? "internal_error"
  }
}
