internal import NIOCore

/// A run of bytes inside a slot's request buffer.
struct ByteRange {
  var offset: UInt32 = 0
  var count: UInt32 = 0
}

/// The state of one stream, reused from stream to stream. It lives at a fixed address so that nghttp2 can
/// hold a pointer to it as the stream's user data, and so that NO_COPY header values may point into it.
struct StreamSlot {
  /// free → receiving → ready → delivered → answered or streaming → free.
  /// From ready or delivered a close by the peer leads to aborted, and to free once the application knows.
  enum Phase: UInt8 {
    case free, receiving, ready, delivered, answered, streaming, aborted
  }

  struct Flags: OptionSet {
    let rawValue: UInt16
    static let remoteEnded = Flags(rawValue: 1)
    static let headersTooLarge = Flags(rawValue: 2)
    static let bodyTooLarge = Flags(rawValue: 4)
    /// The last bytes of the answer have been handed to nghttp2.
    static let localEnded = Flags(rawValue: 8)
    /// The application has finished a streaming answer.
    static let finished = Flags(rawValue: 16)
    /// nghttp2 waits for `resume_data`.
    static let deferred = Flags(rawValue: 32)
    /// The application was told that the queue is full.
    static let wantsDrain = Flags(rawValue: 64)
    /// The application has been told of this request.
    static let told = Flags(rawValue: 128)
    /// The application takes the request's body as it comes.
    static let bodyStreams = Flags(rawValue: 256)
    /// The application has seen the end of such a body.
    static let bodyEndSeen = Flags(rawValue: 512)
    /// There was an authorization header, be it empty.
    static let hasAuthorization = Flags(rawValue: 1024)
    /// Its body may not go on until others are answered (``BodyBudget``).
    static let awaitsRoom = Flags(rawValue: 2048)
    /// There is no room for it (``MemoryBudget``).
    static let refused = Flags(rawValue: 4096)
  }

  /// "No slot" in the lists below.
  static let none = UInt32.max

  let index: UInt32
  var generation: UInt32 = 0
  var streamID: Int32 = 0
  var phase: Phase = .free
  var flags: Flags = []
  var method: HTTP2Method = .other
  var authorizationIdentity: UInt32 = 0
  /// The application's own.
  var note: UInt64 = 0
  var openedAt: NIODeadline = .uptimeNanoseconds(0)
  var core: UnsafeMutablePointer<ServerCore>?

  /// Open slots of one connection, oldest first; `next` also links the pool's free slots.
  var previous: UInt32 = StreamSlot.none
  var next: UInt32 = StreamSlot.none
  /// Slots that wait for the application: ready, aborted or drained ones.
  var nextWaiting: UInt32 = StreamSlot.none
  var isWaiting = false

  // What is received, a request at a server, an answer at a client: header fields as
  // [name length][value length][name][value], then the body, in one buffer.
  var bytes: UnsafeMutablePointer<UInt8>?
  var capacity: Int = 0
  var count: Int = 0
  var headerEnd: Int = 0
  var headerListBytes: Int = 0
  /// Its content-length, 0 if it has none.
  var declaredBodyBytes: Int = 0
  /// What ``MemoryBudget`` counts for it.
  var chargedBytes: Int = 0
  /// Who it counts for, over all connections; 0: the connection alone.
  var shareKey: UInt64 = 0
  /// What ``BodyBudget`` counts for it.
  var heldBodyBytes: Int = 0
  /// What ``BodyBudget`` let it send beyond its first window.
  var grantedBodyBytes: Int = 0
  /// Of the body, after the request was delivered.
  var droppedBodyBytes: Int = 0
  var fields = Fields()

  /// A client's: the status of the answer, 0 until it is known, and what the caller knows the request by.
  var status: Int32 = 0
  var token: UInt64 = 0

  // What is sent: a server's answer, a client's request body.
  var response: ByteBuffer
  /// Of a server's answer: what waited when the timer last saw it move, -1 if it has not looked yet; and when
  /// that was.
  var unsentBytes: Int = -1
  var unsentSince: NIODeadline = .uptimeNanoseconds(0)
  /// Decimal digits of the answer's content-length, at the end of these 20 bytes: nghttp2 reads them when it
  /// sends the headers.
  var lengthDigits: (UInt64, UInt64, UInt32) = (0, 0, 0)

  /// Fields that every request is asked for, found without a search.
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

  var handle: HTTP2StreamHandle { HTTP2StreamHandle(slot: index, generation: generation) }

  func bytes(_ range: ByteRange) -> UnsafeRawBufferPointer {
    UnsafeRawBufferPointer(start: bytes.map { $0 + Int(range.offset) }, count: Int(range.count))
  }

  /// What has been received after the headers.
  var body: UnsafeRawBufferPointer {
    UnsafeRawBufferPointer(start: bytes.map { $0 + headerEnd }, count: count - headerEnd)
  }

  /// Before each stored header: 16 bits of name length, 16 bits of value length (both are below 65,536 by the
  /// limit).
  static let fieldPrefixBytes = 4

  /// The value of the first header of that lower-case name.
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

  /// Forgets the first bytes of what has been received after the headers.
  mutating func dropBody(_ taken: Int) {
    guard taken > 0, let bytes else { return }
    let rest = count - headerEnd - taken
    if rest > 0 { (bytes + headerEnd).update(from: bytes + headerEnd + taken, count: rest) }
    count = headerEnd + rest
  }

  /// Room for `extra` bytes more. Growth doubles; the caller has checked the limits.
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

  /// The caller has reserved room for it.
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

/// All slots of one event loop, shared by its connections, so that idle connections hold none and the slots
/// in use stay warm in the cache.
struct SlotPool {
  static let chunkSize = 64

  private var chunks: [UnsafeMutablePointer<StreamSlot>] = []
  private var freeHead = StreamSlot.none
  private(set) var freeCount = 0
  private let maxKeptBufferBytes: Int
  /// Free slots beyond this many give their buffers back.
  private let maxWarmSlots = 4_096

  init(maxKeptBufferBytes: Int) {
    self.maxKeptBufferBytes = maxKeptBufferBytes
  }

  @inline(__always)
  func pointer(_ index: UInt32) -> UnsafeMutablePointer<StreamSlot> {
    chunks[Int(index) / SlotPool.chunkSize] + Int(index) % SlotPool.chunkSize
  }

  /// The slot of a handle, if it is still the stream that the handle was made for.
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

  /// Frees a slot: its handles are stale from here on.
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

  /// Frees the buffers of all free slots.
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
