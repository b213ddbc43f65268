import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine

/// Two loops with two shards each over one storage. The test delivers the membership changes between them: once, twice,
/// late, or never. It records the expected indexes in plain text.
final class IndexHarness {
  static let shardCount = 4
  let storage: MemoryStorage
  private(set) var harnesses: [EngineHarness] = []
  private(set) var gateways: [Gateway] = []
  private let configure: (inout StoreLoopConfiguration) -> Void
  private var session: UInt64
  private(set) var clock: Int64 = 1_000
  /// The expected index of every user, by channel.
  var expected: [String: [String: String]] = [:]
  private var known: [String: [String]] = [:]

  /// - Parameter sessions: number of sessions that the storage has seen.
  init(
    _ storage: MemoryStorage = MemoryStorage(),
    sessions: UInt64 = 0,
    configure: @escaping (inout StoreLoopConfiguration) -> Void = { _ in }
  ) throws {
    self.storage = storage
    session = sessions
    self.configure = configure
    for number in 0..<2 { try start(number) }
  }

  private func start(_ number: Int) throws {
    let shards = stride(from: number, to: Self.shardCount, by: 2).map { UInt16($0) }
    let harness = try EngineHarness(storage, shards: shards, of: Self.shardCount) { configuration in
      configuration.indexWaitMilliseconds = 1_000
      self.configure(&configuration)
    }
    harness.clock = clock
    harness.advance(0)
    session += 1
    let gateway = harness.connect(session: session)
    if number < harnesses.count {
      harnesses[number] = harness
      gateways[number] = gateway
    } else {
      harnesses.append(harness)
      gateways.append(gateway)
    }
  }

  /// Crash the process of a loop. Its unwritten state and its messages in flight are lost.
  func crash(_ number: Int) throws {
    harnesses[number].loop.stop()
    try start(number)
  }

  static func shard(_ name: String) -> UInt16 {
    ShardID.owning(Array(name.utf8).span.bytes, count: shardCount).rawValue
  }

  func gateway(_ name: String) -> Gateway { gateways[Int(Self.shard(name)) % 2] }

  // MARK: Commands

  func put(_ cid: String, _ users: [String]) {
    gateway(cid).put(cid, users, shard: Self.shard(cid))
    for user in users { join(cid, user) }
    endTurn()
  }

  func change(_ cid: String, add: [String] = [], remove: [String] = []) {
    gateway(cid).change(cid, add: add, remove: remove, shard: Self.shard(cid))
    for user in remove where expected[user]?[cid] == cid { expected[user]?[cid] = "\(cid) (left)" }
    for user in add { join(cid, user) }
    endTurn()
  }

  func post(_ cid: String, _ id: String, by user: String) {
    gateway(cid).post(cid, id, by: user, shard: Self.shard(cid))
    if expected[user]?[cid] == nil { expected[user, default: [:]][cid] = "\(cid) (sent)" }
    endTurn()
  }

  /// Delete a channel: its members' indexes keep a tombstone.
  func delete(_ cid: String) {
    gateway(cid).deleteChannel(cid, shard: Self.shard(cid))
    for user in expected.keys { expected[user]?[cid] = nil }
    endTurn()
  }

  private func join(_ cid: String, _ user: String) { expected[user, default: [:]][cid] = cid }

  private func endTurn() { for harness in harnesses { harness.loop.endTurn() } }

  func advance(_ milliseconds: Int64) {
    clock += milliseconds
    for harness in harnesses {
      harness.advance(milliseconds)
      harness.loop.tick()
    }
  }

  // MARK: Between the loops

  private func takeDeliveries() -> [MembershipDelivery] {
    defer { for harness in harnesses { harness.deliveries = [] } }
    return harnesses.flatMap(\.deliveries)
  }

  /// Deliver all changes in flight to their loops.
  func exchange() {
    let deliveries = takeDeliveries()
    let confirmations = harnesses.flatMap(\.confirmations)
    for harness in harnesses { harness.confirmations = [] }
    deliver(deliveries)
    for confirmation in confirmations { deliver(confirmation) }
  }

  func deliver(_ deliveries: [MembershipDelivery]) {
    for delivery in deliveries { harnesses[Int(delivery.to.rawValue) % 2].loop.receive([delivery]) }
  }

  func deliver(_ confirmation: MembershipConfirmation) {
    harnesses[Int(confirmation.to.rawValue) % 2].loop.confirmed([confirmation])
  }

  /// Perform the first possible action. Return false if there is none.
  func step() throws -> Bool {
    for harness in harnesses {
      if !harness.loads.isEmpty {
        try harness.completeLoad()
        return true
      }
      if !harness.commits.isEmpty {
        try harness.persist()
        return true
      }
      if harness.slices > 0 {
        harness.slice()
        return true
      }
    }
    for harness in harnesses {
      if !harness.deliveries.isEmpty {
        deliver([harness.deliveries.removeFirst()])
        return true
      }
      if !harness.confirmations.isEmpty {
        deliver(harness.confirmations.removeFirst())
        return true
      }
    }
    return false
  }

  func runUntilIdle() throws {
    for _ in 0..<100_000 { if try !step() { return } }
    preconditionFailure("waited in vain until the loops are idle")
  }

  /// Run until all lost changes are resent and all changes are in storage.
  func runUntilResent() throws {
    for _ in 0..<12 {
      try runUntilIdle()
      advance(1_000)
    }
    try runUntilIdle()
  }

  // MARK: Expected and stored state

  /// A user's index, by the reply to list_channels.
  func list(
    _ user: String,
    flags: UInt64 = 1,
    limit: UInt64 = 1_000,
    from cursor: UInt64? = nil,
    since: Int64? = nil
  ) throws -> String {
    let gateway = gateway(user)
    _ = gateway.take()
    gateway.list(user, flags: flags, limit: limit, from: cursor, since: since, shard: Self.shard(user))
    endTurn()
    let harness = harnesses[Int(Self.shard(user)) % 2]
    var replies: [String] = []
    while replies.isEmpty {
      while !harness.loads.isEmpty || !harness.commits.isEmpty {
        try harness.completeLoads()
        try harness.persistAll()
      }
      replies = gateway.take()
      guard replies.isEmpty, harness.slices > 0 else { break }
      harness.slice()
    }
    return replies.last.map { String($0.drop { $0 != " " }.dropFirst()) } ?? "no answer"
  }

  /// The differences between the indexes and the expected ones.
  func differences() throws -> [String] {
    try expected.sorted { $0.key < $1.key }.compactMap { user, channels in
      let found = try list(user).split(separator: ", ").map(String.init).sorted().filter {
        $0 != "no channels"
      }
      let wanted = channels.values.sorted()
      return found == wanted ? nil : "\(user): \(found), not \(wanted)"
    }
  }

  /// The number of batches in all logs.
  var logLength: Int { storage.log.values.reduce(0) { $0 + $1.count } }

  var pending: Int { harnesses.reduce(0) { $0 + $1.loop.gauges.changesPending } }
}
