import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

@testable import StoreClient

/// Deadlines, pings, draining, alternative addresses, ended sessions. Time is the embedded loop's.
struct ConnectionLifeTests {
  // MARK: - Deadlines

  @Test func unsentRequestsFailAsUnavailableAtTheirDeadline() {
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
    // The counter of the unsent command is not missing.
    world.command(3)
    world.down = []
    world.advance(.seconds(2))
    #expect(world.store.requests.map(\.counter) == [1])
    #expect(world.recorder.replies == [3])
  }

  @Test func unansweredRequestsFailWithOutcomeUnknown() {
    let world = ClientWorld()
    world.store.holdsReplies = true
    world.open()
    world.command(1)
    world.query(2)
    world.flush()
    world.advance(.milliseconds(5300))
    #expect(world.recorder.failures == [1: .outcomeUnknown, 2: .unavailable])
    // Late replies belong to no request, and free the window.
    for request in world.store.waiting { world.connection!.answer(request) }
    world.pump()
    #expect(world.recorder.replies.isEmpty)
    #expect(world.client.isReady)
    #expect(world.client.stats.repliesLate == 2)
    #expect(world.client.stats.inFlight == 0)
    #expect(world.client.stats.retainedBytes == 0)
  }

  @Test func timedOutRequestsAreNotResent() {
    let world = ClientWorld()
    world.store.holdsReplies = true
    world.open()
    world.command(1)
    world.flush()
    world.advance(.seconds(3))
    world.command(2)
    world.flush()
    world.advance(.milliseconds(2500))
    #expect(world.recorder.failures == [1: .outcomeUnknown])
    world.store.holdsReplies = false
    world.cut()
    world.advance(.milliseconds(100))
    #expect(world.recorder.replies == [2])
    #expect(world.store.requests.map(\.counter) == [1, 2, 2])
  }

  @Test func timedOutRequestsStillCountAgainstTheWindow() {
    let world = ClientWorld()
    world.store.window = 4
    world.store.holdsReplies = true
    world.open()
    for token in 1...4 { world.command(UInt64(token)) }
    world.flush()
    world.advance(.milliseconds(5300))
    #expect(world.recorder.failures.count == 4)
    // The store still owes four replies: it would refuse a fifth request as busy.
    #expect(!world.command(5))
    world.connection!.answer(world.store.waiting[0])
    world.pump()
    #expect(world.command(6))
    world.flush()
    #expect(world.store.requests.count == 5)
    #expect(!world.command(7))
  }

  // MARK: - Pings

  @Test func idleStoresArePingedAndSilentOnesDisconnected() {
    let world = ClientWorld()
    world.open()
    world.advance(.milliseconds(4900))
    #expect(world.store.pings == 0)
    world.advance(.milliseconds(300))
    #expect(world.store.pings == 1)
    world.advance(.seconds(20))
    #expect(world.store.pings >= 4)
    #expect(world.client.isReady)
    #expect(world.client.disconnectedSince == nil)
    #expect(world.attempts.count == 1)

    world.store.isSilent = true
    let silent = (world.loop as any EventLoop).now
    var disconnectedSince: NIODeadline?
    world.recorder.onEvent = { if $0 == .ready(false) { disconnectedSince = world.client.disconnectedSince } }
    world.advance(.milliseconds(10_500))
    #expect(world.attempts.count > 1)
    #expect(world.recorder.events.contains(.ready(false)))
    // Measured not from the disconnect, but from the last received bytes, some seconds earlier.
    #expect(disconnectedSince.map { $0 <= silent } == true)
  }

  @Test func disconnectedSinceIsTheTimeOfTheLoss() {
    let world = ClientWorld()
    world.open()
    world.advance(.seconds(3))
    #expect(world.client.disconnectedSince == nil)
    world.down = [0]
    let lost = (world.loop as any EventLoop).now
    world.cut()
    world.advance(.seconds(2))
    #expect(world.client.disconnectedSince == lost)
    world.down = []
    world.advance(.seconds(2))
    #expect(world.client.isReady && world.client.disconnectedSince == nil)
  }

  @Test func pingsFromTheStoreAreAnswered() {
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

  @Test func drainingStoresGetNoNewRequests() {
    let world = ClientWorld(stores: [FakeStore(), FakeStore()])
    world.store.holdsReplies = true
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
    // All requests are answered: the client continues at the other address, in the same session.
    world.advance(.milliseconds(100))
    #expect(world.attempts == [0, 1])
    #expect(world.recorder.replies == [1, 2])
    #expect(world.stores[1].requests.map(\.counter) == [2])
    #expect(world.stores[1].hellos[0].session == world.store.hellos[0].session)
  }

  @Test func requestsMoveOnWhenADrainingStoreCloses() {
    let world = ClientWorld()
    world.store.holdsReplies = true
    world.open()
    world.command(1)
    world.flush()
    var bytes = ByteBuffer()
    bytes.writeFrame(FrameHeader(.drain)) { _ in }
    world.deliver(bytes)
    world.command(2)
    world.flush()
    world.store.holdsReplies = false
    world.connection!.close()
    world.pump()
    world.advance(.milliseconds(100))
    #expect(world.recorder.replies == [1, 2])
    #expect(world.store.requests.map(\.isResend) == [false, true, false])
  }

  // MARK: - Addresses and waits

  @Test func addressesAreTriedInOrder() {
    let world = ClientWorld(stores: [FakeStore(), FakeStore(), FakeStore()])
    world.down = [0, 1]
    world.command(1)
    world.client.start()
    world.advance(.milliseconds(200))
    #expect(world.attempts == [0, 1, 2])
    #expect(world.recorder.replies == [1])
    // After a lost connection the client first tries the same address.
    world.cut()
    world.advance(.milliseconds(200))
    #expect(world.attempts == [0, 1, 2, 2])
    // Then it tries the others.
    world.down = [1, 2]
    world.cut()
    world.command(2)
    world.client.flush()
    world.advance(.milliseconds(400))
    #expect(world.attempts == [0, 1, 2, 2, 2, 0])
    #expect(world.recorder.replies == [1, 2])
  }

  @Test func backoffDoublesUpToTheMaximum() {
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
      #expect(link.retryDelayElapsed() == .connect(addressIndex: 0))
      #expect(link.retryDelayElapsed() == .nothing)
    }
    #expect(waits == [20, 40, 80, 160, 320, 640, 1000, 1000, 1000])
    #expect(link.lost(.connectFailed, jitter: 0.5) == .retry(after: .milliseconds(750), sessionEnded: false))
  }

  /// Only an answered request proves that a store works. The backoff grows for a store that accepts connections and
  /// closes them at once.
  @Test func backoffGrowsForAStoreThatClosesAtOnce() {
    let world = ClientWorld()
    world.open()
    for _ in 0..<200 {
      world.advance(.milliseconds(50))
      world.cut()
    }
    // 10 seconds: 20 + 40 + … + 640 ms, then at most two attempts a second.
    #expect(world.attempts.count < 30)
  }

  @Test func readinessChangesAreReported() {
    let world = ClientWorld()
    world.open()
    world.cut()
    world.advance(.milliseconds(100))
    let changes = world.recorder.events.filter { if case .ready = $0 { true } else { false } }
    #expect(changes == [.ready(true), .ready(false), .ready(true)])
  }

  // MARK: - Ended sessions

  @Test func expiredSessionFailsSentCommandsOnly() {
    let world = ClientWorld()
    world.store.holdsReplies = true
    world.open()
    world.command(1)
    world.query(2)
    world.command(3)
    world.flush()
    world.cut()
    world.command(4)
    world.query(5)
    world.client.flush()
    world.store.expiresOldSessions = true
    world.store.holdsReplies = false
    world.advance(.milliseconds(300))
    #expect(world.recorder.failures == [1: .outcomeUnknown, 3: .outcomeUnknown])
    #expect(world.recorder.replies == [2, 4, 5])
    let hellos = world.store.hellos
    #expect(hellos.count == 3)
    #expect(hellos[1].session == hellos[0].session)
    #expect(hellos[2].session != hellos[0].session)
    #expect(hellos[2].sessionAgeMilliseconds == nil)
    // The new session's counters start at 1.
    #expect(world.store.requests.suffix(3).map(\.counter) == [nil, 1, nil])
  }

  /// Another data directory at the same address knows none of the first one's commands.
  @Test func anotherDataDirectoryEndsTheSession() {
    let world = ClientWorld(stores: [FakeStore(), FakeStore()])
    world.stores[1].identity = SessionID(high: 2, low: 2)
    world.stores[1].shardCount = 5
    world.store.holdsReplies = true
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

  /// A request larger than a new store's limit fails, instead of being sent and closing each connection.
  @Test func oversizeRequestsFailUnderALowerFrameLimit() {
    let world = ClientWorld()
    world.store.holdsReplies = true
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
    world.store.holdsReplies = false
    world.advance(.milliseconds(100))
    #expect(world.recorder.failures == [1: .outcomeUnknown, 4: .unavailable])
    #expect(world.recorder.replies == [2, 3, 5])
    #expect(world.store.requests.suffix(3).map(\.counter) == [2, 3, 4])
    #expect(world.client.stats.retainedBytes == 0)
  }
}
