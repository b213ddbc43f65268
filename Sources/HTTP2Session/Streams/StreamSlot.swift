internal import NIOCore

/// Data of one stream, reused for later streams. Its address is fixed: nghttp2 holds a pointer to it as the stream's
/// user data, and NO_COPY header values may point into it.
struct StreamSlot {
  /// "No slot" in the linked lists below.
  static let none = UInt32.max

  let index: UInt32
  private(set) var generation: UInt32 = 0
  var streamID: Int32 = 0
  /// State of a server's stream.
  var state = ServerStreamState()
  /// State of a client's stream.
  var clientState = ClientStreamState()
  /// Value for the application's use: set during a request on a server, with the request on a client.
  var tag: UInt64 = 0
  /// Server only: the session of the stream.
  private(set) var core: UnsafeMutablePointer<ServerCore>?
  var links = SlotLinks()
  var received = ReceivedMessage()
  var deadlines = StreamDeadlines()
  var charge = StreamCharge()
  var bodyShare = BodyShare()
  /// Data to send: a server's response, a client's request body.
  var outgoing = OutgoingData()

  init(index: UInt32) {
    self.index = index
  }

  /// Prepare the slot for a new stream of a server. What a response sets before it is read keeps its old value.
  @inline(__always)
  mutating func open(
    _ streamID: Int32,
    openedAt: NIODeadline,
    core: UnsafeMutablePointer<ServerCore>,
    isRefused: Bool
  ) {
    self.streamID = streamID
    state.opened(isRefused: isRefused)
    tag = 0
    self.core = core
    received.reset()
    deadlines.reset(openedAt: openedAt)
    charge = StreamCharge()
    bodyShare = BodyShare()
  }

  /// Prepare the slot for a new request of a client.
  @inline(__always)
  mutating func open(tag: UInt64, method: HTTP2Method, streaming: Bool, hasMoreBody: Bool) {
    streamID = 0
    clientState.opened(streaming: streaming, hasMoreBody: hasMoreBody)
    self.tag = tag
    received.reset()
    received.method = method
  }

  /// End the slot's stream; its handles are stale from here on.
  @inline(__always)
  mutating func free() {
    generation &+= 1
    state.freed()
    clientState.freed()
    core = nil
  }

  var handle: HTTP2StreamHandle { HTTP2StreamHandle(slot: index, generation: generation) }

  mutating func releaseBuffers() {
    received.releaseBuffer()
    outgoing.release()
  }
}

/// Times of one stream after which the peer counts as stalled.
struct StreamDeadlines {
  private var openedAt: NIODeadline = .uptimeNanoseconds(0)
  /// Server only: unsent bytes when the timer last saw progress, -1 before its first check; and the time of that.
  private var unsentBytes = -1
  private var unsentSince: NIODeadline = .uptimeNanoseconds(0)

  /// Prepare for a new stream. What the first check sets keeps its old value.
  @inline(__always)
  mutating func reset(openedAt: NIODeadline) {
    self.openedAt = openedAt
    unsentBytes = -1
  }

  /// Do not count the time until now against the request's timeout.
  mutating func restartRequest(at now: NIODeadline) { openedAt = max(openedAt, now) }

  /// Return whether the request takes longer than this.
  func isRequestOverdue(_ timeout: TimeAmount, now: NIODeadline) -> Bool { now - openedAt >= timeout }

  /// Return whether the peer has taken less than ``HTTP2Limits/progressBytesMin`` of the unsent bytes for this long.
  mutating func isUnsentOverdue(_ unsent: Int, _ timeout: TimeAmount, now: NIODeadline) -> Bool {
    if unsentBytes < 0 || unsent == 0 || unsentBytes - unsent >= HTTP2Limits.progressBytesMin {
      unsentBytes = unsent
      unsentSince = now
      return false
    }
    return now - unsentSince >= timeout
  }
}

/// Data of one stream that nghttp2 has not taken yet, and the digits of its length.
struct OutgoingData {
  var bytes = ByteBuffer()
  /// Decimal digits of the response's content-length, at the end of these 20 bytes. nghttp2 reads them when it sends
  /// the headers.
  private var lengthDigits: (UInt64, UInt64, UInt32) = (0, 0, 0)

  /// Offset of the digits.
  static let digitsOffset = MemoryLayout<Self>.offset(of: \.lengthDigits)!

  /// Move bytes to a frame buffer of nghttp2.
  ///
  /// - Returns: their number.
  @inline(__always)
  mutating func read(into buffer: UnsafeMutablePointer<UInt8>, max length: Int) -> Int {
    let count = min(bytes.readableBytes, length)
    if count > 0 {
      bytes.withUnsafeReadableBytes { bytes in
        UnsafeMutableRawPointer(buffer)
          .copyMemory(from: bytes.baseAddress.unsafelyUnwrapped, byteCount: count)
      }
      bytes.moveReaderIndex(forwardBy: count)
    }
    return count
  }

  mutating func release() { bytes = ByteBuffer() }

  /// Free the buffer if it is larger than this.
  mutating func release(above bytesMax: Int) {
    if bytes.capacity > bytesMax { release() }
  }
}
