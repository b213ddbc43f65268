internal import FeedClient
package import GatewayClient
internal import HTTP2Session
package import TLSSession
internal import Worker

/// The simulated devices' way to the gateway: posts tickets without a login, as a device does.
package final class TicketPoster: Sendable {
  /// Attempts to post one ticket.
  private static let attemptsMax = 30

  private let client: ReconnectingHTTP2Client

  /// - Parameter tls: for a gateway with TLS.
  package init(url: GatewayURL, tls: TLSContext?) { client = ReconnectingHTTP2Client(url: url, tls: tls) }

  /// Post a ticket, and repeat that while the gateway is away. A device gives up after a while.
  func post(_ ticket: String) async {
    let body = JSONValue.object(["tickets": .array([.string(ticket)])]).bytes
    for attempt in 1...Self.attemptsMax {
      let response = try? await client.call(.post, "/v1/push/acks", body: body)
      if let response, (200..<500).contains(response.status) {
        let result = JSONValue(parsing: response.body)?["results"]?.array?.first
        let code = result?["code"]?.string ?? ""
        if response.status != 200 || !GatewayError.isRetryable(code: code) { return }
      }
      guard (try? await Task.sleep(for: .milliseconds(min(100 * attempt, 1_000)))) != nil else { return }
    }
  }
}
