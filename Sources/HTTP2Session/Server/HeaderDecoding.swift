/// Header block that a server session decodes, and its limits. It owns the choice of the headers that are kept.
struct HeaderDecoding {
  /// Slot whose header block is being decoded; nil while the block is ignored (trailers, refused streams).
  private(set) var slot: UnsafeMutablePointer<StreamSlot>?
  /// Bytes decoded so far of the current header block.
  private var decodedBytes = 0
  private var decodedBytesMax: Int
  private var identities = AuthorizationIdentities()
  let listBytesMax: Int
  /// Names in ``HTTP2Limits/retainedHeaders``; nil: all headers are kept.
  private let retainedHeaders: [[UInt8]]?

  init(limits: HTTP2Limits, retainedHeaders: [[UInt8]]?) {
    decodedBytesMax = limits.decodedHeaderBytesMax
    listBytesMax = limits.headerListBytesMax
    self.retainedHeaders = retainedHeaders
  }

  mutating func setLimits(_ limits: HTTP2Limits) { decodedBytesMax = limits.decodedHeaderBytesMax }

  /// Begin a header block; nil: its fields are ignored.
  @inline(__always)
  mutating func begin(_ slot: UnsafeMutablePointer<StreamSlot>?) {
    decodedBytes = 0
    self.slot = slot
  }

  /// Count a decoded field, also of an ignored block. Returns false if the block exceeds its limit.
  @inline(__always)
  mutating func count(_ fieldBytes: Int) -> Bool {
    decodedBytes += fieldBytes
    return decodedBytes <= decodedBytesMax
  }

  /// Ignore the rest of the block if it is this slot's.
  @inline(__always)
  mutating func ignore(_ slot: UnsafeMutablePointer<StreamSlot>) {
    if self.slot == slot { self.slot = nil }
  }

  /// End the block; returns its slot, or nil if it was ignored.
  @inline(__always)
  mutating func end() -> UnsafeMutablePointer<StreamSlot>? {
    guard let slot else { return nil }
    slot.pointee.received.endHeaders()
    self.slot = nil
    return slot
  }

  /// Return the number of an `authorization` value, see ``AuthorizationIdentities``.
  @inline(__always)
  mutating func identity(_ value: UnsafePointer<UInt8>, _ count: Int) -> UInt32 {
    identities.identity(value, count)
  }

  /// Return whether a field is stored: a request has a property for it, or the application wants it.
  @inline(__always)
  func retains(_ name: UnsafePointer<UInt8>, _ count: Int) -> Bool {
    guard let retainedHeaders else { return true }
    return hasRequestProperty(name, count) || isRetained(retainedHeaders, name, count)
  }

  @inline(never)
  private func isRetained(_ names: [[UInt8]], _ name: UnsafePointer<UInt8>, _ count: Int) -> Bool {
    names.contains { $0.count == count && equalBytes($0, name, count) }
  }
}

/// Return whether a request has a property for a header field.
@inline(__always)
private func hasRequestProperty(_ name: UnsafePointer<UInt8>, _ count: Int) -> Bool {
  switch count {
  case 5: if isBytes(name, count, ":path") { return true }
  case 6:
    if isBytes(name, count, "accept") || isBytes(name, count, "origin") || isBytes(name, count, "expect") {
      return true
    }
  case 7: if isBytes(name, count, ":method") { return true }
  case 10: if isBytes(name, count, ":authority") { return true }
  case 12: if isBytes(name, count, "content-type") || isBytes(name, count, "x-request-id") { return true }
  case 13: if isBytes(name, count, "authorization") || isBytes(name, count, "last-event-id") { return true }
  case 14: if isBytes(name, count, "content-length") { return true }
  case 15: if isBytes(name, count, "x-forwarded-for") { return true }
  default: break
  }
  return false
}

/// Cache of the last `authorization` header's bytes, so that one comparison recognises a run of requests with the same
/// one. Comparing nghttp2's reference-counted buffers by address was tried instead and failed. nghttp2's own encoder
/// never puts this header into the dynamic table, nor do Python's and others, so the address differs every time.
struct AuthorizationIdentities {
  private static let keptBytesMax = 5 * 1_024

  private var last: [UInt8] = []
  private var current: UInt32 = 0

  @inline(__always)
  mutating func identity(_ value: UnsafePointer<UInt8>, _ count: Int) -> UInt32 {
    if count == last.count, current != 0,
      last.withUnsafeBufferPointer({
        count == 0 || equalBytes($0.baseAddress.unsafelyUnwrapped, value, count)
      })
    {
      return current
    }
    // Values longer than any token are not cached per connection.
    last.removeAll(keepingCapacity: last.capacity <= Self.keptBytesMax)
    if count <= Self.keptBytesMax { last.append(contentsOf: UnsafeBufferPointer(start: value, count: count)) }
    // 0 means none. After 2^32 - 1 changes a number repeats; a client would need hours to reach that.
    current &+= 1
    if current == 0 { current = 1 }
    return current
  }
}
