import DequeModule
import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import TestSupport

/// Store, storage, gateways and the network between them, in one thread and in an order determined by the seed. Reads,
/// commits, frames and replies take random times. Connections are cut, clocks jump, and the store crashes between any
/// two steps of a commit. Every reply is compared with ``NaiveShard``.
final class Simulation {
  static let shardCount = 4
  static let loopCount = 2

  let seed: UInt64
  var random: SplitMix64
  var faults: [String] = []
  var oracles = [ShardOracle](repeating: ShardOracle(), count: shardCount)
  var disk = SimulatedDisk()
  var loops: [SimulatedLoop] = []
  // Of a simulation with followers
  let hasFollowers: Bool
  /// The batches that each loop has committed, which its follower follows.
  var sharedLog = [SharedLog](repeating: SharedLog(), count: loopCount)
  var followers: [SimulatedLoop] = []
  var followerDisk = SimulatedDisk()
  let followerConfiguration: StoreLoopConfiguration
  var gateways: [SimulatedGateway] = []
  /// The connections with work left, including a gateway's older ones.
  var connections: [Connection] = []
  var generator: SimulatedRequestGenerator
  let configuration: StoreLoopConfiguration
  private(set) var clock: Int64 = 1_000_000_000
  private(set) var issued = 0
  private var nextSerial: UInt64 = 1
  private var nextSession: UInt64 = 1
  private var nextCorrelation: UInt32 = 1
  /// Commands whose gateways received the refusal.
  var refused: Set<CommandKey> = []
  /// Connections that close before the current call of the loop returns.
  var closingConnections: Set<UInt64> = []
  /// Whether faults are turned off.
  var faultsAreOff = false
  /// The number of requests that the loops have received.
  var arrivals = 0
  /// The request that is being received, and whether it waits for a slice.
  var arriving: (request: Request, isPostponed: Bool)?
  /// Requests whose channel has just been looked up: they are performed or postponed before the loop's call returns.
  var lookedUp: [ShardOracle.Waiting] = []
  /// A mistake of the model, for a control.
  var mistake: ModelMistake?
  /// Membership changes, and confirmations of them, in flight between the loops.
  var mail: [LoopMessage] = []
  /// Steps since the last start: crashes are more frequent during recovery.
  var sinceStart = 0
  /// The number of times each event occurred, to check that a simulation covers everything.
  var tally: [String: Int] = [:]

  /// - Parameter hasFollowers: a follower beside each loop, which is promoted instead of a restart.
  init(seed: UInt64, hasFollowers: Bool = false) {
    self.seed = seed
    self.hasFollowers = hasFollowers
    random = SplitMix64(seed: seed)
    generator = SimulatedRequestGenerator(seed: seed)
    var shape = SplitMix64(seed: seed ^ 0x5A5A)
    configuration = Self.configuration(&shape)
    followerConfiguration = Self.followerConfiguration(configuration, &shape)
    start()
    // The last gateway only queries.
    for _ in 0..<4 { gateways.append(SimulatedGateway(session: newSession())) }
    enlarge()
  }

  /// Small enough that every limit is reached.
  private static func configuration(_ random: inout SplitMix64) -> StoreLoopConfiguration {
    var configuration = StoreLoopConfiguration()
    configuration.pageWriteAgeMilliseconds = random.pick([0, 20, 300, 3_000])
    configuration.pageWriteLogBytes = random.pick([400, 5_000, 16 << 20])
    configuration.pageWriteSliceBytes = random.pick([1, 2_000, 256 << 10])
    configuration.trimBatchesMin = random.pick([1, 3, 50])
    configuration.loadsMax = random.pick([1, 2, 4, 64])
    configuration.waitingPerLoadMax = random.pick([1, 3, 64])
    configuration.tailLoadsMax = random.pick([1, 2, 8])
    configuration.tailRetryMilliseconds = 50
    configuration.changesInFlightMax = random.pick([1, 3, 4_096])
    configuration.indexLoadsMax = random.pick([1, 2, 64])
    configuration.changesPerTurn = random.pick([1, 5, 1_024])
    configuration.changesRetryMilliseconds = 50
    configuration.changesLoggedMilliseconds = random.pick([0, 30, 1_000])
    configuration.residentBytesMax = random.pick([.max, 1, 4_000, 12_000])
    configuration.evictionScanMax = random.pick([1, 16, 256])
    configuration.changesPendingMax = random.pick([40, 65_536])
    configuration.sliceEffects = random.pick([1, 4_096])
    configuration.entriesPerTurn = random.pick([1, 40, 1_024])
    configuration.sliceRows = random.pick([1, 700, 65_536])
    configuration.shortRows = random.pick([1, 700, 8_192])
    configuration.nextCommitBytesMax = random.pick([1, 2_000, 512 << 10])
    // The oracle does not predict how many requests are waiting for a slice.
    configuration.postponedMax = .max
    configuration.slicedQueriesMax = .max
    // The oracle erases a user at once.
    configuration.shortEffects = 1 << 30
    return configuration
  }

  func newSession() -> SessionID {
    nextSession += 1
    return SessionID(high: seed, low: nextSession)
  }

  func count(_ name: String) { tally[name, default: 0] += 1 }

  /// The name in the tally of refusals with this code.
  static func refusal(_ code: UInt64) -> String { "refused with \(code)" }

  /// Add members for more than one page of rows.
  func enlarge() {
    let cid = SimulatedRequestGenerator.large
    let large = Int(ShardID.owning(Array(cid.utf8).span.bytes, count: Self.shardCount).rawValue)
    guard oracles[large].live.channels[cid]?.rows.count ?? 0 < 300 else { return }
    issue(.put(cid: cid, OptionChange(), (0..<300).map { MemberSpec(user: "many\($0)") }), to: large, by: 0)
  }

  // MARK: Steps

  func step() {
    sinceStart += 1
    clock += Int64(random.below(4))
    switch random.below(100) {
    case 0..<16:
      let gateway = random.below(gateways.count - 1)
      for _ in 0...random.below(5) where !faultsAreOff && gateways[gateway].outstanding.count < 80 {
        issueNext(gateway)
      }
    case 16..<36: receiveFrames(random.below(6) + 1)
    case 36..<58: deliverFrames(random.below(6) + 1)
    case 58..<74: commitStep(random.pick(loops))
    case 74..<84: completeLoad(random.pick(loops))
    case 84..<92: readReplies(random.below(8) + 1)
    case 92..<94: tick(random.pick(loops))
    case 94: for target in loops where random.oneIn(2) { target.slice() }
    case 95..<97:
      if let gateway = gateways.indices.filter({ gateways[$0].connection == nil }).first { connect(gateway) }
    case 97:
      let gateway = random.below(gateways.count)
      if !faultsAreOff, gateways[gateway].connection != nil, random.oneIn(3) { cut(gateway) }
    case 98: jump()
    default:
      if !faultsAreOff, random.oneIn(sinceStart < 60 ? 3 : 12) { restart(isCrash: true) }
    }
    for gateway in gateways.indices where gateways[gateway].connection?.isEnded == true && random.oneIn(4) {
      cut(gateway)
    }
    if random.oneIn(3) { deliverMessages() }
    if random.oneIn(6) { random.pick(loops).slice() }
    if hasFollowers, !random.oneIn(3) { followerStep() }
    afterwards()
  }

  /// Handle the effects of any call of a loop.
  private func afterwards() {
    if loops.contains(where: \.isHalted) {
      count("halts")
      restart(isCrash: false)
    }
    faults += disk.faults
    if hasFollowers { faults += followerDisk.faults }
  }

  private func jump() {
    guard random.oneIn(4) else { return }
    clock += random.oneIn(2) ? Int64(random.below(7_200_000)) : -Int64(random.below(7_200_000))
    clock = max(clock, 1_000_000)
    count("clock jumps")
  }

  func pass(milliseconds: Int64) { clock += milliseconds }

  func tick(_ target: SimulatedLoop) {
    target.setClock(clock)
    target.loop.tick()
  }

  // MARK: Requests

  private func issueNext(_ gateway: Int) {
    let content = generator.next()
    var shard = random.below(Self.shardCount)
    if let cid = content.cid {
      let owner = Int(ShardID.owning(Array(cid.utf8).span.bytes, count: Self.shardCount).rawValue)
      shard = random.oneIn(400) && content.kind != .getChannel ? (owner + 1) % Self.shardCount : owner
    }
    if let key = content.webhook {
      shard = Int(ShardID.owning(Array(key.utf8).span.bytes, count: Self.shardCount).rawValue)
    }
    if content.isAboutTokens { shard = 0 }
    if case .patchUser(let user, _, _) = content {
      shard = Int(ShardID.owning(Array(user.utf8).span.bytes, count: Self.shardCount).rawValue)
    }
    issue(content, to: shard, by: gateway)
  }

  func issue(_ content: RequestContent, to shard: Int, by gateway: Int) {
    var request = Request(content: content, shard: shard, counter: 0, correlation: nextCorrelation)
    nextCorrelation += 1
    if content.kind.isCommand {
      request.counter = gateways[gateway].nextCounter
      gateways[gateway].nextCounter += 1
      issued += 1
    }
    gateways[gateway].outstanding.append(request)
    gateways[gateway].connection?.wire.append((request, false))
  }

  // MARK: Connections

  func connect(_ gateway: Int) {
    if !faultsAreOff, random.oneIn(12) {
      // The session is dropped: the results of its commands stay unknown.
      gateways[gateway].outstanding.removeAll { $0.counter > 0 }
      gateways[gateway].session = newSession()
      gateways[gateway].nextCounter = 1
      count("new sessions")
    }
    let connection = Connection(
      gateway: gateway,
      session: gateways[gateway].session,
      serial: nextSerial,
      loops: Self.loopCount
    )
    nextSerial += 1
    for number in 0..<Self.loopCount {
      connection.lanes.append(
        ReplyLane(
          session: connection.session,
          serial: connection.serial,
          shards: loops[number].loop.shardCount,
          deliver: { [unowned self, unowned connection] bytes, count in
            self.delivered(bytes, count, connection)
          },
          end: { [unowned self, unowned connection] _ in self.end(connection) }
        )
      )
    }
    let resent = gateways[gateway].outstanding
    for request in resent { connection.wire.append((request, true)) }
    if !resent.isEmpty { count("resends") }
    gateways[gateway].connection = connection
    connections.append(connection)
  }

  /// The gateway drops its connection; some data in flight still arrives.
  func cut(_ gateway: Int) {
    guard let connection = gateways[gateway].connection else { return }
    count("cuts")
    let arriving = connection.back.isEmpty ? 0 : random.below(connection.back.count + 1)
    for _ in 0..<arriving { readReply(connection) }
    connection.back = []
    connection.isCut = true
    let kept = random.below(connection.wire.count + 1)
    connection.wire.removeLast(connection.wire.count - kept)
    gateways[gateway].connection = nil
    gateways[gateway].outstanding.removeAll { if case .malformed = $0.content { true } else { false } }
    if !faultsAreOff, random.oneIn(10), !gateways[gateway].outstanding.isEmpty {
      // A deadline has passed.
      gateways[gateway].outstanding.remove(at: random.below(gateways[gateway].outstanding.count))
      count("given up")
    }
    if random.oneIn(2) { connect(gateway) }
  }

  /// The store closes a connection.
  private func end(_ connection: Connection) {
    guard !connection.isEnded else { return }
    connection.isEnded = true
    connection.wire = []
    for number in connection.inboxes.indices { connection.inboxes[number].append(.close) }
    count("ended")
  }

  /// Read frames from the sockets, and pass them to the loops that own their shards.
  func receiveFrames(_ most: Int) {
    guard let connection = pick({ !$0.wire.isEmpty || ($0.isCut && !$0.isEnded) }) else { return }
    for _ in 0..<most {
      guard let (request, isResend) = connection.wire.popFirst() else { break }
      connection.inboxes[request.shard % Self.loopCount].append(.request(request, isResend: isResend))
    }
    if connection.isCut, connection.wire.isEmpty, !connection.isEnded, faultsAreOff || random.oneIn(3) {
      end(connection)
    }
  }

  func pick(_ isWanted: (Connection) -> Bool) -> Connection? {
    let wanted = connections.filter(isWanted)
    return wanted.isEmpty ? nil : random.pick(wanted)
  }

  /// A loop takes some frames of one connection.
  func deliverFrames(_ most: Int) {
    let number = random.below(Self.loopCount)
    guard let connection = pick({ !$0.inboxes[number].isEmpty }) else { return }
    let target = loops[number]
    let lane = connection.lanes[number]
    target.setClock(clock)
    closingConnections = []
    for _ in 0..<most {
      guard let item = connection.inboxes[number].popFirst() else { break }
      switch item {
      case .open:
        target.loop.open(lane)
        // It closes the older connections of its session.
        if !target.isHalted {
          cancel(target) {
            $0 !== connection && $0.session == connection.session && $0.serial <= connection.serial
          }
        }
      case .close:
        target.loop.close(lane)
        cancel(target) { $0 === connection }
      case .request(let request, let isResend): take(request, isResend, connection, target)
      }
    }
    target.loop.endTurn()
    if connection.isEnded, connection.inboxes.allSatisfy(\.isEmpty) {
      connections.removeAll { $0 === connection }
    }
  }

  /// A loop closes connections: what waits for them is dropped, and with it the reads that nothing else waits for.
  private func cancel(_ target: SimulatedLoop, _ isClosed: (Connection) -> Bool) {
    for shard in oracles.indices where shard % Self.loopCount == target.number {
      for (cid, items) in oracles[shard].waiting {
        let left = items.filter { !isClosed($0.connection) }
        guard left.count < items.count else { continue }
        count("cancelled")
        oracles[shard].waiting[cid] = left.isEmpty ? nil : left
        if left.isEmpty { oracles[shard].loading.removeValue(forKey: .cid(Array(cid.utf8))) }
      }
      oracles[shard].postponed.removeAll { isClosed($0.connection) }
    }
  }

  // MARK: Replies

  private func delivered(_ bytes: ByteBuffer, _ count: Int, _ connection: Connection) {
    let decoder = FrameDecoder()
    let span = bytes.readableBytesSpan
    var offset = 0
    var frames = 0
    do {
      while case .frame(let header, let payloadCount) = try decoder.next(span, at: offset) {
        let start = offset + FrameHeader.byteCount
        offset = start + payloadCount
        frames += 1
        answered(header, try Reply(header, span.extracting(start..<offset)), connection)
      }
    } catch {
      faults.append("a reply does not parse: \(error)")
    }
    if frames != count { faults.append("\(count) replies are counted, \(frames) came") }
  }

  private func answered(_ header: FrameHeader, _ reply: Reply, _ connection: Connection) {
    guard let expected = connection.expected.removeValue(forKey: header.correlation) else {
      faults.append("a reply that nothing waits for: \(header) \(reply)")
      return
    }
    connection.requests.removeValue(forKey: header.correlation)
    let isSliced = connection.sliced.remove(header.correlation) != nil
    let deletions = expected.cid.map { oracles[expected.shard].deletionCount(of: $0) } ?? 0
    if !expected.admits(reply, isSliced: isSliced, deletions: deletions) {
      faults.append("\(header): the model says \(expected.replies), the store \(reply)")
    }
    if expected.needs > oracles[expected.shard].durableChangeCount {
      faults.append(
        """
        \(header): left before the changes that it shows were on storage (\(expected.needs), storage has \
        \(oracles[expected.shard].durableChangeCount)): \(reply)
        """
      )
    }
    count("replies")
    if !connection.isCut, !connection.isEnded { connection.back.append((header.correlation, reply)) }
  }

  func readReplies(_ most: Int) {
    guard let connection = pick({ !$0.back.isEmpty }) else { return }
    for _ in 0..<most where !connection.back.isEmpty { readReply(connection) }
  }

  func readReply(_ connection: Connection) {
    let (correlation, reply) = connection.back.removeFirst()
    let place = gateways[connection.gateway].outstanding.firstIndex { $0.correlation == correlation }
    guard let place else { return }
    let request = gateways[connection.gateway].outstanding.remove(at: place)
    if case .refused = reply, request.counter > 0 {
      refused.insert(CommandKey(session: connection.session, counter: request.counter))
    }
  }
}
