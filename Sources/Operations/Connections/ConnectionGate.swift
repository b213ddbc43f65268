package import Logging
internal import NIOConcurrencyHelpers
package import NIOCore

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#endif

/// Limits on a listener's concurrent connections.
package struct ConnectionLimits: Hashable, Sendable {
  /// Limit for all peers together.
  package var total: Int
  /// Limit for one IPv4 address, or one IPv6 network of 64 bits.
  package var perAddress: Int
  /// Limit for unauthenticated peers, which have not yet shown a valid token or finished a handshake. One more
  /// connection closes the oldest of them.
  package var unauthenticated: Int
  /// Limit for unauthenticated peers of one address, where addresses have a limit: a quarter of ``unauthenticated``,
  /// and at least 64, so that a small limit does not shut out an office behind one address.
  var unauthenticatedPerAddress: Int { perAddress < total ? max(64, unauthenticated / 4) : unauthenticated }
  /// Proxies and load balancers. They are exempt from ``perAddress`` and ``unauthenticated``, as many clients share a
  /// connection.
  package var trusted: [AddressRange] = []
  /// Whether ``perAddress`` also applies to peers on this machine.
  package var countsLoopback = true

  package init(total: Int, perAddress: Int, unauthenticated: Int, trusted: [AddressRange] = []) {
    self.total = total
    self.perAddress = perAddress
    self.unauthenticated = unauthenticated
    self.trusted = trusted
  }
}

/// Connection counter of a listener, for all of its event loops. It refuses connections above the limits.
///
/// A refused connection is closed when it is accepted: it costs a descriptor for that moment, and no memory.
package final class ConnectionGate: Sendable {
  fileprivate struct Entry {
    var network: PeerAddress?
    /// Index in ``State/arrivals``; nil once the peer is authenticated.
    var index: UInt64?
  }

  fileprivate struct State {
    var open: [ObjectIdentifier: Entry] = [:]
    var perNetwork: [PeerAddress: Int] = [:]
    var unauthenticatedPerNetwork: [PeerAddress: Int] = [:]
    /// Indexes in ``arrivals`` by network, oldest first. Indexes of peers that are authenticated or gone are skipped.
    var indexesPerNetwork: [PeerAddress: [UInt64]] = [:]
    /// Channels of unauthenticated peers, by order of arrival. Entries of peers that are authenticated or gone by now
    /// are skipped.
    var arrivals: [UInt64: any Channel] = [:]
    var oldestIndex: UInt64 = 0
    var nextIndex: UInt64 = 0
    var counts = Counts()
    var limits: ConnectionLimits
  }

  /// Counts of refused and closed connections since the start.
  package struct Counts: Hashable, Sendable {
    package var refusedForTotal: Int64 = 0
    package var refusedForAddress: Int64 = 0
    package var refusedForDescriptors: Int64 = 0
    /// Closed to make room for a newer unauthenticated connection.
    package var evictedUnauthenticated: Int64 = 0
    package var refusedForProxyHeader: Int64 = 0
  }

  private let logger: Logger
  private let refusals: RefusalLog?
  private let state: NIOLockedValueBox<State>
  private let logThrottle = LogThrottle()

  /// - Parameter refusals: counts each connection that is refused or closed; nil: none.
  package init(limits: ConnectionLimits, logger: Logger, refusals: RefusalLog? = nil) {
    state = NIOLockedValueBox(State(limits: limits))
    self.logger = logger
    self.refusals = refusals
  }

  /// Limits for new connections. Open connections stay, even above the limits.
  package var limits: ConnectionLimits {
    get { state.withLockedValue { $0.limits } }
    set { state.withLockedValue { $0.limits = newValue } }
  }

  package var counts: Counts { state.withLockedValue { $0.counts } }

  /// Number of open connections.
  package var openCount: Int { state.withLockedValue { $0.open.count } }

  /// Return whether an address is that of a trusted proxy, whose connections clients share.
  package func isTrusted(_ address: PeerAddress) -> Bool { limits.trusted.contains { $0.contains(address) } }

  /// Admit a newly accepted connection, or refuse it: false. An admitted one counts until it is closed.
  package func admit(_ channel: any Channel) -> Bool {
    let limits = limits
    let address = channel.remoteAddress.flatMap { PeerAddress($0) }
    let id = ObjectIdentifier(channel)
    let isBelowTotal = state.withLockedValue { state in
      guard state.open.count < limits.total else {
        state.counts.refusedForTotal += 1
        return false
      }
      state.open[id] = Entry()
      return true
    }
    guard isBelowTotal else {
      refused("total", channel, address)
      return false
    }
    channel.closeFuture.whenComplete { _ in self.closed(id) }
    // A trusted proxy's connection counts for the clients that it names.
    return address.map(isTrusted) ?? false || admit(channel, from: address)
  }

  /// Admit a connection by its client address: its peer's, or one that a trusted proxy names. It may evict another.
  /// False: it is refused.
  package func admit(_ channel: any Channel, from address: PeerAddress?) -> Bool {
    let limits = limits
    let isCounted = limits.countsLoopback || address?.isLoopback != true
    let network = isCounted ? address?.network : nil
    let id = ObjectIdentifier(channel)
    let (isAdmitted, evicted): (Bool, (any Channel)?) = state.withLockedValue { state in
      guard state.open[id] != nil else { return (false, nil) }
      if let network {
        let count = state.perNetwork[network, default: 0]
        guard count < limits.perAddress else {
          state.counts.refusedForAddress += 1
          return (false, nil)
        }
        // An address may evict only its own unauthenticated connections.
        let isOver = state.unauthenticatedPerNetwork[network, default: 0] >= limits.unauthenticatedPerAddress
        let evicted = isOver ? state.oldestUnauthenticated(of: network) : nil
        state.perNetwork[network] = count + 1
        state.unauthenticatedPerNetwork[network, default: 0] += 1
        state.open[id]?.network = network
        if isOver {
          state.addUnauthenticated(id, channel)
          return (true, evicted)
        }
      }
      let evicted = state.arrivals.count >= limits.unauthenticated ? state.oldestUnauthenticated() : nil
      state.addUnauthenticated(id, channel)
      return (true, evicted)
    }
    if let evicted {
      refused("unproven", evicted, evicted.remoteAddress.flatMap { PeerAddress($0) })
      evicted.close(promise: nil)
    }
    if !isAdmitted { refused("address", channel, address) }
    return isAdmitted
  }

  private func refused(_ reason: String, _ channel: any Channel, _ address: PeerAddress?) {
    logRefusal(reason, address: address, channel)
    refusals?.record(.connection, from: address)
  }

  /// Mark the peer of a connection as authenticated.
  package func markAuthenticated(_ channel: any Channel) {
    state.withLockedValue { $0.markAuthenticated(ObjectIdentifier(channel)) }
  }

  /// Record a connection that is closed because of its PROXY header, or the lack of one.
  package func refusedForProxyHeader(_ reason: String, _ channel: any Channel) {
    state.withLockedValue { $0.counts.refusedForProxyHeader += 1 }
    let address = channel.remoteAddress.flatMap { PeerAddress($0) }
    logRefusal("proxy_header", detail: reason, address: address, channel)
    refusals?.record(.connection, from: address)
  }

  /// Record that nothing could be accepted: the process is out of descriptors, or the system out of memory.
  package func acceptFailed(_ error: any Error) {
    state.withLockedValue { $0.counts.refusedForDescriptors += 1 }
    logRefusal("descriptors", detail: "\(error)", address: nil, nil)
  }

  private func closed(_ id: ObjectIdentifier) {
    state.withLockedValue { state in
      state.markAuthenticated(id)
      guard let entry = state.open.removeValue(forKey: id), let network = entry.network else { return }
      let count = state.perNetwork[network, default: 1] - 1
      state.perNetwork[network] = count == 0 ? nil : count
    }
  }

  /// Log refusals, at most one line a second for each reason, with their number.
  ///
  /// - Parameters:
  ///   - reason: as in the metric.
  ///   - address: of the client, which a proxy may have named.
  private func logRefusal(_ reason: String, detail: String? = nil, address: PeerAddress?, _ channel: (any Channel)?) {
    guard let count = logThrottle.occurrencesToLog(reason) else { return }
    var metadata: Logger.Metadata = [
      "count": "\(count)", "reason": "\(reason)", "open": "\(openCount)",
      "peer": "\(channel?.remoteAddress.map(String.init(describing:)) ?? "unknown")",
    ]
    if let detail { metadata["detail"] = "\(detail)" }
    if let address { metadata["address"] = "\(address)" }
    logger.warning("Connections are refused", metadata: metadata)
  }

  /// Add the number of unauthenticated connections and the refusals.
  ///
  /// - Parameter prefix: prefix of the metric names, such as `tidemark_gateway`.
  package func collect(into samples: inout MetricSamples, prefix: String) {
    let (counts, unauthenticated) = state.withLockedValue { ($0.counts, $0.arrivals.count) }
    samples.gauge(
      "\(prefix)_connections_unproven",
      help: "Connections whose peer has not authenticated yet.",
      Double(unauthenticated)
    )
    let reasons = [
      ("total", counts.refusedForTotal), ("address", counts.refusedForAddress),
      ("descriptors", counts.refusedForDescriptors), ("unproven", counts.evictedUnauthenticated),
      ("proxy_header", counts.refusedForProxyHeader),
    ]
    for (reason, count) in reasons {
      samples.counter(
        "\(prefix)_connections_refused_total",
        help: "Connections refused when accepted, or closed unauthenticated to make room for a newer one.",
        labels: ["reason": reason],
        count
      )
    }
  }
}

extension ConnectionGate.State {
  fileprivate mutating func addUnauthenticated(_ id: ObjectIdentifier, _ channel: any Channel) {
    open[id]?.index = nextIndex
    arrivals[nextIndex] = channel
    if let network = open[id]?.network { indexesPerNetwork[network, default: []].append(nextIndex) }
    nextIndex += 1
  }

  fileprivate mutating func markAuthenticated(_ id: ObjectIdentifier) {
    guard let index = open[id]?.index else { return }
    removeUnauthenticated(id)
    arrivals[index] = nil
  }

  /// Remove a connection from the unauthenticated ones.
  private mutating func removeUnauthenticated(_ id: ObjectIdentifier) {
    open[id]?.index = nil
    guard let network = open[id]?.network else { return }
    let count = unauthenticatedPerNetwork[network, default: 1] - 1
    unauthenticatedPerNetwork[network] = count == 0 ? nil : count
    // Indexes of peers that are authenticated or gone are dropped in bulk.
    if count == 0 {
      indexesPerNetwork[network] = nil
    } else if let indexes = indexesPerNetwork[network], indexes.count > 2 * count + 64 {
      indexesPerNetwork[network] = indexes.filter { arrivals[$0] != nil }
    }
  }

  fileprivate mutating func oldestUnauthenticated(of network: PeerAddress) -> (any Channel)? {
    guard let index = indexesPerNetwork[network]?.first(where: { arrivals[$0] != nil }),
      let channel = arrivals.removeValue(forKey: index)
    else { return nil }
    removeUnauthenticated(ObjectIdentifier(channel))
    counts.evictedUnauthenticated += 1
    return channel
  }

  fileprivate mutating func oldestUnauthenticated() -> (any Channel)? {
    while oldestIndex < nextIndex {
      defer { oldestIndex += 1 }
      guard let channel = arrivals.removeValue(forKey: oldestIndex) else { continue }
      removeUnauthenticated(ObjectIdentifier(channel))
      counts.evictedUnauthenticated += 1
      return channel
    }
    return nil
  }
}

/// Handler of a listener that accepts only the connections that its gate admits.
package final class ConnectionGateHandler: ChannelInboundHandler {
  package typealias InboundIn = any Channel
  package typealias InboundOut = any Channel

  private let gate: ConnectionGate
  private var isWaiting = false

  package init(_ gate: ConnectionGate) { self.gate = gate }

  package func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    let channel = unwrapInboundIn(data)
    guard gate.admit(channel) else { return channel.close(promise: nil) }
    context.fireChannelRead(data)
  }

  package func errorCaught(context: ChannelHandlerContext, error: any Error) {
    gate.acceptFailed(error)
    if let error = error as? IOError, Self.waits(for: error) { wait(context.channel) }
    context.fireErrorCaught(error)
  }

  /// Return whether to pause after an error. It excludes peers that left before they were accepted: they could delay
  /// all others.
  private static func waits(for error: IOError) -> Bool {
    [EMFILE, ENFILE, ENOBUFS, ENOMEM].contains(error.errnoCode)
  }

  /// Stop accepting for a moment. NIO's AcceptBackoffHandler only delays the next read. The listener repeats the failed
  /// read as long as a connection is pending: 45,000 times a second.
  private func wait(_ listener: any Channel) {
    guard !isWaiting, let options = listener.syncOptions, (try? options.setOption(.autoRead, value: false)) != nil
    else { return }
    isWaiting = true
    let bound = NIOLoopBound(self, eventLoop: listener.eventLoop)
    listener.eventLoop.scheduleTask(in: .milliseconds(200)) {
      bound.value.isWaiting = false
      try? listener.syncOptions?.setOption(.autoRead, value: true)
    }
  }

  /// Prepare a listener. Without descriptors or memory it pauses before it retries (NIO would retry at once, forever).
  /// Above the gate's limits it accepts no connections.
  package static func prepare(_ listener: any Channel, _ gate: ConnectionGate) throws {
    try listener.pipeline.syncOperations.addHandler(ConnectionGateHandler(gate))
  }
}

/// Small audit log of refused tokens, requests and connections by address. Refusals may happen thousands of times a
/// second, so they are counted and written as a few lines every ten seconds.
package final class RefusalLog: Sendable {
  /// Kind of refusal.
  package enum Kind: Int, CaseIterable, Sendable {
    case token, rate, connection
  }

  private struct Counts {
    var byKind = [Int](repeating: 0, count: Kind.allCases.count)

    var total: Int { byKind.reduce(0, +) }
    mutating func add(_ other: Counts) {
      for index in byKind.indices { byKind[index] += other.byKind[index] }
    }
  }

  private struct State {
    var addresses: [PeerAddress: Counts] = [:]
    /// Counts of unknown addresses, and of those above ``addressesMax``.
    var others = Counts()
  }

  /// Maximum number of addresses that are counted separately between two writes.
  static let addressesMax = 1_024
  /// Maximum number of lines per write, besides one for all other addresses.
  static let linesMax = 10
  /// Time between two writes.
  package static let interval = TimeAmount.seconds(10)

  private let logger: Logger
  private let state = NIOLockedValueBox(State())

  package init(logger: Logger) { self.logger = logger }

  /// Count a refusal.
  ///
  /// - Parameter address: nil if it is unknown.
  package func record(_ kind: Kind, from address: PeerAddress?) {
    state.withLockedValue { state in
      guard let network = address?.network, state.addresses.count < Self.addressesMax || state.addresses[network] != nil
      else {
        state.others.byKind[kind.rawValue] += 1
        return
      }
      state.addresses[network, default: Counts()].byKind[kind.rawValue] += 1
    }
  }

  /// Write the counts, largest first, and reset them.
  package func write() {
    let (addresses, others) = state.withLockedValue { state in
      defer { state = State() }
      return (state.addresses, state.others)
    }
    let sorted = addresses.sorted { ($0.value.total, $1.key.low) > ($1.value.total, $0.key.low) }
    for (address, counts) in sorted.prefix(Self.linesMax) { write("\(address)", counts) }
    var rest = others
    for (_, counts) in sorted.dropFirst(Self.linesMax) { rest.add(counts) }
    if rest.total > 0 { write("others", rest) }
  }

  private func write(_ address: String, _ counts: Counts) {
    logger.notice(
      "Refused in the last \(Self.interval.nanoseconds / 1_000_000_000) s",
      metadata: [
        "address": "\(address)", "tokens": "\(counts.byKind[Kind.token.rawValue])",
        "requests": "\(counts.byKind[Kind.rate.rawValue])", "connections": "\(counts.byKind[Kind.connection.rawValue])",
      ]
    )
  }
}
