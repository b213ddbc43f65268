internal import CNghttp2
package import NIOCore

/// Responses, whole or streamed.
extension HTTP2ServerConnection {
  /// Answer a request. `body` writes into the stream's own buffer, which is empty at the call and is sent from where it
  /// is. Content-length is set (RFC 9110 section 8.6). A response without a body ends with its headers. A response to
  /// HEAD has the same headers and no body.
  ///
  /// - Parameters:
  ///   - status: 200 to 999.
  ///   - headers: at most 28 additional headers, empty for most responses.
  @discardableResult
  package func respond(
    _ stream: HTTP2StreamHandle,
    status: Int,
    contentType: HTTP2ContentType = .json,
    headers: [HTTP2Header] = [],
    body: (inout ByteBuffer) -> Void
  ) -> HTTP2Outcome {
    guard let slot = find(stream), slot.pointee.state.isUnanswered else { return .gone }
    slot.pointee.outgoing.bytes.clear()
    body(&slot.pointee.outgoing.bytes)
    return submit(slot, status: status, contentType: contentType, headers: headers)
  }

  /// Answer a request with an existing body; shared storage is sent without another copy.
  ///
  /// - Parameter isKept: the storage outlives this response anyway, and is not charged to a stream.
  @discardableResult
  package func respond(
    _ stream: HTTP2StreamHandle,
    status: Int,
    contentType: HTTP2ContentType = .json,
    headers: [HTTP2Header] = [],
    body: ByteBuffer,
    isKept: Bool = false
  ) -> HTTP2Outcome {
    guard let slot = find(stream), slot.pointee.state.isUnanswered else { return .gone }
    slot.pointee.outgoing.bytes = body
    return submit(
      slot,
      status: status,
      contentType: contentType,
      headers: headers,
      heldBytes: isKept ? 0 : body.readableBytes
    )
  }

  /// Answer a request without a body.
  @discardableResult
  package func respond(_ stream: HTTP2StreamHandle, status: Int, headers: [HTTP2Header] = []) -> HTTP2Outcome {
    guard let slot = find(stream), slot.pointee.state.isUnanswered else { return .gone }
    slot.pointee.outgoing.bytes.clear()
    return submit(slot, status: status, contentType: .none, headers: headers)
  }

  /// Reset a stream instead of answering it.
  package func reset(_ stream: HTTP2StreamHandle, _ code: HTTP2ErrorCode) {
    guard let slot = find(stream), let session = core.pointee.session else { return }
    _ = nghttp2_submit_rst_stream(session, 0, slot.pointee.streamID, code.rawValue)
    slot.pointee.state.resetByApplication()
    markOutputPending()
  }

  // MARK: Streaming

  // A response of unknown length keeps its bytes in its slot's buffer. `write` appends at the end, and nghttp2 reads
  // from the front as the peer's windows allow. After nghttp2 has found the buffer empty, resume_data wakes it. A
  // stream with nothing to send holds no buffer.

  /// Start a response whose body follows in pieces, without content-length.
  @discardableResult
  package func startStreaming(
    _ stream: HTTP2StreamHandle,
    status: Int,
    contentType: HTTP2ContentType,
    headers: [HTTP2Header] = []
  ) -> HTTP2Outcome {
    guard let slot = find(stream), slot.pointee.state.isUnanswered, let session = core.pointee.session else {
      return .gone
    }
    slot.pointee.outgoing.bytes.clear()
    let hasBody = slot.pointee.received.method != .head
    slot.pointee.state.streamingStarted(hasBody: hasBody)
    collectFields(headers, slot)
    let result = resources.headers.withList(
      slot: slot,
      status: status,
      contentType: contentType,
      length: nil
    ) { list, count in
      nghttp2Submit(session, slot, headers: list, count: count, hasBody: hasBody)
    }
    return submitted(slot, result)
  }

  /// Queue bytes of a streaming response, all or none. Returns ``HTTP2Outcome/full`` if the queue is not empty and
  /// would exceed its limit.
  ///
  /// - Parameter queueBytesMax: the limit in bytes; nil: ``HTTP2Limits/streamQueueBytesMax``.
  @discardableResult
  package func write(_ stream: HTTP2StreamHandle, _ bytes: ByteBuffer, queueBytesMax: Int? = nil) -> HTTP2Outcome {
    guard let slot = find(stream), slot.pointee.state.mayQueueOutput else { return .gone }
    let waiting = slot.pointee.outgoing.bytes.readableBytes
    if waiting > 0 {
      let isFull = waiting + bytes.readableBytes > queueBytesMax ?? resources.limits.streamQueueBytesMax
      if isFull || !core.pointee.memory.isWithinLimit(slot) {
        slot.pointee.state.queueFilled()
        return .full
      }
    }
    if waiting == 0 {
      // All streams that are sent the same event share this storage. For thousands of streams, bytes are only copied
      // into the frames. Such an event is small; what is larger belongs to this stream alone, and counts.
      slot.pointee.outgoing.bytes = bytes
      if bytes.readableBytes > HTTP2Limits.uncountedResponseBytes {
        core.pointee.memory.chargeStreaming(slot)
      }
    } else {
      slot.pointee.outgoing.bytes.discardReadBytes()
      slot.pointee.outgoing.bytes.writeImmutableBuffer(bytes)
      core.pointee.memory.chargeStreaming(slot)
    }
    resume(slot)
    return .queued
  }

  /// End a streaming response; queued bytes are still sent.
  @discardableResult
  package func finish(_ stream: HTTP2StreamHandle) -> HTTP2Outcome {
    guard let slot = find(stream), slot.pointee.state.mayQueueOutput else { return .gone }
    slot.pointee.state.finished()
    resume(slot)
    return .queued
  }

  /// Charge a stream for bytes that the application keeps for it elsewhere. The value replaces the previous one.
  ///
  /// - Returns: false if the stream exceeds its limit. The bytes are charged all the same, until the application keeps
  ///   fewer.
  package func setRetainedBytes(_ stream: HTTP2StreamHandle, _ byteCount: Int) -> Bool {
    guard let slot = find(stream), slot.pointee.state.isStreaming else { return true }
    slot.pointee.charge.retained = byteCount
    core.pointee.memory.chargeStreaming(slot)
    return core.pointee.memory.isWithinLimit(slot)
  }

  /// Return the number of bytes queued in a streaming response; nil if the stream has none.
  package func queuedBytes(_ stream: HTTP2StreamHandle) -> Int? {
    guard let slot = find(stream), slot.pointee.state.isStreaming else { return nil }
    return slot.pointee.outgoing.bytes.readableBytes
  }

  // MARK: Private

  private func resume(_ slot: UnsafeMutablePointer<StreamSlot>) {
    markOutputPending()
    guard let session = core.pointee.session, slot.pointee.state.outputResumed() else { return }
    _ = nghttp2_session_resume_data(session, slot.pointee.streamID)
  }

  private func submit(
    _ slot: UnsafeMutablePointer<StreamSlot>,
    status: Int,
    contentType: HTTP2ContentType,
    headers: [HTTP2Header],
    heldBytes: Int? = nil
  ) -> HTTP2Outcome {
    precondition(status >= 200 && status <= 999, "a final status has three digits and is no 1xx")
    guard let session = core.pointee.session else { return .gone }
    let length = slot.pointee.outgoing.bytes.readableBytes
    core.pointee.memory.charge(slot, response: heldBytes ?? length)
    let hasBody = length > 0 && slot.pointee.received.method != .head
    // RFC 9110 section 8.6: 204 has no content-length; that of 304 would have to be the length of the 200.
    let mayHaveLength = status != 204 && status != 304
    let action = slot.pointee.state.answered(hasBody: hasBody)
    collectFields(headers, slot)
    let result = resources.headers.withList(
      slot: slot,
      status: status,
      contentType: contentType,
      length: mayHaveLength ? length : nil
    ) { list, count in
      nghttp2Submit(session, slot, headers: list, count: count, hasBody: hasBody)
    }
    switch action {
    case .none: break
    case .dropUnreadBody: dropUnreadBody(slot)
    }
    return submitted(slot, result)
  }

  /// Drop the unread part of a streamed body after a complete response. The rest is read and dropped like other bodies,
  /// within ``HTTP2Limits/droppedBodyBytesMax``. Clients that send before they read still get the response.
  private func dropUnreadBody(_ slot: UnsafeMutablePointer<StreamSlot>) {
    let unread = slot.pointee.received.bodyCount
    guard unread > 0 else { return }
    slot.pointee.received.dropBody(unread)
    slot.pointee.bodyShare.drop(unread)
    core.pointee.consumeStreamed(slot.pointee.streamID, unread)
  }

  /// Collect the headers of this response, and those that the application adds to every response.
  @inline(__always)
  private func collectFields(_ headers: [HTTP2Header], _ slot: UnsafeMutablePointer<StreamSlot>) {
    resources.headers.fields.removeAll()
    for header in headers { resources.headers.fields.add(header) }
    resources.commonHeaders?(HTTP2Request(slot), &resources.headers.fields)
  }

  @inline(__always)
  private func nghttp2Submit(
    _ session: OpaquePointer,
    _ slot: UnsafeMutablePointer<StreamSlot>,
    headers list: UnsafeMutablePointer<nghttp2_nv>,
    count: Int,
    hasBody: Bool
  ) -> Int32 {
    if !hasBody { return nghttp2_submit_response(session, slot.pointee.streamID, list, count, nil) }
    var provider = nghttp2_data_provider(
      source: nghttp2_data_source(ptr: UnsafeMutableRawPointer(slot)),
      read_callback: readResponse
    )
    return nghttp2_submit_response(session, slot.pointee.streamID, list, count, &provider)
  }

  private func submitted(_ slot: UnsafeMutablePointer<StreamSlot>, _ result: Int32) -> HTTP2Outcome {
    markOutputPending()
    guard result == 0 else {
      // NOMEM, or DATA_EXIST for a second response, which the stream's state prevents.
      submissionFailed()
      return .gone
    }
    responseSubmitted(slot)
    return .queued
  }
}
