import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

@testable import StoreClient

/// Deadlines, pings, draining, other addresses, ended sessions. Time is the embedded loop's.
struct ConnectionLifeTests {
  // MARK: - Deadlines

  @Test func whatWasNeverSentIsUnavailableAfterItsDeadline() {
    let world = ClientWorld()
    world.down = [0]
    world.client.start()
    world.command(1)
    world.query(2)
    world.client.flush()
    world.advance(.milliseconds(4900))
    #expect(world.recorder.failures.isEmpty)
    world.advance(.milliseconds(400))
    #expect(world.recorder.failures == [1: .unavailable, 2: .unavailable])
    #expect(world.recorder.events.last == .complete)
    // The counter that was never sent is not missing.
    world.command(3)
    world.down = []
    world.advance(.seconds(2))
    #expect(world.store.requests.map(\.counter) == [1])
    #expect(world.recorder.replies == [3])
  }

  @Test func whatWasSentAndNotAnswered() {
    let world = ClientWorld()
    world.store.holdsAnswers = true
    world.open()
    world.command(1)
    world.query(2)
    world.flush()
    world.advance(.milliseconds(5300))
    #expect(world.recorder.failures == [1: .outcomeUnknown, 2: .unavailable])
    // Late answers are nobody's, and free the window.
    for request in world.store.waiting { world.connection!.answer(request) }
    world.pump()
    #expect(world.recorder.replies.isEmpty)
    #expect(world.client.isReady)
    #expect(world.client.stats.repliesLate == 2)
    #expect(world.client.stats.inFlight == 0)
    #expect(world.client.stats.retainedBytes == 0)
  }

  @Test func whatTimedOutIsNotSentAgain() {
    let world = ClientWorld()
    world.store.holdsAnswers = true
    world.open()
    world.command(1)
    world.flush()
    world.advance(.seconds(3))
    world.command(2)
    world.flush()
    world.advance(.milliseconds(2500))
    #expect(world.recorder.failures == [1: .outcomeUnknown])
    world.store.holdsAnswers = false
    world.cut()
    world.advance(.milliseconds(100))
    #expect(world.recorder.replies == [2])
    #expect(world.store.requests.map(\.counter) == [1, 2, 2])
  }

  @Test func unansweredRequestsHoldTheirPlaceInTheWindow() {
    let world = ClientWorld()
    world.store.window = 4
    world.store.holdsAnswers = true
    world.open()
    for token in 1...4 { world.command(UInt64(token)) }
    world.flush()
    world.advance(.milliseconds(5300))
    #expect(world.recorder.failures.count == 4)
    // The store still owes four answers: it would refuse a fifth request as busy.
    #expect(!world.command(5))
    world.connection!.answer(world.store.waiting[0])
    world.pump()
    #expect(world.command(6))
    world.flush()
    #expect(world.store.requests.count == 5)
    #expect(!world.command(7))
  }

  // MARK: - Pings

  @Test func anIdleStoreIsPingedAndASilentOneLeft() {
    let world = ClientWorld()
    world.open()
    world.advance(.milliseconds(4900))
    #expect(world.store.pings == 0)
    world.advance(.milliseconds(300))
    #expect(world.store.pings == 1)
    world.advance(.seconds(20))
    #expect(world.store.pings >= 4)
    #expect(world.client.isReady)
    #expect(world.client.cutOffSince == nil)
    #expect(world.attempts.count == 1)

    world.store.isSilent = true
    let silent = (world.loop as any EventLoop).now
    var cutOffSince: NIODeadline?
    world.recorder.onEvent = { if $0 == .ready(false) { cutOffSince = world.client.cutOffSince } }
    world.advance(.milliseconds(10_500))
    #expect(world.attempts.count > 1)
    #expect(world.recorder.events.contains(.ready(false)))
    // Not since it was given up: nothing has reached it for some seconds then.
    #expect(cutOffSince.map { $0 <= silent } == true)
  }

  @Test func aLostStoreIsCutOffFromThenOn() {
    let world = ClientWorld()
    world.open()
    world.advance(.seconds(3))
    #expect(world.client.cutOffSince == nil)
    world.down = [0]
    let lost = (world.loop as any EventLoop).now
    world.cut()
    world.advance(.seconds(2))
    #expect(world.client.cutOffSince == lost)
    world.down = []
    world.advance(.seconds(2))
    #expect(world.client.isReady && world.client.cutOffSince == nil)
  }

  @Test func aStoresPingIsAnswered() {
    let world = ClientWorld()
    world.open()
    var bytes = ByteBuffer()
    bytes.writeFrame(FrameHeader(.ping, correlation: 77)) { $0.writeInteger(UInt64(0x0102_0304_0506_0708)) }
    world.deliver(bytes)
    world.pump()
    let last = world.connection!.frames.last
    #expect(last == FrameHeader(.pong, correlation: 77))
  }

  // MARK: - Draining

  @Test func aDrainingStoreGetsNothingNew() {
    let world = ClientWorld(stores: [FakeStore(), FakeStore()])
    world.store.holdsAnswers = true
    world.open()
    world.command(1)
    world.flush()
    var bytes = ByteBuffer()
    bytes.writeFrame(FrameHeader(.drain)) { _ in }
    world.deliver(bytes)
    #expect(!world.client.isReady)
    world.command(2)
    world.flush()
    #expect(world.store.requests.count == 1)
    #expect(world.attempts == [0])
    world.connection!.answer(world.store.waiting[0])
    world.pump()
    #expect(world.recorder.replies == [1])
    // All is answered: it goes on at the other address, in the same session.
    world.advance(.milliseconds(100))
    #expect(world.attempts == [0, 1])
    #expect(world.recorder.replies == [1, 2])
    #expect(world.stores[1].requests.map(\.counter) == [2])
    #expect(world.stores[1].hellos[0].session == world.store.hellos[0].session)
  }

  @Test func aDrainingStoreThatClosesLeavesTheRestToTheNextConnection() {
    let world = ClientWorld()
    world.store.holdsAnswers = true
    world.open()
    world.command(1)
    world.flush()
    var bytes = ByteBuffer()
    bytes.writeFrame(FrameHeader(.drain)) { _ in }
    world.deliver(bytes)
    world.command(2)
    world.flush()
    world.store.holdsAnswers = false
    world.connection!.close()
    world.pump()
    world.advance(.milliseconds(100))
    #expect(world.recorder.replies == [1, 2])
    #expect(world.store.requests.map(\.isResend) == [false, true, false])
  }

  // MARK: - Addresses and waits

  @Test func addressesAreTriedInTurn() {
    let world = ClientWorld(stores: [FakeStore(), FakeStore(), FakeStore()])
    world.down = [0, 1]
    world.command(1)
    world.client.start()
    world.advance(.milliseconds(200))
    #expect(world.attempts == [0, 1, 2])
    #expect(world.recorder.replies == [1])
    // A lost connection is first opened where it was.
    world.cut()
    world.advance(.milliseconds(200))
    #expect(world.attempts == [0, 1, 2, 2])
    // And then elsewhere.
    world.down = [1, 2]
    world.cut()
    world.command(2)
    world.client.flush()
    world.advance(.milliseconds(400))
    #expect(world.attempts == [0, 1, 2, 2, 2, 0])
    #expect(world.recorder.replies == [1, 2])
  }

  @Test func waitsDoubleUpToTheLongest() {
    var link = StoreLink(StoreClientConfiguration(addresses: [.init(host: "store", port: 1)]))
    _ = link.start()
    var waits: [Int64] = []
    for _ in 0..<9 {
      guard case .retry(let wait, false) = link.lost(.connectFailed, jitter: 0) else {
        Issue.record("no retry")
        return
      }
      waits.append(wait.nanoseconds / 1_000_000)
      #expect(link.lost(.connectFailed, jitter: 0) == .nothing)
      #expect(link.waited() == .connect(addressIndex: 0))
      #expect(link.waited() == .nothing)
    }
    #expect(waits == [20, 40, 80, 160, 320, 640, 1000, 1000, 1000])
    #expect(link.lost(.connectFailed, jitter: 0.5) == .retry(after: .milliseconds(750), sessionEnded: false))
  }

  /// Only an answered request shows that a store serves; one that opens and falls at once is waited for
  /// longer and longer.
  @Test func aStoreThatOpensAndFallsIsNotHammered() {
    let world = ClientWorld()
    world.open()
    for _ in 0..<200 {
      world.advance(.milliseconds(50))
      world.cut()
    }
    // 10 seconds: 20 + 40 + … + 640 ms, then one each second at most twice as often.
    #expect(world.attempts.count < 30)
  }

  @Test func readinessIsToldWhenItChanges() {
    let world = ClientWorld()
    world.open()
    world.cut()
    world.advance(.milliseconds(100))
    let changes = world.recorder.events.filter { if case .ready = $0 { true } else { false } }
    #expect(changes == [.ready(true), .ready(false), .ready(true)])
  }

  // MARK: - Ended sessions

  @Test func anExpiredSessionGivesUpSentCommandsOnly() {
    let world = ClientWorld()
    world.store.holdsAnswers = true
    world.open()
    world.command(1)
    world.query(2)
    world.command(3)
    world.flush()
    world.cut()
    world.command(4)
    world.query(5)
    world.client.flush()
    world.store.forgetsSessions = true
    world.store.holdsAnswers = false
    world.advance(.milliseconds(300))
    #expect(world.recorder.failures == [1: .outcomeUnknown, 3: .outcomeUnknown])
    #expect(world.recorder.replies == [2, 4, 5])
    let hellos = world.store.hellos
    #expect(hellos.count == 3)
    #expect(hellos[1].session == hellos[0].session)
    #expect(hellos[2].session != hellos[0].session)
    #expect(hellos[2].sessionAgeMilliseconds == nil)
    // The new session's counters begin at 1.
    #expect(world.store.requests.suffix(3).map(\.counter) == [nil, 1, nil])
  }

  /// Another data directory at the same address knows nothing of what the first has taken up.
  @Test func anotherStoreEndsTheSession() {
    let world = ClientWorld(stores: [FakeStore(), FakeStore()])
    world.stores[1].identity = SessionID(high: 2, low: 2)
    world.stores[1].shardCount = 5
    world.store.holdsAnswers = true
    world.open()
    world.command(1, cid: "messaging:a")
    world.query(2, cid: "messaging:b")
    world.flush()
    world.down = [0]
    world.cut()
    world.command(3, cid: "messaging:c")
    world.client.flush()
    world.advance(.seconds(2))
    #expect(world.recorder.failures == [1: .outcomeUnknown])
    #expect(world.recorder.replies == [2, 3])
    #expect(world.client.shardCount == 5)
    for request in world.stores[1].requests {
      #expect(request.shard == .owning(Array(request.name.utf8).span.bytes, count: 5))
    }
    #expect(world.stores[1].requests.map(\.counter) == [nil, 1])
  }

  /// What a store with a lower limit would not read is given up rather than sent to end each connection.
  @Test func aStoreWithALowerFrameLimit() {
    let world = ClientWorld()
    world.store.holdsAnswers = true
    world.open()
    world.command(1, bytes: 3000)
    world.command(2)
    world.flush()
    world.cut()
    world.command(3)
    world.command(4, bytes: 3000)
    world.command(5)
    world.client.flush()
    world.store.frameLengthMax = 2000
    world.store.holdsAnswers = false
    world.advance(.milliseconds(100))
    #expect(world.recorder.failures == [1: .outcomeUnknown, 4: .unavailable])
    #expect(world.recorder.replies == [2, 3, 5])
    #expect(world.store.requests.suffix(3).map(\.counter) == [2, 3, 4])
    #expect(world.client.stats.retainedBytes == 0)
  }
}
