internal import Foundation
package import GatewayClient
internal import HTTP2Session
internal import LocalStack
internal import Operations
package import TLSSession

/// Client that posts tickets as a notification extension does: it knows the gateway's address and the tickets of
/// pushes, and has no credentials.
package struct TicketPost: Sendable {
  /// Maximum number of tickets per request.
  package static let batchCountMax = 1_000
  /// Maximum size of a ticket in bytes.
  package static let ticketByteCountMax = 160

  private let caller: AsyncHTTP2Client

  /// Connect to a gateway.
  ///
  /// - Parameter tls: for a gateway with TLS.
  package static func connect(to gateway: GatewayURL, tls: TLSContext?) async throws -> TicketPost {
    do {
      return TicketPost(caller: try await AsyncHTTP2Client.connect(to: gateway.endpoint, tls: tls))
    } catch {
      throw StackError("\(gateway.endpoint): \(ErrorText.of(error))")
    }
  }

  /// Post tickets one request after the other. Posting a ticket twice does no harm.
  ///
  /// - Parameter take: receives the responses of each request when they arrive, in order. Text that cannot be a ticket
  ///   is refused here, and not sent.
  /// - Throws: ``StackError`` if a request was not answered with 200. Its tickets, and all later ones, are unanswered.
  package func post(_ tickets: [String], _ take: ([TicketResult]) -> Void) async throws {
    var rest = tickets[...]
    while !rest.isEmpty {
      let batch = rest.prefix(Self.batchCountMax)
      rest = rest.dropFirst(batch.count)
      take(try await postBatch(Array(batch)))
    }
  }

  /// Close the connection.
  package func close() async { await caller.close() }

  private func postBatch(_ tickets: [String]) async throws -> [TicketResult] {
    let sent = tickets.filter(Self.isPlausibleTicket)
    var responses = try await send(sent)[...]
    return tickets.map { ticket in
      Self.isPlausibleTicket(ticket)
        ? responses.removeFirst() : TicketResult(.refused(code: "ticket_invalid"))
    }
  }

  private func send(_ tickets: [String]) async throws -> [TicketResult] {
    guard !tickets.isEmpty else { return [] }
    let body = Array(try JSONEncoder().encode(["tickets": tickets]))
    let response = try await caller.call(.post, "/v1/push/acks", body: body)
    guard response.status == 200 else {
      let (code, detail) = ProblemDocument.parts(of: response.body)
      let words = ["\(response.status)", code, detail].filter { !$0.isEmpty }.joined(separator: " ")
      throw StackError("the gateway answered \(words)")
    }
    guard let responses = TicketResult.parse(response.body, count: tickets.count) else {
      throw StackError(
        "the response does not match the \(tickets.count) tickets sent: \(response.text.prefix(200))"
      )
    }
    return responses
  }

  /// Return whether the text may be a ticket: base64url, and not longer than any ticket.
  static func isPlausibleTicket(_ text: String) -> Bool {
    (1...ticketByteCountMax).contains(text.utf8.count)
      && text.utf8.allSatisfy { byte in
        switch byte {
        case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"),
          UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"):
          true
        default: false
        }
      }
  }
}

/// A gateway's answer for one ticket (`POST /v1/push/acks`).
package struct TicketResult: Hashable, Sendable {
  /// Result of a ticket.
  package enum Outcome: Hashable, Sendable {
    /// The message, and thereby all earlier ones, is delivered to the user.
    case delivered(cid: String, message: String, user: String)
    /// Refused with this error code; nothing was changed.
    case refused(code: String)
  }

  package var outcome: Outcome

  package init(_ outcome: Outcome) { self.outcome = outcome }

  /// Whether the message is delivered now, even if it already was before.
  package var isDelivered: Bool {
    if case .delivered = outcome { true } else { false }
  }

  /// Line for a person: `ok` and the delivered message and user, or the error code and its meaning.
  package var line: String {
    switch outcome {
    case .delivered(let cid, let message, let user): "ok \(cid) \(message) \(user)"
    case .refused(let code): Self.meanings[code].map { "\(code): \($0)" } ?? code
    }
  }

  /// The same as a line of JSON, with the names of the API.
  package var json: String {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    return (try? encoder.encode(Document(self))).map { String(decoding: $0, as: UTF8.self) } ?? "{}"
  }

  private static let meanings = [
    "ticket_invalid": "not a ticket of this gateway: truncated, forged, or signed with a retired secret",
    "ticket_expired": "its time is over",
    "channel_not_found": "the channel has been deleted",
    "not_a_member": "the user has left the channel",
    "message_not_found": "the channel does not know the message",
    "message_deleted": "the message has been deleted",
    "store_busy": "the store is overloaded; post it again",
    "store_unavailable": "the store cannot be reached; post it again",
    "outcome_unknown": "it may or may not have been applied; post it again",
    "clock_jump": "the store's clock is wrong, and commands are refused until it is right; post it again",
    "data_directory_lost": "the store has lost its data directory, and commands are refused; post it again",
  ]

  /// Parse the responses to a request, in its order.
  ///
  /// - Returns: nil if the bytes are not such answers, or not `count` of them.
  static func parse(_ body: [UInt8], count: Int) -> [TicketResult]? {
    guard let results = try? JSONDecoder().decode(Results.self, from: Data(body)).results,
      results.count == count
    else { return nil }
    let responses = results.compactMap(\.response)
    return responses.count == count ? responses : nil
  }

  private struct Results: Decodable { var results: [Document] }

  /// The names are those of the API.
  // swift-format-ignore: AlwaysUseLowerCamelCase
  private struct Document: Codable {
    var ok: Bool
    var cid: String?
    var message_id: String?
    var user_id: String?
    var code: String?

    init(_ response: TicketResult) {
      ok = response.isDelivered
      switch response.outcome {
      case .delivered(let cid, let message, let user): (self.cid, message_id, user_id) = (cid, message, user)
      case .refused(let code): self.code = code
      }
    }

    var response: TicketResult? {
      if ok, let cid, let message_id, let user_id {
        return TicketResult(.delivered(cid: cid, message: message_id, user: user_id))
      }
      return ok ? nil : code.map { TicketResult(.refused(code: $0)) }
    }
  }
}
