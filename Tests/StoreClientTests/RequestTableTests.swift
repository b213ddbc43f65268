import NIOCore
import ReceiptModel
import ReceiptWire
import TestSupport
import Testing

@testable import StoreClient

/// The table alone, in stories: events on the left, results on the right. `c1` is command 1, `q2` query 2, and `r3`
/// command 3 without a cid, such as redeem_ticket. On the wire a command has its counter (`c1#1`), a thread its parent
/// (`c1#1/m1`), a token its time of issue (`c1#1@7`), and a resend `!`.
struct RequestTableTests {
  struct Story: CustomTestStringConvertible {
    var testDescription: String
    var limit = 100
    var rows: [(event: String, outcome: String)]

    init(_ name: String, limit: Int = 100, _ rows: [(String, String)]) {
      testDescription = name
      self.limit = limit
      self.rows = rows
    }
  }

  static let stories = [
    Story(
      "requests are written once, replies free them",
      [
        ("send c1", "queued"), ("send q2", "queued"), ("send c3", "queued"),
        ("write", "c1#1 q2 c3#2"), ("write", ""),
        ("reply c3", "deliver"), ("reply c3", "unmatched"), ("reply q2", "deliver"), ("reply c1", "deliver"),
        ("retained", "0"),
      ]
    ),
    Story(
      "unanswered requests are resent before new ones",
      [
        ("send c1", "queued"), ("send c2", "queued"), ("write", "c1#1 c2#2"), ("send q3", "queued"),
        ("write", "q3"), ("reply c1", "deliver"), ("send c4", "queued"), ("lost", ""), ("open 100", ""),
        ("write", "c2#2! q3! c4#3"), ("write", ""), ("reply q3", "deliver"), ("lost", ""), ("open 100", ""),
        ("write", "c2#2! c4#3!"),
      ]
    ),
    Story(
      "a request keeps its token's time over every resend",
      [
        ("send c1 7", "queued"), ("send q2 0", "queued"), ("send c3", "queued"),
        ("write", "c1#1@7 q2@0 c3#2"), ("send c4 4294967295", "queued"), ("lost", ""), ("open 100", ""),
        // Written frames are copied; the unwritten one is encoded again.
        ("write", "c1#1@7! q2@0! c3#2! c4#3@4294967295"), ("lost", ""),
        ("ended", "c1 outcome_unknown, c3 outcome_unknown, c4 outcome_unknown"), ("send c5 8", "queued"),
        ("open 100", ""), ("write", "q2@0! c5#1@8"), ("lost", ""), ("open 100", ""),
        ("write", "q2@0! c5#1@8!"), ("reply q2", "deliver"), ("reply c5", "deliver"), ("retained", "0"),
      ]
    ),
    Story(
      "a request keeps its thread, written before the token's time",
      [
        ("send c1 m1", "queued"), ("send c2 m2 7", "queued"), ("send c3 8", "queued"),
        ("write", "c1#1/m1 c2#2/m2@7 c3#3@8"), ("send c4 m4 0", "queued"), ("send c5 m5", "queued"),
        ("lost", ""), ("open 100", ""), ("write", "c1#1/m1! c2#2/m2@7! c3#3@8! c4#4/m4@0 c5#5/m5"),
        ("reply c2", "deliver"), ("lost", ""), ("open 100", ""),
        ("write", "c1#1/m1! c3#3@8! c4#4/m4@0! c5#5/m5!"),
      ]
    ),
    Story(
      "the window limits requests in flight",
      limit: 3,
      [
        ("send c1", "queued"), ("send c2", "queued"), ("send c3", "queued"), ("send c4", "busy"),
        ("write", "c1#1 c2#2 c3#3"), ("reply c2", "deliver"), ("send c5", "queued"), ("send c6", "busy"),
        ("write", "c5#4"),
      ]
    ),
    Story(
      "the window shrinks after a lost connection",
      [
        ("send c1", "queued"), ("send c2", "queued"), ("send c3", "queued"), ("write", "c1#1 c2#2 c3#3"),
        ("lost", ""), ("open 2", ""), ("send c4", "busy"), ("write", "c1#1! c2#2!"), ("write", ""),
        ("reply c2", "deliver"), ("write", "c3#3!"), ("reply c1", "deliver"), ("send c4", "queued"),
        ("write", "c4#4"),
      ]
    ),
    Story(
      "the connection is cut before all requests are resent",
      [
        ("send c1", "queued"), ("send c2", "queued"), ("write", "c1#1 c2#2"), ("lost", ""),
        ("send c3", "queued"),
        ("open 1", ""), ("write", "c1#1!"), ("lost", ""), ("open 100", ""), ("write", "c1#1! c2#2! c3#3"),
      ]
    ),
    Story(
      "the counter of a command that was never sent is not used again",
      [
        ("send c1", "queued"), ("tick 3", ""), ("send c2", "queued"), ("tick 7", "c1 unavailable"),
        ("send c3", "queued"), ("open 100", ""), ("write", "c2#2 c3#3"), ("retained", ">0"),
        ("tick 3", "c2 outcome_unknown"), ("tick 7", "c3 outcome_unknown"), ("reply c2", "late"),
        ("lost", ""),
        ("open 100", ""), ("write", ""), ("retained", "0"),
      ]
    ),
    Story(
      "a deadline between flushes, on an open connection",
      [
        ("send q1", "queued"), ("tick 5", ""), ("send c2", "queued"), ("tick 5", "q1 unavailable"),
        ("write", "c2#1"), ("reply c2", "deliver"), ("retained", "0"),
      ]
    ),
    Story(
      "a slot stays taken until its late reply",
      limit: 1,
      [
        ("send c1", "queued"), ("write", "c1#1"), ("tick 10", "c1 outcome_unknown"), ("send c2", "busy"),
        ("reply c1", "late"), ("send c2", "queued"), ("write", "c2#2"),
      ]
    ),
    Story(
      "a lost connection frees the slots of expired requests",
      limit: 1,
      [
        ("send c1", "queued"), ("write", "c1#1"), ("tick 10", "c1 outcome_unknown"), ("lost", ""),
        ("open 1", ""),
        ("send c2", "queued"), ("write", "c2#2"),
      ]
    ),
    Story(
      "the session ends",
      [
        ("send c1", "queued"), ("send q2", "queued"), ("write", "c1#1 q2"), ("send c3", "queued"),
        ("lost", ""),
        ("ended", "c1 outcome_unknown"), ("send c4", "queued"), ("open 100", ""),
        ("write", "q2! c3#1 c4#2"), ("send c5", "queued"), ("write", "c5#3"),
      ]
    ),
    Story(
      "the session ends twice, with a cut in between",
      [
        ("send c1", "queued"), ("write", "c1#1"), ("lost", ""), ("ended", "c1 outcome_unknown"),
        ("send c2", "queued"), ("open 100", ""), ("write", "c2#1"), ("lost", ""), ("open 100", ""),
        ("write", "c2#1!"), ("lost", ""), ("ended", "c2 outcome_unknown"), ("open 100", ""), ("write", ""),
        ("send c3", "queued"), ("write", "c3#1"),
      ]
    ),
    Story(
      "a command without a cid gets a new counter too",
      [
        ("send c1", "queued"), ("write", "c1#1"), ("send r2", "queued"), ("lost", ""),
        ("ended", "c1 outcome_unknown"), ("open 100", ""), ("write", "r2#1"), ("send r3 7", "queued"),
        ("write", "r3#2@7"), ("lost", ""), ("open 100", ""), ("write", "r2#1! r3#2@7!"),
      ]
    ),
    Story(
      "closing fails pending requests",
      [
        ("send c1", "queued"), ("send q2", "queued"), ("write", "c1#1 q2"), ("send c3", "queued"),
        ("lost", ""),
        ("close", "c1 outcome_unknown, q2 unavailable, c3 unavailable"), ("send c4", "busy"),
        ("retained", "0"),
      ]
    ),
  ]

  @Test(arguments: stories)
  func outcomesFollowTheStory(_ story: Story) {
    let player = Player(limit: story.limit)
    for (line, row) in story.rows.enumerated() {
      let outcome = player.play(row.event)
      #expect(outcome == row.outcome, "\(story.testDescription), row \(line + 1): \(row.event)")
      player.table.checkInvariants()
    }
  }

  @Test
  func refusedRequestKeepsNoSlot() {
    let player = Player(limit: 100)
    for number in 1...3 {
      let outcome = player.table.append(
        .getChannel,
        shard: ShardID(0),
        name: nil,
        tag: UInt64(number),
        counters: &player.counters
      ) {
        $0.writeRepeatingByte(0, count: 2 << 20)
      }
      #expect(outcome == .tooLarge((2 << 20) + FrameHeader.byteCount - 4))
      player.table.checkInvariants()
    }
    #expect(player.play("send c4") == "queued")
    #expect(player.play("write") == "c4#1")
    player.table.checkInvariants()
  }

  /// Its bytes are in the open batch, which must not be written whole.
  @Test func movedRequestIsNotWrittenAfterItsDeadline() {
    let from = Player(limit: 100)
    let to = Player(limit: 100)
    #expect(from.play("send c1") == "queued")
    #expect(from.play("write") == "c1#1")
    #expect(from.play("tick 5") == "")
    to.take("c1", from: from)
    #expect(to.play("send c2") == "queued")
    #expect(to.play("tick 5") == "c1 outcome_unknown")
    to.table.checkInvariants()
    #expect(to.play("write") == "c2#1")
    to.table.checkInvariants()
    #expect(from.table.count == 0)
    from.table.checkInvariants()
  }

  @Test(arguments: TestRun.seeds(20, long: 400))
  func randomEventsKeepTheInvariants(_ seed: UInt64) {
    var generator = SplitMix64(printing: seed, of: "random events of the request table")
    let player = Player(limit: 40)
    var isOpen = true
    var sent = 0
    for _ in 0..<2000 {
      switch generator.below(20) {
      case 0..<8:
        sent += 1
        let issued = generator.oneIn(3) ? " \(sent)" : ""
        let isCommand = generator.oneIn(2)
        let thread = isCommand && generator.oneIn(3) ? " m\(sent)" : ""
        _ = player.play("send \(isCommand ? "c" : "q")\(sent)\(thread)\(issued)")
      case 8..<12: if isOpen { _ = player.play("write") }
      case 12..<17: if isOpen { player.replyToAny(using: &generator) }
      case 17: _ = player.play("tick 1")
      default:
        _ = player.play("lost")
        isOpen = false
        if generator.oneIn(5) { _ = player.play("ended") }
        if generator.oneIn(2) {
          _ = player.play("open \(generator.number(in: 1...60))")
          isOpen = true
        }
      }
      player.table.checkInvariants()
    }
    _ = player.play("lost")
    _ = player.play("close")
    player.table.checkInvariants()
    #expect(player.table.retainedBytes == 0, "seed \(seed)")
    #expect(player.table.count == 0, "seed \(seed)")
  }
}

/// Runs a story's events on a table.
private final class Player {
  var table: RequestTable
  var counters = CommandCounters()
  private var names: [UInt64: String] = [:]
  private var correlations: [String: FrameHeader] = [:]
  /// The requests on the wire, which may be answered.
  private var wire: [String] = []

  init(limit: Int) {
    table = RequestTable(limit: limit, deadlineTicks: 10)
    _ = table.connectionOpened(shardCount: 16, limit: limit, frameLengthMax: 1 << 20)
  }

  func play(_ event: String) -> String {
    let words = event.split(separator: " ").map(String.init)
    switch words[0] {
    case "send":
      let tag = UInt64(words[1].dropFirst())!
      let cid = Array("messaging:general".utf8)
      let kind = words[1].hasPrefix("c") ? FrameKind.markRead : .getChannel
      let issued = words.dropFirst(2).compactMap { UInt32($0) }.first
      let thread = words.dropFirst(2).first { $0.hasPrefix("m") }.map { Array($0.utf8) }
      let outcome =
        if words[1].hasPrefix("r") {
          table.append(
            .redeemTicket,
            shard: ShardID(3),
            name: nil,
            tag: tag,
            issued: issued,
            counters: &counters
          ) { $0.writeInteger(tag) }
        } else if let thread {
          table.append(
            kind,
            shard: nil,
            name: cid.span.bytes,
            tag: tag,
            issued: issued,
            thread: thread.span.bytes,
            counters: &counters
          ) { $0.writeInteger(tag) }
        } else {
          table.append(
            kind,
            shard: nil,
            name: cid.span.bytes,
            tag: tag,
            issued: issued,
            counters: &counters
          ) { $0.writeInteger(tag) }
        }
      if outcome == .queued { names[tag] = words[1] }
      return "\(outcome)"
    case "write":
      return table.nextWrite().map { describe($0) } ?? ""
    case "reply":
      switch table.replied(correlations[words[1]]!) {
      case .deliver(let tag): return names[tag] == words[1] ? "deliver" : "delivered to \(tag)"
      case .late: return "late"
      case .unmatched: return "unmatched"
      }
    case "lost":
      table.connectionLost()
      wire = []
      return ""
    case "open":
      return describe(table.connectionOpened(shardCount: 16, limit: Int(words[1])!, frameLengthMax: 1 << 20))
    case "ended":
      counters = CommandCounters()
      return describe(table.endSession(counters: &counters))
    case "close": return describe(table.close())
    case "tick": return describe((0..<Int(words[1])!).flatMap { _ in table.tick() })
    case "retained": return table.retainedBytes > 0 ? ">0" : "0"
    default: return "unknown event: \(event)"
    }
  }

  /// Move all requests of another table to this one.
  func take(_ name: String, from other: Player) {
    names[UInt64(name.dropFirst())!] = name
    for request in other.table.removeAll(where: { _ in true }) { #expect(table.append(request) == nil) }
  }

  func replyToAny(using generator: inout SplitMix64) {
    guard !wire.isEmpty else { return }
    let name = wire.remove(at: generator.below(wire.count))
    #expect(["deliver", "late"].contains(play("reply \(name)")), "\(name)")
  }

  private func describe(_ failures: [RequestTable.FailedRequest]) -> String {
    failures.map { entry in
      "\(names[entry.tag]!) \(entry.failure == .outcomeUnknown ? "outcome_unknown" : "\(entry.failure)")"
    }.joined(separator: ", ")
  }

  private func describe(_ bytes: ByteBuffer) -> String {
    var bytes = bytes
    var words: [String] = []
    while case .frame(let header, let count)? = try? FrameDecoder().next(bytes.readableBytesSpan, at: 0) {
      bytes.moveReaderIndex(forwardBy: FrameHeader.byteCount)
      let payload = bytes.readSlice(length: count)!
      var reader = FieldReader(payload.readableBytesSpan)
      if header.kind != .redeemTicket { _ = try! reader.string() }
      let counter = header.kind.isCommand ? try! reader.varint() : nil
      let fields = try! reader.raw(8).withUnsafeBytes { Array($0) }
      let name = names[tag(of: fields)]!
      var word = name + (counter.map { "#\($0)" } ?? "")
      if header.flags.contains(.thread) { word += "/\(try! reader.text())" }
      if header.flags.contains(.issued) {
        let issued = try! reader.raw(FrameHeader.issuedByteCount).withUnsafeBytes { Array($0) }
        word += "@\(issued.reduce(UInt32(0)) { $0 << 8 | UInt32($1) })"
      }
      try! reader.end()
      correlations[name] = header.reply
      wire.append(name)
      words.append(word + (header.flags.contains(.resend) ? "!" : ""))
    }
    return words.joined(separator: " ")
  }
}

/// The generations of slots, which tell a late reply from the reply to a slot's next request.
struct RequestSlotsTests {
  /// Generations of one slot, before they repeat.
  private static let generations = Int(UInt16.max)

  @Test func generationWrapsToOneAndNeverToZero() throws {
    var slots = RequestSlots()
    var last: UInt32?
    for use in 0..<(2 * Self.generations + 2) {
      let correlation = slots.nextCorrelation()
      let index = slots.append(RequestSlot())
      // 65,535 rounds: one expectation for each takes too long.
      let isRight =
        index == 0 && correlation == UInt32(use % Self.generations + 1) << 16
        && slots.find(correlation)?.index == index && last.map { slots.find($0) == nil } ?? true
      try #require(isRight, "use \(use): \(correlation)")
      // Every third request is dropped, and its slot freed by the late reply.
      if use.isMultiple(of: 3) {
        slots.abandon(index, of: ShardID(0))
        try #require(slots.find(correlation)?.slot.state == .abandoned)
        slots.removeAbandoned(index)
      } else {
        slots.remove(index)
      }
      last = correlation
    }
    #expect(slots.usedCount == 0)
    slots.checkInvariants { _, _ in Issue.record("no request is left") }
  }

  @Test func requestKeepsItsCorrelationWhileAnotherSlotWraps() throws {
    var slots = RequestSlots()
    let kept = slots.nextCorrelation()
    let keptIndex = slots.append(RequestSlot())
    for use in 0..<(Self.generations + 1) {
      let correlation = slots.nextCorrelation()
      let index = slots.append(RequestSlot())
      let isRight = index != keptIndex && correlation != kept && slots.find(kept)?.index == keptIndex
      try #require(isRight, "use \(use): \(correlation)")
      slots.remove(index)
    }
    #expect(slots.count == 1)
    slots.checkInvariants { index, _ in #expect(index == keptIndex) }
  }
}
