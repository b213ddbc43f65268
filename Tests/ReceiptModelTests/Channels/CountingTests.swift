import TestSupport
import Testing

@testable import ReceiptModel

/// Counts of random rows, computed three ways: many messages in one pass, one message at a time, and by the rules.
@Suite("Counting")
struct CountingTests {
  private struct Member {
    var joined: UInt32
    var read: UInt32
    var delivered: UInt32
    var marker: UInt32?
    var hasLeft: Bool
    var hidesRead: Bool
    var hidesDelivered: Bool
  }

  struct Shape: Sendable, CustomTestStringConvertible {
    var testDescription: String
    /// The highest position: positions are close together, or farther apart than a table's span.
    var newest: UInt32
    var hides: Bool
    var leaves: Bool
  }

  static let shapes = [
    Shape(testDescription: "close together", newest: 300, hides: false, leaves: false),
    Shape(testDescription: "with former members", newest: 300, hides: false, leaves: true),
    Shape(testDescription: "with hidden members", newest: 300, hides: true, leaves: false),
    Shape(testDescription: "with both", newest: 300, hides: true, leaves: true),
    Shape(testDescription: "far apart", newest: 4_000_000_000, hides: true, leaves: true),
    Shape(testDescription: "one message", newest: 1, hides: true, leaves: true),
  ]

  private static func options(_ number: Int) -> ChannelTypeOptions {
    var options = ChannelTypeOptions()
    options.readEvents = number & 1 == 0
    options.deliveryEvents = number & 2 == 0
    options.markUnread = number & 4 == 0 ? .private : .public
    return options
  }

  /// The counts by R1, R6, R7, R8 and R19, member by member.
  private func expected(_ members: [Member], _ n: UInt32, _ options: ChannelTypeOptions) -> ReadVector.Counts {
    var counts = ReadVector.Counts()
    for member in members where !member.hasLeft && member.joined < n {
      counts.members += 1
      if member.hidesRead { counts.hidingRead += 1 }
      if member.hidesDelivered { counts.hidingDelivered += 1 }
      let position = options.markUnread == .public ? min(member.read, member.marker ?? .max) : member.read
      let showsRead = options.readEvents && !member.hidesRead
      let hasRead = showsRead && position >= n
      // A member who has read the message has received it, whatever they marked unread later (R4).
      let isDelivered =
        showsRead && member.read >= n
        || options.deliveryEvents && !member.hidesDelivered && member.delivered >= n
      if hasRead { counts.read += 1 }
      guard isDelivered else { continue }
      counts.delivered += 1
      if !member.hidesDelivered { counts.deliveredNotHiding += 1 }
    }
    return counts
  }

  @Test("counts agree whether computed for many messages, for one, or by the rules", arguments: shapes)
  func countsAgreeInAllThreeWays(shape: Shape) {
    var random = SplitMix64(printingSeedOf: "counts, \(shape.testDescription)")
    for round in 0..<12 {
      var members = (0..<random.number(in: 0...400)).map { _ in
        let read = random.number(in: 0...shape.newest)
        return Member(
          joined: random.number(in: 0...shape.newest) / 3,
          read: read,
          delivered: random.number(in: 0...shape.newest),
          marker: read > 0 && random.next() % 4 == 0 ? random.number(in: 0...read - 1) : nil,
          hasLeft: shape.leaves && random.next() % 5 == 0,
          hidesRead: shape.hides && random.next() % 6 == 0,
          hidesDelivered: shape.hides && random.next() % 6 == 0
        )
      }
      members.sort { $0.joined < $1.joined }
      var rows = ReadVector()
      for (position, member) in members.enumerated() {
        let row = MemberOrdinal(UInt32(position))
        let record = RowRecord(
          user: "",
          joined: SequenceNumber(member.joined),
          joinedAt: .none,
          read: SequenceNumber(member.read),
          delivered: SequenceNumber(member.delivered),
          marker: member.marker.map(SequenceNumber.init)
        )
        rows.assign(row, record, user: UserNumber(UInt32(position + 1)))
        rows.hide(row, read: member.hidesRead, delivered: member.hidesDelivered)
        if member.hasLeft { rows.leave(row, at: .none) }
      }
      let count = round == 0 ? 0 : random.number(in: 1...100)
      // Both ends, and some duplicates.
      var targets = (0..<count).map { _ in random.number(in: 1...shape.newest) }
      if count > 2 { targets.append(contentsOf: [1, shape.newest, targets[0], targets[1]]) }
      targets.sort()
      for number in 0..<8 {
        let options = Self.options(number)
        var batch = [ReadVector.Counts](repeating: ReadVector.Counts(), count: targets.count)
        targets.withUnsafeBufferPointer { targets in
          batch.withUnsafeMutableBufferPointer { rows.counts(targets, options, into: $0) }
        }
        for (place, n) in targets.enumerated() {
          let expected = expected(members, n, options)
          #expect(batch[place] == expected, "message \(n) of \(targets.count), options \(number)")
          #expect(rows.counts(SequenceNumber(n), options) == expected, "message \(n), options \(number)")
        }
      }
    }
  }

  /// With senders, acknowledgements and deleted messages, through a channel.
  @Test("a batch of statuses equals its messages one by one, in any order")
  func batchOfStatusesEqualsMessagesOneByOne() throws {
    var random = SplitMix64(printingSeedOf: "batches of statuses")
    let users = (0..<12).map { "user\($0)" }
    let room = try Room(users.prefix(6).joined(separator: " "))
    var ids: [String] = []
    for number in 0..<80 {
      // Sending marks messages read, so most senders are no members.
      let sender = random.next() % 4 == 0 ? random.pick(users) : "robot"
      if random.next() % 3 == 0 {
        try room.postWithAcknowledgementRequest(
          "m\(number)",
          by: sender,
          expiresAt: 1_000 + Int64(random.next() % 20_000)
        )
      } else {
        try room.post("m\(number)", by: sender)
      }
      ids.append("m\(number)")
      let user = random.pick(users)
      let message = random.pick(ids)
      guard room.state[room.slot].row(of: user) != nil else {
        try room.change(add: [user])
        continue
      }
      switch random.next() % 8 {
      case 0: try room.read(user, message)
      case 1, 2, 3: try room.deliver(user)
      case 4: try room.hide(user, random.next() % 2 == 0 ? .read : .delivered)
      case 5: try room.show(user, .read)
      case 6: try room.change(remove: [user])
      default:
        // Refused for an own message, an expired acknowledgement request, or a message without an acknowledgement
        // request.
        do { try room.acknowledge(user, message) } catch is Refusal {}
      }
    }
    var all: [String] = []
    for rule in [StatusRule.any, .all, .count(3), .percentage(40)] {
      try room.type { $0.statusRule = rule }
      for count in [1, ChannelState.batchMin - 1, ChannelState.batchMin, 80] {
        let asked = Array(random.shuffled(ids).prefix(count - 1)) + ["none"]
        let single = try asked.dropLast().map { try room.status($0) } + ["message_not_found"]
        #expect(try room.statuses(asked) == single)
        all += single
      }
    }
    for word in ["sent", "delivered", "read", "processing", "expired"] {
      #expect(all.contains { $0.contains(word) }, "no message is \(word)")
    }
  }
}
