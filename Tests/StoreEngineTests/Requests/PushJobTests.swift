import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import StoreTestSupport
import TestSupport
import Testing

/// Push jobs of a shard (Proto/frames.md, 0x67 to 0x69).
@Suite("Push jobs of a shard", .computing)
struct PushJobTests {
  /// A channel of ann, bob and carl, with the message m1.
  private static func start(
    _ storage: MemoryStorage = MemoryStorage()
  ) throws -> (harness: EngineHarness, gateway: Gateway) {
    let harness = try EngineHarness(storage)
    let gateway = harness.connect()
    gateway.put("team:a", ["ann", "bob", "carl"])
    gateway.post("team:a", "m1", by: "ann")
    _ = try FeedTests.replies(harness, gateway)
    return (harness, gateway)
  }

  @Test("a job is given to one worker, and no more once it is done")
  func jobIsGivenOnce() throws {
    let (harness, gateway) = try Self.start()
    gateway.putJob("team:a", "m1", key: 7, users: ["bob"])
    gateway.putJob("team:a", "m1", key: 8, users: ["ann", "bob"])
    gateway.claimJobs()
    gateway.claimJobs()
    let first = ["job for 1", "job for 2", #"jobs ["7 for [\"bob\"]", "8 for [\"ann\", \"bob\"]"]"#, "jobs []"]
    #expect(try FeedTests.replies(harness, gateway) == first)
    gateway.updateJobs([7, 9], done: true)
    #expect(try FeedTests.replies(harness, gateway) == ["updated, unknown [9]"])
    harness.advance(10_000)
    gateway.claimJobs()
    #expect(try FeedTests.replies(harness, gateway) == [#"jobs ["8 for [\"ann\", \"bob\"]"]"#])
    gateway.updateJobs([7, 8], done: true)
    #expect(try FeedTests.replies(harness, gateway) == ["updated, unknown [7]"])
    #expect(harness.loop.gauges.pushJobs == 0)
  }

  @Test("a job is acknowledged, and given out, once it is durable")
  func jobIsDurable() throws {
    let (harness, gateway) = try Self.start()
    gateway.putJob("team:a", "m1", key: 7, users: ["bob"])
    gateway.claimJobs()
    harness.loop.endTurn()
    #expect(gateway.take() == [])
    try harness.persistAll()
    #expect(gateway.take().count == 2)
  }

  @Test("a worker renews its claim, and gives jobs back")
  func claimsAreRenewed() throws {
    let (harness, gateway) = try Self.start()
    gateway.putJob("team:a", "m1", key: 7, users: ["bob"])
    gateway.claimJobs(milliseconds: 10_000)
    _ = try FeedTests.replies(harness, gateway)
    harness.advance(8_000)
    gateway.updateJobs([7], milliseconds: 10_000)
    harness.advance(8_000)
    gateway.claimJobs()
    #expect(try FeedTests.replies(harness, gateway).last == "jobs []")
    gateway.updateJobs([7], milliseconds: 0)
    gateway.claimJobs()
    #expect(try FeedTests.replies(harness, gateway) == ["updated, unknown []", #"jobs ["7 for [\"bob\"]"]"#])
  }

  @Test("a worker whose lease has ended neither renews nor gives back the job of another one")
  func claimsOfOthersStay() throws {
    let (harness, gateway) = try Self.start()
    let other = harness.connect(session: 2)
    gateway.putJob("team:a", "m1", key: 7, users: ["bob"])
    gateway.claimJobs(milliseconds: 10_000)
    _ = try FeedTests.replies(harness, gateway)
    harness.advance(10_000)
    other.claimJobs(milliseconds: 10_000)
    #expect(try FeedTests.replies(harness, other) == [#"jobs ["7 for [\"bob\"]"]"#])
    gateway.updateJobs([7], milliseconds: 10_000)
    gateway.updateJobs([7], milliseconds: 0)
    gateway.claimJobs()
    let replies = ["updated, unknown [7]", "updated, unknown [7]", "jobs []"]
    #expect(try FeedTests.replies(harness, gateway) == replies)
    other.updateJobs([7], milliseconds: 10_000)
    #expect(try FeedTests.replies(harness, other) == ["updated, unknown []"])
    // Who has sent a job may say so.
    gateway.updateJobs([7], done: true)
    #expect(try FeedTests.replies(harness, gateway) == ["updated, unknown []"])
  }

  @Test("an assignment that is older than a user's settings removes no devices")
  func oldAssignmentsRemoveNothing() throws {
    let (harness, gateway) = try Self.start()
    gateway.assign(user: "bob", version: 1, flags: 4)
    gateway.assign(user: "bob", version: 2, flags: 8)
    gateway.putJob("team:a", "m1", key: 7, users: ["bob"])
    gateway.assign(user: "bob", version: 1, flags: 4)
    gateway.claimJobs()
    #expect(try FeedTests.replies(harness, gateway).last == #"jobs ["7 for [\"bob\"]"]"#)
  }

  @Test("a claim has at most its number of jobs and its size, oldest jobs first")
  func claimsAreLimited() throws {
    let (harness, gateway) = try Self.start()
    for key in 1...5 {
      gateway.putJob("team:a", "m1", key: UInt64(6 - key), users: ["bob"])
      harness.advance(1)
    }
    gateway.claimJobs(limit: 2)
    gateway.claimJobs(bytes: 1)
    gateway.claimJobs()
    let replies = try FeedTests.replies(harness, gateway).suffix(3)
    #expect(
      Array(replies) == [
        #"jobs ["5 for [\"bob\"]", "4 for [\"bob\"]"] and more"#, #"jobs ["3 for [\"bob\"]"] and more"#,
        #"jobs ["2 for [\"bob\"]", "1 for [\"bob\"]"]"#,
      ]
    )
  }

  @Test("after a restart, jobs are given out when their workers had time to renew")
  func jobsSurviveARestart() throws {
    let storage = MemoryStorage()
    var (harness, gateway) = try Self.start(storage)
    for key in 1...3 { gateway.putJob("team:a", "m1", key: UInt64(key), users: ["bob"]) }
    gateway.updateJobs([2], done: true)
    _ = try FeedTests.replies(harness, gateway)
    try harness.writePages()
    harness.advance(1)
    gateway.putJob("team:a", "m1", key: 4, users: ["ann"])
    _ = try FeedTests.replies(harness, gateway)
    harness = try EngineHarness(storage)
    gateway = harness.connect(session: 2)
    #expect(harness.loop.gauges.pushJobs == 3)
    gateway.claimJobs()
    gateway.updateJobs([1], milliseconds: 600_000)
    gateway.putJob("team:a", "m1", key: 5, users: ["bob"])
    gateway.claimJobs(milliseconds: 600_000)
    try harness.completeLoads()
    gateway.claimJobs(milliseconds: 600_000)
    let replies = try FeedTests.replies(harness, gateway)
    #expect(replies.filter { $0 != "jobs []" } == ["updated, unknown []", "job for 1", #"jobs ["5 for [\"bob\"]"]"#])
    // The pages were written some time after the clock's start.
    harness.advance(300_000)
    gateway.claimJobs()
    let later = try FeedTests.replies(harness, gateway)
    #expect(later == [#"jobs ["3 for [\"bob\"]", "4 for [\"ann\"]"]"#])
  }

  @Test("a resent job is there once, and has the same answer")
  func resentJobIsThereOnce() throws {
    let (harness, gateway) = try Self.start()
    gateway.putJob("team:a", "m1", key: 7, users: ["bob"], counter: 100)
    gateway.putJob("team:a", "m1", key: 7, users: ["bob"], counter: 100)
    #expect(try FeedTests.replies(harness, gateway) == ["job for 1", "job for 1"])
    gateway.counter = 100
    gateway.updateJobs([7], done: true)
    gateway.putJob("team:a", "m1", key: 7, users: ["bob"], counter: 100)
    #expect(try FeedTests.replies(harness, gateway).last == "job for 1")
    #expect(harness.loop.gauges.pushJobs == 0)
  }

  @Test("what is refused")
  func whatIsRefused() throws {
    let (harness, gateway) = try Self.start()
    gateway.post("team:a", "m2", by: "ann")
    gateway.deleteMessage("team:a", "m2")
    gateway.putJob("team:b", "m1", key: 1, users: ["bob"])
    gateway.putJob("team:a", "m0", key: 1, users: ["bob"])
    gateway.putJob("team:a", "m2", key: 1, users: ["bob"])
    gateway.putJob("team:a", "m1", key: 1, users: ["dora"])
    gateway.putJob("team:a", "m1", key: 1, users: [])
    gateway.putJob("team:a", "m1", key: 1, users: ["a\u{1}"])
    gateway.putJob("team:a", "m1", key: 1, users: ["bob"], milliseconds: 0)
    gateway.putJob("team:a", "m1", key: 1, users: ["bob"], milliseconds: 2_419_200_001)
    gateway.claimJobs(milliseconds: 600_001)
    gateway.claimJobs(limit: 0)
    gateway.updateJobs([], milliseconds: 600_001)
    let fields = Array(repeating: "invalid_field", count: 7)
    try harness.completeLoads()
    let replies = try FeedTests.replies(harness, gateway).filter { $0 != "message 2 new" && $0 != "deleted 2" }
    let others = ["channel_not_found", "message_not_found", "message_deleted", "not_a_member"]
    #expect(replies.sorted() == (fields + others).sorted())
  }

  @Test("a shard has room for 16 MiB of jobs")
  func roomIsBounded() throws {
    let (harness, gateway) = try Self.start()
    var answers: [String] = []
    for key in 1...400 {
      gateway.putJob("team:a", "m1", key: UInt64(key), users: ["bob"], content: String(repeating: "x", count: 48_000))
      if key % 50 == 0 { answers += try FeedTests.replies(harness, gateway) }
    }
    #expect(answers.count { $0 == "job for 1" } == 16 << 20 / (48_000 + 128 + 3 + 12 + 80))
    #expect(answers.last == "busy")
    gateway.updateJobs([1], done: true)
    gateway.putJob("team:a", "m1", key: 500, users: ["bob"])
    #expect(try FeedTests.replies(harness, gateway) == ["updated, unknown []", "job for 1"])
  }

  @Test("members who have left, and others who are none, are left out of a job")
  func onlyMembersAreKept() throws {
    let (harness, gateway) = try Self.start()
    gateway.change("team:a", remove: ["bob"])
    gateway.putJob("team:a", "m1", key: 7, users: ["ann", "bob", "dora"])
    gateway.claimJobs()
    #expect(try FeedTests.replies(harness, gateway).suffix(2) == ["job for 1", #"jobs ["7 for [\"ann\"]"]"#])
  }

  @Test("a reply has at most 512 KiB of jobs, and fits a frame")
  func repliesFitFrames() throws {
    let (harness, gateway) = try Self.start()
    for key in 1...30 {
      gateway.putJob("team:a", "m1", key: UInt64(key), users: ["bob"], content: String(repeating: "x", count: 48_000))
    }
    _ = try FeedTests.replies(harness, gateway)
    gateway.claimJobs(bytes: 4 << 20)
    #expect(try FeedTests.replies(harness, gateway).last?.hasSuffix("and more") == true)
    #expect((400_000..<600_000).contains(gateway.lastPayload.readableBytes))
  }

  @Test("jobs that nobody has sent expire")
  func jobsExpire() throws {
    let (harness, gateway) = try Self.start()
    gateway.putJob("team:a", "m1", key: 1, users: ["bob"], milliseconds: 60_000)
    gateway.putJob("team:a", "m1", key: 2, users: ["bob"], milliseconds: 120_000)
    _ = try FeedTests.replies(harness, gateway)
    harness.advance(60_000)
    harness.loop.tick()
    #expect(harness.loop.gauges.pushJobs == 1)
    gateway.claimJobs()
    #expect(try FeedTests.replies(harness, gateway) == [#"jobs ["2 for [\"bob\"]"]"#])
    harness.advance(60_000)
    harness.loop.tick()
    #expect(harness.loop.gauges.pushJobs == 0)
  }

  @Test("erasing a user removes their devices from all jobs, also from those that are claimed")
  func erasureRemovesDevices() throws {
    let storage = MemoryStorage()
    let (harness, gateway) = try Self.start(storage)
    gateway.putJob("team:a", "m1", key: 1, users: ["bob"])
    gateway.putJob("team:a", "m1", key: 2, users: ["ann", "bob"])
    gateway.claimJobs()
    _ = try FeedTests.replies(harness, gateway)
    gateway.assign(user: "bob", version: 1, flags: 4)
    harness.advance(1)
    gateway.putJob("team:a", "m1", key: 3, users: ["bob"])
    gateway.putJob("team:a", "m1", key: 4, users: ["bob", "carl"])
    gateway.updateJobs([1, 2], milliseconds: 10_000)
    #expect(
      try FeedTests.replies(harness, gateway).suffix(3) == ["user_erased", "job for 1", "updated, unknown [1]"]
    )
    gateway.claimJobs()
    #expect(try FeedTests.replies(harness, gateway) == [#"jobs ["4 for [\"carl\"]"]"#])
    harness.advance(10_000)
    gateway.claimJobs()
    #expect(
      try FeedTests.replies(harness, gateway) == [#"jobs ["2 for [\"ann\"]", "4 for [\"carl\"]"]"#]
    )
    gateway.erase("team:a", "bob")
    gateway.assign(user: "bob", version: 2, flags: 8)
    _ = try FeedTests.replies(harness, gateway)
    try harness.writePages()
    try harness.purgeStorage()
    #expect(try harness.traces("bob's device") == [])
  }

  @Test("pages of jobs are used again")
  func pagesAreUsedAgain() throws {
    let storage = MemoryStorage()
    let (harness, gateway) = try Self.start(storage)
    for round in 0..<20 {
      for key in 1...50 { gateway.putJob("team:a", "m1", key: UInt64(round * 50 + key), users: ["bob"]) }
      _ = try FeedTests.replies(harness, gateway)
      try harness.writePages()
      gateway.updateJobs((1...50).map { UInt64(round * 50 + $0) }, done: true)
      _ = try FeedTests.replies(harness, gateway)
    }
    try harness.writePages()
    let pages = storage.data.recover(ShardID(0)).pages.filter { if case .pushJob = $0.page { true } else { false } }
    #expect(pages.count == 50)
  }
}

/// The requests about push jobs.
extension Gateway {
  func putJob(
    _ cid: String,
    _ message: String,
    key: UInt64,
    users: [String],
    milliseconds: UInt64 = 3_600_000,
    content: String = "{}",
    counter: UInt64? = nil
  ) {
    let request = PutPushJobRequest(
      message: Array(message.utf8),
      key: key,
      milliseconds: milliseconds,
      content: Array(content.utf8),
      users: users.map { PushJob.User(id: Array($0.utf8), devices: Array("\($0)'s device".utf8)) }
    )
    send(.putPushJob, cid, counter: counter) { request.write(into: &$0) }
  }

  func claimJobs(milliseconds: UInt64 = 10_000, limit: UInt64 = 100, bytes: UInt64 = 1 << 20) {
    let request = ClaimPushJobsRequest(milliseconds: milliseconds, limit: limit, byteCountMax: bytes)
    send(.claimPushJobs, nil) { request.write(into: &$0) }
  }

  func updateJobs(_ keys: [UInt64], done: Bool = false, milliseconds: UInt64 = 0) {
    let request = UpdatePushJobsRequest(
      isDone: done,
      milliseconds: milliseconds,
      jobs: keys.map { UpdatePushJobsRequest.Job(key: $0, claim: claims[$0] ?? 0) }
    )
    send(.updatePushJobs, nil) { request.write(into: &$0) }
  }
}
