/// The ids of a channel's messages, concatenated, with the index that finds a message by its id. Ids of deleted
/// messages stay: a message id is never used twice.
struct MessageIDColumn: ~Copyable, Sendable {
  /// Maximum size of all ids of a channel together, in bytes. With ids of ordinary length it fits a few hundred million
  /// messages.
  private static let bytesMax = Int(UInt32.max) - Identifier.messageLengthMax

  private var bytes: [UInt8] = []
  private var ends: [UInt32] = []
  private var index = HashIndex()

  /// Whether another id fits.
  var hasRoom: Bool { bytes.count <= Self.bytesMax }

  /// Return the sequence number of a message id.
  @inline(__always)
  func find(_ id: RawSpan) -> SequenceNumber? {
    index.find(StableHash.hash(id)) { position in
      bytes.span.bytes.extracting(range(Int(position))).isEqual(to: id)
    }
    .map { SequenceNumber($0 + 1) }
  }

  /// Call `body` with a message's id; an empty one for position 0.
  @inline(__always)
  func withID<Result>(_ sequence: SequenceNumber, _ body: (RawSpan) -> Result) -> Result {
    guard sequence > .zero else { return body(RawSpan()) }
    return body(bytes.span.bytes.extracting(range(Int(sequence.rawValue) - 1)))
  }

  /// Append the id of the next message.
  mutating func append(_ id: String) {
    let position = UInt32(ends.count)
    bytes.append(contentsOf: id.utf8)
    ends.append(UInt32(bytes.count))
    var id = id
    id.withUTF8 { index.insert(StableHash.hash($0.span.bytes), position) }
  }

  private func range(_ position: Int) -> Range<Int> {
    (position == 0 ? 0 : Int(ends[position - 1]))..<Int(ends[position])
  }

  /// Size in bytes.
  var byteCount: Int { heapBytes(bytes) + heapBytes(ends) + index.byteCount }

  #if DEBUG
    /// Check that a message is found by its id.
    func check(_ sequence: SequenceNumber) -> String? {
      withID(sequence) { find($0) } == sequence
        ? nil : "message \(sequence.rawValue): not found by its id"
    }
  #endif
}
