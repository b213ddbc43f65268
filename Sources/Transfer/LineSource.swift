internal import Foundation
package import NIOCore

/// The lines of a file or of standard input, from which an import may start again.
package final class LineSource {
  private static let pieceBytes = 64 << 10
  /// Bytes of standard input that are kept until the gateway has confirmed them.
  private static let keptBytesMax = 512 << 20
  private static let lineFeed = UInt8(ascii: "\n")

  private let file: FileHandle
  private let isSeekable: Bool
  /// Size of the file; nil: unknown.
  package let byteCount: UInt64?
  /// Bytes passed on so far, without repeats.
  package private(set) var bytesRead: UInt64 = 0
  /// Of standard input: what was passed on and is not confirmed, from the line after ``keptFrom`` on.
  private var kept: [UInt8] = []
  private var keptFrom = 0
  /// What is passed on before anything is read.
  private var replay: [UInt8] = []

  /// - Parameter path: `-` for standard input.
  /// - Throws: if the file cannot be read.
  package init(path: String) throws {
    if path == "-" {
      file = .standardInput
      isSeekable = false
      byteCount = nil
    } else {
      guard let file = FileHandle(forReadingAtPath: path) else {
        throw TransferError("\(path): cannot be read")
      }
      self.file = file
      // A pipe has no size and no place to go back to.
      let size = try? file.seekToEnd()
      isSeekable = size != nil
      byteCount = size
      if isSeekable { try file.seek(toOffset: 0) }
    }
  }

  /// Return the next piece; nil at the end.
  package func next() throws -> ByteBuffer? {
    if !replay.isEmpty {
      defer { replay = [] }
      return ByteBuffer(bytes: replay)
    }
    guard let data = try file.read(upToCount: Self.pieceBytes), !data.isEmpty else { return nil }
    bytesRead += UInt64(data.count)
    if !isSeekable {
      guard kept.count + data.count <= Self.keptBytesMax else {
        throw TransferError("more than \(Self.keptBytesMax) bytes of standard input are not confirmed")
      }
      kept += data
    }
    return ByteBuffer(bytes: data)
  }

  /// Drop what is kept of lines that were confirmed.
  package func confirm(lines: Int) {
    guard !isSeekable, lines > keptFrom else { return }
    let end = Self.offset(afterLines: lines - keptFrom, in: kept) ?? kept.count
    kept.removeFirst(end)
    keptFrom = lines
  }

  /// Start again after this number of lines, all of them confirmed or of a file.
  package func restart(afterLine lines: Int) throws {
    guard isSeekable else {
      confirm(lines: lines)
      replay = kept
      return
    }
    try file.seek(toOffset: 0)
    bytesRead = 0
    var remaining = lines
    while remaining > 0, let data = try file.read(upToCount: Self.pieceBytes), !data.isEmpty {
      let bytes = [UInt8](data)
      let count = bytes.count { $0 == Self.lineFeed }
      guard count >= remaining else {
        remaining -= count
        bytesRead += UInt64(bytes.count)
        continue
      }
      bytesRead += UInt64(Self.offset(afterLines: remaining, in: bytes) ?? bytes.count)
      try file.seek(toOffset: bytesRead)
      remaining = 0
    }
  }

  private static func offset(afterLines lines: Int, in bytes: [UInt8]) -> Int? {
    guard lines > 0 else { return 0 }
    var remaining = lines
    for (index, byte) in bytes.enumerated() where byte == lineFeed {
      remaining -= 1
      if remaining == 0 { return index + 1 }
    }
    return nil
  }
}
