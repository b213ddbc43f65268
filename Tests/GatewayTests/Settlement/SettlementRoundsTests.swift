import Foundation
import HTTP2Session
import NIOCore
import ReceiptModel
import ReceiptWire
import StoreTestSupport
import TestSupport
import Testing

@testable import Gateway

/// Rounds of ``SettlementRounds``, without a store.
@Suite struct SettlementRoundsTests {
  /// A value whose home is shard 0 of `shardCount`.
  private func value(_ number: Int, version: UInt64 = 1, shardCount: Int = 3) -> SharedValue {
    var name = "type-\(number)"
    while SharedValue.channelType(ChannelTypeRecord(name: name)).home(shardCount: shardCount).rawValue != 0 {
      name += "x"
    }
    return .channelType(ChannelTypeRecord(name: name, version: version))
  }

  private func text(_ actions: [SettlementRounds.Action]) -> [String] {
    actions.map { action in
      switch action {
      case .listUnsettled(let shard): "list \(shard.rawValue)"
      case .assign(let index, let value, let shardCount):
        "assign \(index) v\(value.version) to \(shardCount - 1)"
      case .settle(let index, let value, _): "settle \(index) v\(value.version)"
      case .announce(let index, let value, _): "announce \(index) v\(value.version)"
      case .erase(let index, let settings, _): "erase \(index) v\(settings.version)"
      }
    }
  }

  /// Run a round that finds these values in shard 0 and none in other shards.
  private func round(_ settlements: inout SettlementRounds, _ values: [SharedValue], shardCount: Int = 3)
    -> [String]
  {
    var actions: [SettlementRounds.Action] = []
    var pending = settlements.roundIsDue(shardCount: shardCount)
    while let action = pending.popLast() {
      guard case .listUnsettled(let shard) = action else {
        actions.append(action)
        continue
      }
      pending += settlements.found(shard.rawValue == 0 ? values : [], in: shard)
    }
    return text(actions)
  }

  @Test func unsettledValueIsAssignedInSecondRound() {
    var settlements = SettlementRounds()
    let team = value(1)
    #expect(round(&settlements, [team]) == [])
    #expect(!settlements.isBusy)
    #expect(round(&settlements, [team]) == ["assign 0 v1 to 2"])
    #expect(settlements.isBusy)
    // One round at a time.
    #expect(settlements.roundIsDue(shardCount: 3) == [])
    #expect(text(settlements.assigned(0, isDone: true)) == [])
    #expect(text(settlements.assigned(0, isDone: true)) == ["settle 0 v1"])
    #expect(settlements.isBusy)
    #expect(settlements.settled(0, isDone: true) == [])
    #expect(!settlements.isBusy && settlements.settledCount == 1)
    #expect(round(&settlements, []) == [])
  }

  @Test func newVersionWaitsAnotherRound() {
    var settlements = SettlementRounds()
    #expect(round(&settlements, [value(1)]) == [])
    #expect(round(&settlements, [value(1, version: 2)]) == [])
    #expect(round(&settlements, [value(1, version: 2)]) == ["assign 0 v2 to 2"])
  }

  @Test func unfinishedErasureIsResumed() {
    var settlements = SettlementRounds()
    let type = value(1)
    let erasing = SharedValue.user(UserSettings(user: type.name, version: 5, isErasing: true))
    #expect(round(&settlements, [erasing]) == [])
    #expect(round(&settlements, [erasing]) == ["erase 0 v5"])
    #expect(settlements.isBusy)
    // An unfinished erasure is found again.
    #expect(settlements.erased(0, isDone: false) == [] && !settlements.isBusy)
    #expect(round(&settlements, [erasing]) == ["erase 0 v5"])
    #expect(settlements.erased(0, isDone: true) == [] && settlements.settledCount == 1)
  }

  @Test func userChangeIsAnnouncedBeforeSettled() {
    for shardCount in [1, 3] {
      var settlements = SettlementRounds()
      let user = SharedValue.user(UserSettings(user: value(1, shardCount: shardCount).name, version: 4))
      _ = round(&settlements, [user], shardCount: shardCount)
      var actions = round(&settlements, [user], shardCount: shardCount)
      if shardCount == 3 {
        #expect(actions == ["assign 0 v4 to 2"])
        #expect(settlements.assigned(0, isDone: true) == [])
        actions = text(settlements.assigned(0, isDone: true))
      }
      #expect(actions == ["announce 0 v4"])
      #expect(text(settlements.announced(0, isDone: true)) == ["settle 0 v4"])
      #expect(settlements.settled(0, isDone: true) == [] && settlements.settledCount == 1)
      // If the announcement fails, the value is found again.
      _ = round(&settlements, [user], shardCount: shardCount)
      _ = round(&settlements, [user], shardCount: shardCount)
      for _ in 1..<shardCount { _ = settlements.assigned(0, isDone: true) }
      #expect(text(settlements.announced(0, isDone: false)) == [])
      #expect(!settlements.isBusy && settlements.settledCount == 1)
    }
  }

  @Test func userAndTypeOfSameNameAreDistinct() {
    var settlements = SettlementRounds()
    let type = value(1)
    let user = SharedValue.user(UserSettings(user: type.name, version: 1))
    #expect(round(&settlements, [type]) == [])
    #expect(round(&settlements, [user]) == [])
    #expect(round(&settlements, [type, user]) == ["assign 0 v1 to 2"])
  }

  @Test func failedSettlementIsRetried() {
    var settlements = SettlementRounds()
    let team = value(1)
    _ = round(&settlements, [team])
    #expect(round(&settlements, [team]) == ["assign 0 v1 to 2"])
    #expect(settlements.assigned(0, isDone: false) == [])
    // The value stays unsettled, because one shard may lack it. The round ends nevertheless.
    #expect(settlements.assigned(0, isDone: true) == [])
    #expect(!settlements.isBusy)
    #expect(round(&settlements, [team]) == ["assign 0 v1 to 2"])
    _ = settlements.assigned(0, isDone: true)
    _ = settlements.assigned(0, isDone: true)
    #expect(settlements.settled(0, isDone: false) == [])
    #expect(!settlements.isBusy && settlements.settledCount == 0)
    // A failed query clears what the round before had found in that shard.
    let queries = settlements.roundIsDue(shardCount: 3)
    for _ in queries { #expect(settlements.listFailed() == []) }
    #expect(!settlements.isBusy)
    #expect(round(&settlements, [team]) == [])
  }

  @Test func valuesFromOtherThanHomeShardAreIgnored() {
    var settlements = SettlementRounds()
    let team = value(1)
    for _ in 0..<3 {
      let queries = settlements.roundIsDue(shardCount: 3)
      #expect(text(queries) == ["list 0", "list 1", "list 2"])
      for shard in UInt16(0)..<3 {
        #expect(settlements.found(shard == 0 ? [] : [team], in: ShardID(shard)) == [])
      }
      #expect(!settlements.isBusy)
    }
  }

  @Test func singleShardSettlesWithoutAssignments() {
    var settlements = SettlementRounds()
    let team = value(1, shardCount: 1)
    #expect(round(&settlements, [team], shardCount: 1) == [])
    #expect(round(&settlements, [team], shardCount: 1) == ["settle 0 v1"])
    #expect(settlements.settled(0, isDone: true) == [] && !settlements.isBusy)
    #expect(settlements.roundIsDue(shardCount: 0) == [])
  }

  @Test func concurrentQueriesAndSettlementsAreLimited() {
    var settlements = SettlementRounds()
    let values = (0..<20).map { value($0, shardCount: 40) }
    #expect(text(settlements.roundIsDue(shardCount: 40)).count == SettlementRounds.listsInFlightMax)
    #expect(text(settlements.found(values, in: ShardID(0))) == ["list 16"])
    for shard in 17..<40 { #expect(text(settlements.listFailed()) == ["list \(shard)"]) }
    for _ in 0..<16 { #expect(settlements.listFailed() == []) }
    #expect(!settlements.isBusy)
    // All values are due: a limited number begins at once, and another one when one is done.
    _ = settlements.roundIsDue(shardCount: 40)
    var actions = settlements.found(values, in: ShardID(0)).filter { $0 != .listUnsettled(ShardID(16)) }
    #expect(actions.count == SettlementRounds.settlementsMax)
    for _ in 1..<40 { _ = settlements.listFailed() }
    var begun = actions.count
    while case .assign(let index, _, _)? = actions.first {
      actions.removeFirst()
      for _ in 1..<39 { #expect(settlements.assigned(index, isDone: true) == []) }
      #expect(text(settlements.assigned(index, isDone: true)) == ["settle \(index) v1"])
      let next = settlements.settled(index, isDone: true)
      #expect(next.count <= 1)
      begun += next.count
      actions += next
    }
    #expect(begun == 20 && settlements.settledCount == 20 && !settlements.isBusy)
  }

  @Test func busyStoreEndsRoundEarly() {
    var settlements = SettlementRounds()
    let values = (0..<20).map { value($0) }
    _ = round(&settlements, values)
    let begun = round(&settlements, values)
    #expect(begun.count == SettlementRounds.settlementsMax)
    settlements.storeIsBusy()
    for index in 0..<SettlementRounds.settlementsMax {
      for _ in 0..<2 { #expect(settlements.assigned(index, isDone: false) == []) }
    }
    #expect(!settlements.isBusy)
    #expect(round(&settlements, values).count == SettlementRounds.settlementsMax)
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
    // All shards have the value, but it is not settled.
    ("/v1/channel-types/team", #"{"mark_unread":"off"}"#, .settle, "team"),
  ])
  func otherGatewayFinishesSettlement(_ path: String, _ body: String, _ kind: FrameKind, _ name: String)
    async throws
  {
    try await TestGateway.run { first in
      try await first.store.set(.closing(kind))
      let put = try await first.client.submit(.put, path, body, token: TestTokens.server)
      // The home shard has the value. Further requests of this kind fail.
      try await eventually("the home shard has the value of \(name)") {
        try await first.store.unsettled() == [name]
      }
      try await eventually("the store has the request \(kind)") {
        try await first.store.takeLog().contains(kind)
      }
      try await first.eventLoop.flatSubmit { first.loop.value.close() }.get()
      // The response is a success only if all shards are known to have the value.
      let response = try await put.value("the answer")
      #expect(response.verdict == (kind == .settle ? "200" : "503 outcome_unknown"))
      try await first.store.set(.normal)
      #expect(try await first.store.unsettled() == [name])
      try await TestGateway.run(settling: .milliseconds(20), store: first.store) { second in
        try await eventually("the second gateway has settled the value of \(name)") {
          try await second.store.unsettled() == []
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
    try await TestGateway.run(settling: .milliseconds(10)) { first in
      try await TestGateway.run(settling: .milliseconds(10), store: first.store) { second in
        try await first.store.set(.refusingAssignments(.unavailable))
        let hide = #"{"privacy_settings":{"delivery_receipts":{"enabled":false}}}"#
        #expect(try await first.client.put("/v1/users/bob", hide).verdict == "503 outcome_unknown")
        #expect(try await second.store.unsettled() == ["bob"])
        try await first.store.set(.normal)
        try await eventually("the value of bob is settled") { try await first.store.unsettled() == [] }
        #expect(try await first.store.settings(of: "bob") == Array(repeating: "1 hides delivered", count: 4))
        #expect(try await second.client.get("/v1/users/bob").status == 200)
      }
    }
  }

  @Test func failedListingIsRetried() async throws {
    try await TestGateway.run(settling: .milliseconds(10)) { gateway in
      for mode in [StoreInMemory.Mode.garbled, .refusing(.notImplemented), .refusing(.busy)] {
        try await gateway.store.set(mode)
        _ = try await gateway.store.takeLog()
        var attempts = 0
        try await eventually("twelve listings under \(mode)") {
          attempts += try await gateway.store.takeLog().count { $0 == .listUnsettled }
          return attempts >= 12
        }
      }
    }
  }
}
