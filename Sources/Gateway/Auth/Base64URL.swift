internal import NIOCore

/// Base64url without padding (RFC 4648 section 5), in canonical form only: the unused bits of the last character are 0,
/// so no value has a second text (section 3.5). Foundation's decoder takes other alphabets and allocates.
struct Base64URL: ~Copyable {
  private static let alphabet: StaticString = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
  private static let noDigit: UInt8 = 0xFF

  /// The value of each character.
  private let digits: UnsafeMutablePointer<UInt8>

  init() {
    digits = .allocate(capacity: 256)
    digits.initialize(repeating: Self.noDigit, count: 256)
    for value in 0..<64 { digits[Int(Self.alphabet.utf8Start[value])] = UInt8(value) }
  }

  deinit { digits.deallocate() }

  /// Write the text of bytes. Each record of the feed has a cursor: with a check of the buffer's room for each
  /// character, this was a third of a gateway's work for the feed.
  static func encode(_ bytes: RawSpan, into buffer: inout ByteBuffer) {
    let alphabet = alphabet.utf8Start
    buffer.writeWithUnsafeMutableBytes(minimumWritableBytes: (bytes.byteCount + 2) / 3 * 4) { room in
      var (at, end) = (0, 0)
      while at < bytes.byteCount {
        let count = min(3, bytes.byteCount - at)
        var group: UInt32 = 0
        for offset in 0..<3 {
          let byte = offset < count ? bytes.unsafeLoad(fromByteOffset: at + offset, as: UInt8.self) : 0
          group = group << 8 | UInt32(byte)
        }
        for position in 0...count {
          room[end] = alphabet[Int(group >> UInt32(18 - 6 * position) & 63)]
          end += 1
        }
        at += count
      }
      return end
    }
  }

  /// Decode a text.
  ///
  /// - Returns: the bytes; nil if the text is malformed.
  func decode(_ text: ArraySlice<UInt8>) -> [UInt8]? {
    var isValid = false
    let bytes = [UInt8](unsafeUninitializedCapacity: text.count / 4 * 3 + 2) { room, count in
      guard let base = room.baseAddress, let end = decode(text.span.bytes, into: UnsafeMutableRawPointer(base)) else {
        return
      }
      (isValid, count) = (true, end)
    }
    return isValid ? bytes : nil
  }

  /// Decode a text in place.
  ///
  /// - Parameter room: at least three bytes for each four characters, rounded up.
  /// - Returns: the number of bytes; nil if the text is malformed.
  func decode(_ text: RawSpan, into room: UnsafeMutableRawPointer) -> Int? {
    let count = text.byteCount
    guard count % 4 != 1 else { return nil }
    var at = 0
    var end = 0
    var agreed: UInt8 = 0
    while at + 4 <= count {
      let (a, b) = (digit(text, at), digit(text, at + 1))
      let (c, d) = (digit(text, at + 2), digit(text, at + 3))
      agreed |= a | b | c | d
      room.storeBytes(of: a << 2 | b >> 4, toByteOffset: end, as: UInt8.self)
      room.storeBytes(of: b << 4 | c >> 2, toByteOffset: end + 1, as: UInt8.self)
      room.storeBytes(of: c << 6 | d, toByteOffset: end + 2, as: UInt8.self)
      at += 4
      end += 3
    }
    if at < count {
      let (a, b) = (digit(text, at), digit(text, at + 1))
      let c = at + 2 < count ? digit(text, at + 2) : 0
      agreed |= a | b | c
      room.storeBytes(of: a << 2 | b >> 4, toByteOffset: end, as: UInt8.self)
      end += 1
      if at + 2 < count {
        room.storeBytes(of: b << 4 | c >> 2, toByteOffset: end, as: UInt8.self)
        end += 1
        if c & 3 != 0 { return nil }
      } else if b & 15 != 0 {
        return nil
      }
    }
    // Valid digits are below 64.
    return agreed < 64 ? end : nil
  }

  @inline(__always)
  private func digit(_ text: RawSpan, _ at: Int) -> UInt8 {
    digits[Int(text.unsafeLoad(fromByteOffset: at, as: UInt8.self))]
  }
}
