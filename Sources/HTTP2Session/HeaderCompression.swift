internal import CNghttp2

/// Field of a header block. Name and value are bytes, because a probe sends and receives invalid text.
package struct HeaderField: Equatable, Sendable {
  package var name: [UInt8]
  package var value: [UInt8]

  /// Create an unchecked field.
  package init(name: [UInt8], value: [UInt8]) {
    self.name = name
    self.value = value
  }
}

/// nghttp2's stand-alone HPACK encoder, for code that builds frames by hand. A session has its own.
package final class HeaderEncoder {
  private let deflater: OpaquePointer

  /// Create an encoder with RFC 9113 section 6.5.2's default dynamic table size, 4,096 bytes.
  package init() {
    var deflater: OpaquePointer?
    // Fails only with NGHTTP2_ERR_NOMEM.
    precondition(nghttp2_hd_deflate_new(&deflater, 4_096) == 0, "no memory")
    self.deflater = deflater.unsafelyUnwrapped
  }

  deinit { nghttp2_hd_deflate_del(deflater) }

  /// Encode a header block. With `indexed`, fields may enter the dynamic table. Otherwise they never do, and the block
  /// can be decoded independently of earlier blocks.
  package func encode(_ fields: [HeaderField], indexed: Bool = false) -> [UInt8] {
    // One buffer holds all names and values: the list points into it.
    var storage: [UInt8] = []
    for field in fields { storage += field.name + field.value }
    storage.append(0)  // So that there is an address even without a field.
    let flags = UInt8(truncatingIfNeeded: indexed ? 0 : Int(NGHTTP2_NV_FLAG_NO_INDEX.rawValue))
    return storage.withUnsafeMutableBufferPointer { storage in
      var at = storage.baseAddress.unsafelyUnwrapped
      var list: [nghttp2_nv] = []
      for field in fields {
        let value = at + field.name.count
        list.append(
          nghttp2_nv(name: at, value: value, namelen: field.name.count, valuelen: field.value.count, flags: flags)
        )
        at = value + field.value.count
      }
      let bound = nghttp2_hd_deflate_bound(deflater, list, list.count)
      return [UInt8](unsafeUninitializedCapacity: bound) { buffer, count in
        let written = nghttp2_hd_deflate_hd(deflater, buffer.baseAddress, bound, &list, list.count)
        precondition(written >= 0, "a block does not fit into its bound")
        count = Int(written)
      }
    }
  }
}

/// nghttp2's stand-alone HPACK decoder. After an error it cannot decode any more, because the tables of the two ends
/// differ (RFC 7541 section 2.2).
package final class HeaderDecoder {
  /// This block, or an earlier one, is invalid.
  package struct Failure: Error, Equatable {}

  private let inflater: OpaquePointer
  private var hasFailed = false

  /// Create a decoder with RFC 9113 section 6.5.2's default dynamic table size, 4,096 bytes.
  package init() {
    var inflater: OpaquePointer?
    precondition(nghttp2_hd_inflate_new(&inflater) == 0, "no memory")
    self.inflater = inflater.unsafelyUnwrapped
  }

  deinit { nghttp2_hd_inflate_del(inflater) }

  /// Decode a fragment of a block and return the fields that it completes; the last fragment `isFinal`.
  package func decode(_ fragment: [UInt8], isFinal: Bool) throws(Failure) -> [HeaderField] {
    guard !hasFailed else { throw Failure() }
    var fields: [HeaderField] = []
    let isWhole = fragment.withUnsafeBufferPointer { bytes in
      var at = 0
      while true {
        var field = nghttp2_nv()
        var flags: Int32 = 0
        // NGHTTP2_ERR_HEADER_COMP and NGHTTP2_ERR_BUFFER_ERROR are the peer's fault, NGHTTP2_ERR_NOMEM is not.
        let read = nghttp2_hd_inflate_hd2(
          inflater,
          &field,
          &flags,
          bytes.baseAddress.map { $0 + at },
          bytes.count - at,
          isFinal ? 1 : 0
        )
        guard read >= 0 else { return false }
        at += Int(read)
        if flags & Int32(NGHTTP2_HD_INFLATE_EMIT.rawValue) != 0 {
          fields.append(
            HeaderField(
              name: Array(UnsafeBufferPointer(start: field.name, count: field.namelen)),
              value: Array(UnsafeBufferPointer(start: field.value, count: field.valuelen))
            )
          )
        }
        if flags & Int32(NGHTTP2_HD_INFLATE_FINAL.rawValue) != 0 {
          nghttp2_hd_inflate_end_headers(inflater)
          return true
        }
        if flags & Int32(NGHTTP2_HD_INFLATE_EMIT.rawValue) == 0, at == bytes.count { return true }
      }
    }
    if !isWhole {
      hasFailed = true
      throw Failure()
    }
    return fields
  }
}
