internal import FeedClient
internal import HTTP2Session
package import LocalStack
internal import Synchronization
package import TLSSession
internal import Worker

/// The simulated devices' way to the gateway: posts tickets without a login, as a device does.
package final class TicketPoster: Sendable {
  /// Attempts to post one ticket.
  private static let attemptsMax = 30

  private let url: GatewayURL
  private let tls: TLSContext?
  private let connection = Mutex<Task<AsyncHTTP2Client, any Error>?>(nil)

  /// - Parameter tls: for a gateway with TLS.
  package init(url: GatewayURL, tls: TLSContext?) {
    self.url = url
    self.tls = tls
  }

  /// Post a ticket, and repeat that while the gateway is away. A device gives up after a while.
  func post(_ ticket: String) async {
    let body = JSONValue.object(["tickets": .array([.string(ticket)])]).bytes
    for attempt in 1...Self.attemptsMax {
      let connecting = connection.withLock { connection in
        if let connection { return connection }
        let task = Task { [url, tls] in try await AsyncHTTP2Client.connect(to: url.endpoint, tls: tls) }
        connection = task
        return task
      }
      do {
        let response = try await connecting.value.call(.post, "/v1/push/acks", body: body)
        if (200..<500).contains(response.status) {
          let result = JSONValue(parsing: response.body)?["results"]?.array?.first
          let code = result?["code"]?.string ?? ""
          if response.status != 200 || !GatewayError.isRetryable(code: code) { return }
        }
      } catch {
        connection.withLock { if $0 == connecting { $0 = nil } }
      }
      guard (try? await Task.sleep(for: .milliseconds(min(100 * attempt, 1_000)))) != nil else { return }
    }
  }
}
