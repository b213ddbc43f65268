import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

/// The table of requests, and the readers and writers of their fields.
@Suite struct RequestSpecTests {
  @Test func everyRequestIsListedOnce() {
    let requests = FrameKind.allCases.filter { $0.isRequest || $0.isBackup }
    #expect(RequestSpec.all.map(\.kind) == requests)
    #expect(Set(RequestSpec.all.map(\.name)).count == requests.count)
  }

  @Test(arguments: FrameKind.allCases)
  func traitsAgreeWithNumbers(_ kind: FrameKind) {
    #expect(kind.traits.contains(.command) == kind.isCommand)
    #expect(kind.traits.contains(.query) == kind.isQuery)
    #expect(kind.traits.contains(.backup) == kind.isBackup)
    #expect(kind.isRequest || kind.isBackup || kind.traits.isEmpty)
  }

  /// The traits and the fields agree on the counter's place.
  @Test(arguments: RequestSpec.all.map(\.kind))
  func counterPlacesAgreeWithTraits(_ kind: FrameKind) throws {
    let spec = try #require(RequestSpec.all.first { $0.kind == kind })
    let words = spec.fields.flatMap { $0.notation.split(separator: " ") }
    let counter = kind.isCommand ? kind.traits.contains(.named) ? 1 : 0 : nil
    #expect(words.firstIndex(of: "counter") == counter)
  }

  /// Each field that a frame over HTTP may have is checked: all but the cid and the counter.
  @Test(arguments: RequestSpec.all.filter { $0.replyBytesMax != nil }.map(\.kind))
  func acceptedFieldsHaveValidations(_ kind: FrameKind) throws {
    let spec = try #require(RequestSpec.all.first { $0.kind == kind })
    #expect(
      spec.fields.filter { $0.validation == nil }.map(\.notation)
        == (kind.isCommand ? ["cid", "counter"] : ["cid"])
    )
  }

  @Test(arguments: [nil, 0, 7, UInt32.max] as [UInt32?], [true, false])
  func marksRoundTrip(_ epoch: UInt32?, _ hasEpoch: Bool) throws {
    var buffer = ByteBuffer()
    let user = Array("bob".utf8)
    let message = Array("m1".utf8)
    if hasEpoch {
      buffer.writeMark(user: user.span.bytes, message: message.span.bytes, epoch: epoch.map { UInt64($0) })
    } else {
      buffer.writeMarkDelivered(user: user.span.bytes, message: message.span.bytes)
    }
    let bytes = Array(buffer.readableBytesView)
    var reader = FieldReader(bytes.span.bytes)
    let read = try MarkRequest(&reader, hasEpoch: hasEpoch)
    #expect(read.user.withUnsafeBytes { Array($0) } == user)
    #expect(read.message.withUnsafeBytes { Array($0) } == message)
    #expect(read.epoch == (hasEpoch ? epoch : nil))
    try reader.end()
  }

  @Test(arguments: [nil, 0, 7, UInt32.max] as [UInt32?])
  func markUnreadSinceRoundTrips(_ epoch: UInt32?) throws {
    var buffer = ByteBuffer()
    let user = Array("bob".utf8)
    let since = Timestamp(milliseconds: 1_700_000_000_000)
    buffer.writeMarkUnreadSince(user: user.span.bytes, since: since, epoch: epoch.map { UInt64($0) })
    let bytes = Array(buffer.readableBytesView)
    var reader = FieldReader(bytes.span.bytes)
    let read = try MarkUnreadSinceRequest(&reader)
    #expect(read.user.withUnsafeBytes { Array($0) } == user)
    #expect(read.since == since)
    #expect(read.epoch == epoch)
    try reader.end()
  }
}
