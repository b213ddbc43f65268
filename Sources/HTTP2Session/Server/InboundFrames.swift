internal import CNghttp2
internal import NIOCore

/// Position of the input within and between frames, and the streams and control frames that came so far. It parses
/// frame headers alongside nghttp2, for the checks that nghttp2 lacks, and holds back partial headers.
struct InboundFrames {
  static let headerBytes = 9

  /// A frame's header.
  struct Header {
    var length: Int
    /// Nil: a type that this build does not know.
    var type: HTTP2FrameType?
    var flags: UInt8
    var streamID: Int32
  }

  /// Verdict on a frame header.
  enum Verdict {
    case accept
    /// Accept the frame if its stream, which an earlier read opened, is still open.
    case acceptIfOpen
    /// The frame's stream may be closed: look it up once nghttp2 has read all earlier bytes.
    case lookUpStream
    case fail(HTTP2ErrorCode)
  }

  var history = StreamHistory()
  /// The client's SETTINGS have arrived, so its preface is complete (RFC 9113 section 3.4).
  private(set) var isPrefaceComplete = false
  private var controlFrames: ControlFrameBudget
  /// Remaining bytes of the client's preface.
  private var prefaceRemaining = 24
  /// Remaining bytes of the current frame's payload.
  private var payloadRemaining = 0
  /// First bytes of an incomplete header.
  private var header: UInt64 = 0
  private var headerLast: UInt8 = 0
  private var headerCount = 0
  /// Stream of the current PRIORITY frame, and the remaining bytes of its dependency.
  private var priorityStream: Int32 = 0
  private var priorityRemaining = 0
  private var priorityValue: UInt32 = 0

  init(controlFrames: ControlFrameBudget) { self.controlFrames = controlFrames }

  /// Use another budget for control frames.
  mutating func restart(_ controlFrames: ControlFrameBudget) { self.controlFrames = controlFrames }

  // MARK: Preface and payloads

  mutating func settingsReceived() { isPrefaceComplete = true }

  /// Take the bytes of the client's preface that begin a read of `count` bytes; returns their number.
  @inline(__always)
  mutating func takePreface(_ count: Int) -> Int {
    if prefaceRemaining == 0 { return 0 }
    let taken = min(prefaceRemaining, count)
    prefaceRemaining -= taken
    return taken
  }

  @inline(__always)
  var isInPayload: Bool { payloadRemaining > 0 }

  /// Pass over the payload's bytes among the next `count`, and move `at` behind them. Returns the error of a PRIORITY
  /// frame.
  @inline(__always)
  mutating func passPayload(_ base: UnsafePointer<UInt8>, _ at: inout Int, _ count: Int) -> HTTP2ErrorCode? {
    let taken = min(payloadRemaining, count - at)
    if priorityRemaining > 0, let code = readPriority(base + at, taken) { return code }
    payloadRemaining -= taken
    at += taken
    return nil
  }

  /// Read the dependency of a PRIORITY frame. A stream that depends on itself was an error in RFC 7540 section 5.3.1,
  /// and is still rejected here.
  @inline(never)
  private mutating func readPriority(_ bytes: UnsafePointer<UInt8>, _ count: Int) -> HTTP2ErrorCode? {
    for at in 0..<min(priorityRemaining, count) {
      priorityValue = priorityValue << 8 | UInt32(bytes[at])
      priorityRemaining -= 1
    }
    guard priorityRemaining == 0 else { return nil }
    let dependency = Int32(bitPattern: priorityValue & 0x7fff_ffff)
    return dependency == priorityStream ? .protocolError : nil
  }

  // MARK: Headers

  /// Return whether the next `count` bytes, between frames, begin with a whole header.
  @inline(__always)
  func beginsWithHeader(_ count: Int) -> Bool { headerCount == 0 && count >= InboundFrames.headerBytes }

  /// Store bytes of an incomplete header; returns their number.
  @inline(never)
  mutating func bufferHeader(_ bytes: UnsafePointer<UInt8>, _ count: Int) -> Int {
    let taken = min(InboundFrames.headerBytes - headerCount, count)
    for at in 0..<taken {
      if headerCount < 8 {
        header = header << 8 | UInt64(bytes[at])
      } else {
        headerLast = bytes[at]
      }
      headerCount += 1
    }
    return taken
  }

  /// The stored header, once it is complete.
  var bufferedHeader: Header? {
    headerCount < InboundFrames.headerBytes ? nil : InboundFrames.split(header, headerLast)
  }

  /// Take the bytes of the stored header.
  mutating func takeBufferedHeader() -> (UInt64, UInt8) {
    let bytes = (header.bigEndian, headerLast)
    header = 0
    headerCount = 0
    return bytes
  }

  @inline(__always)
  static func read(_ bytes: UnsafePointer<UInt8>) -> Header {
    let first = UInt64(bigEndian: UnsafeRawPointer(bytes).loadUnaligned(as: UInt64.self))
    return split(first, bytes[8])
  }

  @inline(__always)
  private static func split(_ first: UInt64, _ last: UInt8) -> Header {
    // The reserved bit is ignored (RFC 9113 section 4.1).
    let id = UInt32(truncatingIfNeeded: first) << 8 | UInt32(last)
    return Header(
      length: Int(first >> 40),
      type: HTTP2FrameType(rawValue: UInt8(truncatingIfNeeded: first >> 32)),
      flags: UInt8(truncatingIfNeeded: first >> 24),
      streamID: Int32(bitPattern: id & 0x7fff_ffff)
    )
  }

  // MARK: Checks

  /// Check a header and begin its frame's payload.
  ///
  /// - Parameters:
  ///   - highest: highest stream that earlier reads have opened.
  ///   - isUncertain: whether this read may have closed streams that it opened.
  @inline(__always)
  mutating func check(_ frame: Header, highest: Int32, isUncertain: inout Bool, now: NIODeadline) -> Verdict {
    payloadRemaining = frame.length
    let id = frame.streamID
    switch frame.type {
    case .data, .headers:
      if frame.type == .data && !HTTP2FrameFlags.endsStream(frame.flags) {
        if frame.length >= HTTP2Limits.dataBytesMin {
          controlFrames.addTokens(1)
        } else if !takeControlFrameToken(now: now) {
          return .fail(.enhanceYourCalm)
        }
      }
      // nghttp2 checks stream 0, even numbers and idle streams.
      guard id > 0 && id & 1 == 1 else { return .accept }
      if id > history.highest {
        if frame.type == .headers {
          if history.opened(id) { isUncertain = true }
          controlFrames.addTokens(1)
        }
        return .accept
      }
      if isUncertain { return .lookUpStream }
      return id > highest ? .accept : .acceptIfOpen
    case .resetStream:
      isUncertain = true
      return .accept
    case .goAway, .continuation: return .accept
    case .priority:
      if id == 0 { return .fail(.protocolError) }
      if frame.length == 5 {
        priorityStream = id
        priorityRemaining = 4
        priorityValue = 0
      }
      return takeControlFrameToken(now: now) ? .accept : .fail(.enhanceYourCalm)
    case .settings, .pushPromise, .ping, .windowUpdate, nil:
      return takeControlFrameToken(now: now) ? .accept : .fail(.enhanceYourCalm)
    }
  }

  /// Allow the WINDOW_UPDATE frames, of the stream and of the connection, that acknowledge a DATA frame of ours.
  @inline(__always)
  mutating func dataSent() { controlFrames.addTokens(2) }

  /// Charge a control frame; returns false if there have been too many.
  @inline(never)
  mutating func takeControlFrameToken(now: NIODeadline) -> Bool { controlFrames.takeToken(now: now) }
}

extension ServerCore {
  /// Pass bytes to nghttp2. A negative result is an nghttp2 error, for ``receiveFailed(_:)``.
  ///
  /// nghttp2 1.52 ignores some frames that RFC 9113 wants answered. These are DATA and HEADERS on closed or skipped
  /// streams (sections 5.1, 5.1.1), and PRIORITY on stream 0 (section 6.3) when priorities are switched off. Its
  /// callbacks do not report them all, so their headers are checked here first. nghttp2 also counts each read of a
  /// partial CONTINUATION header as a frame, hence partial headers are held back here.
  ///
  /// The core is passed by its address: `nghttp2_session_mem_recv` and `nghttp2_session_mem_send` call the functions of
  /// ServerCallbacks.swift, which change the core. So no access to it may last over a call of these two. The other
  /// functions of nghttp2 call none of ours back, and methods of the core may call them.
  @inline(__always)
  static func receive(_ core: UnsafeMutablePointer<ServerCore>, _ base: UnsafePointer<UInt8>, _ count: Int) -> Int {
    var at = core.pointee.inbound.takePreface(count)
    var fed = 0
    let result = feed(core, base, &fed, to: at)
    if result < 0 { return result }
    // Streams up to here were opened by earlier reads and may be closed by now. A later stream can only be closed if
    // this read resets or skips streams.
    let highest = core.pointee.inbound.history.highest
    var isUncertain = false

    while at < count {
      if core.pointee.inbound.isInPayload {
        if let code = core.pointee.inbound.passPayload(base, &at, count) { return core.pointee.fail(code) }
        continue
      }
      let start = at
      let frame: InboundFrames.Header
      let isWhole = core.pointee.inbound.beginsWithHeader(count - at)
      if isWhole {
        at += InboundFrames.headerBytes
        frame = InboundFrames.read(base + start)
      } else {
        let result = feed(core, base, &fed, to: at)
        if result < 0 { return result }
        at += core.pointee.inbound.bufferHeader(base + at, count - at)
        fed = at
        guard let buffered = core.pointee.inbound.bufferedHeader else { return 0 }
        frame = buffered
      }

      switch core.pointee.inbound.check(frame, highest: highest, isUncertain: &isUncertain, now: core.pointee.now) {
      case .accept: break
      case .acceptIfOpen where core.pointee.lookup(frame.streamID) != nil: break
      case .acceptIfOpen, .lookUpStream:
        let result = feed(core, base, &fed, to: isWhole ? start : fed)
        if result < 0 { return result }
        if core.pointee.lookup(frame.streamID) == nil {
          let verdict = core.pointee.frameOnClosedStream(frame.streamID, isHeaders: frame.type == .headers)
          if verdict < 0 { return verdict }
        }
      case .fail(let code):
        let result = feed(core, base, &fed, to: isWhole ? start : fed)
        return result < 0 ? result : core.pointee.fail(code)
      }
      if !isWhole {
        let result = feedBufferedHeader(core)
        if result < 0 { return result }
      }
    }
    return feed(core, base, &fed, to: count)
  }

  @inline(__always)
  private static func feed(
    _ core: UnsafeMutablePointer<ServerCore>,
    _ base: UnsafePointer<UInt8>,
    _ fed: inout Int,
    to end: Int
  ) -> Int {
    guard end > fed else { return 0 }
    let result = nghttp2_session_mem_recv(core.pointee.session, base + fed, end - fed)
    fed = end
    return result
  }

  @inline(never)
  private static func feedBufferedHeader(_ core: UnsafeMutablePointer<ServerCore>) -> Int {
    var bytes = core.pointee.inbound.takeBufferedHeader()
    return withUnsafeBytes(of: &bytes) { bytes in
      nghttp2_session_mem_recv(
        core.pointee.session,
        bytes.baseAddress?.assumingMemoryBound(to: UInt8.self),
        InboundFrames.headerBytes
      )
    }
  }

  /// Handle a frame on a closed stream (RFC 9113 section 5.1, "closed"). Returns 0, or an error for the caller to
  /// return.
  @inline(never)
  private mutating func frameOnClosedStream(_ streamID: Int32, isHeaders: Bool) -> Int {
    if goAwaySubmitted { return 0 }
    switch inbound.history.verdict(streamID) {
    case .ignore: return 0
    case .resetAgain:
      // After a received RST_STREAM, a frame is a stream error of type STREAM_CLOSED.
      guard inbound.takeControlFrameToken(now: now) else { return fail(.enhanceYourCalm) }
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
}

/// Record of past streams, as far as the response to a late frame depends on it (RFC 9113 sections 5.1, 5.1.1). nghttp2
/// forgets closed streams and ignores later frames on them.
struct StreamHistory {
  /// Meaning of a frame on a stream that is not open.
  enum Verdict { case ignore, resetAgain, neverOpened, closed }

  private(set) var highest: Int32 = -1
  /// Streams that the peer skipped, and thereby closed without opening them. Only the latest few are kept.
  private var skipped: [ClosedRange<Int32>] = []
  private var resetByUs = RecentStreams()
  private var resetByPeer = RecentStreams()

  /// Record a HEADERS frame with a new odd stream number. Returns true if numbers were skipped.
  @inline(__always)
  mutating func opened(_ id: Int32) -> Bool {
    let skips = id != highest + 2
    if skips { skip(highest + 2...id - 2) }
    highest = id
    return skips
  }

  @inline(never)
  private mutating func skip(_ range: ClosedRange<Int32>) {
    if skipped.count == 16 { skipped.removeFirst() }
    skipped.append(range)
  }

  mutating func recordResetByUs(_ id: Int32) { resetByUs.insert(id) }
  mutating func recordResetByPeer(_ id: Int32) { resetByPeer.insert(id) }

  func verdict(_ id: Int32) -> Verdict {
    if resetByUs.contains(id) { return .ignore }
    if resetByPeer.contains(id) { return .resetAgain }
    return skipped.contains { $0.contains(id) } ? .neverOpened : .closed
  }
}

/// Bounded set of the most recent stream numbers.
struct RecentStreams {
  private static let limit = 128
  private var ids: [Int32] = []
  private var next = 0

  mutating func insert(_ id: Int32) {
    if ids.count < RecentStreams.limit {
      ids.append(id)
    } else {
      ids[next] = id
      next = (next + 1) % RecentStreams.limit
    }
  }

  func contains(_ id: Int32) -> Bool { ids.contains(id) }
}

/// Token bucket for frames that ask for work and carry none.
struct ControlFrameBudget {
  private let burst: Int
  private let perSecond: Int
  private var tokens: Int
  private var refilled: NIODeadline

  init(limits: HTTP2Limits, now: NIODeadline) {
    burst = limits.controlFrameBurst
    perSecond = limits.controlFramesPerSecond
    tokens = burst
    refilled = now
  }

  /// Add tokens for a request or for data sent: clients send control frames, mainly priorities and window updates, in
  /// proportion to these.
  @inline(__always)
  mutating func addTokens(_ count: Int) {
    tokens = min(burst, tokens + count)
  }

  /// Take a token; returns false if there is none.
  mutating func takeToken(now: NIODeadline) -> Bool {
    if tokens < burst {
      let elapsed = (now - refilled).nanoseconds / 1_000_000
      if elapsed > 0 {
        let earned = elapsed >= 60_000 ? burst : Int(elapsed) * perSecond / 1_000
        if earned > 0 {
          tokens = min(burst, tokens + earned)
          refilled = now
        }
      }
    } else {
      refilled = now
    }
    guard tokens > 0 else { return false }
    tokens -= 1
    return true
  }
}
