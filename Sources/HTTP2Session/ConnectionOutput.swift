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
