internal import CAPIDocument
internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel

struct DocumentRoute {
  let loop: GatewayLoop

  /// Handle `GET /v1/openapi.yaml`: this gateway's API in OpenAPI 3.1. Public, since it contains no user data.
  func apiDocument(_ match: borrowing RouteMatch, _ context: RequestContext, _ request: borrowing HTTP2Request) {
    guard let connection = loop.connections.connection(context.connection) else { return }
    loop.connections.markDirty(context.connection)
    let headers = [HTTP2Header("etag", ServedDocument.tag)]
    if let known = request.header("if-none-match"), ServedDocument.isAmong(known) {
      connection.respond(context.stream, status: 304, headers: headers)
      return loop.counters.answered(match.route, status: 304)
    }
    connection.respond(
      context.stream,
      status: 200,
      contentType: .yaml,
      headers: headers,
      body: ServedDocument.body,
      isKept: true
    )
    loop.counters.answered(match.route, status: 200)
  }
}

/// The file's response body: one copy for all loops.
enum ServedDocument {
  static let body = ByteBuffer(bytes: UnsafeRawBufferPointer(start: tm_api_document(), count: tm_api_document_size()))
  /// A strong entity tag, equal for the same bytes on every gateway (RFC 9110 section 8.8.3).
  static let tag = "\"" + String(StableHash.hash(body.readableBytesSpan), radix: 16) + "\""

  /// Return whether an `if-none-match` matches the file (RFC 9110 section 13.1.2): one of its tags, weak or not, is the
  /// file's, or it is `*`.
  static func isAmong(_ tags: RawSpan) -> Bool {
    let text = tags.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
    return text.split(separator: ",").contains { given in
      var given = given.drop { $0 == " " }
      while given.last == " " { given.removeLast() }
      if given.hasPrefix("W/") { given.removeFirst(2) }
      return given == tag || given == "*"
    }
  }
}
