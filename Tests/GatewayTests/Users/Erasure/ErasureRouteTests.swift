import Foundation
import HTTP2Session
import NIOCore
import ReceiptModel
import ReceiptWire
import StoreTestSupport
import Synchronization
import TestSupport
import Testing

@testable import Gateway

/// Erasure of users (R16), as a caller sees it.
@Suite struct ErasureRouteTests {
  private let alice = TestTokens.user("alice")

  /// The first two purges of each shard are answered as if they had not ended, with rounds that fall.
  private final class Purges: Sendable {
    private let counts = Mutex<[ShardID: Int]>([:])

    func answer(to request: StoreInMemory.Request) -> StoreInMemory.Answer {
      let count = counts.withLock { counts in
        counts[request.shard, default: 0] += 1
        return counts[request.shard]!
      }
      guard count < 3 else { return .engine }
      var round = ByteBuffer()
      round.writeVarint(count == 1 ? 1_000_300 : 1_000_007)
      return .reply(round)
    }
  }

  @Test func erasedUserLeavesNoTrace() async throws {
    try await TestGateway.run { gateway in
      let client = gateway.client
      let path = "/v1/users/alice"
      for number in 0..<150 {
        try await gateway.setUp("messaging:c\(number)", members: ["bob", "alice"], messages: ["m\(number)"])
      }
      // Alice is no member of this channel, but the sender of a message.
      try await gateway.setUp("messaging:sent", members: ["bob"])
      _ = try await client.post("/v1/channels/messaging:sent/messages", #"{"id":"x","user_id":"alice"}"#)
      let hide = #"{"privacy_settings":{"read_receipts":{"enabled":false}}}"#
      #expect(try await client.put(path, hide).status == 200)
      try await gateway.store.setListMax(40)
      // Every shard has its own rounds. The second reply has an earlier one, as if the store had been restarted.
      let purges = Purges()
      try await gateway.store.script(.purge) { purges.answer(to: $0) }
      _ = try await gateway.store.takeLog()
      let erased = try await client.delete(path)
      #expect(erased.status == 200 && erased.json == ["user_id": "alice", "erased": true])
      #expect(try await gateway.store.unsettled() == [])
      // Every shard is assigned the erasure before any channel, and purges until it is done.
      let log = try await gateway.store.takeLog()
      #expect(log.prefix(5) == [.patchUser, .assignUser, .assignUser, .assignUser, .getUser])
      #expect(log.count { $0 == .eraseMember } >= 151)
      #expect(log.count { $0 == .purge } >= 4 * 4)
      #expect(log.last == .purge)
      #expect(try await gateway.store.traces(of: "alice") == [])
      // Erasing again, or an unknown user, succeeds. The user can then be added again.
      for user in ["alice", "alice", "nobody"] {
        #expect(
          try await client.delete("/v1/users/\(user)").json == ["user_id": user, "erased": true]
        )
      }
      #expect(try await client.put("/v1/channels/messaging:c1", #"{"members":["alice"]}"#).status == 200)
      #expect(
        try await client.delete("/v1/users/alice", token: alice).verdict == "403 server_token_required"
      )
      #expect(try await client.delete("/v1/users/al%7Fice").verdict == "400 invalid_user_id")
      #expect(try await gateway.eventLoop.submit { gateway.loop.value.erasures.erasedCount }.get() == 4)
    }
  }

  @Test func changesForUserBeingErasedAreRefused() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1"])
      try await gateway.store.set(.refusingKind(.eraseMember, .notImplemented))
      let other = try await TestClient.connect(port: gateway.port, on: gateway.eventLoop)
      let erasing = try await other.submit(.delete, "/v1/users/alice", nil, token: TestTokens.server)
      try await eventually("the store has a request to erase the member") {
        try await gateway.store.takeLog().contains(.eraseMember)
      }
      let client = gateway.client
      let hide = #"{"privacy_settings":{"read_receipts":{"enabled":false}}}"#
      for (method, path, body) in [
        (HTTP2Method.put, "/v1/channels/messaging:d", #"{"members":["alice"]}"#),
        (.post, "/v1/channels/messaging:c/members", #"{"add":["alice"]}"#),
        (.post, "/v1/channels/messaging:c/messages", #"{"id":"m2","user_id":"alice"}"#),
        (.put, "/v1/users/alice", hide),
      ] {
        let response = try await client.request(method, path, body, token: TestTokens.server)
        #expect(response.verdict == "409 user_erased", "\(path)")
      }
      let batch = #"{"messages":[{"cid":"messaging:c","id":"m2","user_id":"alice"}]}"#
      let many = try await client.post("/v1/messages", batch)
      #expect((many.json["results"] as? [NSDictionary])?.first?["code"] as? String == "user_erased")
      // The erasure continues once the channels succeed.
      try await gateway.store.set(.normal)
      #expect(try await erasing.value("the answer to the erasure").status == 200)
      #expect(try await gateway.store.traces(of: "alice") == [])
      try await other.close()
    }
  }

  @Test func timedOutErasureContinuesInBackground() async throws {
    var limits = GatewayLimits()
    limits.erasureTimeout = .milliseconds(100)
    try await TestGateway.run(limits: limits) { gateway in
      try await gateway.setUp("messaging:c", members: ["alice"], messages: ["m1"])
      try await gateway.store.set(.refusingKind(.eraseMember, .busy))
      let response = try await gateway.client.delete("/v1/users/alice")
      #expect(response.verdict == "503 outcome_unknown" && response.headers["retry-after"] == "1")
      #expect(try await gateway.store.traces(of: "alice") != [])
      try await gateway.store.set(.normal)
      try await eventually("nothing of alice is left in the store") {
        try await gateway.store.traces(of: "alice") == []
      }
    }
  }

  @Test func storeFailureDuringErasureIsAnswered() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice"], messages: ["m1"])
      for (mode, expected) in [
        // The home shard has changed nothing.
        (StoreInMemory.Mode.refusing(.busy), "503 store_busy"),
        (.refusing(.unavailable), "503 store_unavailable"), (.garbled, "500 internal_error"),
        (.refusing(.notImplemented), "501 not_implemented"),
        // The home shard has begun the erasure, and the rest has to follow.
        (.refusingAssignments(.busy), "503 outcome_unknown"),
        (.refusingKind(.getUser, .unavailable), "503 outcome_unknown"),
        (.refusingKind(.listChannels, .unavailable), "503 outcome_unknown"),
        (.refusingKind(.purge, .notImplemented), "503 outcome_unknown"), (.normal, "200"),
      ] {
        try await gateway.store.set(mode)
        #expect(try await gateway.client.delete("/v1/users/alice").verdict == expected, "\(mode)")
      }
      let left = try await gateway.eventLoop.submit { gateway.loop.value.erasures.count }
        .get()
      #expect(left == 0)
    }
  }

  @Test func concurrentErasuresAreLimited() async throws {
    var limits = GatewayLimits()
    limits.erasures = 2
    try await TestGateway.run(limits: limits, deadline: .seconds(10)) { gateway in
      try await gateway.store.set(.ignoringKind(.getUser))
      var waiting: [EventLoopFuture<TestResponse>] = []
      for user in ["alice", "bob"] {
        waiting.append(
          try await gateway.client.submit(.delete, "/v1/users/\(user)", nil, token: TestTokens.server)
        )
      }
      try await eventually("the store has a request of an erasure") {
        try await gateway.store.takeLog().contains(.getUser)
      }
      let third = try await gateway.client.delete("/v1/users/carol")
      #expect(third.verdict == "503 store_busy" && third.headers["retry-after"] == "1")
      for response in waiting {
        #expect(try await response.value("the answer").verdict == "503 outcome_unknown")
      }
      try await gateway.store.set(.normal)
      #expect(try await gateway.client.delete("/v1/users/carol").status == 200)
    }
  }

  /// Repeated requests take no room from other users.
  @Test func repeatedErasureJoinsRunningErasure() async throws {
    var limits = GatewayLimits()
    limits.erasures = 1
    limits.erasureRequests = 2
    try await TestGateway.run(limits: limits) { gateway in
      try await gateway.setUp("messaging:c", members: ["alice"], messages: ["m1"])
      try await gateway.store.set(.refusingKind(.eraseMember, .busy))
      let responses = try await eraseAliceTwice(gateway, after: .eraseMember)
      #expect(try await gateway.client.delete("/v1/users/alice").verdict == "503 store_busy")
      #expect(try await gateway.client.delete("/v1/users/bob").verdict == "503 store_busy")
      try await gateway.store.set(.normal)
      for response in responses { #expect(try await response.value("the answer").verdict == "200") }
      #expect(try await gateway.store.takeLog().count { $0 == .patchUser } == 0)
      #expect(try await gateway.store.traces(of: "alice") == [])
    }
  }

  /// A request that joins an erasure after the id was used again waits for another erasure.
  @Test func erasureCoversUseOfIDBeforeRepeatedRequest() async throws {
    var limits = GatewayLimits()
    limits.erasures = 1
    try await TestGateway.run(limits: limits) { gateway in
      try await gateway.setUp("messaging:c", members: ["alice"], messages: ["m1"])
      try await gateway.store.set(.refusingKind(.purge, .busy))
      let responses = try await eraseAliceTwice(gateway, after: .purge) {
        try await gateway.setUp("messaging:again", members: ["alice"])
      }
      #expect(try await gateway.client.delete("/v1/users/bob").verdict == "503 store_busy")
      try await gateway.store.set(.normal)
      for response in responses { #expect(try await response.value("the answer").verdict == "200") }
      #expect(try await gateway.store.takeLog().count { $0 == .patchUser } == 1)
      #expect(try await gateway.store.traces(of: "alice") == [])
    }
  }

  /// Request an erasure of alice, and again once the store has received `kind`.
  private func eraseAliceTwice(
    _ gateway: TestGateway,
    after kind: FrameKind,
    _ body: () async throws -> Void = {}
  ) async throws -> [EventLoopFuture<TestResponse>] {
    let first = try await gateway.client.submit(.delete, "/v1/users/alice", nil, token: TestTokens.server)
    try await eventually("the store has the request \(kind)") { try await gateway.store.takeLog().contains(kind) }
    try await body()
    let second = try await gateway.client.submit(.delete, "/v1/users/alice", nil, token: TestTokens.server)
    return [first, second]
  }

  /// A gateway dies at any point of an erasure, and another one finishes it.
  @Test(arguments: [FrameKind.assignUser, .getUser, .listChannels, .eraseMember])
  func otherGatewayFinishesErasure(_ kind: FrameKind) async throws {
    try await TestGateway.run { first in
      for number in 0..<5 {
        try await first.setUp("messaging:c\(number)", members: ["alice", "bob"], messages: ["m\(number)"])
      }
      try await first.store.set(.closing(kind))
      let response = try await first.client.submit(.delete, "/v1/users/alice", nil, token: TestTokens.server)
      try await eventually("the store has the request \(kind)") {
        try await first.store.takeLog().contains(kind)
      }
      try await first.eventLoop.flatSubmit { first.loop.value.close() }.get()
      #expect(try await response.value("the answer").verdict == "503 outcome_unknown")
      #expect(try await first.store.unsettled() == ["alice"])
      try await first.store.set(.normal)
      try await TestGateway.run(settling: .milliseconds(20), store: first.store) { second in
        try await eventually("nothing of alice is left in the store") {
          try await second.store.traces(of: "alice") == []
        }
        #expect(try await second.store.unsettled() == [])
        #expect(try await second.client.delete("/v1/users/alice").status == 200)
      }
    }
  }
}
