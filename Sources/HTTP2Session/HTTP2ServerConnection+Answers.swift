internal import CNghttp2
package import NIOCore

extension HTTP2ServerConnection {
  /// Reads a request in place. Nil, and no call, if the handle is stale or the request has been answered. The
  /// closure may answer, but not flush.
  package func withRequest<Result, Failure: Error>(
    _ stream: HTTP2StreamHandle,
    _ body: (borrowing HTTP2Request) throws(Failure) -> Result
  ) throws(Failure) -> Result? {
    guard let slot = find(stream), slot.pointee.phase == .delivered || slot.pointee.phase == .streaming else {
      return nil
    }
    return try body(HTTP2Request(slot))
  }

  /// Whether the request of that handle still waits for its answer.
  package func isOpen(_ stream: HTTP2StreamHandle) -> Bool {
    find(stream).map { $0.pointee.phase == .delivered } ?? false
  }

  /// Keeps a number beside a request until it is answered (``HTTP2Request/note``).
  package func note(_ stream: HTTP2StreamHandle, _ note: UInt64) { find(stream)?.pointee.note = note }

  /// Has what a stream holds, now and later, count for somebody over all connections (``MemoryBudget``), and with it
  /// what its answer will take.
  ///
  /// - Parameters:
  ///   - key: a hash of who it is, with a seed that nobody outside knows; 0: nobody else than so far.
  ///   - answerBytes: about as many as the answer will have; it counts for itself when it is there.
  /// - Returns: false where they, or this connection, would hold more than they may.
  package func admit(_ stream: HTTP2StreamHandle, for key: UInt64, answerBytes: Int) -> Bool {
    guard let slot = find(stream) else { return true }
    return core.pointee.admit(slot, for: key, answerBytes: answerBytes)
  }

  /// Answers a request. `body` writes into the stream's own buffer, which is empty when it is called and is
  /// sent from where it is. Content-length is set (RFC 9110 section 8.6); an answer without body ends with
  /// its headers; to HEAD the same headers go without the body.
  ///
  /// - Parameters:
  ///   - status: 200 to 999.
  ///   - headers: at most 28 more, empty for most answers.
  @discardableResult
  package func respond(
    _ stream: HTTP2StreamHandle,
    status: Int,
    contentType: HTTP2ContentType = .json,
    headers: [HTTP2Header] = [],
    body: (inout ByteBuffer) -> Void
  ) -> HTTP2Outcome {
    guard let slot = find(stream), slot.pointee.phase == .delivered else { return .gone }
    slot.pointee.response.clear()
    body(&slot.pointee.response)
    return submit(slot, status, contentType, headers)
  }

  /// Answers a request with a body that exists already; shared storage is sent without a copy of ours.
  ///
  /// - Parameter isKept: its storage stays whoever takes it, and so counts for no stream.
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
    slot.pointee.response = body
    return submit(slot, status, contentType, headers, heldBytes: isKept ? 0 : body.readableBytes)
  }

  /// Answers a request without a body.
  @discardableResult
  package func respond(
    _ stream: HTTP2StreamHandle,
    status: Int,
    headers: [HTTP2Header] = []
  ) -> HTTP2Outcome {
    guard let slot = find(stream), slot.pointee.phase == .delivered else { return .gone }
    slot.pointee.response.clear()
    return submit(slot, status, .none, headers)
  }

  /// Resets a stream instead of answering it.
  package func reset(_ stream: HTTP2StreamHandle, _ code: HTTP2ErrorCode) {
    guard let slot = find(stream), let session = core.pointee.session else { return }
    _ = nghttp2_submit_rst_stream(session, 0, slot.pointee.streamID, code.rawValue)
    // The application has asked for it: it need not be told.
    slot.pointee.flags.insert(.localEnded)
    isDirty = true
  }

  // MARK: Streaming

  // An answer of unknown length keeps its bytes in the same buffer of its slot: write appends at its end,
  // nghttp2 takes from its front as the peer's windows allow, and is woken by resume_data when it had found
  // nothing. A stream that has nothing to send holds no buffer.

  /// Begins an answer whose body follows in pieces, without content-length.
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
    slot.pointee.response.clear()
    slot.pointee.phase = .streaming
    if slot.pointee.method == .head { slot.pointee.flags.formUnion([.finished, .localEnded]) }
    let hasBody = slot.pointee.method != .head
    let result = resources.headers.withList(
      slot: slot,
      status: status,
      contentType: contentType,
      length: nil,
      extra: all(headers, slot)
    ) { list, count in
      nghttp2Submit(session, slot, list, count, hasBody: hasBody)
    }
    return submitted(slot, result)
  }

  /// Queues bytes of a streaming answer. All are taken, or none: ``HTTP2Outcome/full`` beyond a bound, unless the
  /// queue was empty.
  ///
  /// - Parameter queueBytesMax: the bound; nil: ``HTTP2Limits/maxStreamQueueBytes``.
  @discardableResult
  package func write(
    _ stream: HTTP2StreamHandle,
    _ bytes: ByteBuffer,
    queueBytesMax: Int? = nil
  ) -> HTTP2Outcome {
    guard let slot = find(stream), slot.pointee.phase == .streaming,
      !slot.pointee.flags.contains(.finished)
    else { return .gone }
    let waiting = slot.pointee.response.readableBytes
    if waiting > 0 && waiting + bytes.readableBytes > queueBytesMax ?? resources.limits.maxStreamQueueBytes {
      slot.pointee.flags.insert(.wantsDrain)
      return .full
    }
    if waiting == 0 {
      // Shared with all others that are sent the same: for an event to thousands of streams nothing is copied but into
      // the frames.
      slot.pointee.response = bytes
    } else {
      slot.pointee.response.discardReadBytes()
      slot.pointee.response.writeImmutableBuffer(bytes)
    }
    resume(slot)
    return .queued
  }

  /// Ends a streaming answer; what is queued is still sent.
  @discardableResult
  package func finish(_ stream: HTTP2StreamHandle) -> HTTP2Outcome {
    guard let slot = find(stream), slot.pointee.phase == .streaming,
      !slot.pointee.flags.contains(.finished)
    else { return .gone }
    slot.pointee.flags.insert(.finished)
    resume(slot)
    return .queued
  }

  /// Bytes that wait in a streaming answer; nil if the stream is not one.
  package func queuedBytes(_ stream: HTTP2StreamHandle) -> Int? {
    guard let slot = find(stream), slot.pointee.phase == .streaming else { return nil }
    return slot.pointee.response.readableBytes
  }

  // MARK: Streamed request bodies

  /// Takes bytes of a streamed request's body. The closure gets all that has come and has not been taken,
  /// whether the body ends with it, and returns how many bytes it takes. Their windows are given back to the
  /// client (RFC 9113 section 6.9); the rest stays, at most ``HTTP2Limits/streamedWindowSize`` bytes of it,
  /// and is offered again with what comes next, or when this is called again. False if the handle is stale or
  /// the request not a streamed one.
  @discardableResult
  package func readBody(_ stream: HTTP2StreamHandle, _ take: (RawSpan, _ isEnd: Bool) -> Int) -> Bool {
    guard let slot = find(stream), slot.pointee.flags.contains(.bodyStreams),
      slot.pointee.phase == .delivered || slot.pointee.phase == .streaming, core.pointee.session != nil
    else { return false }
    let isEnd = slot.pointee.flags.contains(.remoteEnded)
    let body = slot.pointee.body
    let taken = take(RawSpan(_unsafeBytes: body), isEnd)
    precondition(taken >= 0 && taken <= body.count, "more taken than there was")
    if isEnd && taken == body.count { slot.pointee.flags.insert(.bodyEndSeen) }
    slot.pointee.dropBody(taken)
    core.pointee.charge(slot)
    if taken > 0 {
      core.pointee.consumeStreamed(slot.pointee.streamID, taken)
      isDirty = true
    }
    return true
  }

  // MARK: Inside

  @inline(__always)
  private func find(_ stream: HTTP2StreamHandle) -> UnsafeMutablePointer<StreamSlot>? {
    guard let slot = core.pointee.pool.pointee.find(stream), slot.pointee.core == core else { return nil }
    return slot
  }

  private func resume(_ slot: UnsafeMutablePointer<StreamSlot>) {
    isDirty = true
    guard slot.pointee.flags.contains(.deferred), let session = core.pointee.session else { return }
    slot.pointee.flags.remove(.deferred)
    _ = nghttp2_session_resume_data(session, slot.pointee.streamID)
  }

  private func submit(
    _ slot: UnsafeMutablePointer<StreamSlot>,
    _ status: Int,
    _ contentType: HTTP2ContentType,
    _ headers: [HTTP2Header],
    heldBytes: Int? = nil
  ) -> HTTP2Outcome {
    precondition(status >= 200 && status <= 999, "a final status has three digits and is no 1xx")
    guard let session = core.pointee.session else { return .gone }
    let length = slot.pointee.response.readableBytes
    core.pointee.charge(slot, answer: heldBytes ?? length)
    let hasBody = length > 0 && slot.pointee.method != .head
    // RFC 9110 section 8.6: none with 204; with 304 it would have to be that of the 200.
    let mayHaveLength = status != 204 && status != 304
    slot.pointee.phase = .answered
    if !hasBody { slot.pointee.flags.insert(.localEnded) }
    let result = resources.headers.withList(
      slot: slot,
      status: status,
      contentType: contentType,
      length: mayHaveLength ? length : nil,
      extra: all(headers, slot)
    ) { list, count in
      nghttp2Submit(session, slot, list, count, hasBody: hasBody)
    }
    if slot.pointee.flags.contains(.bodyStreams) { passOverBody(slot) }
    return submitted(slot, result)
  }

  /// A streamed body that is answered as a whole is not wanted: the rest of it is read and dropped as that of others
  /// is, within ``HTTP2Limits/maxDroppedBodyBytes``, so that clients that send before they read get the answer.
  private func passOverBody(_ slot: UnsafeMutablePointer<StreamSlot>) {
    let unread = slot.pointee.count - slot.pointee.headerEnd
    slot.pointee.flags.remove(.bodyStreams)
    guard unread > 0 else { return }
    slot.pointee.dropBody(unread)
    slot.pointee.droppedBodyBytes += unread
    core.pointee.consumeStreamed(slot.pointee.streamID, unread)
  }

  /// These headers and those that the application has every answer carry.
  @inline(__always)
  private func all(_ headers: [HTTP2Header], _ slot: UnsafeMutablePointer<StreamSlot>) -> [HTTP2Header] {
    guard let common = resources.commonHeaders else { return headers }
    return headers + common(HTTP2Request(slot))
  }

  @inline(__always)
  private func nghttp2Submit(
    _ session: OpaquePointer,
    _ slot: UnsafeMutablePointer<StreamSlot>,
    _ list: UnsafeMutablePointer<nghttp2_nv>,
    _ count: Int,
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
    isDirty = true
    guard result == 0 else {
      // NOMEM, or DATA_EXIST for a second answer, which the phases rule out.
      context?.close(promise: nil)
      return .gone
    }
    core.pointee.counters.answers += 1
    if !slot.pointee.flags.contains(.remoteEnded) { core.pointee.answeredEarly.append(slot.pointee.handle) }
    return .queued
  }
}
