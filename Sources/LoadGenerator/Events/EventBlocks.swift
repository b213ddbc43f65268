internal import Glibc

/// Block of an event stream: an event, or a comment and an id. Its bytes are valid during the call that passes it.
struct EventBlock {
  /// `event`; empty for a comment, such as a heartbeat.
  private(set) var type = UnsafeRawBufferPointer(start: nil, count: 0)
  /// `data`, one line of JSON.
  private(set) var data = UnsafeRawBufferPointer(start: nil, count: 0)
  /// `id`; empty without one.
  private(set) var id = UnsafeRawBufferPointer(start: nil, count: 0)

  /// - Parameter lines: lines of the block without the empty line that ends it.
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

  /// Return the text value of a JSON member, which may not contain escapes; nil if the member is missing.
  ///
  /// - Parameter key: everything before the text, such as `"cid":"`.
  func text(after key: StaticString) -> UnsafeRawBufferPointer? { data.text(after: key) }

  /// Return the whole number behind a key such as `"seq":`; nil if it is missing.
  func number(after key: StaticString) -> Int? {
    guard let start = data.end(of: key) else { return nil }
    return UnsafeRawBufferPointer(rebasing: data[start...]).leadingNumber
  }

  /// Description for an error about an unexpected block.
  var summary: String {
    "\(String(decoding: type, as: UTF8.self)) \(String(decoding: data.prefix(300), as: UTF8.self))"
  }
}

/// Incremental parser of an event stream as the gateway writes it: lines end with a line feed, data is one line. Unlike
/// the parser of `Watch`, it makes no strings: it reads some hundred thousand events a second on the measured machine.
struct EventBlocks {
  /// Size limit of a block.
  static let byteCountMax = 1 << 20

  private var input = PartialBytes()

  /// Parse the next bytes and pass each block that they complete.
  mutating func read(
    _ bytes: UnsafeRawBufferPointer,
    _ body: (EventBlock) throws(LoadError) -> Void
  ) throws(LoadError) {
    try input.feed(bytes) { bytes throws(LoadError) in try Self.blocks(in: bytes, body) }
    guard input.count <= Self.byteCountMax else {
      throw LoadError("a block of an event stream has more than \(Self.byteCountMax) bytes")
    }
  }

  /// - Returns: the size of all complete blocks.
  private static func blocks(
    in bytes: UnsafeRawBufferPointer,
    _ body: (EventBlock) throws(LoadError) -> Void
  ) throws(LoadError) -> Int {
    var start = 0
    var at = 0
    while let end = lineFeed(in: bytes, from: at) {
      at = end + 1
      guard at < bytes.count, bytes[at] == UInt8(ascii: "\n") else { continue }
      at += 1
      try body(EventBlock(UnsafeRawBufferPointer(rebasing: bytes[start..<end])))
      start = at
    }
    return start
  }

  static func lineFeed(in bytes: UnsafeRawBufferPointer, from start: Int) -> Int? {
    guard let base = bytes.baseAddress, start < bytes.count,
      let found = memchr(base + start, Int32(UInt8(ascii: "\n")), bytes.count - start)
    else { return nil }
    return UnsafeRawPointer(found) - base
  }
}

extension UnsafeRawBufferPointer {
  /// Return the bytes behind a prefix; nil without the prefix.
  fileprivate func after(_ prefix: StaticString) -> UnsafeRawBufferPointer? {
    let length = prefix.utf8CodeUnitCount
    guard count >= length, let baseAddress, memcmp(baseAddress, prefix.utf8Start, length) == 0 else { return nil }
    return UnsafeRawBufferPointer(rebasing: self[length...])
  }

  /// Return the offset behind the first occurrence of a key.
  fileprivate func end(of key: StaticString) -> Int? {
    let length = key.utf8CodeUnitCount
    guard let baseAddress, count >= length else { return nil }
    var at = 0
    // Glibc's memmem is not available in Swift.
    while let found = memchr(baseAddress + at, Int32(key.utf8Start.pointee), count - length + 1 - at) {
      if memcmp(found, key.utf8Start, length) == 0 { return UnsafeRawPointer(found) - baseAddress + length }
      at = UnsafeRawPointer(found) - baseAddress + 1
    }
    return nil
  }

  /// Return the text behind a key such as `"cid":"`, which may not contain escapes; nil if it is missing.
  func text(after key: StaticString) -> UnsafeRawBufferPointer? {
    guard let start = end(of: key) else { return nil }
    let rest = UnsafeRawBufferPointer(rebasing: self[start...])
    guard let quote = rest.firstIndex(of: UInt8(ascii: "\"")) else { return nil }
    return UnsafeRawBufferPointer(rebasing: rest[..<quote])
  }

  var leadingNumber: Int? {
    var value: Int?
    for byte in self {
      guard (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte), (value ?? 0) < Int.max / 100 else { break }
      value = (value ?? 0) * 10 + Int(byte - UInt8(ascii: "0"))
    }
    return value
  }

  /// Number at the end, such as 7 of "b12-user-7"; nil without digits.
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

/// Input of a parser whose reads may end within an element: keeps the incomplete rest for the next read.
struct PartialBytes {
  private var rest: [UInt8] = []

  /// Bytes that are not parsed yet.
  var count: Int { rest.count }

  /// Parse the next bytes behind the rest of those before.
  ///
  /// - Parameter parse: gets all unparsed bytes and returns how many it has consumed.
  mutating func feed(
    _ bytes: UnsafeRawBufferPointer,
    _ parse: (UnsafeRawBufferPointer) throws(LoadError) -> Int
  ) throws(LoadError) {
    guard !rest.isEmpty else {
      let consumed = try parse(bytes)
      rest.append(contentsOf: bytes[consumed...])
      return
    }
    rest.append(contentsOf: bytes)
    let consumed: Result<Int, LoadError> = rest.withUnsafeBytes { bytes in
      do throws(LoadError) { return .success(try parse(bytes)) } catch { return .failure(error) }
    }
    rest.removeFirst(try consumed.get())
  }
}
