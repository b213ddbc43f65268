/// Application callbacks for requests. One delegate may serve one connection or all of an event loop. It is called only
/// on the event loop, and never from inside nghttp2.
package protocol HTTP2ServerDelegate: AnyObject {
  /// Handle the headers of a request that have arrived without its body, on a connection whose peer is not yet
  /// authenticated (``HTTP2ServerConnection/isAuthenticated``). The delegate can authenticate it with
  /// ``HTTP2ServerConnection/withHeaders(_:_:)``.
  ///
  /// - Returns: whether the body is wanted. If not, the request is delivered at once and its body dropped.
  func http2RequestAnnounced(
    _ stream: HTTP2StreamHandle,
    on connection: HTTP2ServerConnection<Self>
  ) -> Bool

  /// Handle a complete request: END_STREAM was seen and the content-length agreed. Also called when it exceeded a
  /// limit, see ``HTTP2Request/headersTooLarge`` and ``HTTP2Request/bodyTooLarge``. Answer now, or later on the same
  /// event loop.
  func http2RequestReceived(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<Self>)

  /// Handle the end of a read: all its requests have been delivered; flush downstream writes here. Responses given
  /// before this returns leave in one write.
  func http2ReadComplete(on connection: HTTP2ServerConnection<Self>)

  /// Handle a delivered stream that closed before it was answered, or a streaming response that closed before its end
  /// was sent. The handle is already stale.
  func http2StreamAborted(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<Self>)

  /// Handle a streaming response that has sent its whole queue, after it had refused bytes as ``HTTP2Outcome/full``.
  func http2StreamDrained(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<Self>)

  /// Handle more of a streamed request's body, or its end, that has arrived: call
  /// ``HTTP2ServerConnection/readBody(_:_:)``.
  func http2RequestBodyReceived(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<Self>)

  /// Handle the end of the connection; no other call follows.
  func http2ConnectionClosed(_ connection: HTTP2ServerConnection<Self>)
}

extension HTTP2ServerDelegate {
  /// Accept every body.
  package func http2RequestAnnounced(
    _ stream: HTTP2StreamHandle,
    on connection: HTTP2ServerConnection<Self>
  ) -> Bool { true }
  /// Do nothing.
  package func http2ReadComplete(on connection: HTTP2ServerConnection<Self>) {}
  /// Do nothing.
  package func http2StreamAborted(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<Self>) {}
  /// Do nothing.
  package func http2StreamDrained(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<Self>) {}
  /// Do nothing.
  package func http2RequestBodyReceived(
    _ stream: HTTP2StreamHandle,
    on connection: HTTP2ServerConnection<Self>
  ) {}
  /// Do nothing.
  package func http2ConnectionClosed(_ connection: HTTP2ServerConnection<Self>) {}
}
