internal import NIOCore
internal import ReceiptWire

/// State machine of the nodes of a cluster that a client connects to, and of their addresses. Configured addresses are
/// never given up. Other nodes are learned from the maps of connected nodes (Proto/frames.md, "Shards of a cluster").
///
/// A node is known by its number, which its map has: a configured address may be another name of a node that is
/// announced under another address. An index is that of a node's connection in the client, and is used again once the
/// connection is retired.
struct KnownNodes {
  typealias Address = StoreClientConfiguration.Address

  private struct Entry {
    /// Configured addresses that led to the node when they were used last. A node without any is learned.
    var configured: [Address]
    /// Number of the node: of its newest map or, before the first map of a learned node, as others name it.
    var number: UInt16?
    /// The addresses to try in turn; at least one.
    var addresses: [Address]
    /// The newest address under which others have named the node.
    var announced: Address?
    /// Where the node has sent its map; nil: it is not connected.
    var connected: Connected?
    /// Whether a connection or an attempt has failed.
    var hasFailed = false

    /// Return whether the node is connected to at an address, or may be next.
    func uses(_ address: Address) -> Bool {
      if let connected { connected.address == address } else { addresses.contains(address) }
    }
  }

  private struct Connected {
    var address: Address
    /// The other nodes that its newest map names.
    var peers: [ShardMap.Peer]
  }

  /// By index; nil: not used.
  private var entries: [Entry?] = []
  /// Addresses of the nodes that connected nodes name, by number. Unchanged while no node is connected.
  private var named: [UInt16: Address] = [:]
  /// Numbers of the nodes that the owner of this client has listed last. They stay named without a map.
  private var listed: Set<UInt16> = []
  /// Number of the node that last answered at an address. An address that is announced for another node is not tried
  /// again until that node's connection ends, since each connection to a node ends the one before.
  private var lastNode: [Address: UInt16] = [:]
  /// Until when the configured addresses may still turn out to be the nodes that are named; nil: it is over.
  private var settleDeadline: NIODeadline?
  /// Number of a node that is never connected to.
  private let excluded: UInt16?
  /// How long named nodes wait for the configured addresses. A second connection to one node would end the first one.
  static let settleTime: TimeAmount = .seconds(1)

  /// - Parameters:
  ///   - addresses: the configured ones; each gets the index of its position.
  ///   - excluded: number of a node that is not connected to although others name it.
  ///   - now: when the client learned that the store is a cluster.
  init(_ addresses: [Address], excluded: UInt16?, now: NIODeadline) {
    entries = addresses.prefix(ShardRoutes.nodesMax).map { Entry(configured: [$0], addresses: [$0]) }
    self.excluded = excluded
    settleDeadline = now + Self.settleTime
  }

  // MARK: - Events

  /// What an event has changed, to be executed in this order.
  struct Changes: Equatable {
    /// Give up these connections for good.
    var retired: [Int] = []
    /// Use other addresses from the next attempt on.
    var moved: [Move] = []
    /// Make a connection with these addresses at each index.
    var added: [Addition] = []

    struct Move: Equatable {
      var index: Int
      var addresses: [Address]
      /// The address to try next; nil: the current one if it is among them.
      var next: Address?
    }

    struct Addition: Equatable {
      var index: Int
      var addresses: [Address]
    }
  }

  /// Take a node's map, which came over a connection to `address`.
  mutating func receive(_ map: ShardMap, of index: Int, at address: Address) -> Changes {
    guard var entry = entries[index] else { return Changes() }
    var changes = Changes()
    // What this connection has named before is no news: another node may know better since.
    let before = entry.number == map.node ? entry.connected?.peers ?? [] : []
    for peer in map.peers where peer.node != excluded && !before.contains(peer) {
      guard named[peer.node] != nil || named.count < ShardRoutes.nodesMax else { continue }
      named[peer.node] = Address(host: peer.host, port: Int(peer.port))
    }
    lastNode[address] = map.node
    if entry.number != map.node { entry.announced = nil }
    entry.number = map.node
    entry.connected = Connected(address: address, peers: map.peers)
    for other in entries.indices where other != index && entries[other]?.number == map.node {
      // One connection to the node remains, the newer one. It inherits the addresses.
      let inherited = entries[other]?.configured ?? []
      entry.configured += inherited.filter { !entry.configured.contains($0) }
      entry.announced = entry.announced ?? entries[other]?.announced
      entries[other] = nil
      changes.retired.append(other)
    }
    // A configured address stays with the node that it leads to.
    for other in entries.indices where other != index && entries[other]?.configured.contains(address) == true {
      entries[other]?.configured.removeAll { $0 == address }
      entry.configured.append(address)
    }
    entries[index] = entry
    update(&changes)
    return changes
  }

  /// Take the nodes that the owner of this client knows from elsewhere. They may have moved while no node is connected
  /// that could name their addresses.
  mutating func list(_ nodes: [ShardMap.Peer]) -> Changes {
    var changes = Changes()
    listed = []
    for node in nodes where node.node != excluded && listed.count < ShardRoutes.nodesMax {
      listed.insert(node.node)
      named[node.node] = Address(host: node.host, port: Int(node.port))
    }
    update(&changes)
    return changes
  }

  /// Handle the end of a node's connection, or of an attempt to connect.
  ///
  /// - Parameter isSuperseded: another connection to the node has ended this one.
  mutating func lost(_ index: Int, isSuperseded: Bool) -> Changes {
    guard let entry = entries[index] else { return Changes() }
    if !isSuperseded { lastNode = lastNode.filter { $0.value != entry.number } }
    entries[index]?.connected = nil
    entries[index]?.hasFailed = true
    var changes = Changes()
    update(&changes)
    return changes
  }

  /// Check whether the wait for the configured addresses is over.
  mutating func tick(now: NIODeadline) -> Changes {
    var changes = Changes()
    guard let settleDeadline, now >= settleDeadline else { return changes }
    self.settleDeadline = nil
    update(&changes)
    return changes
  }

  /// Forget which nodes the configured addresses lead to: another cluster may answer there. No node is connected.
  mutating func sessionEnded(now: NIODeadline) {
    for index in entries.indices where entries[index]?.configured.isEmpty == false {
      entries[index]?.number = nil
      entries[index]?.hasFailed = false
    }
    settleDeadline = now + Self.settleTime
  }

  // MARK: - Decisions

  private mutating func update(_ changes: inout Changes) {
    // Without a connected node nothing new is known, and any address may be the first to answer.
    if entries.contains(where: { $0?.connected != nil }) {
      forgetUnnamed()
      retireGone(&changes)
    }
    for index in entries.indices { updateAddresses(of: index, &changes) }
    addNamed(&changes)
  }

  private mutating func forgetUnnamed() {
    var numbers = listed
    for entry in entries { for peer in entry?.connected?.peers ?? [] { numbers.insert(peer.node) } }
    named = named.filter { numbers.contains($0.key) }
    let addresses = Set(named.values)
    lastNode = lastNode.filter { addresses.contains($0.key) }
  }

  /// Give up learned nodes that are neither named nor connected.
  private mutating func retireGone(_ changes: inout Changes) {
    for index in entries.indices {
      guard let entry = entries[index], entry.configured.isEmpty, entry.connected == nil else { continue }
      if let number = entry.number, named[number] != nil { continue }
      entries[index] = nil
      changes.retired.append(index)
    }
  }

  private mutating func updateAddresses(of index: Int, _ changes: inout Changes) {
    guard var entry = entries[index] else { return }
    let announced = entry.number.flatMap { named[$0] }
    var addresses = entry.configured
    if let address = announced ?? (addresses.isEmpty ? entry.announced : nil), !addresses.contains(address) {
      addresses.append(address)
    }
    if addresses.isEmpty { addresses = entry.addresses }
    // A node that has moved is found at its new address first.
    let next = entry.announced != nil && announced != entry.announced ? announced : nil
    if let announced { entry.announced = announced }
    if addresses != entry.addresses || next != nil {
      changes.moved.append(Changes.Move(index: index, addresses: addresses, next: next))
    }
    entry.addresses = addresses
    entries[index] = entry
  }

  /// Connect to the nodes that are named and not known.
  private mutating func addNamed(_ changes: inout Changes) {
    if entries.allSatisfy({ $0 == nil || $0?.number != nil || $0?.hasFailed == true }) { settleDeadline = nil }
    guard settleDeadline == nil else { return }
    for (number, address) in named.sorted(by: { $0.key < $1.key }) {
      // Another node may have the address of one that is gone, so that the numbers differ.
      let isKnown = entries.contains { $0?.number == number || $0?.uses(address) == true }
      guard !isKnown, !misleads(address), let index = freeIndex() else { continue }
      entries[index] = Entry(configured: [], number: number, addresses: [address], announced: address)
      changes.added.append(Changes.Addition(index: index, addresses: [address]))
    }
  }

  private func misleads(_ address: Address) -> Bool {
    guard let number = lastNode[address] else { return false }
    return entries.contains { $0?.number == number }
  }

  /// Return an index for another node, the lowest; nil: there are too many.
  private mutating func freeIndex() -> Int? {
    if let index = entries.firstIndex(where: { $0 == nil }) { return index }
    guard entries.count < ShardRoutes.nodesMax else { return nil }
    entries.append(nil)
    return entries.count - 1
  }
}
