package import Logging
internal import NIOConcurrencyHelpers
package import NIOCore

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#endif

/// How many connections a listener has at once.
package struct ConnectionLimits: Hashable, Sendable {
  /// Of all peers together.
  package var total: Int
  /// Of one IPv4 address, or one IPv6 network of 64 bits.
  package var perAddress: Int
  /// Of peers that have not shown yet who they are, by a valid token or a finished handshake. One more ends the oldest
  /// of them.
  package var unproven: Int
  /// Proxies and load balancers: neither ``perAddress`` nor ``unproven`` is theirs, as many clients share a connection.
  package var trusted: [AddressRange] = []
  /// Whether ``perAddress`` is also for peers on this machine.
  package var countsLoopback = true

  package init(total: Int, perAddress: Int, unproven: Int, trusted: [AddressRange] = []) {
    self.total = total
    self.perAddress = perAddress
    self.unproven = unproven
    self.trusted = trusted
  }
}

/// Counts a listener's connections and refuses those beyond its limits, for all of its event loops.
///
/// A refused connection is closed as it is accepted: it costs a descriptor for that moment, and no memory.
package final class ConnectionGate: Sendable {
  fileprivate struct Entry {
    var network: PeerAddress?
    /// Nil once the peer is proven.
    var place: UInt64?
  }

  fileprivate struct State {
    var open: [ObjectIdentifier: Entry] = [:]
    var perNetwork: [PeerAddress: Int] = [:]
    /// Channels of peers that were not proven as they came, in that order; those that are by now, or have gone, are
    /// passed over.
    var arrivals: [UInt64: any Channel] = [:]
    var oldestPlace: UInt64 = 0
    var nextPlace: UInt64 = 0
    var counts = Counts()
    var note = RefusalNote()
    var limits: ConnectionLimits
  }

  /// What became of connections, since the start.
  package struct Counts: Hashable, Sendable {
    package var refusedForTotal: Int64 = 0
    package var refusedForAddress: Int64 = 0
    package var refusedForDescriptors: Int64 = 0
    /// Ended for one more of their kind.
    package var endedUnproven: Int64 = 0
  }

  private let logger: Logger
  private let refusals: RefusalLog?
  private let state: NIOLockedValueBox<State>

  /// - Parameter refusals: told of each connection that is refused or ended; nil: nobody is.
  package init(limits: ConnectionLimits, logger: Logger, refusals: RefusalLog? = nil) {
    state = NIOLockedValueBox(State(limits: limits))
    self.logger = logger
    self.refusals = refusals
  }

  /// For connections from now on. Those that are open stay, also where they are more than that.
  package var limits: ConnectionLimits {
    get { state.withLockedValue { $0.limits } }
    set { state.withLockedValue { $0.limits = newValue } }
  }

  package var counts: Counts { state.withLockedValue { $0.counts } }

  /// Open connections.
  package var openCount: Int { state.withLockedValue { $0.open.count } }

  /// Whether an address is a proxy's, whose connections clients share.
  package func isTrusted(_ address: PeerAddress) -> Bool { limits.trusted.contains { $0.contains(address) } }

  /// Whether a connection that was just accepted may stay. It counts until it is closed.
  package func admits(_ channel: any Channel) -> Bool {
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
    // A proxy's is whomever it names.
    return address.map(isTrusted) ?? false || admits(channel, from: address)
  }

  /// Whether a connection may stay, by the address that it comes from: its peer's, or one that a trusted proxy names.
  package func admits(_ channel: any Channel, from address: PeerAddress?) -> Bool {
    let limits = limits
    let isCounted = limits.countsLoopback || address?.isLoopback != true
    let network = isCounted ? address?.network : nil
    let id = ObjectIdentifier(channel)
    let (isAdmitted, ended): (Bool, (any Channel)?) = state.withLockedValue { state in
      guard state.open[id] != nil else { return (false, nil) }
      if let network {
        let count = state.perNetwork[network, default: 0]
        guard count < limits.perAddress else {
          state.counts.refusedForAddress += 1
          return (false, nil)
        }
        state.perNetwork[network] = count + 1
        state.open[id]?.network = network
      }
      let ended = state.arrivals.count >= limits.unproven ? state.oldestUnproven() : nil
      state.arrive(id, channel)
      return (true, ended)
    }
    if let ended {
      refused("unproven", ended, ended.remoteAddress.flatMap { PeerAddress($0) })
      ended.close(promise: nil)
    }
    if !isAdmitted { refused("address", channel, address) }
    return isAdmitted
  }

  private func refused(_ reason: String, _ channel: any Channel, _ address: PeerAddress?) {
    note(reason, channel)
    refusals?.note(.connection, from: address)
  }

  /// The peer has shown who it is.
  package func prove(_ channel: any Channel) {
    state.withLockedValue { $0.prove(ObjectIdentifier(channel)) }
  }

  /// Nothing could be accepted: the process is out of descriptors, or the system of memory.
  package func acceptFailed(_ error: any Error) {
    state.withLockedValue { $0.counts.refusedForDescriptors += 1 }
    note("\(error)", nil)
  }

  private func closed(_ id: ObjectIdentifier) {
    state.withLockedValue { state in
      state.prove(id)
      guard let entry = state.open.removeValue(forKey: id), let network = entry.network else { return }
      let count = state.perNetwork[network, default: 1] - 1
      state.perNetwork[network] = count == 0 ? nil : count
    }
  }

  /// One line a second at most, with how many there were.
  private func note(_ reason: String, _ channel: (any Channel)?) {
    let now = NIODeadline.now()
    let count = state.withLockedValue { $0.note.refused(at: now) }
    guard let count else { return }
    logger.warning(
      "Connections are refused",
      metadata: [
        "count": "\(count)", "reason": "\(reason)", "open": "\(openCount)",
        "peer": "\(channel?.remoteAddress.map(String.init(describing:)) ?? "unknown")",
      ]
    )
  }

  /// Adds who is not proven and who was refused.
  ///
  /// - Parameter prefix: of the metrics' names, such as `tidemark_gateway`.
  package func collect(into samples: inout MetricSamples, prefix: String) {
    let (counts, unproven) = state.withLockedValue { ($0.counts, $0.arrivals.count) }
    samples.gauge(
      "\(prefix)_connections_unproven",
      help: "Connections whose peer has not shown yet who it is.",
      Double(unproven)
    )
    let reasons = [
      ("total", counts.refusedForTotal), ("address", counts.refusedForAddress),
      ("descriptors", counts.refusedForDescriptors), ("unproven", counts.endedUnproven),
    ]
    for (reason, count) in reasons {
      samples.counter(
        "\(prefix)_connections_refused_total",
        help: "Connections closed as they were accepted, or, unproven, for a newer one.",
        labels: ["reason": reason],
        count
      )
    }
  }
}

extension ConnectionGate.State {
  fileprivate mutating func arrive(_ id: ObjectIdentifier, _ channel: any Channel) {
    open[id]?.place = nextPlace
    arrivals[nextPlace] = channel
    nextPlace += 1
  }

  fileprivate mutating func prove(_ id: ObjectIdentifier) {
    guard let place = open[id]?.place else { return }
    open[id]?.place = nil
    arrivals[place] = nil
  }

  fileprivate mutating func oldestUnproven() -> (any Channel)? {
    while oldestPlace < nextPlace {
      defer { oldestPlace += 1 }
      guard let channel = arrivals.removeValue(forKey: oldestPlace) else { continue }
      open[ObjectIdentifier(channel)]?.place = nil
      counts.endedUnproven += 1
      return channel
    }
    return nil
  }
}

/// When something that may happen thousands of times a second is logged.
package struct RefusalNote: Sendable {
  private var last: NIODeadline?
  private var count = 0

  package init() {}

  /// - Returns: how many there were since the last line, this one included; nil: no line is due.
  package mutating func refused(at now: NIODeadline) -> Int? {
    count += 1
    if let last, now < last + .seconds(1) { return nil }
    defer { count = 0 }
    last = now
    return count
  }
}

/// Stands at a listener: takes the connections that its gate admits.
package final class ConnectionGateHandler: ChannelInboundHandler {
  package typealias InboundIn = any Channel
  package typealias InboundOut = any Channel

  private let gate: ConnectionGate
  private var isWaiting = false

  package init(_ gate: ConnectionGate) { self.gate = gate }

  package func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    let channel = unwrapInboundIn(data)
    guard gate.admits(channel) else { return channel.close(promise: nil) }
    context.fireChannelRead(data)
  }

  package func errorCaught(context: ChannelHandlerContext, error: any Error) {
    gate.acceptFailed(error)
    if let error = error as? IOError, Self.waits(for: error) { wait(context.channel) }
    context.fireErrorCaught(error)
  }

  /// Not where a peer has gone before it was accepted: it could make all others wait.
  private static func waits(for error: IOError) -> Bool {
    [EMFILE, ENFILE, ENOBUFS, ENOMEM].contains(error.errnoCode)
  }

  /// Accepts nothing for a moment. NIO's AcceptBackoffHandler holds the next read back, but the listener goes on with
  /// the read that has failed, for as long as a connection waits: 45,000 times a second.
  private func wait(_ listener: any Channel) {
    guard !isWaiting, let options = listener.syncOptions,
      (try? options.setOption(.autoRead, value: false)) != nil
    else { return }
    isWaiting = true
    let bound = NIOLoopBound(self, eventLoop: listener.eventLoop)
    listener.eventLoop.scheduleTask(in: .milliseconds(200)) {
      bound.value.isWaiting = false
      try? listener.syncOptions?.setOption(.autoRead, value: true)
    }
  }

  /// Prepares a listener: without descriptors or memory it waits before it tries again (NIO would try at once, for ever),
  /// and beyond the gate's limits it takes nobody.
  package static func prepare(_ listener: any Channel, _ gate: ConnectionGate) throws {
    try listener.pipeline.syncOperations.addHandler(ConnectionGateHandler(gate))
  }
}
