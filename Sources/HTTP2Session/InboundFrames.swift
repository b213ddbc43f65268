internal import CNghttp2

/// Where the input is between frames. Follows the frame headers only, beside nghttp2, for the checks that it
/// leaves out, and holds back a header that has not arrived as a whole.
struct InboundFrames {
  static let headerBytes = 9

  /// Bytes of the client's preface that are still to come.
  fileprivate var prefaceLeft = 24
  /// Bytes of the current frame's payload that are still to come.
  fileprivate var payloadLeft = 0
  /// The first bytes of a header that is not complete.
  fileprivate var header: UInt64 = 0
  fileprivate var headerLast: UInt8 = 0
  fileprivate var headerCount = 0
  /// Of a PRIORITY frame: its stream, and how many bytes of the dependency are still to come.
  fileprivate var priorityStream: Int32 = 0
  fileprivate var priorityLeft = 0
  fileprivate var priorityValue: UInt32 = 0
}

/// What a frame's header shows.
private enum Judgement {
  case fine
  /// It is on a stream that may be closed: to be asked once nghttp2 has seen all that comes before.
  case checkStream
  case fail(HTTP2ErrorCode)
}

extension ServerCore {
  /// Feeds bytes to nghttp2. A negative result is one of its errors, for ``receiveFailed(_:)``.
  ///
  /// nghttp2 1.52 passes over some frames that RFC 9113 wants answered: DATA and HEADERS on closed streams
  /// and on such as were skipped (sections 5.1, 5.1.1), PRIORITY on stream 0 (section 6.3) when priorities
  /// are switched off. Its callbacks do not show them all, so their headers are looked at here, before it
  /// gets them. It also counts each read of a part of a CONTINUATION header as a frame, hence partial headers
  /// wait here.
  @inline(__always)
  mutating func receive(_ base: UnsafePointer<UInt8>, _ count: Int) -> Int {
    var at = 0
    var fed = 0
    if inbound.prefaceLeft > 0 {
      at = min(inbound.prefaceLeft, count)
      inbound.prefaceLeft -= at
      let result = nghttp2_session_mem_recv(session, base, at)
      if result < 0 { return result }
      fed = at
    }
    // Streams up to here were opened by earlier reads: those may be closed by now. Later ones can only be if
    // this very read resets or skips some.
    let highest = history.highest
    var isUncertain = false

    while at < count {
      if inbound.payloadLeft > 0 {
        let taken = min(inbound.payloadLeft, count - at)
        if inbound.priorityLeft > 0, let code = readPriority(base + at, taken) {
          return fail(code)
        }
        inbound.payloadLeft -= taken
        at += taken
        continue
      }
      let start = at
      let isWhole = inbound.headerCount == 0 && count - at >= InboundFrames.headerBytes
      if isWhole {
        at += InboundFrames.headerBytes
      } else {
        let result = feed(base, &fed, to: at)
        if result < 0 { return result }
        at += holdBack(base + at, count - at)
        fed = at
        if inbound.headerCount < InboundFrames.headerBytes { return 0 }
      }
      let (header, id) = isWhole ? InboundFrames.read(base + start) : inbound.heldHeader
      let length = Int(header >> 16)
      let type = UInt8(truncatingIfNeeded: header >> 8)
      let flags = UInt8(truncatingIfNeeded: header)
      inbound.payloadLeft = length

      switch judge(type, flags, id, length, highest, &isUncertain) {
      case .fine: break
      case .checkStream:
        let result = feed(base, &fed, to: isWhole ? start : fed)
        if result < 0 { return result }
        if lookup(id) == nil {
          let verdict = frameOnClosedStream(id, isHeaders: type == 1)
          if verdict < 0 { return verdict }
        }
      case .fail(let code):
        let result = feed(base, &fed, to: isWhole ? start : fed)
        return result < 0 ? result : fail(code)
      }
      if !isWhole {
        let result = feedHeldHeader()
        if result < 0 { return result }
      }
    }
    return feed(base, &fed, to: count)
  }

  @inline(__always)
  private func feed(_ base: UnsafePointer<UInt8>, _ fed: inout Int, to end: Int) -> Int {
    guard end > fed else { return 0 }
    let result = nghttp2_session_mem_recv(session, base + fed, end - fed)
    fed = end
    return result
  }

  @inline(__always)
  private mutating func judge(
    _ type: UInt8,
    _ flags: UInt8,
    _ id: Int32,
    _ length: Int,
    _ highest: Int32,
    _ isUncertain: inout Bool
  ) -> Judgement {
    switch type {
    case 0x0, 0x1:  // DATA, HEADERS
      if type == 0x0 && length == 0 && flags & 1 == 0, !spendControlFrame() { return .fail(.enhanceYourCalm) }
      // Stream 0, even numbers and idle streams are nghttp2's.
      guard id > 0 && id & 1 == 1 else { return .fine }
      if id > history.highest {
        if type == 0x1 {
          if history.opened(id) { isUncertain = true }
          controlFrames.earn()
        }
        return .fine
      }
      if isUncertain { return .checkStream }
      return id > highest || lookup(id) != nil ? .fine : .checkStream
    case 0x3:  // RST_STREAM
      isUncertain = true
      return .fine
    case 0x7, 0x8, 0x9: return .fine  // GOAWAY, WINDOW_UPDATE, CONTINUATION
    case 0x2:  // PRIORITY
      if id == 0 { return .fail(.protocolError) }
      if length == 5 {
        inbound.priorityStream = id
        inbound.priorityLeft = 4
        inbound.priorityValue = 0
      }
      return spendControlFrame() ? .fine : .fail(.enhanceYourCalm)
    default: return spendControlFrame() ? .fine : .fail(.enhanceYourCalm)
    }
  }

  /// The dependency of a PRIORITY frame. A stream that depends on itself was an error in RFC 7540 section
  /// 5.3.1, and is no more use now.
  @inline(never)
  private mutating func readPriority(_ bytes: UnsafePointer<UInt8>, _ count: Int) -> HTTP2ErrorCode? {
    for at in 0..<min(inbound.priorityLeft, count) {
      inbound.priorityValue = inbound.priorityValue << 8 | UInt32(bytes[at])
      inbound.priorityLeft -= 1
    }
    guard inbound.priorityLeft == 0 else { return nil }
    let dependency = Int32(bitPattern: inbound.priorityValue & 0x7fff_ffff)
    return dependency == inbound.priorityStream ? .protocolError : nil
  }

  /// RFC 9113 section 5.1, "closed". Zero, or an error to be returned.
  @inline(never)
  private mutating func frameOnClosedStream(_ streamID: Int32, isHeaders: Bool) -> Int {
    if goAwaySubmitted { return 0 }
    switch history.verdict(streamID) {
    case .ignore: return 0
    case .resetAgain:
      // After RST_STREAM was received: a stream error of type STREAM_CLOSED.
      guard spendControlFrame() else { return fail(.enhanceYourCalm) }
      _ = nghttp2_submit_rst_stream(session, 0, streamID, HTTP2ErrorCode.streamClosed.rawValue)
      counters.protocolErrors += 1
      return 0
    case .neverOpened: return fail(isHeaders ? .protocolError : .streamClosed)
    case .closed: return fail(.streamClosed)
    }
  }

  private mutating func fail(_ code: HTTP2ErrorCode) -> Int {
    if code == .enhanceYourCalm { counters.limitsHit += 1 }
    terminate(code)
    return Int(NGHTTP2_ERR_CALLBACK_FAILURE.rawValue)
  }

  /// False if there have been too many frames that carry no work.
  @inline(never)
  private mutating func spendControlFrame() -> Bool { controlFrames.spend(now: now) }

  /// Keeps bytes of a header that is not complete; returns how many.
  @inline(never)
  private mutating func holdBack(_ bytes: UnsafePointer<UInt8>, _ count: Int) -> Int {
    let taken = min(InboundFrames.headerBytes - inbound.headerCount, count)
    for at in 0..<taken {
      if inbound.headerCount < 8 {
        inbound.header = inbound.header << 8 | UInt64(bytes[at])
      } else {
        inbound.headerLast = bytes[at]
      }
      inbound.headerCount += 1
    }
    return taken
  }

  @inline(never)
  private mutating func feedHeldHeader() -> Int {
    var bytes = (inbound.header.bigEndian, inbound.headerLast)
    inbound.header = 0
    inbound.headerCount = 0
    return withUnsafeBytes(of: &bytes) { bytes in
      nghttp2_session_mem_recv(
        session,
        bytes.baseAddress?.assumingMemoryBound(to: UInt8.self),
        InboundFrames.headerBytes
      )
    }
  }
}

extension InboundFrames {
  /// Length, type and flags in the low 40 bits; and the stream.
  @inline(__always)
  fileprivate static func read(_ bytes: UnsafePointer<UInt8>) -> (UInt64, Int32) {
    let first = UInt64(bigEndian: UnsafeRawPointer(bytes).loadUnaligned(as: UInt64.self))
    return split(first, bytes[8])
  }

  fileprivate var heldHeader: (UInt64, Int32) { InboundFrames.split(header, headerLast) }

  @inline(__always)
  private static func split(_ first: UInt64, _ last: UInt8) -> (UInt64, Int32) {
    // The reserved bit is ignored (RFC 9113 section 4.1).
    let id = UInt32(truncatingIfNeeded: first) << 8 | UInt32(last)
    return (first >> 24, Int32(bitPattern: id & 0x7fff_ffff))
  }
}
