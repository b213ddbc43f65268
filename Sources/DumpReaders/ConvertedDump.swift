internal import Foundation
internal import Synchronization

/// A converted dump: a file of lines, and for each line its place in the dump. Both are in a directory that only its
/// owner can read, and that ``remove()`` deletes.
package final class ConvertedDump: Sendable {
  private static let pieceBytes = 256 << 10

  /// The file of lines.
  package let path: String
  package let summary: DumpSummary
  private let directory: String
  private let origins: Mutex<OriginReader>

  /// Convert a dump into a new directory below the one for temporary files (`TMPDIR`).
  ///
  /// - Parameters: see ``DumpConversion/run(_:in:refused:write:progress:)``.
  package init(
    _ path: String,
    from format: DumpFormat,
    refused: @escaping (DumpRefusal) -> Void,
    progress: (UInt64) throws -> Void
  ) throws {
    let directory = NSTemporaryDirectory() + "tidemark-dump-\(UUID().uuidString)"
    try FileManager.default.createDirectory(
      atPath: directory,
      withIntermediateDirectories: false,
      attributes: [.posixPermissions: 0o700]
    )
    do {
      let lines = try BufferedFile(directory + "/lines.ndjson")
      let origins = try BufferedFile(directory + "/origins")
      summary = try DumpConversion(format).run(path, in: directory, refused: refused) { line, origin in
        try Task.checkCancellation()
        try lines.write(line)
        try origins.write(origin.description)
      } progress: {
        try progress($0)
      }
      try lines.flush()
      try origins.flush()
      self.origins = Mutex(try OriginReader(path: directory + "/origins"))
    } catch {
      try? FileManager.default.removeItem(atPath: directory)
      throw error
    }
    self.directory = directory
    self.path = directory + "/lines.ndjson"
  }

  /// Return the place in the dump that a line comes from, such as `line 12, post.replies[3]`.
  ///
  /// - Parameter line: from 1. Asked for in ascending order, all lines together are one pass over a file.
  package func origin(ofLine line: Int) -> String? { origins.withLock { $0.origin(ofLine: line) } }

  /// Copy the lines to a file, which only its owner can read; `-` for standard output.
  ///
  /// - Throws: ``DumpError``, and errors of files.
  package func copyLines(to path: String) throws {
    guard let lines = FileHandle(forReadingAtPath: self.path) else { throw DumpError("\(self.path): cannot be read") }
    let output = path == "-" ? FileHandle.standardOutput : try .create(path)
    while let piece = try lines.read(upToCount: Self.pieceBytes), !piece.isEmpty {
      try Task.checkCancellation()
      try output.write(contentsOf: piece)
    }
  }

  /// Delete the files.
  package func remove() { try? FileManager.default.removeItem(atPath: directory) }

  // A dump that an interrupt has kept from its user.
  deinit { remove() }
}

/// Writes lines to a file.
private final class BufferedFile {
  private static let bufferBytes = 256 << 10

  private let file: FileHandle
  private var buffer = Data()

  init(_ path: String) throws { file = try .create(path) }

  func write(_ line: String) throws {
    buffer += line.utf8
    buffer.append(UInt8(ascii: "\n"))
    if buffer.count >= Self.bufferBytes { try flush() }
  }

  func flush() throws {
    try file.write(contentsOf: buffer)
    buffer.removeAll(keepingCapacity: true)
  }
}

/// Reads the file of origins: one text a line.
private struct OriginReader {
  private static let pieceBytes = 64 << 10

  private let file: FileHandle
  private var buffer: [Substring] = []
  private var rest = ""
  /// The number of the first line in `buffer`.
  private var first = 1

  init(path: String) throws {
    guard let file = FileHandle(forReadingAtPath: path) else { throw DumpError("\(path): cannot be read") }
    self.file = file
  }

  mutating func origin(ofLine line: Int) -> String? {
    if line < first {
      guard (try? file.seek(toOffset: 0)) != nil else { return nil }
      (buffer, rest, first) = ([], "", 1)
    }
    while line >= first + buffer.count {
      guard let piece = try? file.read(upToCount: Self.pieceBytes), !piece.isEmpty else { return nil }
      var lines = (rest + String(decoding: piece, as: UTF8.self)).split(
        separator: "\n",
        omittingEmptySubsequences: false
      )
      rest = lines.popLast().map(String.init) ?? ""
      first += buffer.count
      buffer = lines
    }
    return line >= first ? String(buffer[line - first]) : nil
  }
}
