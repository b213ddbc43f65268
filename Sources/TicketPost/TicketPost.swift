internal import Foundation
internal import HTTP2Session
package import LocalStack
internal import Operations
package import TLSSession

/// Posts tickets as a notification extension does: it knows where a gateway is and what came with the push, and has no
/// credential.
package struct TicketPost: Sendable {
  /// Tickets of one request, at most.
  package static let batchCountMax = 1_000
  /// Bytes of a ticket, at most.
  package static let ticketByteCountMax = 160

  private let caller: HTTP2Caller

  /// Connects.
  ///
  /// - Parameter tls: for a gateway with TLS.
  package static func connect(to gateway: GatewayURL, tls: TLSContext?) async throws -> TicketPost {
    do {
      return TicketPost(caller: try await HTTP2Caller.connect(to: gateway.endpoint, tls: tls))
    } catch {
      throw StackError("\(gateway.endpoint): \(HTTP2Caller.reason(error))")
    }
  }

  /// Posts tickets, in as many requests as they take, one after the other. To be posted twice harms no ticket.
  ///
  /// - Parameter take: given the answers of each request when they are there, in order. What cannot be a ticket is
  ///   answered here, and not sent.
  /// - Throws: ``StackError`` where a request was not answered with 200: the tickets of it, and those behind, have not
  ///   been answered.
  package func post(_ tickets: [String], _ take: ([TicketAnswer]) -> Void) async throws {
    var rest = tickets[...]
    while !rest.isEmpty {
      let batch = rest.prefix(Self.batchCountMax)
      rest = rest.dropFirst(batch.count)
      take(try await postBatch(Array(batch)))
    }
  }

  /// Ends the connection.
  package func close() async { await caller.close() }

  private func postBatch(_ tickets: [String]) async throws -> [TicketAnswer] {
    let sent = tickets.filter(Self.mayBeTicket)
    var answers = try await send(sent)[...]
    return tickets.map { ticket in
      Self.mayBeTicket(ticket) ? answers.removeFirst() : TicketAnswer(.refused(code: "ticket_invalid"))
    }
  }

  private func send(_ tickets: [String]) async throws -> [TicketAnswer] {
    guard !tickets.isEmpty else { return [] }
    let body = Array(try JSONEncoder().encode(["tickets": tickets]))
    let answer = try await caller.call(.post, "/v1/push/acks", body: body)
    guard answer.status == 200 else {
      let (code, detail) = ProblemDocument.parts(of: answer.body)
      let words = ["\(answer.status)", code, detail].filter { !$0.isEmpty }.joined(separator: " ")
      throw StackError("the gateway answered \(words)")
    }
    guard let answers = TicketAnswer.answers(answer.body, count: tickets.count) else {
      throw StackError("the gateway's answer is none to \(tickets.count) tickets: \(answer.text.prefix(200))")
    }
    return answers
  }

  /// base64url, and no longer than any ticket.
  static func mayBeTicket(_ text: String) -> Bool {
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
