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

  /// A request is of one class. Other frames have neither a reply nor traits, and no kind uses a reply's bit.
  @Test(arguments: FrameKind.allCases)
  func traitsClassifyEachRequestOnce(_ kind: FrameKind) {
    let classes = [kind.isCommand, kind.isIdempotent, kind.isBackup, kind.isSnapshot].filter { $0 }
    #expect(classes.count == (RequestSpec.all.contains { $0.kind == kind } ? 1 : 0))
    #expect(kind.hasReply == !classes.isEmpty)
    #expect(kind.rawValue & FrameHeader.replyBit == 0)
  }

  /// Only requests have replies: a byte that would be another frame's reply is no kind.
  @Test(arguments: FrameKind.allCases)
  func onlyRequestsHaveReplies(_ kind: FrameKind) throws {
    let header = FrameHeader(replyTo: kind, correlation: 7)
    var buffer = ByteBuffer()
    buffer.writeFrame(header) { _ in }
    if kind.hasReply {
      #expect(try FrameDecoder().next(buffer.readableBytesSpan, at: 0) == .frame(header, payloadCount: 0))
    } else {
      #expect(throws: WireError.unknownKind(header.kindByte)) {
        try FrameDecoder().next(buffer.readableBytesSpan, at: 0)
      }
    }
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
