internal import Foundation
internal import Glibc

/// Records on disk, by channel. Dumps may mix channels, and the lines of a channel come together.
///
/// Memory: 16 bytes for each run of records of one channel, and one write buffer. A dump that goes from channel to
/// channel has one run a channel; at worst each record is a run.
final class RecordSpool {
  /// A number of bytes that are written at once.
  private static let bufferBytes = 256 << 10

  private struct Run {
    var start: UInt64
    var end: UInt64
  }

  private let path: String
  private let file: FileHandle
  private let encoder = JSONEncoder()
  private let decoder = JSONDecoder()
  private var buffer = Data()
  private var flushed: UInt64 = 0
  private var runs: [[Run]] = []

  /// - Parameter path: of a new file.
  /// - Throws: ``DumpError``.
  init(path: String) throws {
    self.path = path
    file = try FileHandle.create(path)
  }

  /// - Parameter channel: a small number.
  func append(_ record: DumpRecord, to channel: Int) throws {
    let start = flushed + UInt64(buffer.count)
    buffer += try encoder.encode(record)
    buffer.append(UInt8(ascii: "\n"))
    let end = flushed + UInt64(buffer.count)
    while runs.count <= channel { runs.append([]) }
    if let last = runs[channel].last, last.end == start {
      runs[channel][runs[channel].count - 1].end = end
    } else {
      runs[channel].append(Run(start: start, end: end))
    }
    if buffer.count >= Self.bufferBytes { try flush() }
  }

  /// Return a channel's records in the order of ``append(_:to:)``.
  func records(of channel: Int) throws -> [DumpRecord] {
    try flush()
    guard channel < runs.count else { return [] }
    var records: [DumpRecord] = []
    for run in runs[channel] {
      try file.seek(toOffset: run.start)
      let data = try file.read(upToCount: Int(run.end - run.start)) ?? Data()
      guard data.count == Int(run.end - run.start) else { throw DumpError("\(path): cannot be read back") }
      for line in data.split(separator: UInt8(ascii: "\n")) {
        records.append(try decoder.decode(DumpRecord.self, from: line))
      }
    }
    return records
  }

  private func flush() throws {
    guard !buffer.isEmpty else { return }
    try file.seekToEnd()
    try file.write(contentsOf: buffer)
    flushed += UInt64(buffer.count)
    buffer.removeAll(keepingCapacity: true)
  }
}

extension FileHandle {
  /// Create a file that only its owner can read: dumps have personal data.
  ///
  /// - Throws: ``DumpError``.
  static func create(_ path: String) throws -> FileHandle {
    // In place: a pipe or a device stays what it is.
    let descriptor = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
    guard descriptor >= 0 else { throw DumpError("\(path): cannot be written") }
    return FileHandle(fileDescriptor: descriptor, closeOnDealloc: true)
  }
}
