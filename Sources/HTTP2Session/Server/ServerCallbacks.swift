internal import CNghttp2
internal import NIOCore

// Functions that nghttp2 calls. They must not call nghttp2_session_mem_recv or mem_send, nor the application. Events
// for the application wait in ServerCore's pending list until mem_recv or mem_send has returned.

/// Create the table of the functions below. The caller frees it with `nghttp2_session_callbacks_del`.
func makeServerCallbacks() -> OpaquePointer {
  var callbacks: OpaquePointer?
  // Fails only for lack of memory.
  guard nghttp2_session_callbacks_new(&callbacks) == 0, let table = callbacks else {
    fatalError("nghttp2_session_callbacks_new: no memory")
  }
  nghttp2_session_callbacks_set_on_begin_headers_callback(table, onBeginHeaders)
  nghttp2_session_callbacks_set_on_header_callback(table, onHeader)
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(table, onDataChunk)
  nghttp2_session_callbacks_set_on_frame_recv_callback(table, onFrameReceived)
  nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(table, onInvalidFrame)
  nghttp2_session_callbacks_set_on_frame_send_callback(table, onFrameSent)
  nghttp2_session_callbacks_set_on_stream_close_callback(table, onStreamClose)
  return table
}

/// Copy bytes of a response into nghttp2's frame buffer.
let readResponse: nghttp2_data_source_read_callback = { _, _, buffer, length, dataFlags, source, _ in
  let slot = source.unsafelyUnwrapped.pointee.ptr.assumingMemoryBound(to: StreamSlot.self)
  let core = slot.pointee.core.unsafelyUnwrapped
  let available = slot.pointee.outgoing.bytes.readableBytes
  if available == 0 && slot.pointee.state.outputDeferred() { return Int(NGHTTP2_ERR_DEFERRED.rawValue) }
  let count = slot.pointee.outgoing.read(into: buffer.unsafelyUnwrapped, max: length)
  if count > 0 {
    core.pointee.progress.sent(count)
    core.pointee.inbound.dataSent()
  }
  if count == available {
    switch slot.pointee.state.outputTaken() {
    case .end: dataFlags.unsafelyUnwrapped.pointee |= UInt32(NGHTTP2_DATA_FLAG_EOF.rawValue)
    case .release(let notifies):
      slot.pointee.outgoing.bytes = ByteBuffer()
      if slot.pointee.charge.includesQueue { core.pointee.memory.chargeStreaming(slot) }
      if notifies { core.pointee.pending.append(slot) }
    }
  }
  return count
}

private typealias Core = UnsafeMutablePointer<ServerCore>

@inline(__always)
private func core(_ user: UnsafeMutableRawPointer?) -> Core {
  user.unsafelyUnwrapped.assumingMemoryBound(to: ServerCore.self)
}

private let onBeginHeaders: nghttp2_on_begin_headers_callback = { session, frame, user in
  let core = core(user)
  let headers = UnsafeRawPointer(frame.unsafelyUnwrapped).assumingMemoryBound(to: nghttp2_headers.self)
  guard headers.pointee.cat == NGHTTP2_HCAT_REQUEST else {
    core.pointee.headers.begin(nil)
    return 0
  }
  let slot = core.pointee.open(headers.pointee.hd.stream_id, core: core)
  // Fails only for a stream that does not exist.
  _ = nghttp2_session_set_stream_user_data(session, headers.pointee.hd.stream_id, slot)
  core.pointee.headers.begin(slot)
  return 0
}

private let onHeader: nghttp2_on_header_callback = { _, _, name, nameCount, value, valueCount, _, user in
  let core = core(user)
  // Trailers count too.
  guard core.pointee.headers.count(nameCount + valueCount + 32) else {
    core.pointee.counters.limitsHit += 1
    core.pointee.terminate(.enhanceYourCalm)
    return Int32(NGHTTP2_ERR_CALLBACK_FAILURE.rawValue)
  }
  guard let slot = core.pointee.headers.slot else { return 0 }
  let name = name.unsafelyUnwrapped
  let value = value.unsafelyUnwrapped
  let listBytesMax = core.pointee.headers.listBytesMax
  guard slot.pointee.received.countField(nameCount + valueCount + 32, max: listBytesMax) else {
    slot.pointee.state.headerListExceeded()
    // A proxy appends its field last: an earlier one is the client's own, and may name somebody else.
    slot.pointee.received.clearForwardedFor()
    return 0
  }
  if slot.pointee.state.isRefused { return 0 }
  let isAuthorization = nameCount == 13 && isBytes(name, nameCount, "authorization")
  // RFC 9113 section 8.2.1: such a value is malformed. `authorization` is exempt: a caller without a token sends
  // `Bearer `, and gets an error that says so.
  if !isAuthorization, valueCount > 0, isBlank(value[0]) || isBlank(value[valueCount - 1]) {
    core.pointee.headers.ignore(slot)
    core.pointee.counters.protocolErrors += 1
    core.pointee.resetUndelivered(slot, .protocolError)
    return 0
  }
  if isAuthorization {
    // The header is not a list (RFC 9110 section 11.6.2), so two values would be ambiguous.
    guard slot.pointee.state.authorizationReceived() else {
      core.pointee.headers.ignore(slot)
      core.pointee.counters.protocolErrors += 1
      core.pointee.resetUndelivered(slot, .protocolError)
      return 0
    }
    slot.pointee.received.authorizationIdentity = core.pointee.headers.identity(value, valueCount)
  }
  guard core.pointee.headers.retains(name, nameCount) else { return 0 }
  if slot.pointee.received.storeField(name, nameCount: nameCount, value: value, valueCount: valueCount) {
    slot.pointee.state.continueExpected()
  }
  return 0
}

@inline(__always)
private func isBlank(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x09 }

private let onDataChunk: nghttp2_on_data_chunk_recv_callback = { session, _, streamID, data, length, user in
  let core = core(user)
  guard let slot = core.pointee.lookup(streamID) else {
    _ = nghttp2_session_consume_connection(session, length)
    return 0
  }
  core.pointee.bodyReceived(slot, data.unsafelyUnwrapped, length)
  return 0
}

private let onFrameReceived: nghttp2_on_frame_recv_callback = { _, frame, user in
  let core = core(user)
  let header = UnsafeRawPointer(frame.unsafelyUnwrapped).assumingMemoryBound(to: nghttp2_frame_hd.self)
  let endsStream = HTTP2FrameFlags.endsStream(header.pointee.flags)
  switch HTTP2FrameType(rawValue: header.pointee.type) {
  case .data:
    if endsStream, let slot = core.pointee.lookup(header.pointee.stream_id) { core.pointee.requestEnded(slot) }
  case .headers:
    guard let slot = core.pointee.lookup(header.pointee.stream_id) else { return 0 }
    if let decoded = core.pointee.headers.end() {
      core.pointee.headersReceived(decoded, endsStream: endsStream)
    } else if endsStream {
      core.pointee.requestEnded(slot)  // with trailers
    }
  case .resetStream:
    core.pointee.counters.resetsReceived += 1
    core.pointee.inbound.history.recordResetByPeer(header.pointee.stream_id)
    core.pointee.lookup(header.pointee.stream_id)?.pointee.state.resetByPeer()
  case .settings: core.pointee.inbound.settingsReceived()
  case .goAway: core.pointee.counters.goAwaysReceived += 1
  default: break
  }
  return 0
}

private let onInvalidFrame: nghttp2_on_invalid_frame_recv_callback = { _, frame, error, user in
  let core = core(user)
  let header = UnsafeRawPointer(frame.unsafelyUnwrapped).assumingMemoryBound(to: nghttp2_frame_hd.self)
  // nghttp2 refused the stream, so it was never open here. Frames that the peer sent on it by then are not errors.
  if header.pointee.stream_id != 0 { core.pointee.inbound.history.recordResetByUs(header.pointee.stream_id) }
  if error == Int32(NGHTTP2_ERR_REFUSED_STREAM.rawValue) {
    core.pointee.counters.limitsHit += 1
  } else {
    core.pointee.counters.protocolErrors += 1
  }
  return 0
}

private let onFrameSent: nghttp2_on_frame_send_callback = { _, frame, user in
  let header = UnsafeRawPointer(frame.unsafelyUnwrapped).assumingMemoryBound(to: nghttp2_frame_hd.self)
  switch HTTP2FrameType(rawValue: header.pointee.type) {
  case .resetStream: core(user).pointee.counters.resetsSent += 1
  case .goAway: core(user).pointee.goAwaySent(frame.unsafelyUnwrapped.pointee.goaway.error_code)
  default: break
  }
  return 0
}

private let onStreamClose: nghttp2_on_stream_close_callback = { session, streamID, _, user in
  let core = core(user)
  guard let data = nghttp2_session_get_stream_user_data(session, streamID) else { return 0 }
  let slot = data.assumingMemoryBound(to: StreamSlot.self)
  if !slot.pointee.state.hasRemoteEnded { core.pointee.inbound.history.recordResetByUs(streamID) }
  core.pointee.headers.ignore(slot)
  if !core.pointee.memory.isShared, slot.pointee.state.isBodyStreamed, slot.pointee.received.bodyCount > 0 {
    // Return the unread bytes to the connection's window.
    _ = nghttp2_session_consume_connection(session, slot.pointee.received.bodyCount)
  }
  core.pointee.close(slot)
  return 0
}
