internal import NIOCore

/// The response to an HTTP/1 client, the gateway's only response outside HTTP/2.
enum HTTP1Refusal {
  /// - Parameters:
  ///   - isHead: whether the request is HEAD, whose answer has no content.
  ///   - id: the request's id.
  static func response(isHead: Bool, requestID id: String) -> ByteBuffer {
    let problem = Problem(
      .httpVersionNotSupported,
      """
      the client spoke HTTP/1: use an HTTP/2 client (over TLS with \"h2\" in ALPN, or by prior knowledge in the \
      clear), or a load balancer that speaks HTTP/1.1 to its clients and HTTP/2 to the gateway, as \
      Deploy/haproxy/haproxy.cfg does (docs/deploy.md)
      """
    )
    var body = ByteBuffer()
    problem.write(requestID: id, into: &body)
    var response = ByteBuffer()
    response.writeString(
      """
      HTTP/1.1 505 HTTP Version Not Supported\r
      content-type: application/problem+json\r
      content-length: \(body.readableBytes)\r
      connection: close\r
      x-request-id: \(id)\r
      \r

      """
    )
    if !isHead { response.writeBuffer(&body) }
    return response
  }
}
