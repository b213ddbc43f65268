/// Range of bytes inside a slot's request buffer.
struct ByteRange {
  var offset: UInt32 = 0
  var count: UInt32 = 0
}

/// What was received of one stream: a request on a server, a response on a client. Header fields are stored as [name
/// length][value length][name][value], then the body, in one buffer, which later streams use again.
struct ReceivedMessage {
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

  private(set) var fields = Fields()
  /// On a client: of the request.
  var method: HTTP2Method = .other
  /// Number of the request's `authorization` value, 0 without the header (``AuthorizationIdentities``).
  var authorizationIdentity: UInt32 = 0
  /// Client only: status of the response, 0 until known; the error code of a request that failed.
  var status: Int32 = 0
  /// Content-length of the request, 0 without one.
  private(set) var declaredBodyBytes = 0
  private var bytes: UnsafeMutablePointer<UInt8>?
  private var capacity = 0
  /// Bytes stored: headers and body.
  private(set) var count = 0
  private var headerEnd = 0
  private var headerListBytes = 0

  /// Prepare for a new stream; the buffer stays.
  @inline(__always)
  mutating func reset() {
    method = .other
    authorizationIdentity = 0
    status = 0
    declaredBodyBytes = 0
    headerEnd = 0
    beginHeaders()
  }

  /// Begin a header block, and forget those before it.
  @inline(__always)
  mutating func beginHeaders() {
    fields = Fields()
    count = 0
    headerListBytes = 0
  }

  /// Forget whom a proxy named.
  mutating func clearForwardedFor() { fields.forwardedFor = ByteRange() }

  /// Count a field of the header list. Returns false if the list exceeds its limit.
  @inline(__always)
  mutating func countField(_ byteCount: Int, max: Int) -> Bool {
    headerListBytes += byteCount
    return headerListBytes <= max
  }

  /// End the header block: bytes that follow are the body's.
  @inline(__always)
  mutating func endHeaders() { headerEnd = count }

  func bytes(_ range: ByteRange) -> UnsafeRawBufferPointer {
    UnsafeRawBufferPointer(start: bytes.map { $0 + Int(range.offset) }, count: Int(range.count))
  }

  /// Bytes received after the headers.
  var body: UnsafeRawBufferPointer {
    UnsafeRawBufferPointer(start: bytes.map { $0 + headerEnd }, count: bodyCount)
  }

  /// Number of bytes received after the headers and not dropped.
  @inline(__always)
  var bodyCount: Int { count - headerEnd }

  /// Size of the prefix of each stored header: 16 bits of name length, 16 bits of value length. The limit keeps both
  /// below 65,536.
  static let fieldPrefixBytes = 4

  /// Return the value of the first header with that lower-case name.
  func find(_ name: StaticString) -> ByteRange? {
    var at = 0
    return find(name, from: &at)
  }

  /// Return the value of the next header with that lower-case name.
  ///
  /// - Parameter at: offset of the first header to look at; then of the one behind the result.
  private func find(_ name: StaticString, from at: inout Int) -> ByteRange? {
    guard let bytes else { return nil }
    while at + Self.fieldPrefixBytes <= headerEnd {
      let nameCount = Int(UnsafeRawPointer(bytes + at).loadUnaligned(as: UInt16.self))
      let valueCount = Int(UnsafeRawPointer(bytes + at + 2).loadUnaligned(as: UInt16.self))
      let field = at + Self.fieldPrefixBytes
      at = field + nameCount + valueCount
      if isBytes(bytes + field, nameCount, name) {
        return ByteRange(offset: UInt32(field + nameCount), count: UInt32(valueCount))
      }
    }
    return nil
  }

  /// Return the value of the first cookie with that name.
  func findCookie(_ name: StaticString) -> ByteRange? {
    guard let bytes else { return nil }
    var at = 0
    while let field = find("cookie", from: &at) {
      // Pairs `name=value`, with a semicolon and a space between them.
      var start = Int(field.offset)
      let end = start + Int(field.count)
      while start < end {
        var next = start
        while next < end, bytes[next] != UInt8(ascii: ";") { next += 1 }
        while start < next, bytes[start] == UInt8(ascii: " ") { start += 1 }
        let valueStart = start + name.utf8CodeUnitCount + 1
        if valueStart <= next, bytes[valueStart - 1] == UInt8(ascii: "="),
          isBytes(bytes + start, name.utf8CodeUnitCount, name)
        {
          return ByteRange(offset: UInt32(valueStart), count: UInt32(next - valueStart))
        }
        start = next + 1
      }
    }
    return nil
  }

  /// Store one header field, and remember its position if a request has a property for it. The first field of a name
  /// counts, except for `x-forwarded-for`. Most comparisons end at the length of the name.
  ///
  /// - Returns: whether the client expects 100 (Continue) before it sends the body (RFC 9110 section 10.1.1).
  @inline(__always)
  mutating func storeField(
    _ name: UnsafePointer<UInt8>,
    nameCount: Int,
    value: UnsafePointer<UInt8>,
    valueCount: Int
  ) -> Bool {
    var expectsContinue = false
    reserve(Self.fieldPrefixBytes + nameCount + valueCount)
    let prefix = UnsafeMutableRawPointer(bytes.unsafelyUnwrapped + count)
    prefix.storeBytes(of: UInt16(truncatingIfNeeded: nameCount), as: UInt16.self)
    prefix.storeBytes(of: UInt16(truncatingIfNeeded: valueCount), toByteOffset: 2, as: UInt16.self)
    count += Self.fieldPrefixBytes
    _ = append(name, nameCount)
    let range = append(value, valueCount)
    switch nameCount {
    case 5: if isBytes(name, nameCount, ":path") { fields.path = range }
    case 6:
      if isBytes(name, nameCount, "accept") { setFirst(&fields.accept, range) }
      if isBytes(name, nameCount, "origin") { setFirst(&fields.origin, range) }
      // The only expectation that RFC 9110 defines; its text is case-insensitive.
      if isBytes(name, nameCount, "expect"), valueCount == 12 { expectsContinue = true }
    case 7: if isBytes(name, nameCount, ":method") { method = HTTP2Method(value, valueCount) }
    case 10: if isBytes(name, nameCount, ":authority") { fields.authority = range }
    case 12:
      if isBytes(name, nameCount, "content-type") { setFirst(&fields.contentType, range) }
      if isBytes(name, nameCount, "x-request-id") { setFirst(&fields.requestID, range) }
    case 13:
      if isBytes(name, nameCount, "authorization") { setFirst(&fields.authorization, range) }
      if isBytes(name, nameCount, "last-event-id") { setFirst(&fields.lastEventID, range) }
    case 14:
      if isBytes(name, nameCount, "content-length") {
        // nghttp2 has checked that the value is a number, or resets the stream.
        declaredBodyBytes = parseDecimal(value, valueCount) ?? Int.max
      }
    // The last field is the nearest proxy's.
    case 15: if isBytes(name, nameCount, "x-forwarded-for") { fields.forwardedFor = range }
    default: break
    }
    return expectsContinue
  }

  /// Append bytes of the body. The caller has checked the limits.
  @inline(__always)
  mutating func appendBody(_ source: UnsafePointer<UInt8>, _ length: Int) {
    reserve(length)
    _ = append(source, length)
  }

  /// Remove the first `taken` bytes of the body.
  mutating func dropBody(_ taken: Int) {
    guard taken > 0, let bytes else { return }
    let rest = count - headerEnd - taken
    if rest > 0 { (bytes + headerEnd).update(from: bytes + headerEnd + taken, count: rest) }
    count = headerEnd + rest
    if rest == 0, capacity > Self.emptyBodyBytesMax { releaseEmptyBody() }
  }

  /// Largest capacity of a buffer that stays with a streamed body while the body has no bytes: only bytes count against
  /// the limits of memory.
  private static let emptyBodyBytesMax = 16_384

  /// Move the headers to a buffer of their size.
  @inline(never)
  private mutating func releaseEmptyBody() {
    guard let large = bytes else { return }
    let small = UnsafeMutablePointer<UInt8>.allocate(capacity: headerEnd)
    small.update(from: large, count: headerEnd)
    large.deallocate()
    bytes = small
    capacity = headerEnd
  }

  /// Remove the whole body.
  mutating func clearBody() { count = headerEnd }

  /// Make room for `extra` more bytes. Capacity doubles; the caller has checked the limits.
  @inline(__always)
  private mutating func reserve(_ extra: Int) {
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
  private mutating func append(_ source: UnsafePointer<UInt8>, _ length: Int) -> ByteRange {
    let range = ByteRange(offset: UInt32(truncatingIfNeeded: count), count: UInt32(truncatingIfNeeded: length))
    (bytes.unsafelyUnwrapped + count).update(from: source, count: length)
    count += length
    return range
  }

  /// Remove headers and body, and free the buffer.
  mutating func discard() {
    releaseBuffer()
    count = 0
    headerEnd = 0
  }

  mutating func releaseBuffer() {
    bytes?.deallocate()
    bytes = nil
    capacity = 0
  }

  /// Free the buffer if it is larger than this.
  mutating func releaseBuffer(above bytesMax: Int) {
    if capacity > bytesMax { releaseBuffer() }
  }
}

@inline(__always)
private func setFirst(_ field: inout ByteRange, _ range: ByteRange) {
  if field.count == 0 { field = range }
}

extension HTTP2Method {
  @inline(__always)
  init(_ bytes: UnsafePointer<UInt8>, _ count: Int) {
    switch count {
    case 3: self = isBytes(bytes, 3, "GET") ? .get : isBytes(bytes, 3, "PUT") ? .put : .other
    case 4: self = isBytes(bytes, 4, "POST") ? .post : isBytes(bytes, 4, "HEAD") ? .head : .other
    case 5: self = isBytes(bytes, 5, "PATCH") ? .patch : .other
    case 6: self = isBytes(bytes, 6, "DELETE") ? .delete : .other
    case 7: self = isBytes(bytes, 7, "OPTIONS") ? .options : .other
    default: self = .other
    }
  }
}
