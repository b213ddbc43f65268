import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

/// The fields of lists and member statuses: encoded, decoded, and truncated at every byte.
@Suite("Fields of lists")
struct ListFieldTests {
  private static func bytes(_ text: String) -> [UInt8] { Array(text.utf8) }
  private static func text(_ span: RawSpan) -> String {
    span.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
  }

  /// Whether a payload without its last bytes is refused, for every number of missing bytes.
  private static func refusesTruncated(
    _ payload: ByteBuffer,
    _ read: (inout FieldReader) throws(WireError) -> Void
  ) -> Bool {
    let bytes = payload.readableBytesSpan
    for count in 0..<bytes.byteCount {
      var reader = FieldReader(bytes.extracting(first: count))
      do {
        try read(&reader)
        return false
      } catch {
        continue
      }
    }
    var reader = FieldReader(bytes)
    return (try? read(&reader)) != nil && (try? reader.end()) != nil
  }

  @Test func listMembersRoundTrips() throws {
    let (viewer, message, cursor) = (Self.bytes("alice"), Self.bytes("m1"), Self.bytes("t12-bob"))
    var payload = ByteBuffer()
    payload.writeListMembers(
      viewer: viewer.span.bytes,
      isServer: true,
      message: message.span.bytes,
      list: .unread,
      order: .time,
      limit: 100,
      cursor: cursor.span.bytes
    )
    var reader = FieldReader(payload.readableBytesSpan)
    let fields = try ListMembersRequest(&reader)
    let isServer = fields.viewer.isServer
    #expect(isServer)
    let viewerText = Self.text(fields.viewer.user)
    #expect(viewerText == "alice")
    #expect(Self.text(fields.message) == "m1")
    #expect(fields.list == 2)
    #expect(fields.order == 1)
    #expect(fields.limit == 100)
    #expect(Self.text(fields.cursor) == "t12-bob")
    let isStrict = Self.refusesTruncated(payload) { reader throws(WireError) in
      _ = try ListMembersRequest(&reader)
    }
    #expect(isStrict)
    var longer = payload
    longer.writeInteger(UInt8(0))
    let long = longer
    #expect(throws: WireError.trailingBytes) {
      var reader = FieldReader(long.readableBytesSpan)
      _ = try ListMembersRequest(&reader)
    }
  }

  @Test func memberStatusesRoundTrips() throws {
    let (nobody, message) = (Self.bytes(""), Self.bytes("m1"))
    var payload = ByteBuffer()
    payload.writeMemberStatuses(
      viewer: nobody.span.bytes,
      isServer: false,
      message: message.span.bytes,
      userCount: 2
    )
    for user in ["bob", "carol"] { payload.writeField(user) }
    var reader = FieldReader(payload.readableBytesSpan)
    let fields = try MemberStatusesRequest(&reader)
    let (flags, viewerBytes) = (fields.viewer.flags, fields.viewer.user.byteCount)
    #expect(flags == 0 && viewerBytes == 0)
    #expect(Self.text(fields.message) == "m1")
    let userCount = fields.users.count
    #expect(userCount == 2)
    var users: [String] = []
    fields.users.forEach { users.append(Self.text($0)) }
    #expect(users == ["bob", "carol"])
    let isStrict = Self.refusesTruncated(payload) { reader throws(WireError) in
      _ = try MemberStatusesRequest(&reader)
    }
    #expect(isStrict)
  }

  @Test(arguments: ["", "on it ✓"], [Int64(0), 1_700_000_000_000])
  func listEntriesRoundTrip(note: String, time: Int64) throws {
    let user = Self.bytes("bob")
    let written = ListEntry(
      row: MemberOrdinal(3),
      at: Timestamp(milliseconds: time),
      isExact: time == 0,
      note: note
    )
    var payload = ByteBuffer()
    payload.writeListEntry(user: user.span.bytes, written)
    var reader = FieldReader(payload.readableBytesSpan)
    let fields = try ListEntryFields(&reader)
    #expect(Self.text(fields.user) == "bob")
    #expect(fields.at == written.at)
    #expect(fields.isExact == written.isExact)
    #expect(Self.text(fields.note) == note)
    let isStrict = Self.refusesTruncated(payload) { reader throws(WireError) in
      _ = try ListEntryFields(&reader)
    }
    #expect(isStrict)
  }

  @Test func memberStatusOrErrorRoundTrips() throws {
    let user = Self.bytes("bob")
    let status = MemberStatus(
      status: .delivered,
      readAt: .none,
      deliveredAt: Timestamp(milliseconds: 1_700_000_000_000),
      readIsExact: true,
      deliveredIsExact: false
    )
    var payload = ByteBuffer()
    payload.writeMemberStatus(user: user.span.bytes, status)
    var reader = FieldReader(payload.readableBytesSpan)
    let fields = try MemberStatusFields(&reader)
    #expect(Self.text(fields.user) == "bob")
    #expect(fields.code == 0)
    #expect(fields.status == status)
    let isStrict = Self.refusesTruncated(payload) { reader throws(WireError) in
      _ = try MemberStatusFields(&reader)
    }
    #expect(isStrict)

    var refused = ByteBuffer()
    refused.writeMemberStatus(user: user.span.bytes, refused: .notExpected)
    var second = FieldReader(refused.readableBytesSpan)
    let other = try MemberStatusFields(&second)
    #expect(other.code == 43)
    #expect(other.status == nil)
    try second.end()
  }

  @Test func flagsAndStatusesOutOfRangeAreRefused() {
    // user, time, exact 2, note
    #expect(throws: WireError.badValue(.flags)) {
      let bytes: [UInt8] = [1, 0x62, 0, 2, 0]
      var reader = FieldReader(bytes.span.bytes)
      _ = try ListEntryFields(&reader)
    }
    // user, code 0, status 3
    #expect(throws: WireError.badValue(.status)) {
      let bytes: [UInt8] = [1, 0x62, 0, 3, 0, 0, 1]
      var reader = FieldReader(bytes.span.bytes)
      _ = try MemberStatusFields(&reader)
    }
  }
}
