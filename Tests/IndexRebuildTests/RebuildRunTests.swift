import NIOCore
import NIOPosix
import Operations
import ReceiptModel
import ReceiptWire
import StoreTestSupport
import Synchronization
import TestSupport
import Testing

@testable import IndexRebuild

/// Complete rebuilds against a fake store that listens on loopback.
struct RebuildRunTests {
  @Test func everyShardIsRebuilt() async throws {
    let listener = try await Listener.start(FakeShards(epochs: [0, 6, 2]))
    let lines = Mutex<[String]>([])
    let summary = try await listener.rebuild.run { progress in
      lines.withLock { $0.append("\(progress)") }
    }
    var expected = RebuildSummary()
    (expected.epoch, expected.shards, expected.channels) = (7, 3, 6)
    (expected.changes, expected.entries) = (18, 18)
    #expect(summary == expected)
    let said = lines.withLock { $0 }
    #expect(said.first == "connecting to the store")
    #expect(said.contains { $0.hasPrefix("phase 1 of 2, epoch 7: ") })
    #expect(
      said.last == "phase 2 of 2, epoch 7: removing stale entries, 3 of 3 shards done, 18 entries"
    )
    try await listener.stop()
  }

  /// The store restarts in each phase.
  @Test(arguments: [RebuildIndexReply.Phase.resending, .sweeping])
  func rebuildSurvivesStoreRestart(_ phase: RebuildIndexReply.Phase) async throws {
    let listener = try await Listener.start(FakeShards(epochs: [1, 0], channels: 3), restartsIn: phase)
    let summary = try await listener.rebuild.run { _ in }
    #expect(summary.epoch == 2 && summary.shards == 2)
    #expect(listener.connections.withLock { $0 } == 2)
    try await listener.stop()
  }

  @Test func unsupportedStoreFails() async throws {
    let listener = try await Listener.start(FakeShards(epochs: [0]), refusal: .notImplemented)
    await #expect(throws: RebuildFailure.unsupportedByStore) { _ = try await listener.rebuild.run { _ in } }
    try await listener.stop()
  }

  @Test func unreachableStoreFails() async throws {
    let listener = try await Listener.start(FakeShards(epochs: [0]))
    var rebuild = listener.rebuild
    try await listener.stop()
    rebuild.responseTimeout = .milliseconds(50)
    await #expect(throws: RebuildFailure.unreachable(.milliseconds(50))) {
      _ = try await rebuild.run { _ in }
    }
  }

  @Test func rebuildCanBeCancelled() async throws {
    let listener = try await Listener.start(FakeShards(epochs: [0], channels: .max))
    let (reached, reach) = AsyncStream.makeStream(of: Void.self)
    let rebuild = listener.rebuild
    let task = Task {
      try await rebuild.run { if $0.stage == .resending { reach.yield() } }
    }
    try await within("the rebuild's first step") { for await _ in reached { break } }
    task.cancel()
    let result = try await within("the rebuild's end") { await task.result }
    #expect(throws: CancellationError.self) { _ = try result.get() }
    try await listener.stop()
  }
}

/// A fake store with just two features: the handshake, and rebuild_index.
private final class Listener: Sendable {
  private let channel: any Channel
  let connections: Box<Int>

  private init(_ channel: any Channel, _ connections: Box<Int>) {
    self.channel = channel
    self.connections = connections
  }

  var rebuild: IndexRebuild {
    var rebuild = IndexRebuild(
      store: Endpoint(host: "127.0.0.1", port: channel.localAddress!.port!),
      secrets: []
    )
    rebuild.pollInterval = .milliseconds(1)
    return rebuild
  }

  static func start(
    _ shards: FakeShards,
    restartsIn phase: RebuildIndexReply.Phase? = nil,
    refusal: ErrorCode? = nil
  ) async throws -> Listener {
    let connections = Box(0)
    let store = Box(Store(shards: shards, restartsIn: phase, refusal: refusal))
    let channel = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
      .childChannelInitializer { channel in
        connections.withLock { $0 += 1 }
        return channel.eventLoop.makeCompletedFuture {
          let shardCount = store.withLock { $0.shards.shards.count }
          let terms = StoreSideHandler.Terms(shardCount: shardCount, window: 16)
          let handler = StoreSideHandler(terms, Connection(store)) { Issue.record($0) }
          try channel.pipeline.syncOperations.addHandler(handler)
        }
      }
      .bind(host: "127.0.0.1", port: 0).get()
    return Listener(channel, connections)
  }

  func stop() async throws { try await channel.close() }

  struct Store {
    var shards: FakeShards
    var restartsIn: RebuildIndexReply.Phase?
    var refusal: ErrorCode?
  }

  /// Shared by the connections' event loops.
  final class Box<Value: Sendable>: Sendable {
    private let value: Mutex<Value>
    init(_ value: Value) { self.value = Mutex(value) }
    func withLock<Result: Sendable>(_ body: (inout Value) -> Result) -> Result {
      value.withLock { value in body(&value) }
    }
  }

  private final class Connection: StoreSideConnection {
    private let store: Box<Store>

    init(_ store: Box<Store>) { self.store = store }

    func received(_ header: FrameHeader, _ payload: ByteBuffer, _ output: inout ByteBuffer) throws -> Bool {
      guard header.kind == .rebuildIndex else { return true }
      var reader = FieldReader(payload.readableBytesSpan)
      let kind = try #require(RebuildRequest.Kind(rawValue: try reader.byte()))
      let request = RebuildRequest(kind, shard: header.shard, epoch: try reader.varint())
      try reader.end()
      if let refusal = store.withLock({ $0.refusal }) {
        output.writeError(refusal, shard: header.shard, correlation: header.correlation)
        return true
      }
      let (fields, isEnding) = store.withLock { store in
        let fields = store.shards.reply(request)
        let isEnding = request.kind == .ask && fields.phase != .none && fields.phase == store.restartsIn
        if isEnding {
          store.restartsIn = nil
          store.shards.restart()
        }
        return (fields, isEnding)
      }
      if isEnding { return false }
      output.writeFrame(
        FrameHeader(replyTo: .rebuildIndex, shard: header.shard, correlation: header.correlation)
      ) { fields.write(into: &$0) }
      return true
    }
  }
}

/// Fake shards that answer rebuild_index as Proto/frames.md says: each finishes a phase after a few requests. A
/// restart loses the running phase, but not the epoch.
struct FakeShards {
  struct Shard {
    var epoch: UInt64
    var channels: UInt64
    var phase = RebuildIndexReply.Phase.none
    var done: UInt64 = 0
    /// The last epochs with which the shard has sent everything, and to which it has swept.
    var sent: UInt64 = 0
    var swept: UInt64 = 0
  }

  var shards: [Shard]
  /// The number of index entries of each channel.
  static let members: UInt64 = 3

  init(epochs: [UInt64], channels: UInt64 = 2) {
    shards = epochs.map { Shard(epoch: $0, channels: channels) }
  }

  mutating func restart() { for index in shards.indices { shards[index].phase = .none } }

  mutating func reply(_ request: RebuildRequest) -> RebuildIndexReply {
    let index = Int(request.shard.rawValue)
    var shard = shards[index]
    switch request.kind {
    case .ask: break
    case .resend:
      shard.epoch = max(shard.epoch, request.epoch)
      if shard.phase != .resending { (shard.phase, shard.done) = (.resending, 0) }
    case .sweep:
      if shard.phase != .sweeping { (shard.phase, shard.done) = (.sweeping, 0) }
    }
    if shard.phase != .none, request.kind == .ask { shard.done += 1 }
    if shard.done >= shard.channels, shard.phase != .none {
      if shard.phase == .resending { shard.sent = shard.epoch } else { shard.swept = shard.epoch }
      shard.phase = .none
    }
    shards[index] = shard
    return RebuildIndexReply(
      phase: shard.phase,
      epoch: shard.epoch,
      channelsDone: shard.done,
      channels: shard.channels,
      entries: shard.done * Self.members
    )
  }
}
