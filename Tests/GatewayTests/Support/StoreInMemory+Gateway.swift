import NIOCore
import ReceiptModel
import ReceiptWire
import StoreTestSupport

@testable import StoreEngine

/// What tests of the gateway ask its store.
extension StoreInMemory {
  /// The token issue times of the requests since the last call; nil for requests without one.
  func takeIssueTimes() async throws -> [UInt32?] { try await takeRequests().map(\.issued) }

  /// The user's settings in each shard, as "version flags".
  func settings(of user: String) async throws -> [String] {
    try await withStore { store in
      store.loop.shards.map { shard in
        let known = shard.state.settings[user]
        guard known.version > 0 else { return "-" }
        let hidden = [known.hidesRead ? " hides read" : "", known.hidesDelivered ? " hides delivered" : ""]
        return "\(known.version)\(hidden.joined())"
      }
    }
  }

  /// The names of unsettled values in the home shards.
  func unsettled() async throws -> [String] {
    var names: [String] = []
    for shard in 0..<shardCount {
      let payload = try await reply(to: .listUnsettled, ShardID(UInt16(shard)))
      var reader = FieldReader(payload.readableBytesSpan)
      for _ in 0..<(try reader.count()) { names.append(try reader.channelTypeRecord().name) }
      for _ in 0..<(try reader.count()) { names.append(try reader.userSettings().user) }
    }
    return names.sorted()
  }

  /// The places in storage that name a user: log batches and pages.
  func traces(of user: String) async throws -> [String] {
    try await withStore { try $0.data.traces(of: user) }
  }

  /// The channels that connections watch, sorted.
  func watchedChannels() async throws -> [String] {
    try await withStore { store in
      store.loop.shards.flatMap { shard in
        (0..<shard.events.channelCount).compactMap { shard.events.watchedChannel($0) }
      }.map { String(decoding: $0, as: UTF8.self) }.sorted()
    }
  }

  /// The number of watched channels and users, counted once per connection.
  func subscriptionCount() async throws -> Int {
    try await withStore { store in store.loop.shards.reduce(0) { $0 + $1.events.subscriptionCount } }
  }
}

/// Events that a test publishes in the store's name.
extension StoreInMemory {
  /// Send events of a channel on every connection.
  ///
  /// - Parameter through: the time up to which the shard's events are complete; nil: the store's time.
  func publish(_ cid: String, _ events: EventFields..., through: Int64? = nil) async throws {
    try await publish(shard(of: cid), through: through, channels: [ChannelEventsFields(cid: cid, events)])
  }

  /// Send events of a user on every connection.
  func publish(user: String, _ events: UserEventFields...) async throws {
    try await publish(shard(of: user), through: nil, users: [UserEventsFields(user: user, events)])
  }

  private func publish(
    _ shard: ShardID,
    through: Int64?,
    channels: [ChannelEventsFields] = [],
    users: [UserEventsFields] = []
  ) async throws {
    let now = try await withStore { $0.clock }
    let time = through.map { Timestamp(milliseconds: $0) } ?? now
    try await send(FrameHeader(.events, shard: shard)) { buffer in
      EventsFields(through: time, channels: channels, users: users).write(into: &buffer)
    }
  }

  func shard(of name: String) -> ShardID { ShardID.owning(Array(name.utf8).span.bytes, count: shardCount) }
}

extension [StoreInMemory.Request] {
  /// The subscriptions that ask for changes, each as `cid since`.
  var resumedChannels: [String] {
    get throws {
      var resumed: [String] = []
      for request in self where request.kind == .subscribe {
        var reader = FieldReader(request.payload.readableBytesSpan)
        let fields = try SubscribeRequest(&reader)
        guard fields.flags == 1 else { continue }
        fields.channels.forEach { cid in
          resumed.append("\(cid.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }) \(fields.since.milliseconds)")
        }
      }
      return resumed.sorted()
    }
  }

  /// The announced rows, each as `user cid`.
  var announcedRows: [String] {
    get throws {
      var announced: [String] = []
      for request in self where request.kind == .announceRow {
        var reader = FieldReader(request.payload.readableBytesSpan)
        let user = try reader.text()
        for _ in 0..<(try reader.count()) { announced.append("\(user) \(try reader.text())") }
      }
      return announced.sorted()
    }
  }

  /// The number of channels in each unread_counts.
  var countedChannels: [Int] {
    get throws {
      try filter { $0.kind == .unreadCounts }.map { request in
        var reader = FieldReader(request.payload.readableBytesSpan)
        return try reader.count()
      }
    }
  }
}
