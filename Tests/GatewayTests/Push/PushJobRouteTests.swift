import Foundation
import HTTP2Session
import NIOCore
import ReceiptModel
import ReceiptWire
import StoreTestSupport
import TestSupport
import Testing

@testable import Gateway

/// The queue of push jobs (docs/api/push-send.md), as backends and workers see it.
@Suite struct PushJobRouteTests {
  private static let jobs = "/v1/push/jobs"

  private static func device(_ user: String) -> String {
    #"{"user_id":"\#(user)","devices":[{"provider":"ios","token":"t-\#(user)"}]}"#
  }

  private static func job(_ cid: String, _ message: String, _ users: [String]) -> String {
    let list = users.map { device($0) }.joined(separator: ",")
    return #"{"cid":"\#(cid)","message_id":"\#(message)","title":"alice","body":"hello","users":[\#(list)]}"#
  }

  /// Queue a push to bob, and return its id.
  private static func put(_ client: TestClient, _ cid: String = "messaging:c") async throws -> String {
    let response = try await client.post(jobs, job(cid, "m1", ["bob"]))
    #expect(response.status == 202 && response.json["users"] as? Int == 1)
    return try #require(response.json["id"] as? String, "\(response.body)")
  }

  /// What a worker gets.
  private struct Claim {
    let ids: [String]
    let hasMore: Bool
  }

  private static func claim(_ client: TestClient, limit: Int = 100) async throws -> Claim {
    let response = try await client.post(jobs + "/claim", #"{"limit":\#(limit),"lease_seconds":10}"#)
    #expect(response.status == 200)
    let entries = try #require(response.json["jobs"] as? [NSDictionary], "\(response.body)")
    let hasMore = try #require(response.json["more"] as? Bool)
    return Claim(ids: entries.compactMap { $0["id"] as? String }, hasMore: hasMore)
  }

  private static func renew(_ client: TestClient, _ ids: [String], seconds: Int) async throws -> TestResponse {
    let list = ids.map { "\"\($0)\"" }.joined(separator: ",")
    return try await client.post(jobs + "/renew", #"{"ids":[\#(list)],"lease_seconds":\#(seconds)}"#)
  }

  private static func finish(_ client: TestClient, _ ids: [String]) async throws -> TestResponse {
    let list = ids.map { "\"\($0)\"" }.joined(separator: ",")
    return try await client.post(jobs + "/done", #"{"ids":[\#(list)]}"#)
  }

  /// The jobs that a renewal or an end did not find.
  private static func unknown(_ response: TestResponse) -> [String] {
    response.json["unknown"] as? [String] ?? ["no list: \(response.body)"]
  }

  /// Set up two channels of different shards, each with alice, bob and the message m1, and return their cids.
  private static func setUpTwoShards(_ gateway: TestGateway) async throws -> (first: String, second: String) {
    let names = (0..<64).map { "messaging:c\($0)" }
    let home = gateway.store.shard(of: names[0])
    let other = try #require(names.first { gateway.store.shard(of: $0) != home })
    for cid in [names[0], other] { try await gateway.setUp(cid, members: ["alice", "bob"], messages: ["m1"]) }
    return (names[0], other)
  }

  // MARK: Queue

  @Test func jobIsClaimedRenewedAndDone() async throws {
    try await TestGateway.run { gateway in
      let client = gateway.client
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1"])
      let id = try await Self.put(client)
      #expect(id.wholeMatch(of: /[0-9]+-[0-9a-f]{16}/) != nil)
      let response = try await client.post(Self.jobs + "/claim", "{}")
      #expect(response.status == 200 && response.json["more"] as? Bool == false)
      let entries = try #require(response.json["jobs"] as? [NSDictionary])
      let entry = try #require(entries.first)
      let claimed = try #require(entry["id"] as? String)
      let job = try #require(entry["job"] as? NSDictionary)
      #expect(entries.count == 1 && claimed.hasPrefix(id + "-"))
      let times = ["created_at", "expires_at"].compactMap { entry[$0] as? String }
      #expect(times.count == 2 && times.sorted() == times)
      #expect(
        job == [
          "cid": "messaging:c", "message_id": "m1", "title": "alice", "body": "hello",
          "users": [["user_id": "bob", "devices": [["provider": "ios", "token": "t-bob"]]]],
        ]
      )
      // Until its lease ends, no other worker gets it.
      let other = try await Self.claim(client)
      #expect(other.ids == [] && !other.hasMore)
      #expect(try await Self.unknown(Self.renew(client, [claimed], seconds: 600)) == [])
      #expect(try await Self.unknown(Self.finish(client, [claimed])) == [])
      // Nothing is kept, and a repetition succeeds.
      #expect(try await Self.claim(client).ids == [])
      let again = try await Self.finish(client, [claimed])
      #expect(again.status == 200 && Self.unknown(again) == [claimed])
    }
  }

  @Test func endedLeaseGivesJobToNextWorker() async throws {
    try await TestGateway.run { gateway in
      let client = gateway.client
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1"])
      let id = try await Self.put(client)
      let first = try await Self.claim(client)
      try await gateway.store.advance(milliseconds: 11_000)
      let second = try await Self.claim(client)
      #expect(first.ids.count == 1 && second.ids.count == 1 && first.ids != second.ids)
      // The first worker must stop.
      #expect(try await Self.unknown(Self.renew(client, first.ids, seconds: 10)) == first.ids)
      // The second one gives the job back, and others get it at once.
      #expect(try await Self.unknown(Self.renew(client, second.ids, seconds: 0)) == [])
      #expect(try await Self.claim(client).ids.count == 1)
      // Its backend cancels it.
      #expect(try await Self.unknown(Self.finish(client, [id])) == [])
      #expect(try await Self.unknown(Self.finish(client, second.ids)) == second.ids)
    }
  }

  @Test func claimIsLimited() async throws {
    try await TestGateway.run { gateway in
      let client = gateway.client
      let cids = try await Self.setUpTwoShards(gateway)
      let ids = [try await Self.put(client, cids.first), try await Self.put(client, cids.second)]
      let first = try await Self.claim(client, limit: 1)
      #expect(first.ids.count == 1 && first.hasMore)
      let second = try await Self.claim(client, limit: 1)
      #expect(second.ids.count == 1)
      let last = try await Self.claim(client, limit: 1)
      #expect(last.ids == [] && !last.hasMore)
      let claimed = (first.ids + second.ids).map { String($0.prefix(ids[0].count)) }
      #expect(Set(claimed) == Set(ids))
    }
  }

  @Test func jobHasOnlyMembersWhoAreNotErased() async throws {
    try await TestGateway.run { gateway in
      let client = gateway.client
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1", "m2"])
      _ = try await client.delete("/v1/channels/messaging:c/messages/m2")
      for (cid, message, expected) in [
        ("messaging:none", "m1", "404 channel_not_found"), ("messaging:c", "m9", "404 message_not_found"),
        ("messaging:c", "m2", "409 message_deleted"),
      ] {
        let refused = try await client.post(Self.jobs, Self.job(cid, message, ["bob"]))
        #expect(refused.verdict == expected)
      }
      let strangers = try await client.post(Self.jobs, Self.job("messaging:c", "m1", ["eve"]))
      #expect(strangers.verdict == "404 member_not_found")
      let mixed = try await client.post(Self.jobs, Self.job("messaging:c", "m1", ["alice", "eve", "bob"]))
      #expect(mixed.status == 202 && mixed.json["users"] as? Int == 2)
      _ = try await Self.put(client)
      // An erasure removes bob's devices from all jobs, and the job that has no others.
      #expect(try await client.delete("/v1/users/bob").status == 200)
      let response = try await client.post(Self.jobs + "/claim", "{}")
      let entries = try #require(response.json["jobs"] as? [NSDictionary])
      #expect(entries.count == 1)
      let job = try #require(entries.first?["job"] as? NSDictionary)
      let users = try #require(job["users"] as? [NSDictionary])
      #expect(users.compactMap { $0["user_id"] as? String } == ["alice"])
    }
  }

  @Test func invalidRequestsAreRefusedWithoutTheStore() async throws {
    try await TestGateway.run { gateway in
      let client = gateway.client
      _ = try await gateway.store.takeLog()
      let bob = Self.device("bob")
      func body(_ users: String, _ more: String = "") -> String {
        #"{"cid":"messaging:c","message_id":"m1","users":[\#(users)]\#(more)}"#
      }
      let both = #"{"user_id":"bob","devices":[{"provider":"ios","token":"t","subscription":{}}]}"#
      let text = String(repeating: "x", count: 4_097)
      let large = String(repeating: "x", count: 49_153)
      let table: [(path: String, body: String, expected: String)] = [
        ("", "{", "400 invalid_json"), ("", #"{"message_id":"m1","users":[\#(bob)]}"#, "400 invalid_field"),
        ("", #"{"cid":"c","message_id":"m1","users":[\#(bob)]}"#, "400 invalid_cid"),
        ("", #"{"cid":"messaging:c","message_id":"","users":[\#(bob)]}"#, "400 invalid_message_id"),
        ("", body(""), "400 invalid_field"), ("", body(bob + "," + bob), "400 invalid_field"),
        ("", body(#"{"user_id":"","devices":[{"provider":"ios","token":"t"}]}"#), "400 invalid_user_id"),
        ("", body(#"{"user_id":"bob","devices":[]}"#), "400 invalid_field"),
        ("", body(#"{"user_id":"bob","devices":[{"provider":"ios"}]}"#), "400 invalid_field"),
        ("", body(both), "400 invalid_field"), ("", body(bob, #","topic":"t""#), "400 unknown_field"),
        ("", body(bob, #","data":{"ticket":"t"}"#), "400 invalid_field"),
        ("", body(bob, #","aps":{"alert":"a"}"#), "400 invalid_field"),
        ("", body(bob, #","urgency":"urgent""#), "400 invalid_field"),
        ("", body(bob, #","ttl":2419201"#), "400 invalid_field"),
        ("", body(bob, #","collapse_key":"""#), "400 invalid_field"),
        ("", body(bob, #","title":"\#(text)""#), "400 invalid_field"),
        ("", body(bob, #","data":{"text":"\#(large)"}"#), "413 body_too_large"),
        ("/claim", #"{"limit":0}"#, "400 invalid_field"), ("/claim", #"{"limit":1001}"#, "400 invalid_field"),
        ("/claim", #"{"lease_seconds":0}"#, "400 invalid_field"),
        ("/claim", #"{"lease_seconds":601}"#, "400 invalid_field"), ("/claim", #"{"shard":1}"#, "400 unknown_field"),
        ("/renew", #"{"ids":[]}"#, "400 invalid_field"),
        ("/renew", #"{"ids":["x"],"lease_seconds":1}"#, "400 invalid_field"),
        ("/renew", #"{"ids":["9-00c0ffee12345678"],"lease_seconds":1}"#, "400 invalid_field"),
        ("/done", "{}", "400 invalid_field"), ("/done", #"{"ids":["0-c0ffee"]}"#, "400 invalid_field"),
      ]
      for row in table {
        let response = try await client.post(Self.jobs + row.path, row.body)
        #expect(response.verdict == row.expected, "\(row.path) \(row.body.prefix(200))")
      }
      for path in ["", "/claim", "/renew", "/done"] {
        let user = try await client.post(Self.jobs + path, "{}", token: TestTokens.user("bob"))
        #expect(user.verdict == "403 server_token_required", "\(path)")
      }
      #expect(try await gateway.store.takeLog().isEmpty)
    }
  }

  // MARK: Failures

  @Test func claimPassesOnJobsOfShardsThatAnswer() async throws {
    try await TestGateway.run { gateway in
      let (client, store) = (gateway.client, gateway.store)
      let cids = try await Self.setUpTwoShards(gateway)
      let first = try await Self.put(client, cids.first)
      let second = try await Self.put(client, cids.second)
      let busy = store.shard(of: cids.second)
      try await store.script(.claimPushJobs) { $0.shard == busy ? .refusal(.busy) : .engine }
      let passed = try await Self.claim(client)
      #expect(passed.ids.map { $0.hasPrefix(first) } == [true])
      try await store.set(.refusingKind(.claimPushJobs, .busy))
      let none = try await client.post(Self.jobs + "/claim", "{}")
      #expect(none.verdict == "503 store_busy" && none.headers["retry-after"] == "2")
      try await store.set(.normal)
      #expect(try await Self.claim(client).ids.map { $0.hasPrefix(second) } == [true])
    }
  }

  @Test func jobsOfRefusingShardAreDoneByRepeating() async throws {
    try await TestGateway.run { gateway in
      let (client, store) = (gateway.client, gateway.store)
      let cids = try await Self.setUpTwoShards(gateway)
      let first = try await Self.put(client, cids.first)
      _ = try await Self.put(client, cids.second)
      let claimed = try await Self.claim(client).ids
      #expect(claimed.count == 2)
      let busy = store.shard(of: cids.second)
      try await store.script(.updatePushJobs) { $0.shard == busy ? .refusal(.busy) : .engine }
      #expect(try await Self.renew(client, claimed, seconds: 10).verdict == "503 store_busy")
      #expect(try await Self.finish(client, claimed).verdict == "503 store_busy")
      try await store.set(.normal)
      // Those of the other shard are done already.
      let again = try await Self.finish(client, claimed)
      #expect(again.status == 200 && Self.unknown(again) == claimed.filter { $0.hasPrefix(first) })
      #expect(try await Self.finish(client, claimed).status == 200)
    }
  }

  @Test func lostStoreConnectionIsAnswered() async throws {
    try await TestGateway.run { gateway in
      let (client, store) = (gateway.client, gateway.store)
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1"])
      try await store.set(.refusingKind(.putPushJob, .busy))
      let job = Self.job("messaging:c", "m1", ["bob"])
      let full = try await client.post(Self.jobs, job)
      #expect(full.verdict == "503 store_busy" && full.headers["retry-after"] == "2")
      // Whether a command was carried out is not known.
      try await store.set(.closing(.putPushJob))
      #expect(try await client.post(Self.jobs, job).verdict == "503 outcome_unknown")
      try await store.set(.normal)
      _ = try await Self.put(client)
      // A claim is asked again over the next connection.
      let faults = NextAnswers([.closing])
      try await store.script(.claimPushJobs) { _ in faults.take() }
      let claimed = try await Self.claim(client).ids
      #expect(claimed.count == 1 && faults.isEmpty)
      try await store.set(.closing(.updatePushJobs))
      #expect(try await Self.finish(client, claimed).verdict == "503 outcome_unknown")
      try await store.set(.normal)
      #expect(try await Self.unknown(Self.finish(client, claimed)) == [])
    }
  }

  @Test func jobIsKeptWhereWorkerGivesUpItsClaim() async throws {
    try await TestGateway.run(deadline: TestGateway.shortDeadline) { gateway in
      let (client, store) = (gateway.client, gateway.store)
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1"])
      let id = try await Self.put(client)
      try await store.set(.ignoringKind(.claimPushJobs))
      _ = try await store.takeLog()
      let claim = try await client.begin(Self.jobs + "/claim", contentType: "application/json")
      try await client.send(ByteBuffer(string: "{}"), claim)
      try await client.finish(claim)
      try await eventually("the store has the claim") { try await store.takeLog().contains(.claimPushJobs) }
      try await client.reset(claim)
      try await store.set(.normal)
      #expect(try await Self.claim(client).ids.map { $0.hasPrefix(id) } == [true])
      try await eventually("the given-up requests have ended") {
        try await gateway.metric("store_requests_in_flight") == 0
      }
    }
  }
}
