import Foundation
import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

@testable import Gateway

/// ``UserListScan`` against a user's channels in memory.
@Suite struct UserListScanTests {
  private static let alice = Array("alice".utf8)

  /// A user's channels with their positions in the index, and the parents of each channel's unread and read threads.
  private struct Channels {
    var list: [(position: UInt64, cid: String, unread: [UInt32], read: [UInt32])]

    /// The reply to list_channels.
    func page(cursor: UInt64?, limit: Int) -> ByteBuffer {
      let rest = list.filter { $0.position >= cursor ?? 0 }
      var buffer = ByteBuffer()
      buffer.writeVarint(min(limit, rest.count))
      for channel in rest.prefix(limit) {
        ChannelEntryFields(cid: channel.cid, row: 0, isMember: true, joinedAt: .none).write(into: &buffer)
      }
      buffer.writeOptional(rest.count > limit ? rest[limit].position : nil)
      return buffer
    }

    /// The reply to user_threads.
    func threads(_ cid: String, _ request: ByteBuffer) throws -> ByteBuffer {
      var reader = FieldReader(request.readableBytesSpan)
      #expect(try reader.text() == "alice")
      let wanted = try reader.byte()
      let limit = Int(try reader.varint())
      let below = try reader.optional32() ?? .max
      try reader.end()
      let channel = list.first { $0.cid == cid }!
      let all = (wanted == 1 ? channel.unread : channel.read).filter { $0 < below }.sorted(by: >)
      var buffer = ByteBuffer()
      buffer.writeVarint(min(limit, all.count))
      for parent in all.prefix(limit) {
        buffer.writeVarint(parent)
        buffer.writeField("m\(parent)")
        buffer.writeVarint(UInt32(wanted == 1 ? 1 : 0))
        buffer.writeEmptyField()
        buffer.writeEmptyField()
        buffer.writeField("r\(parent)")
      }
      buffer.writeOptional(all.count > limit ? UInt64(all[limit - 1]) : nil)
      return buffer
    }
  }

  /// Run a scan to its end. With `reversed`, the newest action is answered first.
  private static func run(_ scan: inout UserListScan, _ channels: Channels, reversed: Bool) throws {
    var actions = scan.begin()
    var count = 0
    while !scan.isDone {
      count += 1
      guard !actions.isEmpty, count < 10_000 else { throw WireError.truncated }
      let action = reversed ? actions.removeLast() : actions.removeFirst()
      switch action {
      case .list(let cursor, let limit):
        let page = channels.page(cursor: cursor, limit: limit)
        var reader = FieldReader(page.readableBytesSpan)
        actions += try scan.listed(&reader)
      case .locate(let cursor, let limit):
        let page = channels.page(cursor: cursor, limit: limit)
        var reader = FieldReader(page.readableBytesSpan)
        actions += try scan.located(&reader)
      case .query(let index):
        var request = ByteBuffer()
        scan.writeRequest(index, into: &request)
        let cid = String(decoding: scan.channel(index), as: UTF8.self)
        let reply = try channels.threads(cid, request)
        actions += try scan.answered(index, reply.readableBytesSpan)
      }
    }
  }

  /// Pages of any size show each thread once, unread threads first.
  @Test(
    arguments: [1, 2, 3, 7, 100],
    [false, true]
  )
  func pagesShowEachThreadOnce(limit: Int, reversed: Bool) throws {
    var channels = Channels(list: [])
    for number in 0..<230 {
      let unread: [UInt32] = number % 7 == 0 ? [UInt32(number + 1), 500] : []
      let read: [UInt32] = number % 50 == 1 ? Array(1...UInt32(number)) : []
      channels.list.append((UInt64(number * 3 + 1), "messaging:c\(number)", unread, read))
    }
    var expected: [String] = []
    for channel in channels.list {
      for parent in channel.unread.sorted(by: >) { expected.append("\(channel.cid) m\(parent) 1") }
    }
    for channel in channels.list {
      for parent in channel.read.reversed() { expected.append("\(channel.cid) m\(parent) 0") }
    }
    var shown: [String] = []
    var cursor: UserListScan.Cursor?
    repeat {
      var scan = UserListScan(
        .threads(unreadOnly: false),
        user: Self.alice,
        limit: limit,
        from: cursor,
        channelsMax: 1_000
      )
      try Self.run(&scan, channels, reversed: reversed)
      #expect(scan.problem == nil && scan.shownCount <= limit)
      var buffer = ByteBuffer()
      OwnListJSON.write(scan, into: &buffer)
      let json = try JSONSerialization.jsonObject(with: Data(buffer.readableBytesView)) as? [String: Any]
      for entry in json?["threads"] as? [[String: Any]] ?? [] {
        shown.append("\(entry["cid"] ?? "") \(entry["thread_id"] ?? "") \(entry["unread_messages"] ?? "")")
      }
      cursor = scan.next
      if let next = scan.next {
        #expect(scan.shownCount == limit)
        let text = Array(next.text.utf8)
        let parsed = UserListScan.Cursor(text.span.bytes)
        #expect(parsed == next)
      }
    } while cursor != nil && shown.count <= expected.count
    #expect(shown == expected)
  }

  @Test(
    arguments: ["", "w", "w0", "w0-0-0", "w2-0-0-0", "w0-0-0-0-0", "w0-x-0-0", "c0"]
  )
  func malformedCursorIsRefused(text: String) {
    let bytes = Array(text.utf8)
    let cursor = UserListScan.Cursor(bytes.span.bytes)
    #expect(cursor == nil)
  }

  @Test
  func secondPassCursorNeedsTwoPassList() {
    let cursor = UserListScan.Cursor(pass: 1)
    #expect(UserListScan.isValid(cursor, of: .threads(unreadOnly: false)))
    #expect(!UserListScan.isValid(cursor, of: .threads(unreadOnly: true)))
    #expect(!UserListScan.isValid(cursor, of: .receipts(.pending)))
  }

  /// A channel that the user has left is skipped. Any other failure is the response.
  @Test
  func formerMembershipIsSkippedAndOtherFailuresAreAnswered() throws {
    let channels = Channels(list: [
      (position: 1, cid: "messaging:a", unread: [1], read: []), (2, "messaging:b", [2], []),
    ])
    var scan = UserListScan(
      .threads(unreadOnly: true),
      user: Self.alice,
      limit: 10,
      from: nil,
      channelsMax: 10
    )
    #expect(scan.begin() == [.list(cursor: nil, limit: UserListScan.listMax)])
    let page = channels.page(cursor: nil, limit: UserListScan.listMax)
    var reader = FieldReader(page.readableBytesSpan)
    let actions = try scan.listed(&reader)
    #expect(actions == [.query(0), .query(1)])
    #expect(try scan.refused(0, Problem(.notAMember)) == [])
    var failed = scan
    #expect(try failed.refused(1, Problem(.storeUnavailable)) == [])
    #expect(failed.isDone && failed.problem?.code == .storeUnavailable)
    var request = ByteBuffer()
    scan.writeRequest(1, into: &request)
    let reply = try channels.threads("messaging:b", request)
    let last = try scan.answered(1, reply.readableBytesSpan)
    #expect(last == [])
    #expect(scan.isDone && scan.shownCount == 1 && scan.next == nil)
  }

  @Test
  func channelsBeyondLimitAreRefused() throws {
    var channels = Channels(list: [])
    for position in 1...3 { channels.list.append((UInt64(position), "messaging:c\(position)", [], [])) }
    var scan = UserListScan(.receipts(.pending), user: Self.alice, limit: 10, from: nil, channelsMax: 2)
    _ = scan.begin()
    let page = channels.page(cursor: nil, limit: 100)
    var reader = FieldReader(page.readableBytesSpan)
    let actions = try scan.listed(&reader)
    #expect(actions == [])
    #expect(scan.problem?.code == .limitReached)
  }
}
