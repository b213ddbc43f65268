package import NIOCore

/// Fired down the pipeline when the handshake is complete.
package struct TLSEstablished: Sendable, Equatable {
  /// "TLSv1.2" or "TLSv1.3".
  package let version: String
  /// The cipher's name.
  package let cipher: String
  /// The application protocol agreed, if any.
  package let applicationProtocol: String?
}

/// TLS between the socket and the rest of the pipeline: ciphertext below, plaintext above, `ByteBuffer` both.
///
/// Writes wait until the handshake is complete, and are encrypted at a flush, all into one buffer. A failed
/// handshake sends its alert, fires the ``TLSError`` and closes.
package final class TLSHandler: ChannelDuplexHandler, RemovableChannelHandler {
  package typealias InboundIn = ByteBuffer
  package typealias InboundOut = ByteBuffer
  package typealias OutboundIn = ByteBuffer
  package typealias OutboundOut = ByteBuffer

  /// handshaking → established → closed; handshaking → closed.
  private enum State { case idle, handshaking, established, closed }

  private let connection: TLSConnection
  private let handshakeTimeout: TimeAmount
  private let plaintextRefusal: ByteBuffer?
  private var state = State.idle
  private var pending: MarkedCircularBuffer<(ByteBuffer, EventLoopPromise<Void>?)>
  private var timer: Scheduled<Void>?

  /// A handler for one connection. Throws ``TLSError/configuration(reason:)``.
  ///
  /// - Parameter plaintextRefusal: what a peer that speaks no TLS is sent, in the clear, before the connection is closed;
  ///   nil: nothing.
  package convenience init(
    context: TLSContext,
    serverName: String? = nil,
    handshakeTimeout: TimeAmount = .seconds(10),
    plaintextRefusal: ByteBuffer? = nil
  ) throws(TLSError) {
    self.init(
      connection: try TLSConnection(context: context, serverName: serverName),
      handshakeTimeout: handshakeTimeout,
      plaintextRefusal: plaintextRefusal
    )
  }

  init(connection: TLSConnection, handshakeTimeout: TimeAmount, plaintextRefusal: ByteBuffer? = nil) {
    self.connection = connection
    self.handshakeTimeout = handshakeTimeout
    self.plaintextRefusal = plaintextRefusal
    self.pending = MarkedCircularBuffer(initialCapacity: 4)
  }

  // MARK: Inbound

  /// Begins the handshake if the channel is active already.
  package func handlerAdded(context: ChannelHandlerContext) {
    if context.channel.isActive { begin(context) }
  }

  /// Ends what waits.
  package func handlerRemoved(context: ChannelHandlerContext) { end() }

  /// Begins the handshake.
  package func channelActive(context: ChannelHandlerContext) {
    begin(context)
    context.fireChannelActive()
  }

  /// A channel that is gone without close_notify is reported as ``TLSError/truncated``.
  package func channelInactive(context: ChannelHandlerContext) {
    let wasOpen = state == .handshaking || state == .established
    end()
    if wasOpen && !connection.peerHasClosed { context.fireErrorCaught(TLSError.truncated) }
    context.fireChannelInactive()
  }

  /// Decrypts.
  package func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    guard state == .handshaking || state == .established else { return }
    connection.consume(unwrapInboundIn(data))
    proceed(context)
  }

  /// Passes a half-closure on as the end of the connection.
  package func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
    if let event = event as? ChannelEvent, event == .inputClosed,
      state == .established || state == .handshaking
    {
      connection.consumeEnd()
      proceed(context)
      return
    }
    context.fireUserInboundEventTriggered(event)
  }

  private func begin(_ context: ChannelHandlerContext) {
    guard state == .idle else { return }
    state = .handshaking
    timer = context.eventLoop.assumeIsolated().scheduleTask(in: handshakeTimeout) {
      guard self.state == .handshaking else { return }
      self.fail(context, .handshakeTimeout)
    }
    proceed(context)
  }

  /// Works on what was consumed: handshake, then plaintext, then whatever that has made to be sent.
  private func proceed(_ context: ChannelHandlerContext) {
    do throws(TLSError) {
      if state == .handshaking {
        guard try connection.handshake() else {
          sendOutput(context, promise: nil)
          return
        }
        established(context)
      }
      guard state == .established else { return }
      var plaintext = ByteBuffer()
      let count = try connection.read(into: &plaintext)
      // Tickets, key updates and refusals to renegotiate may have been made by reading.
      sendOutput(context, promise: nil)
      if count > 0 { context.fireChannelRead(wrapInboundOut(plaintext)) }
      if connection.peerHasClosed && state == .established {
        // RFC 8446 section 6.1: the answer to close_notify is ours.
        close(context: context, mode: .all, promise: nil)
      }
    } catch {
      fail(context, error)
    }
  }

  private func established(_ context: ChannelHandlerContext) {
    state = .established
    timer?.cancel()
    timer = nil
    sendOutput(context, promise: nil)
    context.fireUserInboundEventTriggered(
      TLSEstablished(
        version: connection.version,
        cipher: connection.cipher,
        applicationProtocol: connection.negotiatedProtocol
      )
    )
    encryptPending(context)
  }

  // MARK: Outbound

  /// Keeps the bytes until the next flush.
  package func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
    guard state != .closed else {
      promise?.fail(TLSError.closed)
      return
    }
    pending.append((unwrapOutboundIn(data), promise))
  }

  /// Encrypts what was written, once there are keys.
  package func flush(context: ChannelHandlerContext) {
    pending.mark()
    encryptPending(context)
  }

  /// Says close_notify first; with `.all` the peer's is not waited for.
  package func close(context: ChannelHandlerContext, mode: CloseMode, promise: EventLoopPromise<Void>?) {
    guard mode != .input else {
      context.close(mode: mode, promise: promise)
      return
    }
    encryptPending(context)
    connection.close()
    sendOutput(context, promise: nil)
    if mode == .all { end() }
    context.close(mode: mode, promise: promise)
  }

  private func encryptPending(_ context: ChannelHandlerContext) {
    guard state == .established, pending.hasMark else { return }
    var last: EventLoopPromise<Void>?
    do throws(TLSError) {
      while pending.hasMark, let (bytes, promise) = pending.popFirst() {
        if let promise {
          if let last { promise.futureResult.cascade(to: last) }
          last = promise
        }
        try connection.write(bytes)
      }
      sendOutput(context, promise: last)
    } catch {
      last?.fail(error)
      fail(context, error)
    }
  }

  private func sendOutput(_ context: ChannelHandlerContext, promise: EventLoopPromise<Void>?) {
    guard let output = connection.takeOutput() else {
      promise?.succeed(())
      return
    }
    context.writeAndFlush(wrapOutboundOut(output), promise: promise)
  }

  // MARK: End

  private func fail(_ context: ChannelHandlerContext, _ error: TLSError) {
    guard state != .closed else { return }
    if error == .notTLS, let plaintextRefusal {
      _ = connection.takeOutput()
      context.writeAndFlush(wrapOutboundOut(plaintextRefusal), promise: nil)
    } else {
      sendOutput(context, promise: nil)
    }
    end(error)
    context.fireErrorCaught(error)
    context.close(promise: nil)
  }

  private func end(_ error: TLSError = .closed) {
    state = .closed
    timer?.cancel()
    timer = nil
    while let (_, promise) = pending.popFirst() { promise?.fail(error) }
  }
}
