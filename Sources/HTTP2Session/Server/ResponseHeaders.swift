internal import CNghttp2
internal import NIOCore

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#else
  internal import Darwin
#endif

/// Builder of response header lists over static storage. Neither this code nor nghttp2 copies names, statuses and
/// content types (NGHTTP2_NV_FLAG_NO_COPY_*). nghttp2 copies the array itself when the response is submitted, so one
/// scratch array per event loop is enough.
final class ResponseHeaders {
  static let extraHeadersMax = 28
  /// :status, date, content-type, content-length.
  private static let ownHeaders = 4

  private let scratch: UnsafeMutablePointer<nghttp2_nv>
  /// "000" to "999".
  private let statusDigits: UnsafeMutablePointer<UInt8>
  /// Additional headers of the response that is being submitted.
  var fields = ResponseFields()
  /// Value of `date` (RFC 9110 section 6.6.1). It is updated in place, so queued responses get the newer date.
  private let date: UnsafeMutablePointer<UInt8>
  private var dateUpdated: NIODeadline?

  init() {
    scratch = .allocate(capacity: ResponseHeaders.ownHeaders + ResponseHeaders.extraHeadersMax)
    scratch.initialize(repeating: nghttp2_nv(), count: ResponseHeaders.ownHeaders + ResponseHeaders.extraHeadersMax)
    statusDigits = .allocate(capacity: 3_000)
    for status in 0..<1_000 {
      statusDigits[status * 3] = UInt8(48 + status / 100)
      statusDigits[status * 3 + 1] = UInt8(48 + status / 10 % 10)
      statusDigits[status * 3 + 2] = UInt8(48 + status % 10)
    }
    date = .allocate(capacity: HTTPDate.byteCount)
    HTTPDate.write(secondsSince1970: Int(time(nil)), to: date)
    scratch[0] = ResponseHeaders.field(":status")
    scratch[1] = ResponseHeaders.field("date")
    scratch[1].value = date
    scratch[1].valuelen = HTTPDate.byteCount
  }

  deinit {
    scratch.deallocate()
    statusDigits.deallocate()
    date.deallocate()
  }

  /// Update the date from the clock, at most once a second. `now` is the event loop's time.
  @inline(__always)
  func updateDate(now: NIODeadline) {
    if let dateUpdated, now - dateUpdated < .seconds(1) { return }
    dateUpdated = now
    HTTPDate.write(secondsSince1970: Int(time(nil)), to: date)
  }

  /// Create a header with static name and value, neither copied.
  static func field(_ name: StaticString, _ value: StaticString = "") -> nghttp2_nv {
    nghttp2_nv(
      name: UnsafeMutablePointer(mutating: name.utf8Start),
      value: UnsafeMutablePointer(mutating: value.utf8Start),
      namelen: name.utf8CodeUnitCount,
      valuelen: value.utf8CodeUnitCount,
      flags: noCopy
    )
  }

  static let noCopyName = UInt8(NGHTTP2_NV_FLAG_NO_COPY_NAME.rawValue)
  static let noCopy = UInt8(NGHTTP2_NV_FLAG_NO_COPY_NAME.rawValue | NGHTTP2_NV_FLAG_NO_COPY_VALUE.rawValue)

  private static let contentTypeName: StaticString = "content-type"
  private static let contentLengthName: StaticString = "content-length"

  /// Call `submit` with the header list and ``fields``, which are valid until that returns. A nil `length` omits
  /// content-length. Its digits are written into the slot, where they stay until nghttp2 has sent them.
  @inline(__always)
  func withList(
    slot: UnsafeMutablePointer<StreamSlot>,
    status: Int,
    contentType: HTTP2ContentType,
    length: Int?,
    submit: (UnsafeMutablePointer<nghttp2_nv>, Int) -> Int32
  ) -> Int32 {
    scratch[0].value = statusDigits + status * 3
    scratch[0].valuelen = 3
    var count = 2
    if contentType.value.utf8CodeUnitCount > 0 {
      scratch[count] = nghttp2_nv(
        name: UnsafeMutablePointer(mutating: ResponseHeaders.contentTypeName.utf8Start),
        value: UnsafeMutablePointer(mutating: contentType.value.utf8Start),
        namelen: ResponseHeaders.contentTypeName.utf8CodeUnitCount,
        valuelen: contentType.value.utf8CodeUnitCount,
        flags: ResponseHeaders.noCopy
      )
      count += 1
    }
    if let length {
      let digits = UnsafeMutableRawPointer(slot).advanced(by: ResponseHeaders.digitsOffset)
        .assumingMemoryBound(to: UInt8.self)
      let end = digits + 20
      let start = writeDecimal(length, endingAt: end)
      scratch[count] = nghttp2_nv(
        name: UnsafeMutablePointer(mutating: ResponseHeaders.contentLengthName.utf8Start),
        value: start,
        namelen: ResponseHeaders.contentLengthName.utf8CodeUnitCount,
        valuelen: end - start,
        flags: ResponseHeaders.noCopy
      )
      count += 1
    }
    if fields.isEmpty { return submit(scratch, count) }
    return withFields(from: count, submit: submit)
  }

  private static let digitsOffset = MemoryLayout<StreamSlot>.offset(of: \.outgoing)! + OutgoingData.digitsOffset

  @inline(never)
  private func withFields(from first: Int, submit: (UnsafeMutablePointer<nghttp2_nv>, Int) -> Int32) -> Int32 {
    precondition(fields.count <= ResponseHeaders.extraHeadersMax, "too many extra headers")
    return fields.bytes.withUnsafeBufferPointer { bytes in
      let base = bytes.baseAddress.map { UnsafeMutablePointer(mutating: $0) }
      for index in 0..<fields.count {
        let (name, range) = (fields.names[index], fields.range(index))
        scratch[first + index] = nghttp2_nv(
          name: UnsafeMutablePointer(mutating: name.utf8Start),
          value: base.map { $0 + range.lowerBound } ?? scratch[0].value,
          namelen: name.utf8CodeUnitCount,
          valuelen: range.count,
          flags: ResponseHeaders.noCopyName
        )
      }
      return submit(scratch, first + fields.count)
    }
  }
}

/// Headers that a response has besides its status, date, type and length. Their values are written into one buffer that
/// is used again for each response, so adding a header allocates nothing.
package struct ResponseFields {
  private(set) var bytes: [UInt8] = []
  private(set) var names: [StaticString] = []
  /// Where the value of each header begins in `bytes`.
  private(set) var valueOffsets: [Int] = []

  package init() {}

  package var isEmpty: Bool { names.isEmpty }
  var count: Int { names.count }

  /// Return the bytes of a header's value.
  func range(_ index: Int) -> Range<Int> {
    valueOffsets[index]..<(index + 1 < valueOffsets.count ? valueOffsets[index + 1] : bytes.count)
  }

  /// The headers as values of their own.
  package var list: [HTTP2Header] {
    names.indices.map { HTTP2Header(names[$0], String(decoding: bytes[range($0)], as: UTF8.self)) }
  }

  mutating func removeAll() {
    // Most responses have none; emptying an array takes some 100 instructions.
    guard !names.isEmpty else { return }
    bytes.removeAll(keepingCapacity: true)
    names.removeAll(keepingCapacity: true)
    valueOffsets.removeAll(keepingCapacity: true)
  }

  package mutating func add(_ header: HTTP2Header) {
    add(header.name)
    bytes.append(contentsOf: header.value.utf8)
  }

  /// Add a header with an empty value, to which `append` adds.
  ///
  /// - Parameter name: in lower case (RFC 9113 section 8.2.1).
  package mutating func add(_ name: StaticString) {
    names.append(name)
    valueOffsets.append(bytes.count)
  }

  /// Append to the value of the last header.
  package mutating func append(_ text: StaticString) {
    bytes.append(contentsOf: UnsafeBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
  }

  /// Append to the value of the last header.
  package mutating func append(_ text: RawSpan) {
    text.withUnsafeBytes { bytes.append(contentsOf: $0) }
  }

  /// Append the decimal digits of a number that is not negative to the value of the last header.
  package mutating func append(decimal value: Int) {
    withUnsafeTemporaryAllocation(of: UInt8.self, capacity: 20) { digits in
      let end = digits.baseAddress! + digits.count
      let start = writeDecimal(value, endingAt: end)
      bytes.append(contentsOf: UnsafeBufferPointer(start: start, count: end - start))
    }
  }
}
