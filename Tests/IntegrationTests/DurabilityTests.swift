import Foundation
import LocalStack
import Operations
import Testing

extension RealProcesses {
  /// An acknowledged command is durable.
  @Suite struct Durability {
    /// The store is killed under load, twenty times in a row; a foreign client keeps its own record of what was
    /// acknowledged, and after each time reads everything back.
    @Test func acknowledgedMarksSurviveKills() async throws {
      try await Pair.with { pair in
        let channels = (0..<5).map { "messaging:kill-\($0)" }
        let last = try await pair.expectKillsLoseNothing(20, channels: channels, messages: 4_000, users: 4)
        print("acknowledged over 20 kills: \(last), none lost")
      }
    }

    /// A killed process leaves its page cache behind, so this shows the sync itself: seen from the kernel, between the
    /// arrival of each mark and the departure of its reply a sync has begun and returned.
    @Test func noReplyLeavesBeforeItsSync() async throws {
      try await Pair.with { pair in
        try await pair.makeChannels(["messaging:sync"], messages: 60, users: 1)
        let trace = pair.directory + "/trace"
        let strace = try await pair.traceStore(into: trace)
        try await Task.sleep(for: .seconds(1))
        for message in 1...50 {
          try await pair.expect(
            200,
            "POST",
            "/v1/channels/messaging:sync/read?message_id=m\(message)",
            token: pair.token("user-0")
          )
        }
        await strace.stop()
        let events = SyncTrace.events(
          try String(contentsOfFile: trace, encoding: .utf8),
          port: pair.stack.plan.store.port
        )
        let (covered, bare) = SyncTrace.replies(events)
        #expect(covered >= 50, "\(covered) replies were seen behind a sync, of 50 marks")
        #expect(bare == 0, "\(bare) replies left without a sync since their request")
      }
    }
  }
}

/// What strace saw of one store: requests that came in, replies that left, and syncs.
enum SyncTrace {
  enum Event: Equatable {
    /// Bytes came in from a gateway.
    case request
    /// A write to a gateway began.
    case reply
    case syncBegan
    case syncReturned
  }

  /// A gateway that has nothing to say pings, and is answered at once: a header and 8 bytes each way (Proto/frames.md).
  /// Nothing else that this test sends is as short.
  private static let pingByteCount = 20
  /// Every few seconds a gateway asks each of a new store's 16 shards what is not settled: a header each, and two empty
  /// lists behind it in each reply. Nothing is written for that.
  private static let settlingByteCounts = (asked: 16 * 12, answered: 16 * 14)
  /// Every second it asks one shard which tokens are revoked: of a list that is empty two numbers each way, and two.
  private static let tokenByteCounts = (asked: 12 + 2, answered: 12 + 4)
  private static let answered = [pingByteCount, settlingByteCounts.answered, tokenByteCounts.answered]
  private static let asked = [pingByteCount, settlingByteCounts.asked, tokenByteCounts.asked]

  /// The events of a trace in the order in which they happened; a gateway's socket is one whose own end is the store's
  /// `port`.
  static func events(_ trace: String, port: Int) -> [Event] {
    var events: [Event] = []
    // A call that another thread interrupted stands on two lines; what counts of a sync is where it returned, of a
    // write where it began.
    var pendingReads: Set<Substring> = []
    for line in trace.split(separator: "\n") {
      guard let space = line.firstIndex(of: " ") else { continue }
      let thread = line[..<space]
      let call = line[space...].drop { $0 == " " }
      let isGateway = call.contains("127.0.0.1:\(port)->")
      if call.hasPrefix("fdatasync(") || call.hasPrefix("fsync(") {
        events.append(.syncBegan)
        if call.hasSuffix("= 0") { events.append(.syncReturned) }
      } else if call.hasPrefix("<... fdatasync resumed>") || call.hasPrefix("<... fsync resumed>") {
        if call.hasSuffix("= 0") { events.append(.syncReturned) }
      } else if ["write(", "writev(", "sendto(", "sendmsg("].contains(where: call.hasPrefix), isGateway {
        let isOwn = answered.contains { call.contains("\"\"..., \($0))") }
        if !isOwn { events.append(.reply) }
      } else if ["read(", "readv(", "recvfrom(", "recvmsg("].contains(where: call.hasPrefix), isGateway {
        if call.contains("<unfinished") {
          pendingReads.insert(thread)
        } else if gave(call) {
          events.append(.request)
        }
      } else if call.hasPrefix("<... re"), pendingReads.remove(thread) != nil, gave(call) {
        events.append(.request)
      }
    }
    return events
  }

  /// Marks come one at a time, so each reply answers the last request: a sync has to have begun and returned since.
  static func replies(_ events: [Event]) -> (covered: Int, bare: Int) {
    var covered = 0
    var bare = 0
    var isAsked = false
    var began = false
    var isSynced = false
    for event in events {
      switch event {
      case .request:
        isAsked = true
        began = false
        isSynced = false
      case .syncBegan: began = isAsked
      case .syncReturned: if began { isSynced = true }
      case .reply:
        guard isAsked else { continue }
        if isSynced { covered += 1 } else { bare += 1 }
        isAsked = false
      }
    }
    return (covered, bare)
  }

  private static func gave(_ call: Substring) -> Bool {
    guard let equals = call.range(of: "= ", options: .backwards) else { return false }
    let count = Int(call[equals.upperBound...].prefix { $0.isNumber }) ?? 0
    return count > 0 && !asked.contains(count)
  }
}

/// The reading of traces is itself tested: it must see a reply that leaves too early.
@Suite struct SyncTraceTests {
  private let line = "7 write(12<TCP:[127.0.0.1:7410->127.0.0.1:5000]>, \"\"..., 60) = 60"
  private let read = "7 read(12<TCP:[127.0.0.1:7410->127.0.0.1:5000]>, \"\"..., 4096) = 70"

  @Test func aReplyBehindItsSyncIsCovered() {
    let trace = [read, "9 fdatasync(20</data/log> <unfinished ...>", "9 <... fdatasync resumed>) = 0", line]
    let events = SyncTrace.events(trace.joined(separator: "\n"), port: 7410)
    #expect(events == [.request, .syncBegan, .syncReturned, .reply])
    #expect(SyncTrace.replies(events) == (1, 0))
  }

  @Test func whatIsNotSettledIsAskedWithoutASync() {
    let asked = "7 read(12<TCP:[127.0.0.1:7410->127.0.0.1:5000]>, \"\"..., 4096) = 192"
    let answered = "7 write(12<TCP:[127.0.0.1:7410->127.0.0.1:5000]>, \"\"..., 224) = 224"
    #expect(SyncTrace.events([asked, answered].joined(separator: "\n"), port: 7410).isEmpty)
  }

  @Test func pingsAreNoReplies() {
    let ping = "7 read(12<TCP:[127.0.0.1:7410->127.0.0.1:5000]>, \"\"..., 4096) = 20"
    let pong = "7 write(12<TCP:[127.0.0.1:7410->127.0.0.1:5000]>, \"\"..., 20) = 20"
    #expect(SyncTrace.events([ping, pong].joined(separator: "\n"), port: 7410).isEmpty)
  }

  @Test func aReplyBeforeItsSyncIsSeen() {
    let early = [read, "9 fdatasync(20</data/log> <unfinished ...>", line, "9 <... fdatasync resumed>) = 0"]
    #expect(SyncTrace.replies(SyncTrace.events(early.joined(separator: "\n"), port: 7410)) == (0, 1))
    let stale = ["9 fdatasync(20</data/log> <unfinished ...>", read, "9 <... fdatasync resumed>) = 0", line]
    #expect(SyncTrace.replies(SyncTrace.events(stale.joined(separator: "\n"), port: 7410)) == (0, 1))
  }
}
