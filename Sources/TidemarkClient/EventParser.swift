import Foundation

/// Splits a `text/event-stream` into blocks.
struct EventParser: Sendable {
  /// A block of lines.
  struct Block: Equatable {
    /// Where to resume after it.
    var id: String?
    /// The event; nil: the block has none.
    var data: String?
  }

  /// A block was longer than the parser keeps.
  struct BlockTooLong: Error {}

  /// Bytes of an unfinished line and of a block's data.
  private let bytesMax: Int
  private var line: [UInt8] = []
  private var block = Block()

  init(bytesMax: Int = 1 << 20) { self.bytesMax = bytesMax }

  /// Take the next bytes, and return the blocks that they end.
  ///
  /// - Throws: ``BlockTooLong``. The stream cannot be continued then.
  mutating func push(_ chunk: Data) throws -> [Block] {
    var ended: [Block] = []
    var rest = chunk[...]
    while let end = rest.firstIndex(of: UInt8(ascii: "\n")) {
      line += rest[..<end]
      rest = rest[rest.index(after: end)...]
      if line.last == UInt8(ascii: "\r") { line.removeLast() }
      if line.isEmpty {
        ended.append(block)
        block = Block()
      } else {
        addLine()
      }
      line.removeAll(keepingCapacity: true)
      try check()
    }
    line += rest
    try check()
    return ended
  }

  private func check() throws {
    guard line.count + (block.data?.utf8.count ?? 0) <= bytesMax else { throw BlockTooLong() }
  }

  /// Add a line that is not empty to the block.
  private mutating func addLine() {
    guard let colon = line.firstIndex(of: UInt8(ascii: ":")), colon > 0 else { return }
    var value = line[(colon + 1)...]
    if value.first == UInt8(ascii: " ") { value.removeFirst() }
    let text = String(decoding: value, as: UTF8.self)
    switch String(decoding: line[..<colon], as: UTF8.self) {
    case "id": block.id = text
    case "data": block.data = block.data.map { $0 + "\n" + text } ?? text
    default: break
    }
  }
}
