import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

/// The table of requests, and the readers and writers of their fields.
@Suite struct RequestSpecTests {
  @Test func everyRequestIsListedOnce() {
    let requests = FrameKind.allCases.filter(\.hasReply)
    #expect(RequestSpec.all.map(\.kind) == requests)
    #expect(Set(RequestSpec.all.map(\.name)).count == requests.count)
  }

  /// A request is of one class. Each has a reply, and other frames have neither a reply nor traits.
  @Test(arguments: FrameKind.allCases)
  func traitsClassifyEachRequestOnce(_ kind: FrameKind) {
    let classes = [kind.isCommand, kind.isIdempotent, kind.isBackup, kind.isSnapshot].filter { $0 }
    let hasReply = !kind.isReply && FrameKind(rawValue: kind.rawValue | FrameKind.replyBit) != nil
    #expect(classes.count == (hasReply ? 1 : 0))
    #expect(kind.hasReply == hasReply)
    guard hasReply else { return }
    #expect(kind.reply.isReply(to: kind))
    #expect(kind.reply.isReplyToIdempotent == kind.isIdempotent)
  }

  /// The traits and the fields agree on the counter's place.
  @Test(arguments: RequestSpec.all.map(\.kind))
  func counterPlacesAgreeWithTraits(_ kind: FrameKind) throws {
    let spec = try #require(RequestSpec.all.first { $0.kind == kind })
    let words = spec.fields.split(separator: " ")
    let counter = kind.isCommand ? kind.traits.contains(.named) ? 1 : 0 : nil
    #expect(words.firstIndex(of: "counter") == counter)
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
