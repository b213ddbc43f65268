internal import Foundation

/// Checks RocksDB's write-ahead logs and manifest before RocksDB opens them, for damage that RocksDB would take for the
/// end of the file. It would then silently drop everything after it.
///
/// Both are sequences of records in blocks of 32 KiB: checksum (4 bytes), length (2), type (1), payload. A record ends
/// within its block; longer ones are continued by further records. Recovery mode 0 refuses a record with a wrong
/// checksum. But it takes three things for the end: a length that points past the end of the file, a type of recycled
/// logs (this store makes none), and a header of zeros. One wrong bit is enough for the first two. A write that was cut
/// off looks like the first, but it was the last one: no complete record follows it.
enum LogFileCheck {
  private static let blockBytes = 32_768
  private static let headerBytes = 7
  /// Record types from here to 8 belong to recycled logs.
  private static let recycledTypeMin: UInt8 = 5
  private static let recycledTypeMax: UInt8 = 8

  /// Location and kind of damage in a log.
  struct Fault: Error, Equatable {
    var offset: Int
    var reason: String
  }

  /// Describe the damage in a directory's logs and manifest, with file and location; nil if there is none.
  ///
  /// - Parameters:
  ///   - checksums: also verify each record's checksum, to locate damage that RocksDB has refused; reads every byte.
  ///   - logs: check the logs too, not only the manifest, which RocksDB always syncs.
  static func fault(in directory: String, checksums: Bool, logs: Bool = true) -> String? {
    let names = (try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []
    let tables = names.filter { $0.hasSuffix(".sst") || $0.hasSuffix(".log") || $0.hasPrefix("MANIFEST-") }
    // RocksDB would create a new, empty database over the old one's files.
    if !tables.isEmpty, !names.contains("CURRENT") {
      return "\(directory)/CURRENT is missing, while \(tables.count) files of a database are there"
    }
    let manifest = (try? String(contentsOfFile: directory + "/CURRENT", encoding: .utf8))?
      .trimmingCharacters(in: .newlines)
    for name in names.sorted() where (logs && name.hasSuffix(".log")) || name == manifest {
      let path = directory + "/" + name
      // Mapped, because only the header bytes of each record are read.
      guard let bytes = try? Data(contentsOf: URL(fileURLWithPath: path), options: .alwaysMapped) else {
        continue
      }
      if let fault = bytes.withUnsafeBytes({ fault(in: $0, checksums: checksums) }) {
        return "\(path), byte \(fault.offset): \(fault.reason)"
      }
    }
    return nil
  }

  /// Return the first fault in one file's bytes.
  static func fault(in bytes: UnsafeRawBufferPointer, checksums: Bool) -> Fault? {
    var offset = 0
    while offset < bytes.count {
      let inBlock = blockBytes - offset % blockBytes
      guard inBlock >= headerBytes else {
        offset += inBlock
        continue
      }
      guard offset + headerBytes <= bytes.count else { return nil }
      let (length, type) = header(bytes, offset)
      if (recycledTypeMin...recycledTypeMax).contains(type) {
        return Fault(offset: offset, reason: "a record of type \(type), which this store does not write")
      }
      let end = offset + headerBytes + length
      if type == 0, length == 0 {
        guard let next = recordBehind(offset, bytes) else { return nil }
        return Fault(offset: offset, reason: "zeros, followed by a complete record at byte \(next)")
      }
      if headerBytes + length > inBlock {
        // A writer never does this, whether it was cut off or not.
        return Fault(offset: offset, reason: "a record of \(length) bytes, which exceeds its block")
      }
      guard end <= bytes.count else { return cutOff(offset, length, bytes) }
      if checksums, !isWhole(bytes, offset, length) {
        return Fault(offset: offset, reason: "a record of \(length) bytes with a wrong checksum")
      }
      offset = end
    }
    return nil
  }

  /// Return the concatenated payloads of a file's records, up to the first invalid record.
  static func contents(of bytes: [UInt8]) -> [UInt8] {
    bytes.withUnsafeBytes { bytes in
      var contents: [UInt8] = []
      var offset = 0
      while offset + headerBytes <= bytes.count {
        let inBlock = blockBytes - offset % blockBytes
        guard inBlock >= headerBytes else {
          offset += inBlock
          continue
        }
        let (length, type) = header(bytes, offset)
        let end = offset + headerBytes + length
        guard (1...4).contains(type), headerBytes + length <= inBlock, end <= bytes.count else { break }
        contents += bytes[(offset + headerBytes)..<end]
        offset = end
      }
      return contents
    }
  }

  /// Check a record that points past the end of the file: either the last one, cut off while it was written, or one
  /// with a wrong length.
  private static func cutOff(_ offset: Int, _ length: Int, _ bytes: UnsafeRawBufferPointer) -> Fault? {
    let reason = "a record of \(length) bytes ends past the end of the file"
    if isWhole(bytes, offset, bytes.count - offset - headerBytes) {
      return Fault(
        offset: offset,
        reason: "\(reason), but its checksum matches up to the end of the file: its length is wrong"
      )
    }
    guard let next = recordBehind(offset, bytes) else { return nil }
    return Fault(offset: offset, reason: "\(reason), and a complete record follows at byte \(next)")
  }

  /// Find the next complete record after `offset`. A log is written in order, so that record was written later.
  private static func recordBehind(_ offset: Int, _ bytes: UnsafeRawBufferPointer) -> Int? {
    var position = offset + headerBytes
    while position + headerBytes <= bytes.count {
      let (length, type) = header(bytes, position)
      let inBlock = blockBytes - position % blockBytes
      if (1...4).contains(type), length > 0, headerBytes + length <= inBlock,
        position + headerBytes + length <= bytes.count, isWhole(bytes, position, length)
      {
        return position
      }
      position += 1
    }
    return nil
  }

  private static func header(_ bytes: UnsafeRawBufferPointer, _ offset: Int) -> (length: Int, type: UInt8) {
    (Int(bytes[offset + 4]) | Int(bytes[offset + 5]) << 8, bytes[offset + 6])
  }

  /// Return whether the checksum matches the type and `length` bytes of payload.
  private static func isWhole(_ bytes: UnsafeRawBufferPointer, _ offset: Int, _ length: Int) -> Bool {
    let stored = UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt32.self))
    var checksum = UInt32.max
    for byte in bytes[(offset + 6)..<(offset + headerBytes + length)] {
      checksum = crcTable[Int(UInt8(truncatingIfNeeded: checksum) ^ byte)] ^ checksum >> 8
    }
    checksum = ~checksum
    // Stored rotated and offset, so that a checksum over bytes that contain checksums stays strong.
    return stored == (checksum >> 15 | checksum << 17) &+ 0xA282_EAD8
  }

  /// CRC-32C (RFC 3720 appendix B.4), one byte at a time.
  private static let crcTable: [UInt32] = (0..<256).map { byte in
    (0..<8).reduce(UInt32(byte)) { value, _ in value & 1 == 0 ? value >> 1 : value >> 1 ^ 0x82F6_3B78 }
  }
}
