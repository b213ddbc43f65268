/// What an application makes of requests. One delegate may serve one connection or all of an event loop; it
/// is called on the event loop only, never from inside nghttp2.
package protocol HTTP2ServerDelegate: AnyObject {
  /// A request is complete: END_STREAM was seen and its content-length agreed; or it passed a limit, see
  /// ``HTTP2Request/headersTooLarge`` and ``HTTP2Request/bodyTooLarge``. Answer now, or later on the same
  /// event loop.
  func http2RequestReceived(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<Self>)

  /// All requests of this read have been delivered: a time to flush what they caused downstream. Answers
  /// given until this returns leave in one write.
  func http2ReadComplete(on connection: HTTP2ServerConnection<Self>)

  /// A delivered stream closed before it was answered, or a streaming answer before its end was sent. The
  /// handle is stale when this is called.
  func http2StreamAborted(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<Self>)

  /// A streaming answer that had refused bytes as ``HTTP2Outcome/full`` has sent all that it held.
  func http2StreamDrained(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<Self>)

  /// More of the body of a streamed request has come, or its end: call
  /// ``HTTP2ServerConnection/readBody(_:_:)``.
  func http2RequestBodyReceived(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<Self>)

  /// The connection is gone; nothing more will be called for it.
  func http2ConnectionClosed(_ connection: HTTP2ServerConnection<Self>)
}

extension HTTP2ServerDelegate {
  /// Does nothing.
  package func http2ReadComplete(on connection: HTTP2ServerConnection<Self>) {}
  /// Does nothing.
  package func http2StreamAborted(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<Self>) {}
  /// Does nothing.
  package func http2StreamDrained(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<Self>) {}
  /// Does nothing.
  package func http2RequestBodyReceived(
    _ stream: HTTP2StreamHandle,
    on connection: HTTP2ServerConnection<Self>
  ) {}
  /// Does nothing.
  package func http2ConnectionClosed(_ connection: HTTP2ServerConnection<Self>) {}
}
