internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// Registering and deleting messages (R5, R16).
struct MessageRoutes {
  let loop: GatewayLoop

  /// Handle `POST /v1/channels/{cid}/messages`.
  func registerMessage(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let body = try loop.object(request, .registerMessage)
    try MessageFields.checkTypes(body)
    let message = try MessageFields(body, now: loop.now)
    try loop.echoingResponses.send(
      .registerMessage,
      to: .channel(match.subject, thread: message.thread),
      context,
      route: match.route,
      response: .registration(cid: match.subject.bytes, id: message.id.bytes)
    ) { message.write(into: &$0) }
  }

  /// Handle `DELETE /v1/channels/{cid}/messages/{id}`.
  func deleteMessage(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    let message = match.message
    let response = EchoingResponse.deletion(cid: match.subject.bytes, id: message.bytes)
    try loop.echoingResponses.send(
      .deleteMessage,
      to: .channel(match.subject),
      context,
      route: match.route,
      response: response
    ) {
      $0.writeMessageRequest(message)
    }
  }
}

extension KnownFields {
  static let registerMessage: KnownFields = [
    "id", "user_id", "created_at", "silent", "receipt", "parent_id", "mentions",
    "moves_position", .notImplemented("reminders"),
  ]
}
