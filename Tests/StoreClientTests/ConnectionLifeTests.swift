import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

@testable import StoreClient

/// Deadlines, pings, draining, alternative addresses, ended sessions. Time is the embedded loop's.
struct ConnectionLifeTests {
  // MARK: - Deadlines

  @Test func unsentRequestsFailAsUnavailableAtTheirDeadline() {
    let harness = ClientHarness()
    harness.down = [0]
    harness.client.start()
    harness.command(1)
    harness.query(2)
    harness.client.flush()
    harness.advance(.milliseconds(4900))
    #expect(harness.recorder.failures.isEmpty)
    harness.advance(.milliseconds(400))
    #expect(harness.recorder.failures == [1: .unavailable, 2: .unavailable])
    #expect(harness.recorder.events.last == .complete)
    // The counter of the unsent command is not used again.
    harness.command(3)
    harness.down = []
    harness.advance(.seconds(2))
    #expect(harness.store.requests.map(\.counter) == [2])
    #expect(harness.recorder.replies == [3])
  }

  @Test func unansweredRequestsFailWithOutcomeUnknown() {
    let harness = ClientHarness()
    harness.store.holdsReplies = true
    harness.open()
    harness.command(1)
    harness.query(2)
    harness.flush()
    harness.advance(.milliseconds(5300))
    #expect(harness.recorder.failures == [1: .outcomeUnknown, 2: .unavailable])
    // Late replies belong to no request, and free the window.
    for request in harness.store.waiting { harness.connection!.reply(request) }
    harness.pump()
    #expect(harness.recorder.replies.isEmpty)
    #expect(harness.client.isReady)
    #expect(harness.client.stats.repliesLate == 2)
    #expect(harness.client.stats.inFlight == 0)
    #expect(harness.client.stats.retainedBytes == 0)
  }

  @Test func timedOutRequestsAreNotResent() {
    let harness = ClientHarness()
    harness.store.holdsReplies = true
    harness.open()
    harness.command(1)
    harness.flush()
    harness.advance(.seconds(3))
    harness.command(2)
    harness.flush()
    harness.advance(.milliseconds(2500))
    #expect(harness.recorder.failures == [1: .outcomeUnknown])
    harness.store.holdsReplies = false
    harness.cut()
    harness.advance(.milliseconds(100))
    #expect(harness.recorder.replies == [2])
    #expect(harness.store.requests.map(\.counter) == [1, 2, 2])
  }

  @Test func timedOutRequestsStillCountAgainstTheWindow() {
    let harness = ClientHarness()
    harness.store.window = 4
    harness.store.holdsReplies = true
    harness.open()
    for tag in 1...4 { harness.command(UInt64(tag)) }
    harness.flush()
    harness.advance(.milliseconds(5300))
    #expect(harness.recorder.failures.count == 4)
    // The store still owes four replies: it would refuse a fifth request as busy.
    #expect(!harness.command(5))
    harness.connection!.reply(harness.store.waiting[0])
    harness.pump()
    #expect(harness.command(6))
    harness.flush()
    #expect(harness.store.requests.count == 5)
    #expect(!harness.command(7))
  }

  // MARK: - Pings

  @Test func idleStoresArePingedAndSilentOnesDisconnected() {
    let harness = ClientHarness()
    harness.open()
    harness.advance(.milliseconds(4900))
    #expect(harness.store.pings == 0)
    harness.advance(.milliseconds(300))
    #expect(harness.store.pings == 1)
    harness.advance(.seconds(20))
    #expect(harness.store.pings >= 4)
    #expect(harness.client.isReady)
    #expect(harness.client.disconnectedSince == nil)
    #expect(harness.attempts.count == 1)

    harness.store.isSilent = true
    let silent = (harness.loop as any EventLoop).now
    var disconnectedSince: NIODeadline?
    harness.recorder.onEvent = {
      if $0 == .ready(false) { disconnectedSince = harness.client.disconnectedSince }
    }
    harness.advance(.milliseconds(10_500))
    #expect(harness.attempts.count > 1)
    #expect(harness.recorder.events.contains(.ready(false)))
    // Measured not from the disconnect, but from the last received bytes, some seconds earlier.
    #expect(disconnectedSince.map { $0 <= silent } == true)
  }

  @Test func disconnectedSinceIsTheTimeOfTheLoss() {
    let harness = ClientHarness()
    harness.open()
    harness.advance(.seconds(3))
    #expect(harness.client.disconnectedSince == nil)
    harness.down = [0]
    let lost = (harness.loop as any EventLoop).now
    harness.cut()
    harness.advance(.seconds(2))
    #expect(harness.client.disconnectedSince == lost)
    harness.down = []
    harness.advance(.seconds(2))
    #expect(harness.client.isReady && harness.client.disconnectedSince == nil)
  }

  @Test func pingsFromTheStoreAreAnswered() {
    let harness = ClientHarness()
    harness.open()
    var bytes = ByteBuffer()
    bytes.writeFrame(FrameHeader(.ping, correlation: 77)) { $0.writeInteger(UInt64(0x0102_0304_0506_0708)) }
    harness.deliver(bytes)
    harness.pump()
    let last = harness.connection!.frames.last
    #expect(last == FrameHeader(.pong, correlation: 77))
  }

  // MARK: - Draining

  @Test func drainingStoresGetNoNewRequests() {
    let harness = ClientHarness(stores: [EchoStore(), EchoStore()])
    harness.store.holdsReplies = true
    harness.open()
    harness.command(1)
    harness.flush()
    var bytes = ByteBuffer()
    bytes.writeFrame(FrameHeader(.drain)) { _ in }
    harness.deliver(bytes)
    #expect(!harness.client.isReady)
    harness.command(2)
    harness.flush()
    #expect(harness.store.requests.count == 1)
    #expect(harness.attempts == [0])
    harness.connection!.reply(harness.store.waiting[0])
    harness.pump()
    #expect(harness.recorder.replies == [1])
    // All requests are answered: the client continues at the other address, in the same session.
    harness.advance(.milliseconds(100))
    #expect(harness.attempts == [0, 1])
    #expect(harness.recorder.replies == [1, 2])
    #expect(harness.stores[1].requests.map(\.counter) == [2])
    #expect(harness.stores[1].hellos[0].session == harness.store.hellos[0].session)
  }

  @Test func requestsMoveOnWhenDrainingStoreCloses() {
    let harness = ClientHarness()
    harness.store.holdsReplies = true
    harness.open()
    harness.command(1)
    harness.flush()
    var bytes = ByteBuffer()
    bytes.writeFrame(FrameHeader(.drain)) { _ in }
    harness.deliver(bytes)
    harness.command(2)
    harness.flush()
    harness.store.holdsReplies = false
    harness.connection!.close()
    harness.pump()
    harness.advance(.milliseconds(100))
    #expect(harness.recorder.replies == [1, 2])
    #expect(harness.store.requests.map(\.isResend) == [false, true, false])
  }

  // MARK: - Addresses and waits

  @Test func addressesAreTriedInOrder() {
    let harness = ClientHarness(stores: [EchoStore(), EchoStore(), EchoStore()])
    harness.down = [0, 1]
    harness.command(1)
    harness.client.start()
    harness.advance(.milliseconds(200))
    #expect(harness.attempts == [0, 1, 2])
    #expect(harness.recorder.replies == [1])
    // After a lost connection the client first tries the same address.
    harness.cut()
    harness.advance(.milliseconds(200))
    #expect(harness.attempts == [0, 1, 2, 2])
    // Then it tries the others.
    harness.down = [1, 2]
    harness.cut()
    harness.command(2)
    harness.client.flush()
    harness.advance(.milliseconds(400))
    #expect(harness.attempts == [0, 1, 2, 2, 2, 0])
    #expect(harness.recorder.replies == [1, 2])
  }

  @Test func backoffDoublesUpToTheMaximum() {
    let address = StoreClientConfiguration.Address(host: "store", port: 1)
    var link = StoreLink(StoreClientConfiguration(addresses: [address]), addresses: [address])
    _ = link.start()
    var waits: [Int64] = []
    for _ in 0..<9 {
      guard case .retry(let wait) = link.lost(.connectFailed, jitter: 0) else {
        Issue.record("no retry")
        return
      }
      waits.append(wait.nanoseconds / 1_000_000)
      #expect(link.lost(.connectFailed, jitter: 0) == .nothing)
      #expect(link.retryDelayElapsed() == .connect(address))
      #expect(link.retryDelayElapsed() == .nothing)
    }
    #expect(waits == [20, 40, 80, 160, 320, 640, 1000, 1000, 1000])
    #expect(link.lost(.connectFailed, jitter: 0.5) == .retry(after: .milliseconds(750)))
  }

  /// Only an answered request proves that a store works. The backoff grows for a store that accepts connections and
  /// closes them at once.
  @Test func backoffGrowsForStoreThatClosesAtOnce() {
    let harness = ClientHarness()
    harness.open()
    for _ in 0..<200 {
      harness.advance(.milliseconds(50))
      harness.cut()
    }
    // 10 seconds: 20 + 40 + … + 640 ms, then at most two attempts a second.
    #expect(harness.attempts.count < 30)
  }

  @Test func readinessChangesAreReported() {
    let harness = ClientHarness()
    harness.open()
    harness.cut()
    harness.advance(.milliseconds(100))
    let changes = harness.recorder.events.filter { if case .ready = $0 { true } else { false } }
    #expect(changes == [.ready(true), .ready(false), .ready(true)])
  }

  // MARK: - Ended sessions

  @Test func expiredSessionFailsSentCommandsOnly() {
    let harness = ClientHarness()
    harness.store.holdsReplies = true
    harness.open()
    harness.command(1)
    harness.query(2)
    harness.command(3)
    harness.flush()
    harness.cut()
    harness.command(4)
    harness.query(5)
    harness.client.flush()
    harness.store.expiresOldSessions = true
    harness.store.holdsReplies = false
    harness.advance(.milliseconds(300))
    #expect(harness.recorder.failures == [1: .outcomeUnknown, 3: .outcomeUnknown])
    #expect(harness.recorder.replies == [2, 4, 5])
    let hellos = harness.store.hellos
    #expect(hellos.count == 3)
    #expect(hellos[1].session == hellos[0].session)
    #expect(hellos[2].session != hellos[0].session)
    #expect(hellos[2].sessionAgeMilliseconds == nil)
    // The new session's counters start at 1.
    #expect(harness.store.requests.suffix(3).map(\.counter) == [nil, 1, nil])
  }

  /// Another data directory at the same address knows none of the first one's commands.
  @Test func anotherDataDirectoryEndsTheSession() {
    let harness = ClientHarness(stores: [EchoStore(), EchoStore()])
    harness.stores[1].identity = SessionID(high: 2, low: 2)
    harness.stores[1].shardCount = 5
    harness.store.holdsReplies = true
    harness.open()
    harness.command(1, cid: "messaging:a")
    harness.query(2, cid: "messaging:b")
    harness.flush()
    harness.down = [0]
    harness.cut()
    harness.command(3, cid: "messaging:c")
    harness.client.flush()
    harness.advance(.seconds(2))
    #expect(harness.recorder.failures == [1: .outcomeUnknown])
    #expect(harness.recorder.replies == [2, 3])
    #expect(harness.client.shardCount == 5)
    for request in harness.stores[1].requests {
      #expect(request.shard == .owning(Array(request.name.utf8).span.bytes, count: 5))
    }
    #expect(harness.stores[1].requests.map(\.counter) == [nil, 1])
  }

  /// A request larger than a new store's limit fails, instead of being sent and closing each connection.
  @Test func oversizeRequestsFailUnderLowerFrameLimit() {
    let harness = ClientHarness()
    harness.store.holdsReplies = true
    harness.open()
    harness.command(1, bytes: 3000)
    harness.command(2)
    harness.flush()
    harness.cut()
    harness.command(3)
    harness.command(4, bytes: 3000)
    harness.command(5)
    harness.client.flush()
    harness.store.frameLengthMax = 2000
    harness.store.holdsReplies = false
    harness.advance(.milliseconds(100))
    #expect(harness.recorder.failures == [1: .outcomeUnknown, 4: .unavailable])
    #expect(harness.recorder.replies == [2, 3, 5])
    #expect(harness.store.requests.suffix(3).map(\.counter) == [2, 3, 5])
    #expect(harness.client.stats.retainedBytes == 0)
  }
}
