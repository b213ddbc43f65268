package import NIOCore

/// Limits on the memory, time and work that one HTTP/2 connection may cost.
///
/// The defaults suit a public listener. Each limit states what happens when a peer exceeds it. No buffer or queue grows
/// without a limit.
package struct HTTP2Limits: Sendable {
  // MARK: Streams and memory

  /// Concurrent streams per connection, 1 to 2^31-1 (SETTINGS_MAX_CONCURRENT_STREAMS, RFC 9113 section 6.5.2). Streams
  /// above it are refused with REFUSED_STREAM. Once the client has acknowledged the setting, exceeding it is a
  /// connection error, PROTOCOL_ERROR (sections 5.1.2 and 5.4.1).
  package var concurrentStreamsMax: UInt32 = 1_000

  /// ``concurrentStreamsMax`` for a peer that is not yet authenticated (``HTTP2ServerConnection/isAuthenticated``).
  package var unauthenticatedStreamsMax: UInt32 = 100

  /// Bytes of a request's header list, counted as RFC 9113 section 6.5.2 does (name + value + 32 each), 1 to 65,535.
  /// Headers above it are not stored, and the request is delivered with ``HTTP2Request/headersTooLarge``.
  package var headerListBytesMax: Int = 16 * 1024

  /// Bytes of a request body, 0 to 2^31-1. Bytes above it are not stored, and the request is delivered at once with
  /// ``HTTP2Request/bodyTooLarge``.
  package var bodyBytesMax: Int = 1024 * 1024

  /// Body bytes that a client may still send after the response is complete; they are read and dropped. Above it the
  /// stream is reset with NO_ERROR (RFC 9113 section 8.1). curl, for one, treats such a reset in the middle of an
  /// upload as a failure and discards the response. So bodies of ordinary size are read to the end.
  package var droppedBodyBytesMax: Int = 16 * 1024 * 1024

  /// Bytes of request bodies that a connection buffers until their streams close, 0 to 2^31-1. Streamed bodies do not
  /// count, nor do the first ``initialWindowSize`` bytes of each stream.
  ///
  /// If incomplete bodies would exceed the limit, one stream continues, and the windows of the others are not extended
  /// until there is room. If complete bodies exceed it, the connection's window is not returned until they are
  /// answered. A client that sends more is therefore slowed down. A connection buffers at most this limit, one
  /// ``bodyBytesMax``, one ``connectionWindowSize``, and ``initialWindowSize`` for each stream; buffer capacity may be
  /// twice that.
  ///
  /// A stream that exceeds its window is reset with FLOW_CONTROL_ERROR, or with ENHANCE_YOUR_CALM before the client has
  /// acknowledged SETTINGS.
  package var bufferedBodyBytesMax: Int = 4 * 1024 * 1024

  /// Bytes that all connections of one event loop hold for their streams (``MemoryBudget``), 0 to 2^62: requests,
  /// unsent responses, and 1.5 KiB for each open stream. Above half of it, connections that hold more than a 128th, or
  /// 32 KiB, get no more; above three quarters, those that hold more than 32 KiB; above all of it, no connection. New
  /// streams are then refused with REFUSED_STREAM, which a client may retry. Streams with an incomplete body are reset
  /// with ENHANCE_YOUR_CALM.
  package var memoryBytesMax: Int = 1 << 30

  /// The same limit for one connection.
  package var connectionMemoryBytesMax: Int = 128 * 1024 * 1024

  /// The same limit for one connection whose peer is not yet authenticated (``HTTP2ServerConnection/isAuthenticated``).
  /// If all of these hold more than a quarter of ``memoryBytesMax``, the limit is 4 KiB for each.
  package var unauthenticatedMemoryBytesMax: Int = 4 * 1024 * 1024

  /// Lower-case names of header fields to keep for ``HTTP2Request/header(_:)``, besides those with a property of their
  /// own. Others are dropped while decoding and cost no memory. Nil: all are kept.
  package var retainedHeaders: [String]? = nil

  /// Bytes that one header block may decode to, counted like ``headerListBytesMax``. Above it the connection ends with
  /// ENHANCE_YOUR_CALM. A block of 16 KB can expand to 60 MB (RFC 7541 section 7.3), and nghttp2 would decode all of
  /// it.
  package var decodedHeaderBytesMax: Int = 64 * 1024

  /// A write of up to this many bytes to the empty queue of a streaming response is not charged.
  package static let uncountedResponseBytes = 4_096

  /// Bytes that one streaming response may queue before ``HTTP2ServerConnection/write(_:_:)`` refuses more.
  package var streamQueueBytesMax: Int = 256 * 1024

  /// Largest capacity in bytes at which a slot keeps its request buffer, or its response buffer, for the next stream.
  /// Larger buffers are freed.
  package var retainedBufferBytesMax: Int = 4 * 1024

  // MARK: Windows and frames

  /// Initial window of each stream in bytes, 1 to 2^31-1 (SETTINGS_INITIAL_WINDOW_SIZE, RFC 9113 section 6.9.2). Every
  /// stream may send this much regardless of other streams (``bufferedBodyBytesMax``). For a longer body, the window
  /// doubles each time half of it has arrived, as in TCP slow start.
  ///
  /// Do not set it below HTTP/2's default of 65,535. A client that has sent that much before it reads our SETTINGS then
  /// has a negative window, and Python's httpcore fails on that.
  package var initialWindowSize: UInt32 = 65_535

  /// Window in bytes of a stream whose body the application reads as it arrives, 1 to 2^31-1.
  package var streamedWindowSize: Int32 = 256 * 1024

  /// Window of the connection in bytes, 65,535 to 2^31-1 (RFC 9113 section 6.9). Until the peer is authenticated it is
  /// HTTP/2's default of 65,535.
  package var connectionWindowSize: Int32 = 4 * 1024 * 1024

  /// Payload of the largest frame accepted, 16,384 to 2^24-1 bytes (SETTINGS_MAX_FRAME_SIZE, RFC 9113 section
  /// 6.5.2). A larger one is FRAME_SIZE_ERROR.
  package var frameSizeMax: UInt32 = 16_384

  /// HPACK dynamic table offered to the peer, in bytes (SETTINGS_HEADER_TABLE_SIZE, RFC 7541 section 4.2).
  package var headerTableSize: UInt32 = 4_096

  /// Bytes that one connection writes before the other connections of its event loop have their turn.
  package var writeBytesMax: Int = 64 * 1024

  // MARK: Floods

  /// RST_STREAM frames that a peer may send in one burst (rapid reset, CVE-2023-44487). Above it the connection ends
  /// with a GOAWAY.
  package var streamResetBurst: UInt64 = 1_000
  /// RST_STREAM frames per second after the burst, see ``streamResetBurst``.
  package var streamResetsPerSecond: UInt64 = 200

  /// CONTINUATION frames after one HEADERS frame. Above it the connection ends.
  package var continuationsMax: Int = 8

  /// Entries in one SETTINGS frame. Above it the connection ends.
  package var settingsEntriesMax: Int = 32

  /// SETTINGS and PING acknowledgements that may be queued for sending. Above it the connection ends.
  package var outboundAcksMax: Int = 1_000

  /// Control frames that a peer may send in one burst: PING, SETTINGS, PRIORITY, WINDOW_UPDATE, unknown types, and DATA
  /// of fewer than ``dataBytesMin``, which ask for work and carry little. Above it the connection ends with
  /// ENHANCE_YOUR_CALM. Each request and each longer DATA frame adds one to the allowance, each DATA frame sent two.
  package var controlFrameBurst: Int = 2_000
  /// Control frames per second after the burst, see ``controlFrameBurst``.
  package var controlFramesPerSecond: Int = 200

  /// Bytes of a DATA frame that does not end its stream, below which it counts as a control frame
  /// (``controlFrameBurst``). A peer may divide a body as it likes, but a body of single bytes costs ten times its size
  /// in frame headers, and the work for each of them.
  package static let dataBytesMin = 16

  // MARK: Time

  // One timer per connection checks these, except the linger timeout. It first fires after the preface timeout, then
  // with the shortest of the other three as its period. A timeout may therefore fire late by up to one period, and by
  // two for a stalled response.

  /// Time from the start of the connection until the client's preface and SETTINGS have arrived.
  package var prefaceTimeout: TimeAmount = .seconds(10)

  /// Time from a stream's HEADERS until its request is complete. After it the stream is reset with CANCEL.
  package var requestTimeout: TimeAmount = .seconds(30)

  /// Time without a byte from the peer and without an open stream. After it the connection is closed gracefully. A
  /// stream is open while the application holds its request or streams its response.
  package var idleTimeout: TimeAmount = .seconds(180)

  /// Time for which output may be pending while the peer takes none. If the socket accepts no bytes, the connection is
  /// closed. If HTTP/2's windows block a response, so that less than 4 KiB of it are sent, its stream is reset with
  /// CANCEL. This requires that its own window is used up, or that no response of the connection progressed. The
  /// application must end unfinished streaming responses itself; ``streamQueueBytesMax`` bounds their queue.
  package var writeTimeout: TimeAmount = .seconds(30)

  /// Bytes that a peer must take within ``writeTimeout``, unless fewer are left. Else a peer that opens its window byte
  /// by byte would keep responses in memory for hours.
  package static let progressBytesMin = 4_096

  /// Time that the peer has to close its side after our output is closed. Then the socket is closed.
  package var lingerTimeout: TimeAmount = .seconds(1)

  /// Effective value of ``unauthenticatedStreamsMax``.
  var unauthenticatedStreams: UInt32 { min(unauthenticatedStreamsMax, concurrentStreamsMax) }

  /// Create the default limits.
  package init() {}

  /// Limits of a connection that many clients share (``HTTP2ServerConnection/isShared``): those that add up over
  /// clients are a hundred times as high, and resets have none.
  var shared: HTTP2Limits {
    var limits = self
    // Streams are bounded per client, by the bytes that each of them holds.
    limits.concurrentStreamsMax = min(100 * concurrentStreamsMax, UInt32(Int32.max))
    limits.outboundAcksMax *= 100
    // A proxy passes on the resets of its clients: one of them could end the connection of all.
    limits.streamResetBurst = 1 << 62
    limits.streamResetsPerSecond = 1 << 32
    limits.controlFrameBurst *= 100
    limits.controlFramesPerSecond *= 100
    limits.decodedHeaderBytesMax *= 100
    // Bodies are bounded per client, so that no client waits for another's.
    limits.bufferedBodyBytesMax = Int(Int32.max)
    return limits
  }

  /// Trap on values outside the ranges above. The operator sets them, and they are checked when the configuration is
  /// read.
  func validate() {
    precondition(concurrentStreamsMax >= 1 && concurrentStreamsMax <= UInt32(Int32.max))
    precondition(unauthenticatedStreamsMax >= 1)
    precondition(headerListBytesMax >= 1 && headerListBytesMax <= 65_535)
    precondition(memoryBytesMax >= 0 && connectionMemoryBytesMax >= 0 && unauthenticatedMemoryBytesMax >= 0)
    precondition(decodedHeaderBytesMax >= headerListBytesMax)
    precondition(bodyBytesMax >= 0 && bodyBytesMax <= Int(Int32.max))
    precondition(bufferedBodyBytesMax >= 0 && bufferedBodyBytesMax <= Int(Int32.max))
    precondition(streamedWindowSize >= 1)
    precondition(initialWindowSize >= 1)
    precondition(initialWindowSize <= UInt32(Int32.max) && connectionWindowSize >= 65_535)
    precondition(frameSizeMax >= 16_384 && frameSizeMax < 1 << 24)
    precondition(writeBytesMax >= 1 && streamQueueBytesMax >= 1 && retainedBufferBytesMax >= 0)
  }
}
