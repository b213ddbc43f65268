package import NIOCore

/// Event fired through the pipeline when the handshake is complete.
package struct TLSEstablished: Sendable, Equatable {
  /// "TLSv1.2" or "TLSv1.3".
  package let version: String
  /// Name of the cipher.
  package let cipher: String
  /// Negotiated application protocol, or nil.
  package let applicationProtocol: String?
}

/// Channel handler for TLS: ciphertext towards the socket, plaintext towards the rest of the pipeline, both as
/// `ByteBuffer`.
///
/// Writes wait until the handshake is complete. A flush encrypts them into one buffer. A failed handshake sends its
/// alert, fires the ``TLSError`` and closes the channel.
package final class TLSHandler: ChannelDuplexHandler, RemovableChannelHandler {
  package typealias InboundIn = ByteBuffer
  package typealias InboundOut = ByteBuffer
  package typealias OutboundIn = ByteBuffer
  package typealias OutboundOut = ByteBuffer

  /// idle → handshaking → established → closed; idle or handshaking → closed.
  private enum State { case idle, handshaking, established, closed }

  private let connection: TLSConnection
  private let handshakeTimeout: TimeAmount
  private let plaintextRefusal: ByteBuffer?
  private var state = State.idle
  private var pending: MarkedCircularBuffer<(ByteBuffer, EventLoopPromise<Void>?)>
  private var timer: Scheduled<Void>?

  /// Create a handler for one connection. Throws ``TLSError/configuration(reason:)``.
  ///
  /// - Parameter plaintextRefusal: unencrypted reply to a peer that does not speak TLS, sent before the connection is
  ///   closed; nil: none.
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

  /// Begin the handshake if the channel is already active.
  package func handlerAdded(context: ChannelHandlerContext) {
    if context.channel.isActive { begin(context) }
  }

  /// Fail pending writes.
  package func handlerRemoved(context: ChannelHandlerContext) { end() }

  /// Begin the handshake.
  package func channelActive(context: ChannelHandlerContext) {
    begin(context)
    context.fireChannelActive()
  }

  /// Report a channel that closed without close_notify as ``TLSError/truncated``.
  package func channelInactive(context: ChannelHandlerContext) {
    let wasOpen = state == .handshaking || state == .established
    end()
    if wasOpen && !connection.peerHasClosed { context.fireErrorCaught(TLSError.truncated) }
    context.fireChannelInactive()
  }

  /// Decrypt incoming bytes.
  package func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    guard state == .handshaking || state == .established else { return }
    connection.consume(unwrapInboundIn(data))
    proceed(context)
  }

  /// Treat a half-closure as the end of the connection.
  package func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
    if let event = event as? ChannelEvent, event == .inputClosed, state == .established || state == .handshaking {
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

  /// Process consumed bytes: handshake, then plaintext, then the output that these produced.
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
      // Reading may produce tickets, key updates and refusals to renegotiate.
      sendOutput(context, promise: nil)
      if count > 0 { context.fireChannelRead(wrapInboundOut(plaintext)) }
      if connection.peerHasClosed && state == .established {
        // RFC 8446 section 6.1: close_notify must be answered.
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

  /// Queue the bytes until the next flush.
  package func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
    guard state != .closed else {
      promise?.fail(TLSError.closed)
      return
    }
    pending.append((unwrapOutboundIn(data), promise))
  }

  /// Encrypt the queued bytes, once there are keys.
  package func flush(context: ChannelHandlerContext) {
    pending.mark()
    encryptPending(context)
  }

  /// Send close_notify, then close. `.all` does not wait for the peer's close_notify.
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

  // MARK: Closing

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
