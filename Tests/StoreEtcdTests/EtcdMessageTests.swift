import NIOCore
import TestSupport
import Testing

@testable import StoreEtcd

/// Messages of etcd's API against bytes that `protoc --encode` made of the same messages.
@Suite struct EtcdMessageTests {
  private static func bytes(_ text: String) -> [UInt8] { Array(text.utf8) }

  private static func written(_ write: (inout ByteBuffer) -> Void) -> String {
    var buffer = ByteBuffer()
    write(&buffer)
    return Hex.text(buffer.readableBytesView)
  }

  @Test func transactionRequestIsEncoded() {
    let transaction = EtcdTransaction(
      compares: [
        EtcdCompare(key: Self.bytes("o"), condition: .modRevision(equals: 300)),
        EtcdCompare(key: Self.bytes("l2"), condition: .createRevision(equals: 0)),
        EtcdCompare(key: Self.bytes("l1"), condition: .exists),
        EtcdCompare(key: Self.bytes("t"), condition: .value(lessThan: [1, 2])),
      ],
      success: [
        .put(key: Self.bytes("l2"), value: ByteBuffer(string: "abc")),
        .range(EtcdRange(first: Self.bytes("o"))),
        .deleteRange(first: Self.bytes("l"), end: Self.bytes("l2")),
      ],
      failure: [
        .range(EtcdRange(first: Self.bytes("l"), end: Self.bytes("m"), limit: 7, countOnly: true))
      ]
    )
    #expect(
      Self.written(transaction.write)
        == "0a0810021a016f30ac020a0810011a026c3228000a0a080110011a026c3128000a0b080210031a01743a02010212"
        + "0b12090a026c32120361626312050a030a016f12091a070a016c12026c321a0c0a0a0a016c12016d18074801"
    )
  }

  @Test func largePutIsEncoded() {
    let value = ByteBuffer(repeating: UInt8(ascii: "x"), count: 20_000)
    let transaction = EtcdTransaction(success: [.put(key: Self.bytes("k"), value: value)])
    let text = Self.written(transaction.write)
    #expect(text == "12ab9c0112a79c010a016b12a09c01" + String(repeating: "78", count: 20_000))
  }

  @Test func compactionsAndWatchesAreEncoded() {
    #expect(Self.written(EtcdCompaction(revision: 70_000).write) == "08f0a204")
    let watch = EtcdWatch(first: Self.bytes("l"), end: Self.bytes("m"), startRevision: 129)
    #expect(Self.written(watch.write) == "0a0d0a016c12016d18810128014001")
  }

  private static let transactionResponse =
    "0a1208ffffffffffffffffff011005189221200310011a0712050a031892211a210a1f0a03189221120f0a016f100118ac022002"
    + "2a0176300912030a01701801200c1a041a021003"

  private static let watchResponse =
    "0a02180910011801200128083209636f6d70616374656438015a0f120d0a026c311007180720012a01785a0a080112060a026c30"
    + "18085a0b12090a026c3218092a0179"

  @Test func transactionResponseIsDecoded() throws {
    let bytes = try #require(Hex.bytes(Self.transactionResponse))
    let response = try EtcdTransactionResponse(bytes.span)
    var owner = EtcdKeyValue()
    owner.key = Self.bytes("o")
    owner.createRevision = 1
    owner.modRevision = 300
    owner.value = Self.bytes("v")
    var other = EtcdKeyValue()
    other.key = Self.bytes("p")
    var range = EtcdRangeResponse()
    range.values = [owner, other]
    range.hasMore = true
    range.count = 12
    #expect(response.revision == 4_242)
    #expect(response.succeeded)
    #expect(response.responses == [.put, .range(range), .deleteRange])
  }

  @Test func watchResponseIsDecoded() throws {
    let bytes = try #require(Hex.bytes(Self.watchResponse))
    let response = try EtcdWatchResponse(bytes.span)
    #expect(response.isCreated && response.isCanceled)
    #expect(response.compactRevision == 8)
    // The deletion is left out.
    #expect(response.puts.map(\.key) == [Self.bytes("l1"), Self.bytes("l2")])
    #expect(response.puts.map(\.value) == [Self.bytes("x"), Self.bytes("y")])
    #expect(response.puts.map(\.modRevision) == [7, 9])
  }

  /// A prefix of a message is refused, or is a message with fewer fields; it never traps.
  @Test(arguments: [transactionResponse, watchResponse])
  func truncatedResponsesAreRefused(hex: String) throws {
    let bytes = try #require(Hex.bytes(hex))
    var refused = 0
    for count in 0..<bytes.count {
      do throws(EtcdWireError) {
        _ = try EtcdTransactionResponse(bytes.span.extracting(0..<count))
      } catch {
        refused += 1
      }
      _ = try? EtcdWatchResponse(bytes.span.extracting(0..<count))
    }
    #expect(refused > bytes.count / 2)
  }

  @Test func randomBytesAreRefusedOrDecoded() throws {
    var random = SplitMix64(printingSeedOf: "random messages of etcd")
    let valid = try [Self.transactionResponse, Self.watchResponse].map { try #require(Hex.bytes($0)) }
    for round in 0..<TestRun.count(20_000, long: 1_000_000) {
      var bytes: [UInt8]
      if round % 2 == 0 {
        bytes = (0..<random.below(81)).map { _ in random.number(in: 0...255) }
      } else {
        bytes = valid[round / 2 % valid.count]
        for _ in 0..<random.number(in: 1...4) {
          bytes[random.below(bytes.count)] = random.number(in: 0...255)
        }
      }
      _ = try? EtcdTransactionResponse(bytes.span)
      _ = try? EtcdWatchResponse(bytes.span)
    }
  }

  @Test func listsAreLimited() {
    let elements: [UInt8] = (0..<2 * (ProtobufReader.elementsMax + 1)).map { $0 % 2 == 0 ? 0x12 : 0x00 }
    #expect(throws: EtcdWireError.tooManyElements(field: 2)) { try EtcdRangeResponse(elements.span) }
    #expect(throws: Never.self) { try EtcdRangeResponse(elements.span.extracting(droppingFirst: 2)) }
  }

  @Test(arguments: ["1a00", "1a022200", "1a0408011001"])
  func operationResponsesThatAreUnknownAreRefused(hex: String) throws {
    let bytes = try #require(Hex.bytes(hex))
    #expect(throws: EtcdWireError.self) { try EtcdTransactionResponse(bytes.span) }
  }
}
