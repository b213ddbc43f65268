internal import CNghttp2
package import NIOCore

extension HTTP2ServerConnection {
  /// Read a request in place. Returns nil without calling the closure if the handle is stale or the request has been
  /// answered. The closure may answer, but must not flush.
  package func withRequest<Result, Failure: Error>(
    _ stream: HTTP2StreamHandle,
    _ body: (borrowing HTTP2Request) throws(Failure) -> Result
  ) throws(Failure) -> Result? {
    guard let slot = find(stream), slot.pointee.phase == .delivered || slot.pointee.phase == .streaming else {
      return nil
    }
    return try body(HTTP2Request(slot))
  }

  /// Read the headers of a request whose body has not yet arrived. Returns nil without calling the closure if the
  /// handle is stale or the request is complete.
  package func withHeaders<Result>(
    _ stream: HTTP2StreamHandle,
    _ body: (borrowing HTTP2Request) -> Result
  ) -> Result? {
    guard let slot = find(stream), slot.pointee.phase == .receiving else { return nil }
    return body(HTTP2Request(slot))
  }

  /// Deliver a request now and drop its body, which has not yet arrived.
  package func refuseBody(_ stream: HTTP2StreamHandle) {
    guard let slot = find(stream) else { return }
    core.pointee.deliverWithoutBody(slot)
    output.markPending()
  }

  /// Whether the request of that handle is still unanswered.
  package func isOpen(_ stream: HTTP2StreamHandle) -> Bool {
    find(stream).map { $0.pointee.phase == .delivered } ?? false
  }

  /// Store a number with a request until it is answered (``HTTP2Request/applicationTag``).
  package func setApplicationTag(_ stream: HTTP2StreamHandle, _ tag: UInt64) {
    find(stream)?.pointee.tag = tag
  }

  /// Charge the memory that a stream holds, now and later, to a user or client across all connections
  /// (``MemoryBudget``). The response's expected size is included.
  ///
  /// - Parameters:
  ///   - key: a hash of the user or client, with a secret seed; 0: keep the current one.
  ///   - responseBytes: approximate size of the response, replaced by the actual size once it exists.
  package func admit(_ stream: HTTP2StreamHandle, for key: UInt64, responseBytes: Int) -> MemoryAdmission {
    guard let slot = find(stream) else { return .admitted }
    let admission = core.pointee.memory.admit(slot, for: key, responseBytes: responseBytes)
    if admission == .callerIsOverShare { core.pointee.counters.limitsHit += 1 }
    return admission
  }

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
    guard let slot = find(stream), slot.pointee.phase == .delivered else { return .gone }
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
    guard let slot = find(stream), slot.pointee.phase == .delivered else { return .gone }
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
  package func respond(
    _ stream: HTTP2StreamHandle,
    status: Int,
    headers: [HTTP2Header] = []
  ) -> HTTP2Outcome {
    guard let slot = find(stream), slot.pointee.phase == .delivered else { return .gone }
    slot.pointee.outgoing.bytes.clear()
    return submit(slot, status: status, contentType: .none, headers: headers)
  }

  /// Reset a stream instead of answering it.
  package func reset(_ stream: HTTP2StreamHandle, _ code: HTTP2ErrorCode) {
    guard let slot = find(stream), let session = core.pointee.session else { return }
    _ = nghttp2_submit_rst_stream(session, 0, slot.pointee.streamID, code.rawValue)
    // The application requested the reset, so it gets no callback.
    slot.pointee.flags.insert(.localEnded)
    output.markPending()
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
    guard let slot = find(stream), slot.pointee.phase == .delivered, let session = core.pointee.session else {
      return .gone
    }
    slot.pointee.outgoing.bytes.clear()
    slot.pointee.phase = .streaming
    if slot.pointee.received.method == .head { slot.pointee.flags.formUnion([.finished, .localEnded]) }
    let hasBody = slot.pointee.received.method != .head
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
  /// - Parameter queueBytesMax: the limit in bytes; nil: ``HTTP2Limits/maxStreamQueueBytes``.
  @discardableResult
  package func write(
    _ stream: HTTP2StreamHandle,
    _ bytes: ByteBuffer,
    queueBytesMax: Int? = nil
  ) -> HTTP2Outcome {
    guard let slot = find(stream), slot.pointee.phase == .streaming,
      !slot.pointee.flags.contains(.finished)
    else { return .gone }
    let waiting = slot.pointee.outgoing.bytes.readableBytes
    if waiting > 0 {
      let isFull = waiting + bytes.readableBytes > queueBytesMax ?? resources.limits.maxStreamQueueBytes
      if isFull || !core.pointee.memory.isWithinLimit(slot) {
        slot.pointee.flags.insert(.needsDrainCallback)
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
    guard let slot = find(stream), slot.pointee.phase == .streaming,
      !slot.pointee.flags.contains(.finished)
    else { return .gone }
    slot.pointee.flags.insert(.finished)
    resume(slot)
    return .queued
  }

  /// Charge a stream for bytes that the application keeps for it elsewhere. The value replaces the previous one.
  ///
  /// - Returns: false if the stream exceeds its limit. The bytes are charged all the same, until the application keeps
  ///   fewer.
  package func setRetainedBytes(_ stream: HTTP2StreamHandle, _ byteCount: Int) -> Bool {
    guard let slot = find(stream), slot.pointee.phase == .streaming else { return true }
    slot.pointee.charge.retained = byteCount
    core.pointee.memory.chargeStreaming(slot)
    return core.pointee.memory.isWithinLimit(slot)
  }

  /// Bytes queued in a streaming response; nil if the stream has none.
  package func queuedBytes(_ stream: HTTP2StreamHandle) -> Int? {
    guard let slot = find(stream), slot.pointee.phase == .streaming else { return nil }
    return slot.pointee.outgoing.bytes.readableBytes
  }

  // MARK: Streamed request bodies

  /// Read bytes of a streamed request's body. The closure gets all unread bytes and whether the body ends with them,
  /// and returns how many it consumed. The consumed bytes are returned to the client's windows (RFC 9113 section 6.9).
  /// The rest, at most ``HTTP2Limits/streamedWindowSize`` bytes, is offered again with the next bytes or the next call.
  /// Returns false if the handle is stale or the request is not streamed.
  @discardableResult
  package func readBody(_ stream: HTTP2StreamHandle, _ consume: (RawSpan, _ isEnd: Bool) -> Int) -> Bool {
    guard let slot = find(stream), slot.pointee.flags.contains(.bodyStreams),
      slot.pointee.phase == .delivered || slot.pointee.phase == .streaming, core.pointee.session != nil
    else { return false }
    let isEnd = slot.pointee.flags.contains(.remoteEnded)
    let body = slot.pointee.received.body
    let taken = consume(RawSpan(_unsafeBytes: body), isEnd)
    precondition(taken >= 0 && taken <= body.count, "more taken than there was")
    if isEnd && taken == body.count { slot.pointee.flags.insert(.bodyEndSeen) }
    slot.pointee.received.dropBody(taken)
    if slot.pointee.phase == .streaming {
      core.pointee.memory.chargeStreaming(slot)
    } else {
      core.pointee.memory.charge(slot)
    }
    if taken > 0 {
      core.pointee.consumeStreamed(slot.pointee.streamID, taken)
      output.markPending()
    }
    return true
  }

  // MARK: Private

  @inline(__always)
  private func find(_ stream: HTTP2StreamHandle) -> UnsafeMutablePointer<StreamSlot>? {
    guard let slot = core.pointee.pool.pointee.find(stream), slot.pointee.core == core else { return nil }
    return slot
  }

  private func resume(_ slot: UnsafeMutablePointer<StreamSlot>) {
    output.markPending()
    guard slot.pointee.flags.contains(.deferred), let session = core.pointee.session else { return }
    slot.pointee.flags.remove(.deferred)
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
    slot.pointee.phase = .answered
    if !hasBody { slot.pointee.flags.insert(.localEnded) }
    collectFields(headers, slot)
    let result = resources.headers.withList(
      slot: slot,
      status: status,
      contentType: contentType,
      length: mayHaveLength ? length : nil
    ) { list, count in
      nghttp2Submit(session, slot, headers: list, count: count, hasBody: hasBody)
    }
    if slot.pointee.flags.contains(.bodyStreams) { dropUnreadBody(slot) }
    return submitted(slot, result)
  }

  /// Drop the unread part of a streamed body after a complete response. The rest is read and dropped like other bodies,
  /// within ``HTTP2Limits/maxDroppedBodyBytes``. Clients that send before they read still get the response.
  private func dropUnreadBody(_ slot: UnsafeMutablePointer<StreamSlot>) {
    let unread = slot.pointee.received.bodyCount
    slot.pointee.flags.remove(.bodyStreams)
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
    output.markPending()
    guard result == 0 else {
      // NOMEM, or DATA_EXIST for a second response, which the phases prevent.
      context?.close(promise: nil)
      return .gone
    }
    core.pointee.counters.responses += 1
    if !slot.pointee.flags.contains(.remoteEnded) { answeredEarly.append(slot.pointee.handle) }
    return .queued
  }
}
