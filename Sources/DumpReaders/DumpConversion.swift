internal import Foundation

/// What became of a dump.
package struct DumpSummary: Hashable, Sendable {
  /// Lines that were written.
  package var lines = 0
  /// Records of the dump that were refused.
  package var refused = 0
  package var leftOut = LeftOutCounts()
}

/// Converts a product's dump to lines of an import. The same dump always gives the same lines.
///
/// Memory: one JSON object of the dump while it is decoded, and the records of one channel while its lines are written.
/// All other records wait in a file.
package struct DumpConversion: Sendable {
  private static let pieceBytes = 64 << 10

  private let format: DumpFormat
  private let objectBytesMax: Int

  /// - Parameter objectBytesMax: limit of one JSON object, or of one line; nil: the format's own.
  package init(_ format: DumpFormat, objectBytesMax: Int? = nil) {
    self.format = format
    self.objectBytesMax = objectBytesMax ?? format.objectBytesMax
  }

  /// Convert a dump.
  ///
  /// - Parameters:
  ///   - path: the dump; `-` for standard input.
  ///   - directory: a directory for files that this makes.
  ///   - refused: called for each record that is refused, in the order of the dump.
  ///   - write: called with each line, without its line feed, and its place in the dump.
  ///   - progress: called with the bytes read so far. An error ends the conversion.
  /// - Throws: ``DumpError``, and what the closures throw.
  package func run(
    _ path: String,
    in directory: String,
    refused: @escaping (DumpRefusal) -> Void,
    write: (String, DumpOrigin) throws -> Void,
    progress: (UInt64) throws -> Void
  ) throws -> DumpSummary {
    guard let file = path == "-" ? .standardInput : FileHandle(forReadingAtPath: path) else {
      throw DumpError("\(path): cannot be read")
    }
    let records = RecordCollector(spool: try RecordSpool(path: directory + "/records"), refused: refused)
    do {
      var bytes: UInt64 = 0
      try read(into: records) {
        try progress(bytes)
        let piece = try file.read(upToCount: Self.pieceBytes) ?? Data()
        bytes += UInt64(piece.count)
        return piece.isEmpty ? nil : Array(piece)
      }
    } catch let error as DumpError {
      throw DumpError("\(path == "-" ? "standard input" : path), \(error)")
    }
    return try self.write(records, write)
  }

  /// Read a dump piece by piece.
  ///
  /// - Parameter next: returns the next piece; nil: the dump has ended.
  func read(into records: RecordCollector, next: () throws -> [UInt8]?) throws {
    var reader = format.makeReader()
    var framer = JSONFramer(reader.framing, bytesMax: objectBytesMax)
    var head: [UInt8]? = []
    while let piece = try next() {
      var piece = piece
      if let begun = head {
        // Byte order marks and archives are known by four bytes.
        head = begun + piece
        guard let begun = head, begun.count >= 4 else { continue }
        piece = try Self.withoutMark(begun)
        head = nil
      }
      try read(try framer.append(piece), &reader, into: records)
    }
    if let head { try read(try framer.append(try Self.withoutMark(head)), &reader, into: records) }
    try read(try framer.finish(), &reader, into: records)
  }

  private func read(
    _ frames: [JSONFramer.Frame],
    _ reader: inout any DumpReader,
    into records: RecordCollector
  ) throws {
    for frame in frames {
      switch frame {
      case .object(let object): try reader.read(object, into: records)
      case .refusedLine(let line, let detail): records.refuse(DumpOrigin(line: line), detail)
      }
    }
  }

  private static func withoutMark(_ bytes: [UInt8]) throws -> [UInt8] {
    guard !bytes.starts(with: Array("PK\u{3}\u{4}".utf8)), !bytes.starts(with: [0x1F, 0x8B]) else {
      throw DumpError("line 1: it is an archive; unpack it, and give the JSON file in it")
    }
    return bytes.starts(with: [0xEF, 0xBB, 0xBF]) ? Array(bytes.dropFirst(3)) : bytes
  }

  /// Write all lines: users, then channel by channel, in the order in which the dump names them. Users with hidden
  /// positions come before the first channel that has one.
  func write(
    _ records: RecordCollector,
    _ write: (String, DumpOrigin) throws -> Void
  ) throws -> DumpSummary {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    var summary = DumpSummary(refused: records.refusedCount, leftOut: records.leftOut)
    func writeLine(_ line: DumpLine, _ origin: DumpOrigin) throws {
      try write(String(decoding: try encoder.encode(line), as: UTF8.self), origin)
      summary.lines += 1
    }
    for (id, (settings, origin)) in records.settings.sorted(by: { $0.key < $1.key }) {
      try writeLine(.user(DumpLine.User(id: id.text, settings: settings)), origin)
    }
    for (number, channel) in records.channels.enumerated() {
      var assembly = ChannelAssembly(channel, try records.records(of: number))
      for reader in assembly.hiddenReaders
      where records.addUser(reader.user, hidesRead: true, hidesDelivered: false, at: reader.origin) {
        let settings = DumpLine.User.Settings(readReceipts: .init(enabled: false))
        try writeLine(.user(DumpLine.User(id: reader.user, settings: settings)), reader.origin)
      }
      try assembly.write(writeLine)
      summary.leftOut.add(assembly.leftOut)
    }
    return summary
  }
}
