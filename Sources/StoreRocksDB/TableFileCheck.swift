internal import Foundation

/// Checks the ends of RocksDB's table files before RocksDB opens them, for damage that RocksDB would act on before it
/// verifies a checksum.
///
/// A table ends with its properties, its metaindex (which locates the properties) and the footer (which locates the
/// metaindex and the index). RocksDB parses the properties first and verifies their checksum afterwards, because
/// numbers in them may have been changed in place. It also allocates memory for what the footer points to before it
/// reads it. If the block ends with an impossible number of restart points, a librocksdb with assertions (Debian's 7.8)
/// aborts the process, and one without reads past the block: one wrong bit is enough. So the form of these parts is
/// checked here. Their contents are left to the checksums, which RocksDB verifies for all other blocks before it uses
/// them. A file that does not end with a footer is left to RocksDB too.
///
/// The end of a file takes one read of 4 KiB, of bytes that RocksDB reads next anyway.
enum TableFileCheck {
  /// Magic number of block-based tables. The footers of these versions have the same form: type of checksum (1 byte),
  /// handles of the metaindex and the index (padded to 40), version (4), magic number (8). Version 6 has separate
  /// checksums for them.
  private static let magic: UInt64 = 0x88E2_41B7_85F4_CFF7
  private static let versions: ClosedRange<UInt32> = 2...5
  private static let footerBytes = 53
  private static let handlesBytes = 40
  /// Trailer of each block: type of compression, checksum.
  private static let trailerBytes = 5
  private static let tailBytes = 4096
  /// Size limit: properties and metaindex have one or two KiB, whatever the table contains.
  private static let blockBytesMax = 1 << 20
  private static let propertiesName = Array("rocksdb.properties".utf8)

  typealias Fault = LogFileCheck.Fault

  /// Reads bytes of a file; nil if that fails, which RocksDB then reports.
  private typealias Read = (Range<Int>) -> [UInt8]?

  /// Describe the damage in a directory's tables, with file and location; nil if there is none.
  static func fault(in directory: String) -> String? {
    let names = (try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []
    for name in names.sorted() where name.hasSuffix(".sst") {
      let path = directory + "/" + name
      guard let number = UInt64(name.dropLast(4)), let file = FileHandle(forReadingAtPath: path),
        let size = (try? file.seekToEnd()).flatMap({ Int(exactly: $0) }),
        case .failure(let fault) = properties(of: file, size), isInManifest(of: directory, number, UInt64(size))
      else { continue }
      return "\(path), byte \(fault.offset): \(fault.reason)"
    }
    return nil
  }

  /// Return the location of a file's properties block without its trailer; nil if the file is no table or has no
  /// properties.
  static func properties(at path: String) -> Result<Range<Int>?, Fault> {
    guard let file = FileHandle(forReadingAtPath: path),
      let size = (try? file.seekToEnd()).flatMap({ Int(exactly: $0) })
    else { return .success(nil) }
    return properties(of: file, size)
  }

  private static func properties(of file: FileHandle, _ size: Int) -> Result<Range<Int>?, Fault> {
    func read(_ range: Range<Int>) -> [UInt8]? {
      guard (try? file.seek(toOffset: UInt64(range.lowerBound))) != nil,
        let data = try? file.read(upToCount: range.count), data.count == range.count
      else { return nil }
      return Array(data)
    }
    let tailStart = max(0, size - tailBytes)
    guard size >= footerBytes, let tail = read(tailStart..<size) else { return .success(nil) }
    do throws(Fault) {
      return .success(
        try properties(size) { range in
          guard range.lowerBound >= tailStart else { return read(range) }
          return Array(tail[(range.lowerBound - tailStart)..<(range.upperBound - tailStart)])
        }
      )
    } catch {
      return .failure(error)
    }
  }

  private static func properties(_ size: Int, _ read: Read) throws(Fault) -> Range<Int>? {
    let end = size - footerBytes
    guard let footer = read(end..<size), fixed(footer, 45, 8) == magic, versions.contains(UInt32(fixed(footer, 41, 4)))
    else { return nil }
    var position = 1
    let handles = footer[..<(1 + handlesBytes)]
    guard let metaindex = handle(handles, &position, end), handle(handles, &position, end) != nil else {
      throw Fault(offset: end, reason: "the footer points outside the file")
    }
    guard let bytes = try block(metaindex, "metaindex", read) else { return nil }
    for entry in try entries(bytes, at: metaindex.lowerBound, "metaindex") where entry.key == propertiesName {
      var position = entry.value.lowerBound
      guard let range = handle(bytes[..<entry.value.upperBound], &position, metaindex.lowerBound) else {
        throw Fault(
          offset: metaindex.lowerBound + entry.value.lowerBound,
          reason: "the metaindex points outside the file"
        )
      }
      guard let properties = try block(range, "properties", read) else { return nil }
      _ = try entries(properties, at: range.lowerBound, "properties")
      return range
    }
    return nil
  }

  private static func block(_ range: Range<Int>, _ what: String, _ read: Read) throws(Fault) -> [UInt8]? {
    guard range.count <= blockBytesMax else {
      throw Fault(offset: range.lowerBound, reason: "\(what) of \(range.count) bytes")
    }
    return read(range)
  }

  /// Decode the entries of a block: three lengths (of the key's prefix shared with the previous key, of the rest of
  /// the key, of the value) and their bytes. After the entries follow the restart points of 4 bytes each, of which the
  /// first is the first entry, and their number.
  private static func entries(
    _ block: [UInt8],
    at start: Int,
    _ what: String
  ) throws(Fault) -> [(key: [UInt8], value: Range<Int>)] {
    guard block.count >= 8 else {
      throw Fault(offset: start, reason: "\(what) of \(block.count) bytes")
    }
    let restarts = fixed(block, block.count - 4, 4)
    // Bit 31 would mean a hash index, which only data blocks can have.
    guard restarts >= 1, restarts <= (block.count - 4) / 4 else {
      throw Fault(
        offset: start + block.count - 4,
        reason: "\(what) of \(block.count) bytes with \(restarts) restart points"
      )
    }
    let end = block.count - 4 - 4 * Int(restarts)
    guard fixed(block, end, 4) == 0 else {
      throw Fault(offset: start + end, reason: "\(what) whose first restart point is not 0")
    }
    var found: [(key: [UInt8], value: Range<Int>)] = []
    var key: [UInt8] = []
    var position = 0
    while position < end {
      let entry = position
      guard end - position >= 3, let shared = varint(block[..<end], &position),
        let own = varint(block[..<end], &position), let value = varint(block[..<end], &position),
        shared <= key.count, own <= end - position, value <= end - position - Int(own)
      else {
        throw Fault(offset: start + entry, reason: "\(what) with an entry that exceeds the block")
      }
      key.removeSubrange(Int(shared)...)
      key += block[position..<(position + Int(own))]
      position += Int(own)
      found.append((key, position..<(position + Int(value))))
      position += Int(value)
    }
    return found
  }

  /// Decode a handle: offset and length of a block that ends, with its trailer, before `end`.
  private static func handle(_ bytes: ArraySlice<UInt8>, _ position: inout Int, _ end: Int) -> Range<Int>? {
    guard let offset = varint(bytes, &position).flatMap({ Int(exactly: $0) }),
      let count = varint(bytes, &position).flatMap({ Int(exactly: $0) }),
      offset <= end - trailerBytes, count <= end - trailerBytes - offset
    else { return nil }
    return offset..<(offset + count)
  }

  /// Decode a varint: seven bits per byte, lowest first, at most ten bytes.
  private static func varint(_ bytes: ArraySlice<UInt8>, _ position: inout Int) -> UInt64? {
    var value: UInt64 = 0
    for shift in stride(from: 0, through: 63, by: 7) where position < bytes.endIndex {
      let byte = bytes[position]
      position += 1
      value |= UInt64(byte & 0x7F) << UInt64(shift)
      if byte & 0x80 == 0 { return value }
    }
    return nil
  }

  private static func fixed(_ bytes: [UInt8], _ position: Int, _ count: Int) -> UInt64 {
    bytes[position..<(position + count)].reversed().reduce(0) { $0 << 8 | UInt64($1) }
  }

  /// Return whether the manifest lists a file of this number and size. A file that was being written when the process
  /// or the machine failed is not listed, may have holes, and is removed by RocksDB unread. RocksDB itself refuses a
  /// listed file of another size.
  private static func isInManifest(of directory: String, _ number: UInt64, _ size: UInt64) -> Bool {
    guard let current = try? String(contentsOfFile: directory + "/CURRENT", encoding: .utf8),
      let data = FileManager.default.contents(atPath: directory + "/" + current.trimmingCharacters(in: .newlines))
    else { return false }
    let manifest = LogFileCheck.contents(of: Array(data))
    // Record of a new file: tag, level, number and size, and then its keys.
    let sought = [103, 0] + varint(number) + varint(size)
    return manifest.indices.dropLast(sought.count).contains { start in
      manifest[start] == sought[0] && manifest[(start + 2)..<(start + sought.count)].elementsEqual(sought[2...])
    }
  }

  private static func varint(_ value: UInt64) -> [UInt8] {
    var rest = value
    var bytes: [UInt8] = []
    while rest >= 0x80 {
      bytes.append(UInt8(truncatingIfNeeded: rest) | 0x80)
      rest >>= 7
    }
    return bytes + [UInt8(rest)]
  }
}
