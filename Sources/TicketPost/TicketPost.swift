internal import Foundation
internal import HTTP2Session
package import LocalStack
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
