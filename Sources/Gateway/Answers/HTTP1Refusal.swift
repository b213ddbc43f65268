internal import NIOCore

extension GatewayLoop {
  /// The answer to a client that speaks HTTP/1: the one answer of a gateway that is not HTTP/2.
  ///
  /// - Parameter isHead: an answer to HEAD has no content.
  func http1Refusal(isHead: Bool) -> ByteBuffer {
    counters.http1Refused &+= 1
    let id = requestIDs.id(given: RawSpan())
    let problem = Problem(
      .httpVersionNotSupported,
      """
      this is HTTP/1: use an HTTP/2 client (over TLS with \"h2\" in ALPN, or by prior knowledge in the clear), or a load \
      balancer that speaks HTTP/1.1 to its clients and HTTP/2 to the gateway, as Deploy/haproxy/haproxy.cfg does \
      (docs/deploy.md)
      """
    )
    var body = ByteBuffer()
    problem.write(requestID: id, into: &body)
    var answer = ByteBuffer()
    answer.writeString(
      """
      HTTP/1.1 505 HTTP Version Not Supported\r
      content-type: application/problem+json\r
      content-length: \(body.readableBytes)\r
      connection: close\r
      x-request-id: \(id)\r
      \r

      """
    )
    if !isHead { answer.writeBuffer(&body) }
    return answer
  }
}
