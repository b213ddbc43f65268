public import Foundation

/// Mark the message of a push notification delivered, without a login. For notification service extensions.
///
/// It ends within a second, so the notification is shown in time. A failed attempt is harmless: the message is
/// delivered when the app is opened.
///
/// - Parameters:
///   - ticket: From the push.
///   - url: Address of the gateway, with `https`.
///   - transport: Carries the request; by default a ``URLSessionTransport`` of its own.
///   - limit: Time until the attempt is given up.
/// - Returns: false: the ticket is not valid any more.
/// - Throws: ``TidemarkError``; where ``TidemarkError/isTemporary`` is true, the same ticket may be sent again.
@discardableResult
public func ackTicket(
  _ ticket: String,
  url: URL,
  transport: (any Transport)? = nil,
  limit: Duration = .milliseconds(900)
) async throws -> Bool {
  let used = transport ?? URLSessionTransport(url: url)
  defer {
    if transport == nil { used.close() }
  }
  do {
    let body = try JSON.encode(["tickets": [ticket]])
    return try await withDeadline(limit) {
      let response = try await used.open(
        TransportRequest(
          method: "POST",
          path: "/v1/push/acks",
          headers: ["accept": "application/json", "content-type": "application/json"],
          body: body
        )
      )
      let text = try await response.wholeBody(max: 1 << 16)
      guard response.status < 300 else {
        throw TidemarkError(status: response.status, code: "status_\(response.status)")
      }
      guard let result = try JSON.decode(EntryResults.self, from: text).results.first else {
        throw TidemarkError(status: response.status, code: "internal_error")
      }
      let refusal = TidemarkError.ofEntry(result.code ?? "ticket_invalid")
      // What is gone will not come back, so only a busy server is worth another attempt.
      if !result.ok, refusal.status == 503 { throw refusal }
      return result.ok
    }
  } catch {
    if error is DeadlineExceeded {
      throw TidemarkError.lostConnection("no answer within \(limit)")
    }
    try Task.checkCancellation()
    throw TidemarkError.from(error)
  }
}
