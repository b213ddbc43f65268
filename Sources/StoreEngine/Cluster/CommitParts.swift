package import ReceiptWire

/// The records of one group commit, whose payload may be too large for one of them.
enum CommitParts {
  /// Return the contents of the records of a sealed payload, in order: parts, then the batches.
  static func split(_ payload: [UInt8], key: RecordKeyNumber, bytesMax: Int) -> [Ownership.RecordContent] {
    var records: [Ownership.RecordContent] = []
    var rest = payload[...]
    while rest.count > bytesMax {
      records.append(Ownership.RecordContent(kind: .part, key: key, payload: Array(rest.prefix(bytesMax))))
      rest = rest.dropFirst(bytesMax)
    }
    records.append(Ownership.RecordContent(kind: .batches, key: key, payload: Array(rest)))
    return records
  }
}

/// Assembles the payloads of group commits from a group's records.
package struct CommitAssembly: Sendable {
  /// Maximum size of a payload. No loop makes a larger commit.
  private static let payloadBytesMax = 1 << 30

  private var parts: [UInt8] = []
  /// Whether the records so far end within a commit.
  package var isWithinCommit: Bool { !parts.isEmpty }

  package init() {}

  /// Add the next record; return the payload of the commit that it ends, if it does.
  ///
  /// - Throws: if the parts exceed every commit.
  package mutating func add(_ record: GroupRecord) throws(WireError) -> [UInt8]? {
    switch record.kind {
    case .part:
      guard parts.count + record.payload.count <= Self.payloadBytesMax else { throw .badValue(.count) }
      parts += record.payload
      return nil
    case .batches:
      defer { parts = [] }
      return isWithinCommit ? parts + record.payload : record.payload
    case .claim:
      // The owner before has ended within a commit, which is lost.
      parts = []
      return nil
    case .release, .alive, .purge, .unknown: return nil
    }
  }
}
