internal import CAPIDocument
internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel

extension GatewayLoop {
  /// `GET /v1/openapi.yaml`: what this gateway answers, in OpenAPI 3.1; to whoever asks, as it says nothing of
  /// anybody's data.
  func apiDocument(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) {
    guard let connection = connections.connection(context.connection) else { return }
    connections.markDirty(context.connection)
    let headers = [HTTP2Header("etag", ServedDocument.tag)]
    if let known = request.header("if-none-match"), ServedDocument.isAmong(known) {
      connection.respond(context.stream, status: 304, headers: headers)
      return counters.answered(match.route.rawValue, status: 304)
    }
    connection.respond(
      context.stream,
      status: 200,
      contentType: .yaml,
      headers: headers,
      body: ServedDocument.body,
      isKept: true
    )
    counters.answered(match.route.rawValue, status: 200)
  }
}

/// The file, ready to be sent: one copy for all loops.
enum ServedDocument {
  static let body = ByteBuffer(
    bytes: UnsafeRawBufferPointer(start: tm_api_document(), count: tm_api_document_size())
  )
  /// A strong entity tag: the same bytes, the same tag, from every gateway (RFC 9110 section 8.8.3).
  static let tag = "\"" + String(StableHash.hash(body.readableBytesSpan), radix: 16) + "\""

  /// Whether an `if-none-match` names the file as it is (RFC 9110 section 13.1.2): one of its tags, weak or not, is
  /// ours, or it is `*`.
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
