internal import CNghttp2
internal import NIOCore

// Functions that nghttp2 calls for a client. The rules in ServerCallbacks.swift apply.

/// Create the table of the functions below. The caller frees it with `nghttp2_session_callbacks_del`.
func makeClientCallbacks() -> OpaquePointer {
  var callbacks: OpaquePointer?
  // Fails only for lack of memory.
  guard nghttp2_session_callbacks_new(&callbacks) == 0, let table = callbacks else {
    fatalError("nghttp2_session_callbacks_new: no memory")
  }
  nghttp2_session_callbacks_set_on_begin_headers_callback(table, onBeginHeaders)
  nghttp2_session_callbacks_set_on_header_callback(table, onHeader)
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(table, onDataChunk)
  nghttp2_session_callbacks_set_on_frame_recv_callback(table, onFrameReceived)
  nghttp2_session_callbacks_set_on_frame_not_send_callback(table, onFrameNotSent)
  nghttp2_session_callbacks_set_on_stream_close_callback(table, onStreamClose)
  return table
}

/// Copy bytes of a request body into nghttp2's frame buffer.
let readRequestBody: nghttp2_data_source_read_callback = { _, _, buffer, length, dataFlags, source, _ in
  let slot = source.unsafelyUnwrapped.pointee.ptr.assumingMemoryBound(to: StreamSlot.self)
  let available = slot.pointee.outgoing.bytes.readableBytes
  if available == 0 && slot.pointee.clientState.outputDeferred() {
    return Int(NGHTTP2_ERR_DEFERRED.rawValue)
  }
  let count = slot.pointee.outgoing.read(into: buffer.unsafelyUnwrapped, max: length)
  if count == available {
    if slot.pointee.clientState.hasFinished {
      dataFlags.unsafelyUnwrapped.pointee |= UInt32(NGHTTP2_DATA_FLAG_EOF.rawValue)
    }
    slot.pointee.outgoing.bytes.clear()
  }
  return count
}

private typealias Core = UnsafeMutablePointer<ClientCore>

@inline(__always)
private func core(_ user: UnsafeMutableRawPointer?) -> Core {
  user.unsafelyUnwrapped.assumingMemoryBound(to: ClientCore.self)
}

@inline(__always)
private func slot(_ session: OpaquePointer?, _ streamID: Int32) -> UnsafeMutablePointer<StreamSlot>? {
  nghttp2_session_get_stream_user_data(session, streamID)?.assumingMemoryBound(to: StreamSlot.self)
}

private let onBeginHeaders: nghttp2_on_begin_headers_callback = { session, frame, user in
  let core = core(user)
  let header = UnsafeRawPointer(frame.unsafelyUnwrapped).assumingMemoryBound(to: nghttp2_frame_hd.self)
  core.pointee.decoding = nil
  core.pointee.decodingTrailers = nil
  guard let slot = slot(session, header.pointee.stream_id) else { return 0 }
  // After a final status these are trailers. An informational status is discarded (RFC 9113 section 8.1).
  if slot.pointee.received.status >= 200 {
    core.pointee.decodingTrailers = slot
    return 0
  }
  slot.pointee.received.beginHeaders()
  core.pointee.decoding = slot
  return 0
}

private let onHeader: nghttp2_on_header_callback = { _, _, name, nameCount, value, valueCount, _, user in
  let core = core(user)
  let name = name.unsafelyUnwrapped
  let value = value.unsafelyUnwrapped
  guard let slot = core.pointee.decoding else {
    storeTrailer(core, name, nameCount, value, valueCount)
    return 0
  }
  if name[0] == UInt8(ascii: ":") {
    // ":status" is the only pseudo-header of a response; nghttp2 has checked it.
    slot.pointee.received.status = Int32(parseDecimal(value, valueCount) ?? 0)
    return 0
  }
  let listBytesMax = core.pointee.headerListBytesMax
  guard slot.pointee.received.countField(nameCount + valueCount + 32, max: listBytesMax) else {
    return 0
  }
  _ = slot.pointee.received.storeField(name, nameCount: nameCount, value: value, valueCount: valueCount)
  return 0
}

/// Store a trailer field, if trailers are being decoded. They share the limit of the response's headers.
private func storeTrailer(
  _ core: Core,
  _ name: UnsafePointer<UInt8>,
  _ nameCount: Int,
  _ value: UnsafePointer<UInt8>,
  _ valueCount: Int
) {
  guard let slot = core.pointee.decodingTrailers else { return }
  let listBytesMax = core.pointee.headerListBytesMax
  guard slot.pointee.received.countField(nameCount + valueCount + 32, max: listBytesMax) else {
    return
  }
  let field = HTTP2TrailerField(
    name: Array(UnsafeBufferPointer(start: name, count: nameCount)),
    value: Array(UnsafeBufferPointer(start: value, count: valueCount))
  )
  core.pointee.appendTrailer(field, to: slot)
}

private let onDataChunk: nghttp2_on_data_chunk_recv_callback = { session, _, streamID, data, length, user in
  let core = core(user)
  guard let slot = slot(session, streamID) else { return 0 }
  if slot.pointee.received.bodyCount + length > core.pointee.bodyBytesMax {
    _ = nghttp2_submit_rst_stream(session, 0, streamID, HTTP2ErrorCode.cancel.rawValue)
    return 0
  }
  slot.pointee.received.appendBody(data.unsafelyUnwrapped, length)
  if slot.pointee.clientState.isStreaming { core.pointee.pending.append(slot) }
  return 0
}

private let onFrameReceived: nghttp2_on_frame_recv_callback = { session, frame, user in
  let core = core(user)
  let header = UnsafeRawPointer(frame.unsafelyUnwrapped).assumingMemoryBound(to: nghttp2_frame_hd.self)
  switch HTTP2FrameType(rawValue: header.pointee.type) {
  case .data, .headers:
    if let decoded = core.pointee.decoding {
      decoded.pointee.received.endHeaders()
      core.pointee.decoding = nil
      if decoded.pointee.clientState.isStreaming && decoded.pointee.received.status >= 200 {
        core.pointee.pending.append(decoded)
      }
    }
    core.pointee.decodingTrailers = nil
    if HTTP2FrameFlags.endsStream(header.pointee.flags) {
      slot(session, header.pointee.stream_id)?.pointee.clientState.responseEnded()
    }
  case .resetStream: core.pointee.counters.resetsReceived += 1
  case .settings: core.pointee.hasReceivedSettings = true
  case .goAway:
    core.pointee.counters.goAwaysReceived += 1
    core.pointee.hasReceivedGoAway = true
  default: break
  }
  return 0
}

/// Fail a request that was never sent: the server is going away, or stream numbers are used up.
private let onFrameNotSent: nghttp2_on_frame_not_send_callback = { session, frame, _, user in
  let header = UnsafeRawPointer(frame.unsafelyUnwrapped).assumingMemoryBound(to: nghttp2_frame_hd.self)
  if header.pointee.type == HTTP2FrameType.headers.rawValue, let slot = slot(session, header.pointee.stream_id) {
    core(user).pointee.close(slot, errorCode: HTTP2ErrorCode.refusedStream.rawValue)
  }
  return 0
}

private let onStreamClose: nghttp2_on_stream_close_callback = { session, streamID, errorCode, user in
  let core = core(user)
  guard let slot = slot(session, streamID) else { return 0 }
  if core.pointee.decoding == slot { core.pointee.decoding = nil }
  if core.pointee.decodingTrailers == slot { core.pointee.decodingTrailers = nil }
  core.pointee.close(slot, errorCode: errorCode)
  return 0
}
