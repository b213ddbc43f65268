import Glibc
import Logging
import NIOConcurrencyHelpers
import NIOCore
import NIOEmbedded
import NIOPosix
import Testing
import TestSupport

@testable import Operations

/// Limits on a listener's connections.
@Suite struct ConnectionGateTests {
  /// A connection from `address`.
  private func peer(_ address: String) throws -> EmbeddedChannel {
    let channel = EmbeddedChannel()
    channel.remoteAddress = try SocketAddress(ipAddress: address, port: 5_000)
    return channel
  }

  /// Close a connection, and let the gate observe that.
  private func end(_ channel: EmbeddedChannel) {
    channel.close(promise: nil)
    channel.embeddedEventLoop.run()
  }

  private func gate(total: Int = 100, perAddress: Int = 100, unauthenticated: Int = 100, trusted: [String] = [])
    -> ConnectionGate
  {
    ConnectionGate(
      limits: ConnectionLimits(
        total: total,
        perAddress: perAddress,
        unauthenticated: unauthenticated,
        trusted: trusted.compactMap { AddressRange($0) }
      ),
      logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }
    )
  }

  @Test func connectionsBeyondTotalAreRefused() throws {
    let gate = gate(total: 2)
    let peers = try ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map { try peer($0) }
    #expect(peers.map { gate.admit($0) } == [true, true, false])
    #expect(gate.openCount == 2 && gate.counts.refusedForTotal == 1)
    end(peers[0])
    #expect(gate.admit(peers[2]) && gate.openCount == 2)
  }

  /// An IPv6 /64 network counts as one address. Trusted proxies are not limited.
  @Test func connectionsPerAddressAreLimited() throws {
    let gate = gate(perAddress: 1, trusted: ["192.0.2.0/24"])
    var kept: [EmbeddedChannel] = []
    for (address, isAdmitted) in [
      ("10.0.0.1", true), ("10.0.0.1", false), ("10.0.0.2", true), ("::ffff:10.0.0.1", false),
      ("2001:db8::1", true), ("2001:db8::ffff:1", false), ("2001:db8:0:1::1", true),
      ("192.0.2.7", true), ("192.0.2.7", true), ("192.0.3.7", true), ("192.0.3.7", false),
    ] {
      let channel = try peer(address)
      #expect(gate.admit(channel) == isAdmitted, "\(address)")
      kept.append(channel)
    }
    #expect(gate.counts.refusedForAddress == 4)
    end(kept[0])
    #expect(try gate.admit(peer("10.0.0.1")))
  }

  /// Trusted proxies do not count as unauthenticated, and loopback can be exempt from the limit per address.
  @Test func trustedProxiesAndLoopbackAreExempt() throws {
    var limits = ConnectionLimits(total: 100, perAddress: 1, unauthenticated: 1)
    limits.trusted = [AddressRange("192.0.2.1")].compactMap { $0 }
    limits.countsLoopback = false
    let gate = ConnectionGate(limits: limits, logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
    let peers = try ["192.0.2.1", "192.0.2.1", "127.0.0.1", "127.0.0.2", "::1"].map { try peer($0) }
    #expect(peers.allSatisfy { gate.admit($0) })
    // Of the three local connections, the two oldest were evicted.
    #expect(gate.counts.evictedUnauthenticated == 2 && gate.counts.refusedForAddress == 0)
  }

  @Test func oldestUnauthenticatedPeerIsEvicted() throws {
    let gate = gate(unauthenticated: 2)
    let peers = try (1...5).map { try peer("10.0.0.\($0)") }
    #expect(gate.admit(peers[0]) && gate.admit(peers[1]))
    gate.markAuthenticated(peers[0])
    gate.markAuthenticated(peers[0])
    #expect(gate.admit(peers[2]) && gate.counts.evictedUnauthenticated == 0)
    // The first peer is authenticated, so the second is the oldest unauthenticated one.
    #expect(gate.admit(peers[3]) && gate.counts.evictedUnauthenticated == 1)
    end(peers[1])
    #expect(gate.openCount == 3)
    end(peers[2])
    #expect(gate.admit(peers[4]) && gate.counts.evictedUnauthenticated == 1 && gate.openCount == 3)
  }

  @Test func oneAddressCannotEvictPeersOfOthers() throws {
    let gate = gate(total: 1_000, perAddress: 900, unauthenticated: 400)
    let newcomer = try peer("10.0.0.2")
    #expect(gate.admit(newcomer))
    let flood = try (0..<500).map { _ in try peer("10.0.0.1") }
    #expect(flood.allSatisfy { gate.admit($0) })
    // Each connection beyond 100 evicted the oldest one of its own address.
    #expect(gate.counts.evictedUnauthenticated == 400 && gate.counts.refusedForAddress == 0)
    for channel in flood { channel.embeddedEventLoop.run() }
    #expect(gate.openCount == 101)
    end(newcomer)
    #expect(gate.openCount == 100)
    // A peer that authenticates or disconnects makes room for the next one of its address.
    gate.markAuthenticated(flood[400])
    end(flood[401])
    for _ in 0..<2 { #expect(try gate.admit(peer("10.0.0.1"))) }
    #expect(gate.counts.evictedUnauthenticated == 400)
    #expect(try gate.admit(peer("10.0.0.1")) && gate.counts.evictedUnauthenticated == 401)
  }

  @Test func descriptorShortagePausesAccepting() async throws {
    let gate = gate()
    let listener = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
      .serverChannelInitializer { channel in
        channel.eventLoop.makeCompletedFuture { try ConnectionGateHandler.prepare(channel, gate) }
      }
      .bind(host: "127.0.0.1", port: 0).get()
    func fail(_ code: CInt) async throws -> Bool {
      listener.pipeline.fireErrorCaught(IOError(errnoCode: code, reason: "accept"))
      return try await listener.getOption(.autoRead).get()
    }
    // A peer that disconnected before it was accepted causes no pause.
    #expect(try await fail(ECONNABORTED))
    for _ in 0..<3 { #expect(try await fail(EMFILE) == false) }
    #expect(gate.counts.refusedForDescriptors == 4)
    let client = try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
      .connect(to: try #require(listener.localAddress)).get()
    try await eventually("the client is accepted") { gate.openCount != 0 }
    #expect(gate.openCount == 1)
    try await client.close()
    try await listener.close()
  }

  @Test func frequentRefusalsAreLoggedOncePerSecond() {
    var limiter = LogRateLimiter()
    let start = NIODeadline.uptimeNanoseconds(5_000_000_000)
    #expect(limiter.occurrence(at: start) == 1)
    for _ in 0..<1_000 { #expect(limiter.occurrence(at: start + .milliseconds(999)) == nil) }
    #expect(limiter.occurrence(at: start + .seconds(1)) == 1_001)
  }

  @Test(arguments: [
    ("10.0.0.0/8", "10.255.0.1", true), ("10.0.0.0/8", "11.0.0.1", false), ("10.0.0.1", "10.0.0.1", true),
    ("10.0.0.1", "10.0.0.2", false), ("0.0.0.0/0", "8.8.8.8", true), ("0.0.0.0/0", "2001:db8::1", false),
    ("::/0", "8.8.8.8", true), ("2001:db8::/32", "2001:db8:ffff::1", true), ("::1", "::1", true),
    ("2001:db8::/33", "2001:db8:8000::", false), ("::1/128", "::2", false),
  ]) func rangesContainAddresses(range: String, address: String, isIn: Bool) throws {
    let range = try #require(AddressRange(range))
    let address = try #require(PeerAddress(SocketAddress(ipAddress: address, port: 1)))
    #expect(range.contains(address) == isIn)
  }

  @Test(arguments: ["", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0/8", "::/129", "host", "10.0.0.0/8/8", "10.0.0.0/"])
  func invalidRangesAreRefused(text: String) { #expect(AddressRange(text) == nil) }

  @Test func descriptorSoftLimitIsRaised() {
    let limit = DescriptorLimit.raise()
    #expect(limit >= 256 && DescriptorLimit.raise() == limit)
    #expect(DescriptorLimit.forConnections(of: 128) == 64 && DescriptorLimit.forConnections(of: 20_000) == 19_744)
  }
}

/// The log of refusals by address.
@Suite struct RefusalLogTests {
  /// Collects logged lines.
  private struct Lines: LogHandler {
    let lines: NIOLockedValueBox<[String]>
    var metadata: Logger.Metadata = [:]
    var logLevel = Logger.Level.trace

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
      get { metadata[key] }
      set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
      let fields = (event.metadata ?? [:]).sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }
      lines.withLockedValue { $0.append(fields.joined(separator: " ")) }
    }
  }

  @Test func reportHasTopAddressesAndTheRest() throws {
    let lines = NIOLockedValueBox<[String]>([])
    let log = RefusalLog(logger: Logger(label: "test") { _ in Lines(lines: lines) })
    log.write()
    #expect(lines.withLockedValue { $0 }.isEmpty)
    for last in 1...12 as ClosedRange<UInt64> {
      for _ in 0..<last { log.record(.token, from: PeerAddress(high: 0, low: 0xFFFF_C000_0200 | last)) }
    }
    log.record(.rate, from: PeerAddress(high: 0, low: 0xFFFF_C000_020C))
    log.record(.connection, from: nil)
    log.write()
    let written = lines.withLockedValue { $0 }
    #expect(written.count == 11)
    #expect(written.first == "address=192.0.2.12 connections=0 requests=1 tokens=12")
    #expect(written.last == "address=others connections=1 requests=0 tokens=3")
    log.write()
    #expect(lines.withLockedValue { $0 }.count == 11)
  }

  @Test(
    arguments: [
      ("192.0.2.7", "192.0.2.7"), ("192.0.2.7:5000", "192.0.2.7"), ("2001:db8::7", "2001:db8:0:0:0:0:0:7"),
      ("[2001:db8::7]:443", "2001:db8:0:0:0:0:0:7"), ("[2001:db8::7]", "2001:db8:0:0:0:0:0:7"),
      ("::ffff:192.0.2.7", "192.0.2.7"), ("", nil), ("unknown", nil), ("_hidden", nil), ("192.0.2", nil),
      ("[2001:db8::7", nil), ("1.2.3.4.5", nil),
    ] as [(String, String?)]
  )
  func addressIsParsedWithOrWithoutPort(_ text: String, expected: String?) {
    let bytes = Array(text.utf8)
    #expect(PeerAddress(text: bytes.span.bytes)?.description == expected)
  }
}

@Suite struct EndpointTests {
  @Test(arguments: [
    ("127.0.0.1:8443", "127.0.0.1", 8443), ("localhost:0", "localhost", 0), ("[::1]:65535", "::1", 65535),
    ("[2001:db8::7]:1", "2001:db8::7", 1), ("store-1.internal:7000", "store-1.internal", 7000),
  ]) func endpointIsParsed(_ text: String, _ host: String, _ port: Int) throws {
    let endpoint = try #require(Endpoint(text))
    #expect(endpoint == Endpoint(host: host, port: port))
    #expect(endpoint.description == text)
  }

  @Test(arguments: [
    "", ":", ":80", "host", "host:", "host:x", "host:-1", "host:65536", "host:000080", "::1:80", "[::1]", "[]:80",
    "[host]:80", "a b:80", "host:80 ", "http://host:80", "host:+80", "host:８０",
  ]) func invalidEndpointIsRefused(_ text: String) {
    #expect(Endpoint(text) == nil)
  }
}
