internal import Glibc

/// One block of an event stream: an event, or a comment and an id. Its bytes are those of the stream, valid during the
/// call that hands it out.
struct EventBlock {
  /// `event`; empty: a comment, as a heartbeat is.
  private(set) var type = UnsafeRawBufferPointer(start: nil, count: 0)
  /// `data`, one line of JSON.
  private(set) var data = UnsafeRawBufferPointer(start: nil, count: 0)
  /// `id`; empty: the block has none.
  private(set) var id = UnsafeRawBufferPointer(start: nil, count: 0)

  /// - Parameter lines: of the block, without the empty one that ends it.
  fileprivate init(_ lines: UnsafeRawBufferPointer) {
    var start = 0
    while start < lines.count {
      let end = EventBlocks.lineFeed(in: lines, from: start) ?? lines.count
      let line = UnsafeRawBufferPointer(rebasing: lines[start..<end])
      if let value = line.after("event: ") { type = value }
      if let value = line.after("data: ") { data = value }
      if let value = line.after("id: ") { id = value }
      start = end + 1
    }
  }

  func isType(_ name: StaticString) -> Bool {
    type.count == name.utf8CodeUnitCount && type.after(name) != nil
  }

  /// The text of a member whose value needs no escapes, as none of a bench's does; nil where it has none.
  ///
  /// - Parameter key: all that stands before the text, as `"cid":"`.
  func text(after key: StaticString) -> UnsafeRawBufferPointer? {
    guard let start = data.end(of: key) else { return nil }
    let rest = UnsafeRawBufferPointer(rebasing: data[start...])
    guard let end = rest.firstIndex(of: UInt8(ascii: "\"")) else { return nil }
    return UnsafeRawBufferPointer(rebasing: rest[..<end])
  }

  /// The whole number behind a key such as `"seq":`; nil where there is none.
  func number(after key: StaticString) -> Int? {
    guard let start = data.end(of: key) else { return nil }
    return UnsafeRawBufferPointer(rebasing: data[start...]).leadingNumber
  }

  /// For messages about a block that is not as it has to be.
  var summary: String {
    "\(String(decoding: type, as: UTF8.self)) \(String(decoding: data.prefix(300), as: UTF8.self))"
  }
}

/// Reads an event stream in whatever pieces it comes, as far as a bench needs: lines end with a line feed, data is one
/// line, as the gateway writes it. Unlike `Watch`'s reader it makes no strings: it has to take in some hundred thousand
/// events a second beside those whom it measures.
struct EventBlocks {
  /// Bytes of one block at most.
  static let byteCountMax = 1 << 20

  /// Of a block that is not complete.
  private var rest: [UInt8] = []

  /// Takes the next bytes and hands out each block that they complete.
  mutating func read(
    _ bytes: UnsafeRawBufferPointer,
    _ take: (EventBlock) throws(LoadError) -> Void
  ) throws(LoadError) {
    guard !rest.isEmpty else { return keep(bytes, from: try Self.blocks(in: bytes, take)) }
    rest += bytes
    guard rest.count <= Self.byteCountMax else {
      throw LoadError("a block of an event stream has more than \(Self.byteCountMax) bytes")
    }
    let whole = rest
    rest = []
    let used: Result<Int, LoadError> = whole.withUnsafeBytes { bytes in
      do throws(LoadError) {
        return .success(try Self.blocks(in: bytes, take))
      } catch {
        return .failure(error)
      }
    }
    let start = try used.get()
    whole.withUnsafeBytes { keep($0, from: start) }
  }

  private mutating func keep(_ bytes: UnsafeRawBufferPointer, from start: Int) {
    if start < bytes.count { rest = Array(bytes[start...]) }
  }

  /// - Returns: bytes of whole blocks.
  private static func blocks(
    in bytes: UnsafeRawBufferPointer,
    _ take: (EventBlock) throws(LoadError) -> Void
  ) throws(LoadError) -> Int {
    var start = 0
    var at = 0
    while let end = lineFeed(in: bytes, from: at) {
      at = end + 1
      guard at < bytes.count, bytes[at] == UInt8(ascii: "\n") else { continue }
      at += 1
      try take(EventBlock(UnsafeRawBufferPointer(rebasing: bytes[start..<end])))
      start = at
    }
    return start
  }

  fileprivate static func lineFeed(in bytes: UnsafeRawBufferPointer, from start: Int) -> Int? {
    guard let base = bytes.baseAddress, start < bytes.count,
      let found = memchr(base + start, Int32(UInt8(ascii: "\n")), bytes.count - start)
    else { return nil }
    return UnsafeRawPointer(found) - base
  }
}

extension UnsafeRawBufferPointer {
  /// What follows a prefix; nil where it is not there.
  fileprivate func after(_ prefix: StaticString) -> UnsafeRawBufferPointer? {
    let length = prefix.utf8CodeUnitCount
    guard count >= length, let baseAddress, memcmp(baseAddress, prefix.utf8Start, length) == 0 else {
      return nil
    }
    return UnsafeRawBufferPointer(rebasing: self[length...])
  }

  /// The place behind the first occurrence of a key.
  fileprivate func end(of key: StaticString) -> Int? {
    let length = key.utf8CodeUnitCount
    guard let baseAddress, count >= length else { return nil }
    var at = 0
    // Glibc's memmem is not to be had from Swift.
    while let found = memchr(baseAddress + at, Int32(key.utf8Start.pointee), count - length + 1 - at) {
      if memcmp(found, key.utf8Start, length) == 0 { return UnsafeRawPointer(found) - baseAddress + length }
      at = UnsafeRawPointer(found) - baseAddress + 1
    }
    return nil
  }

  var leadingNumber: Int? {
    var value: Int?
    for byte in self {
      guard (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte), (value ?? 0) < Int.max / 100 else {
        break
      }
      value = (value ?? 0) * 10 + Int(byte - UInt8(ascii: "0"))
    }
    return value
  }

  /// The digits at the end, as of "b12-user-7"; nil where there are none.
  var trailingNumber: Int? {
    let digits = reversed().prefix { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }.count
    guard digits > 0 else { return nil }
    return UnsafeRawBufferPointer(rebasing: self[(count - digits)...]).leadingNumber
  }

  func equals(_ text: String) -> Bool {
    var text = text
    return text.withUTF8 { $0.count == count && elementsEqual($0) }
  }
}
