internal import NIOCore

/// State of one stream, reused for later streams. Its address is fixed: nghttp2 holds a pointer to it as the stream's
/// user data, and NO_COPY header values may point into it.
struct StreamSlot {
  /// free → receiving → ready → delivered → answered or streaming → free. If the peer closes the stream in ready or
  /// delivered, it becomes aborted, and free once the application has been notified.
  enum Phase: UInt8 {
    case free, receiving, ready, delivered, answered, streaming, aborted
  }

  /// How a server takes the request's body.
  enum RequestBody: UInt8 {
    /// Stored whole before the request is delivered; after the response, dropped.
    case whole
    /// Larger than the limit, by its content-length or its bytes: dropped.
    case tooLarge
    /// Refused by the application: dropped.
    case refused
    /// Read by the application as it arrives.
    case streamed
    /// Streamed, and the application has read its end.
    case streamedToEnd

    var isStreamed: Bool { self == .streamed || self == .streamedToEnd }
  }

  struct Flags: OptionSet {
    let rawValue: UInt16
    static let remoteEnded = Flags(rawValue: 1 << 0)
    static let headersTooLarge = Flags(rawValue: 1 << 1)
    /// The last bytes of the response have been passed to nghttp2.
    static let localEnded = Flags(rawValue: 1 << 2)
    /// The application has ended a streaming response.
    static let finished = Flags(rawValue: 1 << 3)
    /// nghttp2 waits for `resume_data`.
    static let deferred = Flags(rawValue: 1 << 4)
    /// The application got `full` for this queue and expects a drain callback.
    static let needsDrainCallback = Flags(rawValue: 1 << 5)
    /// The request has been delivered to the application.
    static let delivered = Flags(rawValue: 1 << 6)
    /// The request has an authorization header, possibly empty.
    static let hasAuthorization = Flags(rawValue: 1 << 7)
    /// The body waits until other requests are answered (``BodyBudget``).
    static let awaitsBodyGrant = Flags(rawValue: 1 << 8)
    /// The stream is refused for lack of room (``MemoryBudget``).
    static let refused = Flags(rawValue: 1 << 9)
    /// ``MemoryBudget`` counts queued bytes of a streaming response.
    static let isQueueCharged = Flags(rawValue: 1 << 10)
    /// The client waits for 100 (Continue) before it sends the body (RFC 9110 section 10.1.1).
    static let expectsContinue = Flags(rawValue: 1 << 11)
  }

  /// "No slot" in the linked lists below.
  static let none = UInt32.max

  let index: UInt32
  var generation: UInt32 = 0
  var streamID: Int32 = 0
  var phase: Phase = .free
  var requestBody = RequestBody.whole
  var flags: Flags = []
  /// Value for the application's use: set during a request on a server, with the request on a client.
  var tag: UInt64 = 0
  var core: UnsafeMutablePointer<ServerCore>?
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
  mutating func reset(_ streamID: Int32, openedAt: NIODeadline, core: UnsafeMutablePointer<ServerCore>) {
    self.streamID = streamID
    phase = .receiving
    requestBody = .whole
    flags = []
    tag = 0
    self.core = core
    received.reset()
    deadlines.reset(openedAt: openedAt)
    charge = StreamCharge()
    bodyShare = BodyShare()
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

  /// Return whether the peer has taken less than ``HTTP2Limits/minProgressBytes`` of the unsent bytes for this long.
  mutating func isUnsentOverdue(_ unsent: Int, _ timeout: TimeAmount, now: NIODeadline) -> Bool {
    if unsentBytes < 0 || unsent == 0 || unsentBytes - unsent >= HTTP2Limits.minProgressBytes {
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
  mutating func release(above maxBytes: Int) {
    if bytes.capacity > maxBytes { release() }
  }
}
