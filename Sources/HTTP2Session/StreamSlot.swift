internal import NIOCore

/// Range of bytes inside a slot's request buffer.
struct ByteRange {
  var offset: UInt32 = 0
  var count: UInt32 = 0
}

/// State of one stream, reused for later streams. Its address is fixed: nghttp2 holds a pointer to it as the stream's
/// user data, and NO_COPY header values may point into it.
struct StreamSlot {
  /// free → receiving → ready → delivered → answered or streaming → free. If the peer closes the stream in ready or
  /// delivered, it becomes aborted, and free once the application has been notified.
  enum Phase: UInt8 {
    case free, receiving, ready, delivered, answered, streaming, aborted
  }

  struct Flags: OptionSet {
    let rawValue: UInt16
    static let remoteEnded = Flags(rawValue: 1)
    static let headersTooLarge = Flags(rawValue: 2)
    static let bodyTooLarge = Flags(rawValue: 4)
    /// The last bytes of the response have been passed to nghttp2.
    static let localEnded = Flags(rawValue: 8)
    /// The application has ended a streaming response.
    static let finished = Flags(rawValue: 16)
    /// nghttp2 waits for `resume_data`.
    static let deferred = Flags(rawValue: 32)
    /// The application got `full` for this queue and expects a drain callback.
    static let needsDrainCallback = Flags(rawValue: 64)
    /// The request has been delivered to the application.
    static let delivered = Flags(rawValue: 128)
    /// The application reads the request's body as it arrives.
    static let bodyStreams = Flags(rawValue: 256)
    /// The application has read the end of a streamed body.
    static let bodyEndSeen = Flags(rawValue: 512)
    /// The request has an authorization header, possibly empty.
    static let hasAuthorization = Flags(rawValue: 1024)
    /// The body waits until other requests are answered (``BodyBudget``).
    static let awaitsBodyGrant = Flags(rawValue: 2048)
    /// The stream is refused for lack of room (``MemoryBudget``).
    static let refused = Flags(rawValue: 4096)
    /// ``MemoryBudget`` counts queued bytes of a streaming response.
    static let isQueueCharged = Flags(rawValue: 8192)
    /// The application refused the body.
    static let bodyRefused = Flags(rawValue: 16384)
    /// The client waits for 100 (Continue) before it sends the body (RFC 9110 section 10.1.1).
    static let expectsContinue = Flags(rawValue: 32768)
  }

  /// "No slot" in the linked lists below.
  static let none = UInt32.max

  let index: UInt32
  var generation: UInt32 = 0
  var streamID: Int32 = 0
  var phase: Phase = .free
  var flags: Flags = []
  var method: HTTP2Method = .other
  var authorizationIdentity: UInt32 = 0
  /// Value for the application's use.
  var applicationTag: UInt64 = 0
  var openedAt: NIODeadline = .uptimeNanoseconds(0)
  var core: UnsafeMutablePointer<ServerCore>?

  /// Open slots of one connection, oldest first; `next` also links the pool's free slots.
  var previous: UInt32 = StreamSlot.none
  var next: UInt32 = StreamSlot.none
  /// Links slots with a pending delegate call: ready, aborted or drained ones.
  var nextPending: UInt32 = StreamSlot.none
  var isWaiting = false

  // Received data: a request on a server, a response on a client. Header fields are stored as [name length][value
  // length][name][value], then the body, in one buffer.
  var bytes: UnsafeMutablePointer<UInt8>?
  var capacity: Int = 0
  var count: Int = 0
  var headerEnd: Int = 0
  var headerListBytes: Int = 0
  /// Content-length of the request, 0 without one.
  var declaredBodyBytes: Int = 0
  /// Bytes that ``MemoryBudget`` has charged to the stream.
  var chargedBytes: Int = 0
  /// Bytes that the application keeps for the stream elsewhere (``HTTP2ServerConnection/setRetainedBytes(_:_:)``).
  var retainedBytes: Int = 0
  /// Key of the user or client that the bytes are charged to, across all connections; 0: the connection alone.
  var shareKey: UInt64 = 0
  /// Bytes that ``BodyBudget`` has counted for the stream.
  var heldBodyBytes: Int = 0
  /// Bytes that ``BodyBudget`` granted beyond the initial window.
  var grantedBodyBytes: Int = 0
  /// Body bytes dropped after the request was delivered.
  var droppedBodyBytes: Int = 0
  var fields = Fields()

  /// Client only: status of the response, 0 until known, and the caller's token of the request.
  var status: Int32 = 0
  var token: UInt64 = 0

  // Data to send: a server's response, a client's request body.
  var response: ByteBuffer
  /// Server only: unsent bytes when the timer last saw progress, -1 before its first check; and the time of that.
  var unsentBytes: Int = -1
  var unsentSince: NIODeadline = .uptimeNanoseconds(0)
  /// Decimal digits of the response's content-length, at the end of these 20 bytes. nghttp2 reads them when it sends
  /// the headers.
  var lengthDigits: (UInt64, UInt64, UInt32) = (0, 0, 0)

  /// Header fields that are read for every request, found without a search.
  struct Fields {
    var path = ByteRange()
    var authority = ByteRange()
    var authorization = ByteRange()
    var contentType = ByteRange()
    var accept = ByteRange()
    var origin = ByteRange()
    var forwardedFor = ByteRange()
    var requestID = ByteRange()
    var lastEventID = ByteRange()
  }

  init(index: UInt32) {
    self.index = index
    self.response = ByteBuffer()
  }

  /// Prepares the slot for a new stream of a server. What a response sets before it is read keeps its old value.
  @inline(__always)
  mutating func reset(_ streamID: Int32, openedAt: NIODeadline, core: UnsafeMutablePointer<ServerCore>) {
    self.streamID = streamID
    phase = .receiving
    flags = []
    method = .other
    authorizationIdentity = 0
    applicationTag = 0
    self.openedAt = openedAt
    chargedBytes = 0
    retainedBytes = 0
    shareKey = 0
    self.core = core
    count = 0
    headerEnd = 0
    headerListBytes = 0
    declaredBodyBytes = 0
    heldBodyBytes = 0
    grantedBodyBytes = 0
    droppedBodyBytes = 0
    unsentBytes = -1
    fields = StreamSlot.Fields()
  }

  var handle: HTTP2StreamHandle { HTTP2StreamHandle(slot: index, generation: generation) }

  func bytes(_ range: ByteRange) -> UnsafeRawBufferPointer {
    UnsafeRawBufferPointer(start: bytes.map { $0 + Int(range.offset) }, count: Int(range.count))
  }

  /// Bytes received after the headers.
  var body: UnsafeRawBufferPointer {
    UnsafeRawBufferPointer(start: bytes.map { $0 + headerEnd }, count: count - headerEnd)
  }

  /// Size of the prefix of each stored header: 16 bits of name length, 16 bits of value length. The limit keeps both
  /// below 65,536.
  static let fieldPrefixBytes = 4

  /// Return the value of the first header with that lower-case name.
  func find(_ name: StaticString) -> ByteRange? {
    guard let bytes else { return nil }
    var at = 0
    while at + StreamSlot.fieldPrefixBytes <= headerEnd {
      let nameCount = Int(UnsafeRawPointer(bytes + at).loadUnaligned(as: UInt16.self))
      let valueCount = Int(UnsafeRawPointer(bytes + at + 2).loadUnaligned(as: UInt16.self))
      at += StreamSlot.fieldPrefixBytes
      if isBytes(bytes + at, nameCount, name) {
        return ByteRange(offset: UInt32(at + nameCount), count: UInt32(valueCount))
      }
      at += nameCount + valueCount
    }
    return nil
  }

  /// Remove the first `taken` bytes of the body.
  mutating func dropBody(_ taken: Int) {
    guard taken > 0, let bytes else { return }
    let rest = count - headerEnd - taken
    if rest > 0 { (bytes + headerEnd).update(from: bytes + headerEnd + taken, count: rest) }
    count = headerEnd + rest
  }

  /// Make room for `extra` more bytes. Capacity doubles; the caller has checked the limits.
  @inline(__always)
  mutating func reserve(_ extra: Int) {
    if count + extra > capacity { grow(extra) }
  }

  @inline(never)
  private mutating func grow(_ extra: Int) {
    let wanted = max(512, max(capacity * 2, count + extra))
    let larger = UnsafeMutablePointer<UInt8>.allocate(capacity: wanted)
    if let bytes {
      larger.update(from: bytes, count: count)
      bytes.deallocate()
    }
    bytes = larger
    capacity = wanted
  }

  /// Append bytes. The caller has reserved room for them.
  @inline(__always)
  mutating func append(_ source: UnsafePointer<UInt8>, _ length: Int) -> ByteRange {
    let range = ByteRange(
      offset: UInt32(truncatingIfNeeded: count),
      count: UInt32(truncatingIfNeeded: length)
    )
    (bytes.unsafelyUnwrapped + count).update(from: source, count: length)
    count += length
    return range
  }

  mutating func releaseBuffers() {
    bytes?.deallocate()
    bytes = nil
    capacity = 0
    response = ByteBuffer()
  }
}

/// Pool of the slots of one event loop, shared by its connections. Idle connections hold no slot, and slots in use stay
/// warm in the cache.
struct SlotPool {
  static let chunkSize = 64

  private var chunks: [UnsafeMutablePointer<StreamSlot>] = []
  private var freeHead = StreamSlot.none
  private(set) var freeCount = 0
  private let maxKeptBufferBytes: Int
  /// Number of free slots that keep their buffers.
  private let maxWarmSlots = 4_096

  init(maxKeptBufferBytes: Int) {
    self.maxKeptBufferBytes = maxKeptBufferBytes
  }

  @inline(__always)
  func pointer(_ index: UInt32) -> UnsafeMutablePointer<StreamSlot> {
    chunks[Int(index) / SlotPool.chunkSize] + Int(index) % SlotPool.chunkSize
  }

  /// Return the slot of a handle, if it still holds the stream that the handle was made for.
  @inline(__always)
  func find(_ handle: HTTP2StreamHandle) -> UnsafeMutablePointer<StreamSlot>? {
    guard Int(handle.slot) < chunks.count * SlotPool.chunkSize else { return nil }
    let slot = pointer(handle.slot)
    return slot.pointee.generation == handle.generation ? slot : nil
  }

  mutating func take() -> UnsafeMutablePointer<StreamSlot> {
    if freeHead == StreamSlot.none { addChunk() }
    let slot = pointer(freeHead)
    freeHead = slot.pointee.next
    freeCount -= 1
    return slot
  }

  /// Return a slot to the pool; its handles are stale from here on.
  mutating func put(_ slot: UnsafeMutablePointer<StreamSlot>) {
    slot.pointee.generation &+= 1
    slot.pointee.phase = .free
    slot.pointee.core = nil
    if slot.pointee.capacity > maxKeptBufferBytes {
      slot.pointee.bytes?.deallocate()
      slot.pointee.bytes = nil
      slot.pointee.capacity = 0
    }
    if slot.pointee.response.capacity > maxKeptBufferBytes { slot.pointee.response = ByteBuffer() }
    if freeCount >= maxWarmSlots { slot.pointee.releaseBuffers() }
    slot.pointee.next = freeHead
    freeHead = slot.pointee.index
    freeCount += 1
  }

  /// Free the buffers of all free slots.
  mutating func releaseFreeBuffers() {
    var index = freeHead
    while index != StreamSlot.none {
      let slot = pointer(index)
      slot.pointee.releaseBuffers()
      index = slot.pointee.next
    }
  }

  private mutating func addChunk() {
    let base = UInt32(chunks.count * SlotPool.chunkSize)
    let chunk = UnsafeMutablePointer<StreamSlot>.allocate(capacity: SlotPool.chunkSize)
    for offset in (0..<SlotPool.chunkSize).reversed() {
      (chunk + offset).initialize(to: StreamSlot(index: base + UInt32(offset)))
      (chunk + offset).pointee.next = freeHead
      freeHead = base + UInt32(offset)
    }
    chunks.append(chunk)
    freeCount += SlotPool.chunkSize
  }

  mutating func destroy() {
    for chunk in chunks {
      for offset in 0..<SlotPool.chunkSize { (chunk + offset).pointee.releaseBuffers() }
      chunk.deinitialize(count: SlotPool.chunkSize)
      chunk.deallocate()
    }
    chunks = []
  }
}
