package import NIOCore

/// Every limit by which one HTTP/2 connection may cost memory, time or work, in one place.
///
/// The defaults suit a public listener. What happens past a limit is said beside it; nothing grows without
/// one.
package struct HTTP2Limits: Sendable {
  // MARK: Streams and memory

  /// Concurrent streams per connection, 1 to 2^31-1 (SETTINGS_MAX_CONCURRENT_STREAMS, RFC 9113 section
  /// 6.5.2). A stream past it is refused with REFUSED_STREAM; of a client that has acknowledged the setting it is a
  /// connection error, PROTOCOL_ERROR (sections 5.1.2 and 5.4.1).
  package var maxConcurrentStreams: UInt32 = 1_000

  /// Bytes of a request's header list, counted as RFC 9113 section 6.5.2 does (name + value + 32 each), 1 to
  /// 65,535. Past it nothing more is stored, and the request is delivered with
  /// ``HTTP2Request/headersTooLarge``.
  package var maxHeaderListBytes: Int = 16 * 1024

  /// Bytes of a request body, 0 to 2^31-1. Past it nothing more is stored, and the request is delivered at
  /// once with ``HTTP2Request/bodyTooLarge``.
  package var maxBodyBytes: Int = 1024 * 1024

  /// What a client may go on sending of a body after the answer is complete, in bytes; it is read and dropped. Past it
  /// the stream is reset with NO_ERROR (RFC 9113 section 8.1). curl, for one, takes such a reset in the middle of an
  /// upload for a failure and forgets the answer, so a body of ordinary size is let come.
  package var maxDroppedBodyBytes: Int = 16 * 1024 * 1024

  /// Bytes of request bodies that a connection holds until their streams close, beside the first
  /// ``initialWindowSize`` of each, 0 to 2^31-1; streamed ones do not count. Where bodies under way would pass it, one
  /// stream goes on, and the windows of others are not extended until there is room. Where complete ones pass it, the
  /// connection's window is not given back until they are answered. So a client that sends more is slowed down, and a
  /// connection holds at most this, one ``maxBodyBytes``, one ``connectionWindowSize``, and ``initialWindowSize`` for
  /// each stream; in buffers that may be twice as large. A stream that sends past its window is reset with
  /// FLOW_CONTROL_ERROR, or, before it has acknowledged SETTINGS, with ENHANCE_YOUR_CALM.
  package var maxBufferedBodyBytes: Int = 4 * 1024 * 1024

  /// Bytes that all connections of one event loop hold for their streams (``MemoryBudget``), 0 to 2^62: requests,
  /// answers that have not left, and 1.5 KiB for each open stream. Past half of it connections that hold more than 32
  /// KiB get nothing more, past all of it none does: new streams are refused with REFUSED_STREAM, which a client may
  /// try again, and those whose bodies go on are reset with ENHANCE_YOUR_CALM.
  package var maxHeldBytes: Int = 1 << 30

  /// Of one connection, likewise.
  package var maxConnectionHeldBytes: Int = 128 * 1024 * 1024

  /// Of one connection whose peer has not shown yet who it is (``HTTP2ServerConnection/isProven``), bodies aside.
  package var maxUnprovenHeldBytes: Int = 4 * 1024 * 1024

  /// Header fields that are kept for ``HTTP2Request/header(_:)``, lower-case, beside those that a request has
  /// properties for. Others are dropped as they are decoded, and cost no memory. Nil: all are kept.
  package var keptHeaders: [String]? = nil

  /// Bytes that one header block may be decoded to, counted as ``maxHeaderListBytes`` is. Past it the connection ends
  /// with ENHANCE_YOUR_CALM: a block of 16 KB can stand for 60 MB (RFC 7541 section 7.3), and nghttp2 would decode all
  /// of it.
  package var maxDecodedHeaderBytes: Int = 64 * 1024

  /// Bytes that may wait in one streaming response before ``HTTP2ServerConnection/write(_:_:)`` refuses more.
  package var maxStreamQueueBytes: Int = 256 * 1024

  /// Bytes of a slot's request and response buffers, each, that are kept for the next stream. Larger ones are
  /// freed.
  package var maxKeptBufferBytes: Int = 4 * 1024

  // MARK: Windows and frames

  /// Window of each stream in bytes at first, 1 to 2^31-1 (SETTINGS_INITIAL_WINDOW_SIZE, RFC 9113 section 6.9.2). It is
  /// what every stream may send whatever others do (``maxBufferedBodyBytes``). A body that is longer has its window
  /// extended as half of it has come, twofold each time, which is how TCP begins too. Not below HTTP/2's own 65,535: a
  /// client that has sent so much before it reads our SETTINGS has a negative window then, which Python's httpcore
  /// fails on.
  package var initialWindowSize: UInt32 = 65_535

  /// Window of a stream whose body the application takes as it comes, in bytes, 1 to 2^31-1.
  package var streamedWindowSize: Int32 = 256 * 1024

  /// Window of the connection in bytes, 65,535 to 2^31-1 (RFC 9113 section 6.9).
  package var connectionWindowSize: Int32 = 4 * 1024 * 1024

  /// Payload of the largest frame accepted, 16,384 to 2^24-1 bytes (SETTINGS_MAX_FRAME_SIZE, RFC 9113 section
  /// 6.5.2). A larger one is FRAME_SIZE_ERROR.
  package var maxFrameSize: UInt32 = 16_384

  /// HPACK dynamic table offered to the peer, in bytes (SETTINGS_HEADER_TABLE_SIZE, RFC 7541 section 4.2).
  package var headerTableSize: UInt32 = 4_096

  /// Bytes gathered for one write before the channel is asked whether it can take more.
  package var maxWriteBytes: Int = 256 * 1024

  // MARK: Floods

  /// RST_STREAM frames a peer may send at once, and per second after that (rapid reset, CVE-2023-44487).
  /// Past it the connection ends with a GOAWAY.
  package var streamResetBurst: UInt64 = 1_000
  /// See ``streamResetBurst``.
  package var streamResetsPerSecond: UInt64 = 200

  /// CONTINUATION frames after one HEADERS frame. Past it the connection ends.
  package var maxContinuations: Int = 8

  /// Entries in one SETTINGS frame. Past it the connection ends.
  package var maxSettingsEntries: Int = 32

  /// SETTINGS and PING acknowledgements that may wait to be sent. Past it the connection ends.
  package var maxOutboundAcks: Int = 1_000

  /// Frames that ask for work and carry none (PING, SETTINGS, PRIORITY, empty DATA, unknown types) that a
  /// peer may send at once, and per second and per request after that. Past it the connection ends with
  /// ENHANCE_YOUR_CALM.
  package var controlFrameBurst: Int = 2_000
  /// See ``controlFrameBurst``.
  package var controlFramesPerSecond: Int = 200

  // MARK: Time

  // One timer per connection looks after all of these, every shortest of the last four but linger: what
  // happens past a limit may happen so much later, and twice that for an answer that does not move.

  /// From the start of the connection until the client's preface and SETTINGS have arrived.
  package var prefaceTimeout: TimeAmount = .seconds(10)

  /// From a stream's HEADERS until its request is complete. Past it the stream is reset with CANCEL.
  package var requestTimeout: TimeAmount = .seconds(30)

  /// Without a byte from the peer and without an open stream. Past it the connection is closed gracefully. A
  /// stream counts as open for as long as the application holds its request or streams its answer.
  package var idleTimeout: TimeAmount = .seconds(180)

  /// With output waiting that the peer does not take. Where the socket takes nothing, the connection is closed
  /// past it. Where HTTP/2's windows hold an answer back, its stream is reset with CANCEL past it: if not a
  /// byte of it has left and its own window is used up, or no answer of the connection has moved. A streaming
  /// answer that is not finished is the application's to end; its queue is bounded by ``maxStreamQueueBytes``.
  package var writeTimeout: TimeAmount = .seconds(30)

  /// How long a closed output waits for the peer to close its side before the socket is closed.
  package var lingerTimeout: TimeAmount = .seconds(1)

  /// The defaults, to be changed field by field.
  package init() {}

  /// Those of a connection that many clients share (``HTTP2ServerConnection/isShared``): a hundred times as much of what
  /// each of them may do.
  var shared: HTTP2Limits {
    var limits = self
    limits.streamResetBurst *= 100
    limits.streamResetsPerSecond *= 100
    limits.controlFrameBurst *= 100
    limits.controlFramesPerSecond *= 100
    limits.maxDecodedHeaderBytes *= 100
    // Bodies are bounded for each client: none of them waits for another's.
    limits.maxBufferedBodyBytes = Int(Int32.max)
    return limits
  }

  /// Traps on values outside the ranges above: they are the operator's, checked when the configuration is
  /// read.
  func validate() {
    precondition(maxConcurrentStreams >= 1 && maxConcurrentStreams <= UInt32(Int32.max))
    precondition(maxHeaderListBytes >= 1 && maxHeaderListBytes <= 65_535)
    precondition(maxHeldBytes >= 0 && maxConnectionHeldBytes >= 0 && maxUnprovenHeldBytes >= 0)
    precondition(maxDecodedHeaderBytes >= maxHeaderListBytes)
    precondition(maxBodyBytes >= 0 && maxBodyBytes <= Int(Int32.max))
    precondition(maxBufferedBodyBytes >= 0 && maxBufferedBodyBytes <= Int(Int32.max))
    precondition(streamedWindowSize >= 1)
    precondition(initialWindowSize >= 1)
    precondition(initialWindowSize <= UInt32(Int32.max) && connectionWindowSize >= 65_535)
    precondition(maxFrameSize >= 16_384 && maxFrameSize < 1 << 24)
    precondition(maxWriteBytes >= 1 && maxStreamQueueBytes >= 1 && maxKeptBufferBytes >= 0)
  }
}
