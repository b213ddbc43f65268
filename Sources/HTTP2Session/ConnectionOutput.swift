internal import CNghttp2
internal import NIOCore

/// When a connection writes: whether nghttp2 may have output, and what defers its flush.
///
/// A flush is deferred while a read or a call to the delegate runs, until the end of that; while the channel is not
/// writable, until it is; and after a full write, until a later turn of the event loop.
struct ConnectionOutput {
  /// nghttp2 may have output pending.
  private var isPending = false
  /// A read, a flush or a call to the delegate is running.
  private var isBusy = false
  /// Time since which the channel has not been writable; nil while it is.
  private var blockedSince: NIODeadline?
  /// The channel was asked to read while it was not writable.
  private var hasDeferredRead = false
  /// More output is written in a later turn of the event loop.
  private var continuesLater = false

  /// Whether the channel is not writable.
  var isBlocked: Bool { blockedSince != nil }

  /// Return whether the channel has not been writable for this long.
  func isBlocked(for timeout: TimeAmount, now: NIODeadline) -> Bool {
    blockedSince.map { now - $0 >= timeout } ?? false
  }

  /// Record that nghttp2 may have output.
  @inline(__always)
  mutating func markPending() { isPending = true }

  // MARK: Deferral

  /// Defer flushes until ``endWork()``.
  @inline(__always)
  mutating func beginWork() { isBusy = true }

  @inline(__always)
  mutating func endWork() { isBusy = false }

  /// Begin a flush, which defers others until ``endWork()``. Returns false if there is nothing to flush, or if the
  /// flush is deferred.
  @inline(__always)
  mutating func beginFlush() -> Bool {
    guard isPending, !isBusy else { return false }
    isBusy = true
    return true
  }

  /// Begin one write of a flush. Returns false if nothing is left to write in this turn.
  @inline(__always)
  mutating func beginWrite() -> Bool {
    guard isPending, !continuesLater else { return false }
    isPending = false
    return true
  }

  /// Write the rest in a later turn of the event loop.
  mutating func postpone() { continuesLater = true }

  /// Begin that turn.
  mutating func resume() {
    continuesLater = false
    isPending = true
  }

  // MARK: Writability

  /// Record that the channel is not writable, or was not at an earlier attempt.
  mutating func block(now: NIODeadline) {
    if blockedSince == nil { blockedSince = now }
  }

  /// Defer a read until the channel is writable.
  mutating func deferRead(now: NIODeadline) {
    hasDeferredRead = true
    block(now: now)
  }

  /// Record that the channel is writable again: output and the deferred read continue.
  mutating func unblock() {
    blockedSince = nil
    isPending = true
  }

  /// Remove the deferred read. Returns false if there is none.
  mutating func removeDeferredRead() -> Bool {
    defer { hasDeferredRead = false }
    return hasDeferredRead
  }
}

/// Result of ``drain(_:into:bytesMax:)``.
enum Drained {
  /// nghttp2 has nothing more to send.
  case all
  /// The buffer has reached its limit.
  case more
  /// NOMEM, or a callback failed: the session cannot continue.
  case failed
}

/// Append nghttp2's pending output frame by frame, until none is left or the buffer reaches `bytesMax`. Frames are at
/// most 16 KiB, so the buffer exceeds the limit by at most that.
func drain(_ session: OpaquePointer, into output: inout ByteBuffer, bytesMax: Int) -> Drained {
  while true {
    var data: UnsafePointer<UInt8>?
    let count = nghttp2_session_mem_send(session, &data)
    if count == 0 { return .all }
    guard count > 0, let data else { return .failed }
    output.writeBytes(UnsafeRawBufferPointer(start: data, count: count))
    if output.readableBytes >= bytesMax { return .more }
  }
}

/// Response bytes that nghttp2 has read. While their number grows, the peer accepts output.
struct OutputProgress {
  private var sentBytes: UInt64 = 0
  /// Number at the last check that saw it grow by ``HTTP2Limits/progressBytesMin``, and the time of that.
  private var seenBytes: UInt64 = 0
  private var seenAt = NIODeadline.uptimeNanoseconds(0)

  @inline(__always)
  mutating func sent(_ count: Int) { sentBytes &+= UInt64(count) }

  /// Check whether the number has grown since the last check, or since less than `timeout`.
  mutating func hasProgressed(within timeout: TimeAmount, now: NIODeadline) -> Bool {
    if sentBytes &- seenBytes >= UInt64(HTTP2Limits.progressBytesMin) {
      seenBytes = sentBytes
      seenAt = now
    }
    return now - seenAt < timeout
  }
}
