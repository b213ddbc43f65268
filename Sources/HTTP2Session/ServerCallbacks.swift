internal import CNghttp2

// The functions that nghttp2 calls. None of them may call nghttp2_session_mem_recv or mem_send, nor the application:
// what the application has to know waits in ServerCore's list until mem_recv or mem_send has returned.

/// The table of the functions below. The caller frees it with `nghttp2_session_callbacks_del`.
func makeServerCallbacks() -> OpaquePointer {
  var made: OpaquePointer?
  // The only failure is lack of memory.
  guard nghttp2_session_callbacks_new(&made) == 0, let table = made else {
    fatalError("nghttp2_session_callbacks_new: no memory")
  }
  nghttp2_session_callbacks_set_on_begin_frame_callback(table, onBeginFrame)
  nghttp2_session_callbacks_set_on_begin_headers_callback(table, onBeginHeaders)
  nghttp2_session_callbacks_set_on_header_callback(table, onHeader)
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(table, onDataChunk)
  nghttp2_session_callbacks_set_on_frame_recv_callback(table, onFrameReceived)
  nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(table, onInvalidFrame)
  nghttp2_session_callbacks_set_on_frame_send_callback(table, onFrameSent)
  nghttp2_session_callbacks_set_on_stream_close_callback(table, onStreamClose)
  return table
}

/// Bytes of an answer into nghttp2's frame buffer.
let readResponse: nghttp2_data_source_read_callback = { _, _, buffer, length, dataFlags, source, _ in
  let slot = source.unsafelyUnwrapped.pointee.ptr.assumingMemoryBound(to: StreamSlot.self)
  let available = slot.pointee.response.readableBytes
  let streaming = slot.pointee.phase == .streaming
  if available == 0 && streaming && !slot.pointee.flags.contains(.finished) {
    slot.pointee.flags.insert(.deferred)
    return Int(NGHTTP2_ERR_DEFERRED.rawValue)
  }
  let count = min(available, length)
  if count > 0 {
    slot.pointee.response.withUnsafeReadableBytes { bytes in
      UnsafeMutableRawPointer(buffer.unsafelyUnwrapped)
        .copyMemory(from: bytes.baseAddress.unsafelyUnwrapped, byteCount: count)
    }
    slot.pointee.response.moveReaderIndex(forwardBy: count)
  }
  if count == available {
    if !streaming || slot.pointee.flags.contains(.finished) {
      dataFlags.unsafelyUnwrapped.pointee |= UInt32(NGHTTP2_DATA_FLAG_EOF.rawValue)
      slot.pointee.flags.insert(.localEnded)
    } else {
      slot.pointee.response.clear()
      if slot.pointee.flags.contains(.wantsDrain) { slot.pointee.core.unsafelyUnwrapped.pointee.wait(slot) }
    }
  }
  return count
}

private typealias Core = UnsafeMutablePointer<ServerCore>

@inline(__always)
private func core(_ user: UnsafeMutableRawPointer?) -> Core {
  user.unsafelyUnwrapped.assumingMemoryBound(to: ServerCore.self)
}

extension ServerCore {
  /// The slot of an open stream, nil for one that is not open.
  @inline(__always)
  mutating func lookup(_ streamID: Int32) -> UnsafeMutablePointer<StreamSlot>? {
    if streamID == recentStreamID { return recentSlot }
    guard let data = nghttp2_session_get_stream_user_data(session, streamID) else { return nil }
    let slot = data.assumingMemoryBound(to: StreamSlot.self)
    recentSlot = slot
    recentStreamID = streamID
    return slot
  }

  /// A HEADERS or DATA frame on a stream that is not open, though its number has been passed (RFC 9113 section 5.1,
  /// "closed"). nghttp2 1.52 ignores it. Returns what the callback has to return.
  @inline(never)
  fileprivate mutating func frameOnClosedStream(_ streamID: Int32, isHeaders: Bool) -> Int32 {
    if goAwaySubmitted { return 0 }
    switch history.verdict(streamID) {
    case .ignore: return 0
    case .resetAgain:
      // Section 5.1: after RST_STREAM was received, a stream error of type STREAM_CLOSED.
      if let refused = spendControlFrame() { return refused }
      _ = nghttp2_submit_rst_stream(session, 0, streamID, HTTP2ErrorCode.streamClosed.rawValue)
      counters.protocolErrors += 1
      return 0
    case .neverOpened: return fail(isHeaders ? .protocolError : .streamClosed)
    case .closed: return fail(.streamClosed)
    }
  }

  private mutating func fail(_ code: HTTP2ErrorCode) -> Int32 {
    terminate(code)
    return Int32(NGHTTP2_ERR_CALLBACK_FAILURE.rawValue)
  }

  /// Nil, or what the callback has to return because there have been too many.
  @inline(never)
  fileprivate mutating func spendControlFrame() -> Int32? {
    if controlFrames.spend(now: now) { return nil }
    counters.limitsHit += 1
    return fail(.enhanceYourCalm)
  }
}

/// Checks that nghttp2 leaves out, on the frame's header alone, before its payload is read.
private let onBeginFrame: nghttp2_on_begin_frame_callback = { _, header, user in
  let core = core(user)
  let header = header.unsafelyUnwrapped
  let type = header.pointee.type
  let id = header.pointee.stream_id
  if type <= 1 {  // DATA, HEADERS
    if id > core.pointee.history.highest {
      if type == 1 && id & 1 == 1 { core.pointee.history.opened(id) }
    } else if id > 0 && id & 1 == 1 && core.pointee.lookup(id) == nil {
      return core.pointee.frameOnClosedStream(id, isHeaders: type == 1)
    }
    if type == 0 && header.pointee.length == 0 && header.pointee.flags & 1 == 0 {
      return core.pointee.spendControlFrame() ?? 0
    }
    return 0
  }
  switch type {
  case 0x3, 0x7, 0x8, 0x9: return 0  // RST_STREAM, GOAWAY, WINDOW_UPDATE, CONTINUATION
  default: return core.pointee.spendControlFrame() ?? 0
  }
}

private let onBeginHeaders: nghttp2_on_begin_headers_callback = { session, frame, user in
  let core = core(user)
  let headers = UnsafeRawPointer(frame.unsafelyUnwrapped).assumingMemoryBound(to: nghttp2_headers.self)
  guard headers.pointee.cat == NGHTTP2_HCAT_REQUEST else {
    core.pointee.decoding = nil
    return 0
  }
  let slot = core.pointee.open(headers.pointee.hd.stream_id, core: core)
  // Fails only for a stream that does not exist.
  _ = nghttp2_session_set_stream_user_data(session, headers.pointee.hd.stream_id, slot)
  core.pointee.decoding = slot
  return 0
}

private let onHeader: nghttp2_on_header_callback = { _, _, name, nameCount, value, valueCount, _, user in
  let core = core(user)
  guard let slot = core.pointee.decoding else { return 0 }
  let name = name.unsafelyUnwrapped
  let value = value.unsafelyUnwrapped
  slot.pointee.headerListBytes += nameCount + valueCount + 32
  if slot.pointee.headerListBytes > core.pointee.maxHeaderListBytes {
    slot.pointee.flags.insert(.headersTooLarge)
    return 0
  }
  slot.pointee.storeField(name, nameCount, value, valueCount)
  if nameCount == 13 && slot.pointee.fields.authorization.count == UInt32(valueCount)
    && isBytes(name, nameCount, "authorization")
  {
    slot.pointee.authorizationIdentity = core.pointee.identities.identity(value, valueCount)
  }
  return 0
}

extension StreamSlot {
  /// Stores one field, and notes where it is if it is one of those that are always asked for. The first of a name
  /// counts. Its name's length settles nearly every comparison.
  @inline(__always)
  mutating func storeField(
    _ name: UnsafePointer<UInt8>, _ nameCount: Int, _ value: UnsafePointer<UInt8>, _ valueCount: Int
  ) {
    reserve(StreamSlot.fieldPrefixBytes + nameCount + valueCount)
    let prefix = UnsafeMutableRawPointer(bytes.unsafelyUnwrapped + count)
    prefix.storeBytes(of: UInt16(truncatingIfNeeded: nameCount), as: UInt16.self)
    prefix.storeBytes(of: UInt16(truncatingIfNeeded: valueCount), toByteOffset: 2, as: UInt16.self)
    count += StreamSlot.fieldPrefixBytes
    _ = append(name, nameCount)
    let range = append(value, valueCount)
    switch nameCount {
    case 5: if isBytes(name, nameCount, ":path") { fields.path = range }
    case 6:
      if isBytes(name, nameCount, "accept") { first(range, \.accept) }
      if isBytes(name, nameCount, "origin") { first(range, \.origin) }
    case 7: if isBytes(name, nameCount, ":method") { method = HTTP2Method(value, valueCount) }
    case 10: if isBytes(name, nameCount, ":authority") { fields.authority = range }
    case 12:
      if isBytes(name, nameCount, "content-type") { first(range, \.contentType) }
      if isBytes(name, nameCount, "x-request-id") { first(range, \.requestID) }
    case 13:
      if isBytes(name, nameCount, "authorization") { first(range, \.authorization) }
      if isBytes(name, nameCount, "last-event-id") { first(range, \.lastEventID) }
    case 14:
      if isBytes(name, nameCount, "content-length") {
        // nghttp2 has checked that it is a number, or resets the stream.
        declaredBodyBytes = parseDecimal(value, valueCount) ?? Int.max
      }
    case 15: if isBytes(name, nameCount, "x-forwarded-for") { first(range, \.forwardedFor) }
    default: break
    }
  }

  @inline(__always)
  private mutating func first(_ range: ByteRange, _ field: WritableKeyPath<Fields, ByteRange>) {
    if fields[keyPath: field].count == 0 { fields[keyPath: field] = range }
  }
}

extension HTTP2Method {
  @inline(__always)
  init(_ bytes: UnsafePointer<UInt8>, _ count: Int) {
    switch count {
    case 3: self = isBytes(bytes, 3, "GET") ? .get : isBytes(bytes, 3, "PUT") ? .put : .other
    case 4: self = isBytes(bytes, 4, "POST") ? .post : isBytes(bytes, 4, "HEAD") ? .head : .other
    case 5: self = isBytes(bytes, 5, "PATCH") ? .patch : .other
    case 6: self = isBytes(bytes, 6, "DELETE") ? .delete : .other
    case 7: self = isBytes(bytes, 7, "OPTIONS") ? .options : .other
    default: self = .other
    }
  }
}

private let onDataChunk: nghttp2_on_data_chunk_recv_callback = { _, _, streamID, data, length, user in
  let core = core(user)
  guard let slot = core.pointee.lookup(streamID) else { return 0 }
  // Past a limit, or answered already: the rest is read and dropped.
  guard slot.pointee.phase == .receiving else { return 0 }
  if slot.pointee.count - slot.pointee.headerEnd + length > core.pointee.maxBodyBytes {
    slot.pointee.flags.insert(.bodyTooLarge)
    core.pointee.deliver(slot)
    return 0
  }
  slot.pointee.reserve(length)
  _ = slot.pointee.append(data.unsafelyUnwrapped, length)
  return 0
}

extension ServerCore {
  @inline(__always)
  fileprivate mutating func deliver(_ slot: UnsafeMutablePointer<StreamSlot>) {
    guard slot.pointee.phase == .receiving else { return }
    slot.pointee.phase = .ready
    wait(slot)
  }
}

private let onFrameReceived: nghttp2_on_frame_recv_callback = { _, frame, user in
  let core = core(user)
  let header = UnsafeRawPointer(frame.unsafelyUnwrapped).assumingMemoryBound(to: nghttp2_frame_hd.self)
  switch header.pointee.type {
  case 0x0:  // DATA
    if header.pointee.flags & 1 != 0, let slot = core.pointee.lookup(header.pointee.stream_id) {
      slot.pointee.flags.insert(.remoteEnded)
      core.pointee.deliver(slot)
    }
  case 0x1:  // HEADERS, of a request or trailers
    guard let slot = core.pointee.lookup(header.pointee.stream_id) else { return 0 }
    if let decoded = core.pointee.decoding {
      decoded.pointee.headerEnd = decoded.pointee.count
      core.pointee.decoding = nil
      if decoded.pointee.declaredBodyBytes > core.pointee.maxBodyBytes {
        decoded.pointee.flags.insert(.bodyTooLarge)
      }
      // There is no use in waiting for a body that will not be read.
      if !decoded.pointee.flags.isDisjoint(with: [.headersTooLarge, .bodyTooLarge]) {
        core.pointee.deliver(decoded)
      }
    }
    if header.pointee.flags & 1 != 0 {
      slot.pointee.flags.insert(.remoteEnded)
      core.pointee.deliver(slot)
    }
  case 0x3:  // RST_STREAM
    core.pointee.counters.resetsReceived += 1
    core.pointee.history.noteResetByPeer(header.pointee.stream_id)
    core.pointee.lookup(header.pointee.stream_id)?.pointee.flags.insert(.remoteEnded)
  case 0x4: core.pointee.prefaceSeen = true  // SETTINGS
  case 0x7: core.pointee.counters.goAwaysReceived += 1  // GOAWAY
  default: break
  }
  return 0
}

private let onInvalidFrame: nghttp2_on_invalid_frame_recv_callback = { _, frame, error, user in
  let core = core(user)
  let header = UnsafeRawPointer(frame.unsafelyUnwrapped).assumingMemoryBound(to: nghttp2_frame_hd.self)
  // A stream that nghttp2 refused was never open to us, but what the peer had sent on it by then is no error.
  if header.pointee.stream_id != 0 { core.pointee.history.noteResetByUs(header.pointee.stream_id) }
  if error == Int32(NGHTTP2_ERR_REFUSED_STREAM.rawValue) {
    core.pointee.counters.limitsHit += 1
  } else {
    core.pointee.counters.protocolErrors += 1
  }
  return 0
}

private let onFrameSent: nghttp2_on_frame_send_callback = { _, frame, user in
  let header = UnsafeRawPointer(frame.unsafelyUnwrapped).assumingMemoryBound(to: nghttp2_frame_hd.self)
  switch header.pointee.type {
  case 0x3: core(user).pointee.counters.resetsSent += 1
  case 0x7: core(user).pointee.counters.goAwaysSent += 1
  default: break
  }
  return 0
}

private let onStreamClose: nghttp2_on_stream_close_callback = { session, streamID, _, user in
  let core = core(user)
  guard let data = nghttp2_session_get_stream_user_data(session, streamID) else { return 0 }
  let slot = data.assumingMemoryBound(to: StreamSlot.self)
  if !slot.pointee.flags.contains(.remoteEnded) { core.pointee.history.noteResetByUs(streamID) }
  if core.pointee.decoding == slot { core.pointee.decoding = nil }
  core.pointee.close(slot)
  return 0
}
