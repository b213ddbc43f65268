internal import CNghttp2
internal import NIOCore

// The functions that nghttp2 calls. None of them may call nghttp2_session_mem_recv or mem_send, nor the
// application: what the application has to know waits in ServerCore's list until mem_recv or mem_send has
// returned.

/// The table of the functions below. The caller frees it with `nghttp2_session_callbacks_del`.
func makeServerCallbacks() -> OpaquePointer {
  var made: OpaquePointer?
  // The only failure is lack of memory.
  guard nghttp2_session_callbacks_new(&made) == 0, let table = made else {
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

/// Bytes of an answer into nghttp2's frame buffer.
let readResponse: nghttp2_data_source_read_callback = { _, _, buffer, length, dataFlags, source, _ in
  let slot = source.unsafelyUnwrapped.pointee.ptr.assumingMemoryBound(to: StreamSlot.self)
  let core = slot.pointee.core.unsafelyUnwrapped
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
    core.pointee.answerBytes &+= UInt64(count)
  }
  if count == available {
    if !streaming || slot.pointee.flags.contains(.finished) {
      dataFlags.unsafelyUnwrapped.pointee |= UInt32(NGHTTP2_DATA_FLAG_EOF.rawValue)
      slot.pointee.flags.insert(.localEnded)
    } else {
      slot.pointee.response = ByteBuffer()
      if slot.pointee.flags.contains(.wantsDrain) { core.pointee.wait(slot) }
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
  core.pointee.decodedHeaderBytes = 0
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
  // Of trailers too.
  core.pointee.decodedHeaderBytes += nameCount + valueCount + 32
  if core.pointee.decodedHeaderBytes > core.pointee.maxDecodedHeaderBytes {
    core.pointee.counters.limitsHit += 1
    core.pointee.terminate(.enhanceYourCalm)
    return Int32(NGHTTP2_ERR_CALLBACK_FAILURE.rawValue)
  }
  guard let slot = core.pointee.decoding else { return 0 }
  let name = name.unsafelyUnwrapped
  let value = value.unsafelyUnwrapped
  slot.pointee.headerListBytes += nameCount + valueCount + 32
  if slot.pointee.headerListBytes > core.pointee.maxHeaderListBytes {
    slot.pointee.flags.insert(.headersTooLarge)
    return 0
  }
  if slot.pointee.flags.contains(.refused) { return 0 }
  let isAuthorization = nameCount == 13 && isBytes(name, nameCount, "authorization")
  // RFC 9113 section 8.2.1: a value with such an end is malformed. `Bearer ` without a token is what callers send whose
  // token is missing: they are told so.
  if !isAuthorization, valueCount > 0, isBlank(value[0]) || isBlank(value[valueCount - 1]) {
    core.pointee.decoding = nil
    core.pointee.counters.protocolErrors += 1
    core.pointee.abandon(slot, .protocolError)
    return 0
  }
  if isAuthorization {
    // It is no list (RFC 9110 section 11.6.2): which of two would count is nothing to guess at.
    guard !slot.pointee.flags.contains(.hasAuthorization) else {
      core.pointee.decoding = nil
      core.pointee.counters.protocolErrors += 1
      core.pointee.abandon(slot, .protocolError)
      return 0
    }
    slot.pointee.flags.insert(.hasAuthorization)
    slot.pointee.authorizationIdentity = core.pointee.identities.identity(value, valueCount)
  }
  if !core.pointee.keepsAllHeaders, !isAskedFor(name, nameCount), !core.pointee.keeps(name, nameCount) {
    return 0
  }
  slot.pointee.storeField(name, nameCount, value, valueCount)
  return 0
}

extension ServerCore {
  /// Whether a header field is among those that are kept.
  @inline(never)
  fileprivate func keeps(_ name: UnsafePointer<UInt8>, _ count: Int) -> Bool {
    keptHeaders.contains { $0.count == count && equalBytes($0, name, count) }
  }
}

/// Whether a request has a property for a header field.
@inline(__always)
private func isAskedFor(_ name: UnsafePointer<UInt8>, _ count: Int) -> Bool {
  switch count {
  case 5: if isBytes(name, count, ":path") { return true }
  case 6: if isBytes(name, count, "accept") || isBytes(name, count, "origin") { return true }
  case 7: if isBytes(name, count, ":method") { return true }
  case 10: if isBytes(name, count, ":authority") { return true }
  case 12: if isBytes(name, count, "content-type") || isBytes(name, count, "x-request-id") { return true }
  case 13: if isBytes(name, count, "authorization") || isBytes(name, count, "last-event-id") { return true }
  case 14: if isBytes(name, count, "content-length") { return true }
  case 15: if isBytes(name, count, "x-forwarded-for") { return true }
  default: break
  }
  return false
}

@inline(__always)
private func isBlank(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x09 }

extension StreamSlot {
  /// Stores one field, and notes where it is if it is one of those that are always asked for. The first of a
  /// name counts, but for `x-forwarded-for`. Its name's length settles nearly every comparison.
  @inline(__always)
  mutating func storeField(
    _ name: UnsafePointer<UInt8>,
    _ nameCount: Int,
    _ value: UnsafePointer<UInt8>,
    _ valueCount: Int
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
      if isBytes(name, nameCount, "accept") { setFirst(&fields.accept, range) }
      if isBytes(name, nameCount, "origin") { setFirst(&fields.origin, range) }
    case 7: if isBytes(name, nameCount, ":method") { method = HTTP2Method(value, valueCount) }
    case 10: if isBytes(name, nameCount, ":authority") { fields.authority = range }
    case 12:
      if isBytes(name, nameCount, "content-type") { setFirst(&fields.contentType, range) }
      if isBytes(name, nameCount, "x-request-id") { setFirst(&fields.requestID, range) }
    case 13:
      if isBytes(name, nameCount, "authorization") { setFirst(&fields.authorization, range) }
      if isBytes(name, nameCount, "last-event-id") { setFirst(&fields.lastEventID, range) }
    case 14:
      if isBytes(name, nameCount, "content-length") {
        // nghttp2 has checked that it is a number, or resets the stream.
        declaredBodyBytes = parseDecimal(value, valueCount) ?? Int.max
      }
    // The last of a list is the nearest proxy's.
    case 15: if isBytes(name, nameCount, "x-forwarded-for") { fields.forwardedFor = range }
    default: break
    }
  }
}

@inline(__always)
private func setFirst(_ field: inout ByteRange, _ range: ByteRange) {
  if field.count == 0 { field = range }
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

private let onDataChunk: nghttp2_on_data_chunk_recv_callback = { session, _, streamID, data, length, user in
  let core = core(user)
  guard let slot = core.pointee.lookup(streamID) else {
    _ = nghttp2_session_consume_connection(session, length)
    return 0
  }
  if slot.pointee.flags.contains(.bodyStreams) && slot.pointee.phase != .answered {
    // The stream's window is the limit: what is not read is not given back.
    slot.pointee.reserve(length)
    _ = slot.pointee.append(data.unsafelyUnwrapped, length)
    core.pointee.charge(slot)
    // Where clients share the connection its window is everybody's: what one of them leaves unread is its own.
    if core.pointee.isShared { _ = nghttp2_session_consume_connection(session, length) }
    core.pointee.wait(slot)
    return 0
  }
  let isReceiving = slot.pointee.phase == .receiving
  if isReceiving && slot.pointee.heldBodyBytes + length <= core.pointee.maxBodyBytes {
    core.pointee.storeBody(slot, data.unsafelyUnwrapped, length)
    return 0
  }
  // Past a limit, or answered already: the rest is read and dropped. This only fails for lack of memory.
  _ = nghttp2_session_consume(session, streamID, length)
  slot.pointee.droppedBodyBytes += length
  if isReceiving {
    slot.pointee.flags.insert(.bodyTooLarge)
    core.pointee.bodyPassedOver(slot)
    core.pointee.deliver(slot)
  }
  return 0
}

extension ServerCore {
  @inline(__always)
  fileprivate mutating func deliver(_ slot: UnsafeMutablePointer<StreamSlot>) {
    guard slot.pointee.phase == .receiving else { return }
    bodyCompleted(slot)
    slot.pointee.phase = .ready
    wait(slot)
  }

  @inline(__always)
  fileprivate mutating func requestEnded(_ slot: UnsafeMutablePointer<StreamSlot>) {
    deliver(slot)
    if slot.pointee.flags.contains(.bodyStreams) { wait(slot) }
  }

  /// Has a request on a connection that clients share count for the one that it names, until it is known who calls.
  ///
  /// - Returns: false where that client holds too much.
  @inline(never)
  fileprivate func assignToClient(_ slot: UnsafeMutablePointer<StreamSlot>) -> Bool {
    guard let clientKey, let key = clientKey(HTTP2Request(slot)) else { return true }
    _ = assign(slot, to: key)
    return memory.pointee.allows(unprovenShare: key)
  }

  /// Whether the application takes bodies of this type as they come.
  @inline(__always)
  fileprivate func streamsBody(_ slot: UnsafeMutablePointer<StreamSlot>) -> Bool {
    if streamedContentTypes.isEmpty { return false }
    let header = RawSpan(_unsafeBytes: slot.pointee.bytes(slot.pointee.fields.contentType))
    for type in streamedContentTypes where type.isNamed(by: header) { return true }
    return false
  }
}

extension StreamSlot {
  /// There is something of a streamed body that the application has not seen.
  var hasBodyToTell: Bool {
    flags.contains(.bodyStreams) && !flags.contains(.bodyEndSeen)
      && (count > headerEnd || flags.contains(.remoteEnded))
  }
}

private let onFrameReceived: nghttp2_on_frame_recv_callback = { _, frame, user in
  let core = core(user)
  let header = UnsafeRawPointer(frame.unsafelyUnwrapped).assumingMemoryBound(to: nghttp2_frame_hd.self)
  switch header.pointee.type {
  case 0x0:  // DATA
    if header.pointee.flags & 1 != 0, let slot = core.pointee.lookup(header.pointee.stream_id) {
      slot.pointee.flags.insert(.remoteEnded)
      core.pointee.requestEnded(slot)
    }
  case 0x1:  // HEADERS, of a request or trailers
    guard let slot = core.pointee.lookup(header.pointee.stream_id) else { return 0 }
    if let decoded = core.pointee.decoding {
      decoded.pointee.headerEnd = decoded.pointee.count
      core.pointee.decoding = nil
      if decoded.pointee.flags.contains(.refused) {
        core.pointee.counters.limitsHit += 1
        core.pointee.abandon(decoded, .refusedStream)
        return 0
      }
      core.pointee.charge(decoded)
      if core.pointee.isShared, !core.pointee.assignToClient(decoded) {
        core.pointee.counters.limitsHit += 1
        core.pointee.abandon(decoded, .refusedStream)
        return 0
      }
      if header.pointee.flags & 1 == 0 && core.pointee.streamsBody(decoded) {
        decoded.pointee.flags.insert(.bodyStreams)
        // Fails only for lack of memory.
        _ = nghttp2_session_set_local_window_size(
          core.pointee.session,
          0,
          header.pointee.stream_id,
          core.pointee.streamedWindowSize
        )
        core.pointee.deliver(decoded)
      } else if decoded.pointee.declaredBodyBytes > core.pointee.maxBodyBytes {
        decoded.pointee.flags.insert(.bodyTooLarge)
      }
      // There is no use in waiting for a body that will not be read.
      if !decoded.pointee.flags.isDisjoint(with: [.headersTooLarge, .bodyTooLarge]) {
        core.pointee.deliver(decoded)
      }
    }
    if header.pointee.flags & 1 != 0 {
      slot.pointee.flags.insert(.remoteEnded)
      core.pointee.requestEnded(slot)
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
  if !core.pointee.isShared, slot.pointee.flags.contains(.bodyStreams),
    slot.pointee.count > slot.pointee.headerEnd
  {
    // What was never read has still to be given back to the connection's window.
    _ = nghttp2_session_consume_connection(session, slot.pointee.count - slot.pointee.headerEnd)
  }
  core.pointee.close(slot)
  return 0
}
