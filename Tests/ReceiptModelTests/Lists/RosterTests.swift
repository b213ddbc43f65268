import Testing

@testable import NaiveReceiptModel
@testable import ReceiptModel

extension NaiveModel {
  func roster(_ cid: String) -> [String] {
    channels[cid]!.main.memberships.filter { !$0.hasLeft }.map { "\($0.user) \($0.role) \($0.joinedAt)" }
  }

  /// Newest first; each message follows the replies to it.
  func registered(_ cid: String) -> [String] {
    let channel = channels[cid]!
    var lines: [String] = []
    for place in channel.main.messages.indices.reversed() where !channel.main.messages[place].isDeleted {
      let parent = channel.main.messages[place].id
      for thread in channel.threads where thread.parent == place {
        for reply in thread.messages.indices.reversed() where !thread.messages[reply].isDeleted {
          lines.append(Self.line(thread.messages[reply], reply, parent))
        }
      }
      lines.append(Self.line(channel.main.messages[place], place, ""))
    }
    return lines
  }

  private static func line(_ message: Message, _ place: Int, _ parent: String) -> String {
    """
    \(message.id) \(place + 1) <\(message.sender)> <\(parent)> \(message.createdAt) \(message.isSilent) \
    \(message.hasAcknowledgementRequest)
    """
  }
}

extension TestShard {
  func roster(_ cid: String, limit: Int) -> [String] {
    let slot = slot(cid)!
    var lines: [String] = []
    var cursor: UInt32?
    repeat {
      let page = state[slot].roster(limit: limit, cursor: cursor)
      if page.rows.count > limit { faults.append("a page of \(page.rows.count) members") }
      lines += page.rows.map { row in
        let user = state.withUser(slot, row) { $0.withUnsafeBytes { String(decoding: $0, as: UTF8.self) } }
        return "\(user) \(state[slot].rows.role(row) ?? "") \(state[slot].rows.joinedAt(row).milliseconds)"
      }
      cursor = page.next
    } while cursor != nil
    return lines
  }

  func registered(_ cid: String, limit: Int) -> [String] {
    let slot = slot(cid)!
    var lines: [String] = []
    var cursor: MessageListCursor?
    repeat {
      let page = state.listedMessages(slot, limit: limit, cursor: cursor)
      if page.messages.count > limit { faults.append("a page of \(page.messages.count) messages") }
      lines += page.messages.map { entry in
        func text(_ bytes: RawSpan) -> String {
          bytes.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
        }
        let id = state.withMessage(entry.slot, entry.sequence) { text($0) }
        let parent = state.withMessage(slot, entry.parent) { text($0) }
        let sender = state.withSender(entry.slot, of: entry.sequence) { text($0) }
        let flags = state[entry.slot].messages.flags(entry.sequence)
        let created = state[entry.slot].messages.createdAt(entry.sequence).milliseconds
        return
          """
          \(id) \(entry.sequence.rawValue) <\(sender)> <\(parent)> \(created) \(flags.contains(.silent)) \
          \(flags.contains(.requestsAcknowledgement))
          """
      }
      cursor = page.next
    } while cursor != nil
    return lines
  }
}

/// Pages of rosters and messages end early after long runs of skipped entries, and the next page continues there.
/// Random histories check their content.
@Suite("Rosters")
struct RosterTests {
  @Test("runs of former members and deleted messages take a bounded scan each")
  func longRunsTakeBoundedScans() throws {
    let shard = TestShard()
    let cid = "team:long"
    let count = ShardState.rosterScanLimit + 100
    let members = (0..<count).map { MemberSpec(user: "u\($0)") }
    _ = shard.perform(.put(cid: cid, settings: [:], members: members), clock: 1)
    _ = shard.perform(.change(cid: cid, add: [], remove: (1..<(count - 1)).map { "u\($0)" }), clock: 2)
    let slot = try #require(shard.slot(cid))
    let page = shard.state[slot].roster(limit: 100, cursor: nil)
    #expect(page.rows.count == 1 && page.next == UInt32(ShardState.rosterScanLimit))
    #expect(shard.roster(cid, limit: 100) == ["u0  1", "u\(count - 1)  1"])

    for number in 0..<count {
      _ = shard.perform(
        .post(cid: cid, id: "m\(number)", sender: "u0", created: 0, isSilent: false),
        clock: 3
      )
    }
    for number in 1..<(count - 1) { _ = shard.perform(.delete(cid: cid, id: "m\(number)"), clock: 4) }
    let messages = shard.state.listedMessages(slot, limit: 100, cursor: nil)
    #expect(messages.messages.count == 1 && messages.next != nil)
    let listed = shard.registered(cid, limit: 100)
    #expect(listed.count == 2 && listed[0].hasPrefix("m\(count - 1) ") && listed[1].hasPrefix("m0 "))
    #expect(shard.faults.isEmpty)
  }
}
