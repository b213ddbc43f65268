import NIOCore
import ReceiptModel
import ReceiptWire
import TestSupport
import Testing

@testable import StoreEngine

/// Commits that are larger than a record.
@Suite("Commits of several records") struct CommitPartsTests {
  private static func records(_ contents: [Ownership.RecordContent]) -> [GroupRecord] {
    contents.enumerated().map { index, content in
      GroupRecord(
        position: RecordPosition(UInt64(index) + 1),
        epoch: OwnerEpoch(1),
        previous: .none,
        kind: content.kind,
        payload: content.payload
      )
    }
  }

  @Test(
    "a payload is split at the limit, and assembled again",
    arguments: [(0, 1), (1, 1), (4, 1), (5, 2), (8, 2), (9, 3), (4_000, 1_000)]
  )
  func payloadIsSplitAndAssembled(_ bytes: Int, _ records: Int) throws {
    let payload = (0..<bytes).map { UInt8(truncatingIfNeeded: $0) }
    let split = CommitParts.split(payload, key: RecordKeyNumber(7), bytesMax: 4)
    #expect(split.count == records)
    #expect(split.allSatisfy { $0.payload.count <= 4 && $0.key == RecordKeyNumber(7) })
    #expect(split.map(\.kind) == Array(repeating: .part, count: records - 1) + [.batches])
    var assembly = CommitAssembly()
    for (index, record) in Self.records(split).enumerated() {
      let isLast = index == records - 1
      let assembled = try assembly.add(record)
      #expect(assembled == (isLast ? payload : nil))
      #expect(assembly.isWithinCommit == !isLast)
    }
  }

  /// The owner ends within a commit. The next one claims, and its commits do not begin with the parts of that one.
  @Test("a claim drops the parts before it") func claimDropsThePartsBeforeIt() throws {
    var assembly = CommitAssembly()
    let records = Self.records([
      .init(kind: .part, payload: [1, 2]), .init(kind: .part, payload: [3]),
      .init(kind: .claim(by: NodeID(2)), payload: []), .init(payload: [4]),
    ])
    #expect(try records.map { try assembly.add($0) } == [nil, nil, nil, [4]])
  }

  @Test("alive, release and purge records are no commits") func otherRecordsAreNoCommits() throws {
    var assembly = CommitAssembly()
    let records = Self.records([
      .init(kind: .alive), .init(kind: .release(to: NodeID(2))), .init(kind: .purge(first: .zero)),
    ])
    #expect(try records.map { try assembly.add($0) } == [nil, nil, nil])
    #expect(!assembly.isWithinCommit)
  }
}
