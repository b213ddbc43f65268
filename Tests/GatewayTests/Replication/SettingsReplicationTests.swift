import Foundation
import HTTP2Session
import NIOCore
import ReceiptModel
import ReceiptWire
import StoreTestSupport
import TestSupport
import Testing

@testable import Gateway

/// Rounds of ``SettingsReplication``, without a store.
@Suite struct SettingsReplicationTests {
  /// A value whose home is shard 0 of `shardCount`.
  private func value(_ number: Int, version: UInt64 = 1, shardCount: Int = 3) -> SharedValue {
    var name = "type-\(number)"
    while SharedValue.channelType(ChannelTypeRecord(name: name)).home(shardCount: shardCount).rawValue != 0 {
      name += "x"
    }
    return .channelType(ChannelTypeRecord(name: name, version: version))
  }

  private func text(_ steps: [SettingsReplication.Step]) -> [String] {
    steps.map { step in
      switch step {
      case .listUnreplicated(let shard): "list \(shard.rawValue)"
      case .assign(let index, let value, let shardCount):
        "assign \(index) v\(value.version) to \(shardCount - 1)"
      case .markReplicated(let index, let value, _): "settle \(index) v\(value.version)"
      case .announce(let index, let value, _): "announce \(index) v\(value.version)"
      case .erase(let index, let settings, _): "erase \(index) v\(settings.version)"
      }
    }
  }

  /// Run a round that finds these values in shard 0 and none in other shards.
  private func round(_ replications: inout SettingsReplication, _ values: [SharedValue], shardCount: Int = 3)
    -> [String]
  {
    var steps: [SettingsReplication.Step] = []
    var pending = replications.roundIsDue(shardCount: shardCount)
    while let step = pending.popLast() {
      guard case .listUnreplicated(let shard) = step else {
        steps.append(step)
        continue
      }
      pending += replications.found(shard.rawValue == 0 ? values : [], in: shard)
    }
    return text(steps)
  }

  @Test func unreplicatedValueIsReplicatedInSecondRound() {
    var replications = SettingsReplication()
    let team = value(1)
    #expect(round(&replications, [team]) == [])
    #expect(!replications.isBusy)
    #expect(round(&replications, [team]) == ["assign 0 v1 to 2"])
    #expect(replications.isBusy)
    // One round at a time.
    #expect(replications.roundIsDue(shardCount: 3) == [])
    #expect(text(replications.assigned(0, isDone: true)) == [])
    #expect(text(replications.assigned(0, isDone: true)) == ["settle 0 v1"])
    #expect(replications.isBusy)
    #expect(replications.markedReplicated(0, isDone: true) == [])
    #expect(!replications.isBusy && replications.replicatedCount == 1)
    #expect(round(&replications, []) == [])
  }

  @Test func newVersionWaitsAnotherRound() {
    var replications = SettingsReplication()
    #expect(round(&replications, [value(1)]) == [])
    #expect(round(&replications, [value(1, version: 2)]) == [])
    #expect(round(&replications, [value(1, version: 2)]) == ["assign 0 v2 to 2"])
  }

  @Test func unfinishedErasureIsResumed() {
    var replications = SettingsReplication()
    let type = value(1)
    let erasing = SharedValue.user(UserSettings(user: type.name, version: 5, isErasing: true))
    #expect(round(&replications, [erasing]) == [])
    #expect(round(&replications, [erasing]) == ["erase 0 v5"])
    #expect(replications.isBusy)
    // An unfinished erasure is found again.
    #expect(replications.erased(0, isDone: false) == [] && !replications.isBusy)
    #expect(round(&replications, [erasing]) == ["erase 0 v5"])
    #expect(replications.erased(0, isDone: true) == [] && replications.replicatedCount == 1)
  }

  @Test func userChangeIsAnnouncedBeforeMarkedReplicated() {
    for shardCount in [1, 3] {
      var replications = SettingsReplication()
      let user = SharedValue.user(UserSettings(user: value(1, shardCount: shardCount).name, version: 4))
      _ = round(&replications, [user], shardCount: shardCount)
      var steps = round(&replications, [user], shardCount: shardCount)
      if shardCount == 3 {
        #expect(steps == ["assign 0 v4 to 2"])
        #expect(replications.assigned(0, isDone: true) == [])
        steps = text(replications.assigned(0, isDone: true))
      }
      #expect(steps == ["announce 0 v4"])
      #expect(text(replications.announced(0, isDone: true)) == ["settle 0 v4"])
      #expect(replications.markedReplicated(0, isDone: true) == [] && replications.replicatedCount == 1)
      // If the announcement fails, the value is found again.
      _ = round(&replications, [user], shardCount: shardCount)
      _ = round(&replications, [user], shardCount: shardCount)
      for _ in 1..<shardCount { _ = replications.assigned(0, isDone: true) }
      #expect(text(replications.announced(0, isDone: false)) == [])
      #expect(!replications.isBusy && replications.replicatedCount == 1)
    }
  }

  @Test func userAndTypeOfSameNameAreDistinct() {
    var replications = SettingsReplication()
    let type = value(1)
    let user = SharedValue.user(UserSettings(user: type.name, version: 1))
    #expect(round(&replications, [type]) == [])
    #expect(round(&replications, [user]) == [])
    #expect(round(&replications, [type, user]) == ["assign 0 v1 to 2"])
  }

  @Test func failedReplicationIsRetried() {
    var replications = SettingsReplication()
    let team = value(1)
    _ = round(&replications, [team])
    #expect(round(&replications, [team]) == ["assign 0 v1 to 2"])
    #expect(replications.assigned(0, isDone: false) == [])
    // The value stays unreplicated, because one shard may lack it. The round ends nevertheless.
    #expect(replications.assigned(0, isDone: true) == [])
    #expect(!replications.isBusy)
    #expect(round(&replications, [team]) == ["assign 0 v1 to 2"])
    _ = replications.assigned(0, isDone: true)
    _ = replications.assigned(0, isDone: true)
    #expect(replications.markedReplicated(0, isDone: false) == [])
    #expect(!replications.isBusy && replications.replicatedCount == 0)
    // A failed query clears what the round before had found in that shard.
    let queries = replications.roundIsDue(shardCount: 3)
    for _ in queries { #expect(replications.listFailed() == []) }
    #expect(!replications.isBusy)
    #expect(round(&replications, [team]) == [])
  }

  @Test func valuesFromOtherThanHomeShardAreIgnored() {
    var replications = SettingsReplication()
    let team = value(1)
    for _ in 0..<3 {
      let queries = replications.roundIsDue(shardCount: 3)
      #expect(text(queries) == ["list 0", "list 1", "list 2"])
      for shard in UInt16(0)..<3 {
        #expect(replications.found(shard == 0 ? [] : [team], in: ShardID(shard)) == [])
      }
      #expect(!replications.isBusy)
    }
  }

  @Test func singleShardMarksReplicatedWithoutAssignments() {
    var replications = SettingsReplication()
    let team = value(1, shardCount: 1)
    #expect(round(&replications, [team], shardCount: 1) == [])
    #expect(round(&replications, [team], shardCount: 1) == ["settle 0 v1"])
    #expect(replications.markedReplicated(0, isDone: true) == [] && !replications.isBusy)
    #expect(replications.roundIsDue(shardCount: 0) == [])
  }

  @Test func concurrentQueriesAndReplicationsAreLimited() {
    var replications = SettingsReplication()
    let values = (0..<20).map { value($0, shardCount: 40) }
    #expect(text(replications.roundIsDue(shardCount: 40)).count == SettingsReplication.listsInFlightMax)
    #expect(text(replications.found(values, in: ShardID(0))) == ["list 16"])
    for shard in 17..<40 { #expect(text(replications.listFailed()) == ["list \(shard)"]) }
    for _ in 0..<16 { #expect(replications.listFailed() == []) }
    #expect(!replications.isBusy)
    // All values are due: a limited number begins at once, and another one when one is done.
    _ = replications.roundIsDue(shardCount: 40)
    var steps = replications.found(values, in: ShardID(0)).filter { $0 != .listUnreplicated(ShardID(16)) }
    #expect(steps.count == SettingsReplication.replicationsMax)
    for _ in 1..<40 { _ = replications.listFailed() }
    var begun = steps.count
    while case .assign(let index, _, _)? = steps.first {
      steps.removeFirst()
      for _ in 1..<39 { #expect(replications.assigned(index, isDone: true) == []) }
      #expect(text(replications.assigned(index, isDone: true)) == ["settle \(index) v1"])
      let next = replications.markedReplicated(index, isDone: true)
      #expect(next.count <= 1)
      begun += next.count
      steps += next
    }
    #expect(begun == 20 && replications.replicatedCount == 20 && !replications.isBusy)
  }

  @Test func busyStoreEndsRoundEarly() {
    var replications = SettingsReplication()
    let values = (0..<20).map { value($0) }
    _ = round(&replications, values)
    let begun = round(&replications, values)
    #expect(begun.count == SettingsReplication.replicationsMax)
    replications.storeIsBusy()
    for index in 0..<SettingsReplication.replicationsMax {
      for _ in 0..<2 { #expect(replications.assigned(index, isDone: false) == []) }
    }
    #expect(!replications.isBusy)
    #expect(round(&replications, values).count == SettingsReplication.replicationsMax)
  }
}

/// A gateway dies during a PUT, and another one finishes it.
@Suite struct ResumingTests {
  @Test(arguments: [
    (
      "/v1/users/alice", #"{"privacy_settings":{"read_receipts":{"enabled":false}}}"#, FrameKind.assignUser,
      "alice"
    ),
    ("/v1/channel-types/team", #"{"mark_unread":"off"}"#, .assignChannelType, "team"),
    // All shards have the value, but it is not marked replicated.
    ("/v1/channel-types/team", #"{"mark_unread":"off"}"#, .markReplicated, "team"),
  ])
  func otherGatewayFinishesReplication(_ path: String, _ body: String, _ kind: FrameKind, _ name: String)
    async throws
  {
    try await TestGateway.run { first in
      try await first.store.set(.closing(kind))
      let put = try await first.client.submit(.put, path, body, token: TestTokens.server)
      // The home shard has the value. Further requests of this kind fail.
      try await eventually("the home shard has the value of \(name)") {
        try await first.store.unreplicated() == [name]
      }
      try await eventually("the store has the request \(kind)") {
        try await first.store.takeLog().contains(kind)
      }
      try await first.eventLoop.flatSubmit { first.loop.value.close() }.get()
      // The response is a success only if all shards are known to have the value.
      let response = try await put.value("the answer")
      #expect(response.verdict == (kind == .markReplicated ? "200" : "503 outcome_unknown"))
      try await first.store.set(.normal)
      #expect(try await first.store.unreplicated() == [name])
      try await TestGateway.run(replicating: .milliseconds(20), store: first.store) { second in
        try await eventually("the second gateway has replicated the value of \(name)") {
          try await second.store.unreplicated() == []
        }
        if name == "alice" {
          #expect(try await second.store.settings(of: "alice") == Array(repeating: "1 hides read", count: 4))
        }
        #expect(try await second.client.get(path).status == 200)
      }
    }
  }

  /// No gateway dies: the same one retries after shards refused a value, and rounds of other gateways do no harm.
  @Test func refusedAssignmentIsRetried() async throws {
    try await TestGateway.run(replicating: .milliseconds(10)) { first in
      try await TestGateway.run(replicating: .milliseconds(10), store: first.store) { second in
        try await first.store.set(.refusingAssignments(.unavailable))
        let hide = #"{"privacy_settings":{"delivery_receipts":{"enabled":false}}}"#
        #expect(try await first.client.put("/v1/users/bob", hide).verdict == "503 outcome_unknown")
        #expect(try await second.store.unreplicated() == ["bob"])
        try await first.store.set(.normal)
        try await eventually("the value of bob is replicated") { try await first.store.unreplicated() == [] }
        #expect(try await first.store.settings(of: "bob") == Array(repeating: "1 hides delivered", count: 4))
        #expect(try await second.client.get("/v1/users/bob").status == 200)
      }
    }
  }

  @Test func failedListingIsRetried() async throws {
    try await TestGateway.run(replicating: .milliseconds(10)) { gateway in
      for mode in [StoreInMemory.Mode.garbled, .refusing(.notImplemented), .refusing(.busy)] {
        try await gateway.store.set(mode)
        _ = try await gateway.store.takeLog()
        var attempts = 0
        try await eventually("twelve listings under \(mode)") {
          attempts += try await gateway.store.takeLog().count { $0 == .listUnreplicated }
          return attempts >= 12
        }
      }
    }
  }
}
