import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import TestSupport
import Testing

@Suite("Records of a group")
struct GroupRecordTests {
  private static let records = [
    GroupRecord(
      position: RecordPosition(1),
      epoch: OwnerEpoch(1),
      previous: .none,
      kind: .claim(by: NodeID(3))
    ),
    GroupRecord(
      position: RecordPosition(300),
      epoch: OwnerEpoch(2),
      previous: RecordHash(0x0102_0304_0506_0708),
      key: RecordKeyNumber(299),
      kind: .batches,
      payload: [1, 2, 3]
    ),
    GroupRecord(
      position: RecordPosition(301),
      epoch: OwnerEpoch(2),
      previous: RecordHash(.max),
      kind: .release(to: NodeID(.max))
    ),
    GroupRecord(position: RecordPosition(302), epoch: OwnerEpoch(2), previous: RecordHash(1), kind: .alive),
    GroupRecord(
      position: RecordPosition(303),
      epoch: OwnerEpoch(2),
      previous: RecordHash(1),
      kind: .part,
      payload: [7]
    ),
    GroupRecord(
      position: RecordPosition(304),
      epoch: OwnerEpoch(2),
      previous: RecordHash(1),
      key: RecordKeyNumber(5),
      kind: .purge(first: RecordPosition(300))
    ),
  ]

  private func decode(_ bytes: ByteBuffer) throws(WireError) -> GroupRecord {
    try GroupRecord(bytes.readableBytesSpan)
  }

  @Test("records have the documented bytes")
  func recordsHaveDocumentedBytes() {
    let texts = Self.records.map { record in
      record.encoded().readableBytesView.map { String($0, radix: 16) }.joined(separator: " ")
    }
    #expect(
      texts == [
        "2 1 1 0 0 0 0 0 0 0 0 0 1 3",
        "2 ac 2 2 1 2 3 4 5 6 7 8 ab 2 0 3 1 2 3",
        "2 ad 2 2 ff ff ff ff ff ff ff ff 0 2 ff ff 3",
        "2 ae 2 2 0 0 0 0 0 0 0 1 0 3",
        "2 af 2 2 0 0 0 0 0 0 0 1 0 4 1 7",
        "2 b0 2 2 0 0 0 0 0 0 0 1 5 5 ac 2",
      ]
    )
  }

  @Test("a decoded record equals the encoded one", arguments: records)
  func decodedRecordEqualsEncodedRecord(_ record: GroupRecord) throws {
    #expect(try decode(record.encoded()) == record)
  }

  @Test("a record that is cut short or followed by a byte is refused", arguments: records)
  func truncatedOrExtendedRecordIsRefused(_ record: GroupRecord) {
    var bytes = record.encoded()
    for count in 0..<bytes.readableBytes {
      #expect(throws: WireError.self) {
        try decode(bytes.getSlice(at: 0, length: count)!)
      }
    }
    bytes.writeInteger(UInt8(0))
    #expect(throws: WireError.trailingBytes) { try decode(bytes) }
  }

  @Test("unknown formats, unknown kinds and node 0 are refused")
  func unknownFormatsKindsAndNodeZeroAreRefused() {
    let hash = [UInt8](repeating: 0, count: 8)
    #expect(throws: WireError.badValue(.format)) { try decode(ByteBuffer(bytes: [1, 1, 1] + hash + [0, 3])) }
    #expect(throws: WireError.unknownKind(6)) { try decode(ByteBuffer(bytes: [2, 1, 1] + hash + [0, 6])) }
    #expect(throws: WireError.badValue(.node)) { try decode(ByteBuffer(bytes: [2, 1, 1] + hash + [0, 1, 0])) }
  }

  @Test("of a record of a higher level only the content is unknown")
  func contentOfHigherLevelIsUnknown() throws {
    let bytes = ByteBuffer(bytes: [9, 5, 1, 0, 0, 0, 0, 0, 0, 0, 7, 3, 200, 1, 2])
    let record = try decode(bytes)
    let expected = GroupRecord(
      level: ClusterLevel(9),
      position: RecordPosition(5),
      epoch: OwnerEpoch(1),
      previous: RecordHash(7),
      key: RecordKeyNumber(3),
      kind: .unknown,
      payload: [200, 1, 2]
    )
    #expect(record == expected && record.encoded() == bytes)
  }

  @Test("random bytes are a record or an error")
  func randomBytesAreRecordOrError() {
    var random = SplitMix64(printingSeedOf: "random records")
    for _ in 0..<20_000 {
      var bytes = (0..<random.below(40)).map { _ in UInt8(random.below(256)) }
      if !bytes.isEmpty, random.oneIn(2) { bytes[0] = 2 }
      if let record = try? decode(ByteBuffer(bytes: bytes)) {
        let again = try? decode(record.encoded())
        #expect(again == record)
      }
      _ = try? LoopCommit.batches(ofRecordPayload: bytes)
    }
  }
}
