import Foundation
import HTTP2Session
import NIOCore
import ReceiptModel
import ReceiptWire
import StoreTestSupport
import TestSupport
import Testing

@testable import Gateway

/// The change feed (R21), as its consumers see it.
@Suite struct FeedRouteTests {
  private static let consumer = "/v1/feed/consumers/search"
  private static let feed = "/v1/feed?consumer=search&partition=0/1"
  private static let channel = "/v1/channels/messaging:c"
  /// The records of ``converse(_:)``.
  private static let conversation = [
    "channel.created", "member.added alice", "member.added bob", "message.registered alice m1", "read bob m1",
    "status alice m1",
  ]

  /// Create a channel in which, a second later, alice writes and bob reads.
  private static func converse(_ gateway: TestGateway) async throws {
    try await gateway.setUp("messaging:c", members: ["alice", "bob"])
    try await gateway.store.advance(milliseconds: 1_000)
    try await register("m1", gateway.client)
    _ = try await gateway.client.post(channel + "/read?user_id=bob", nil)
  }

  private static func register(_ message: String, _ client: TestClient) async throws {
    let registered = try await client.post(channel + "/messages", #"{"id":"\#(message)","user_id":"alice"}"#)
    #expect(registered.status == 201)
  }

  /// A stream of the consumer behind its first line.
  private struct OpenFeed {
    let lines: TestRequestStream
    let epoch: Int
    let cursor: String
    let state: String?
  }

  /// Open a stream, and read its first line.
  private static func open(_ client: TestClient, token: String = TestTokens.server) async throws -> OpenFeed {
    let lines = try await client.lines(feed, token: token)
    let lease = try await lines.object()
    #expect(lines.status == 200 && lines.contentType == "application/x-ndjson")
    #expect(lease["type"] as? String == "lease")
    let epoch = try #require(lease["epoch"] as? Int)
    let cursor = try #require(lease["cursor"] as? String)
    return OpenFeed(lines: lines, epoch: epoch, cursor: cursor, state: lease["state"] as? String)
  }

  /// Return the next line that is no heartbeat.
  private static func next(_ stream: TestRequestStream) async throws -> NSDictionary {
    var line = try await stream.object()
    while line["type"] as? String == "heartbeat" { line = try await stream.object() }
    return line
  }

  private struct Record {
    /// The type, and whom and what it is about, as in `read bob m1`.
    let text: String
    let id: String
    let cursor: String
  }

  /// Read the next records of a stream.
  private static func records(_ count: Int, _ stream: TestRequestStream) async throws -> [Record] {
    var records: [Record] = []
    for _ in 0..<count {
      let line = try await next(stream)
      let user = (line["user"] as? NSDictionary)?["id"] as? String
      let message = line["message_id"] as? String ?? line["last_message_id"] as? String
      let words = [line["type"] as? String, user, message].compactMap { $0 }
      let id = try #require(line["id"] as? String, "\(words)")
      let cursor = try #require(line["cursor"] as? String, "\(words)")
      records.append(Record(text: words.joined(separator: " "), id: id, cursor: cursor))
    }
    return records
  }

  private static func commit(
    _ client: TestClient,
    cursor: String,
    epoch: Int,
    state: String = ""
  ) async throws -> TestResponse {
    let fields = #""partition":"0/1","cursor":"\#(cursor)","epoch":\#(epoch),"state":"\#(state)""#
    return try await client.post(consumer + "/commit", "{\(fields)}")
  }

  /// The consumer's one partition, as `GET /v1/feed/consumers/{name}` shows it.
  private static func progress(_ client: TestClient) async throws -> NSDictionary {
    let shown = try await client.get(consumer)
    #expect(shown.status == 200)
    let partitions = try #require(shown.json["partitions"] as? [NSDictionary])
    #expect(partitions.count == 1)
    return try #require(partitions.first)
  }

  // MARK: Reading and committing

  @Test func consumerReadsInOrderAndContinuesAfterItsCommit() async throws {
    try await TestGateway.run(feed: true) { gateway in
      let client = gateway.client
      let filters = #"{"from":"earliest","channel_types":["messaging"]}"#
      let created = try await client.put(Self.consumer, filters)
      #expect(created.status == 201)
      #expect(created.json == ["name": "search", "channel_types": ["messaging"]])
      #expect(try await client.put(Self.consumer, filters).status == 200)
      #expect(try await client.put(Self.consumer, "{}").verdict == "409 consumer_conflict")
      try await Self.converse(gateway)
      let first = try await Self.open(client)
      #expect(first.state == nil)
      let records = try await Self.records(6, first.lines)
      #expect(records.map(\.text) == Self.conversation)
      let committed = try await Self.commit(
        client,
        cursor: records[3].cursor,
        epoch: first.epoch,
        state: "offset 4"
      )
      #expect(committed.status == 200 && committed.body == "{}")
      let progress = try await Self.progress(client)
      #expect(progress["partition"] as? String == "0/1" && progress["epoch"] as? Int == first.epoch)
      #expect(progress["lag_records"] as? Int == 2 && progress["state"] as? String == "offset 4")
      // An older cursor changes nothing, not even the state.
      let older = try await Self.commit(client, cursor: records[0].cursor, epoch: first.epoch, state: "offset 1")
      #expect(older.status == 200)
      try await client.reset(first.lines)
      let second = try await Self.open(client)
      #expect(second.epoch > first.epoch && second.state == "offset 4")
      // What was not committed is delivered again, with the same ids.
      let rest = try await Self.records(2, second.lines)
      #expect(rest.map(\.text) == Array(Self.conversation.suffix(2)))
      #expect(rest.map(\.id) == Array(records.map(\.id).suffix(2)))
      let all = try await client.get("/v1/feed/consumers")
      let consumers = try #require(all.json["consumers"] as? [NSDictionary])
      #expect(all.json["retention_seconds"] as? Int == 86_400)
      #expect(consumers.compactMap { $0["name"] as? String } == ["search"])
    }
  }

  @Test func newerStreamTakesTheLeaseOfAnOlderOne() async throws {
    try await TestGateway.run(feed: true) { gateway in
      let client = gateway.client
      _ = try await client.put(Self.consumer, "{}")
      let older = try await Self.open(client)
      let newer = try await Self.open(client)
      #expect(newer.epoch > older.epoch)
      #expect(try await Self.next(older.lines) == ["type": "lease_lost"])
      #expect(await older.lines.line() == nil)
      let late = try await Self.commit(client, cursor: older.cursor, epoch: older.epoch)
      #expect(late.verdict == "409 lease_lost")
      #expect(try await Self.commit(client, cursor: newer.cursor, epoch: newer.epoch).status == 200)
      try await Self.converse(gateway)
      #expect(try await Self.records(6, newer.lines).map(\.text) == Self.conversation)
    }
  }

  @Test func rangeIsReadAgainWithoutLease() async throws {
    try await TestGateway.run(feed: true) { gateway in
      let client = gateway.client
      _ = try await client.put(Self.consumer, "{}")
      try await Self.converse(gateway)
      let stream = try await Self.open(client)
      let records = try await Self.records(6, stream.lines)
      let (start, end) = (stream.cursor, records[3].cursor)
      let range = try await client.lines("\(Self.feed)&from=\(start)&to=\(end)")
      #expect(try await Self.records(4, range).map(\.id) == records.prefix(4).map(\.id))
      let last = try await range.object()
      #expect(last["type"] as? String == "heartbeat" && last["cursor"] as? String == end)
      #expect(await range.line() == nil)
      // The stream still has its lease, and nothing was committed.
      try await Self.register("m2", client)
      #expect(try await Self.records(1, stream.lines).map(\.text) == ["message.registered alice m2"])
      #expect(try await Self.progress(client)["lag_records"] as? Int == 7)
      for (query, expected) in [
        ("consumer=search&from=\(start)", "400 invalid_query"), ("consumer=search&to=\(end)", "400 invalid_query"),
        ("consumer=search&from=\(start)&to=nothing", "400 invalid_query"),
        ("consumer=search&partition=0/2&from=\(start)&to=\(end)", "400 invalid_query"),
        ("consumer=search&partition=1/1", "400 invalid_query"), ("consumer=search&partition=0/5", "400 invalid_query"),
        ("consumer=search&partition=0", "400 invalid_query"), ("partition=0/1", "400 invalid_query"),
        ("consumer=nobody", "404 consumer_not_found"),
        ("consumer=nobody&from=\(start)&to=\(end)", "404 consumer_not_found"),
      ] {
        #expect(try await client.get("/v1/feed?\(query)").verdict == expected, "\(query)")
      }
    }
  }

  @Test func invalidCommitsAreRefused() async throws {
    try await TestGateway.run(feed: true) { gateway in
      let client = gateway.client
      _ = try await client.put(Self.consumer, "{}")
      let cursor = try await Self.open(client).cursor
      var ahead = ByteBuffer()
      let partition = FeedPartition(index: 0, count: 1)
      FeedCursor(partition, time: .none, positions: [99, 99, 99, 99]).write(into: &ahead)
      let long = String(repeating: "s", count: 16_385)
      for (fields, expected) in [
        (#""partition":"0/1""#, "400 invalid_field"), (#""cursor":"\#(cursor)""#, "400 invalid_field"),
        (#""partition":"1/1","state":"s""#, "400 invalid_field"),
        (#""partition":"0/5","state":"s""#, "400 invalid_field"),
        (#""partition":"0/1","cursor":"nothing""#, "400 invalid_field"),
        (#""partition":"0/2","cursor":"\#(cursor)""#, "400 invalid_field"),
        (#""partition":"0/1","cursor":"\#(String(buffer: ahead))""#, "400 invalid_field"),
        (#""partition":"0/1","state":"s","epoch":0"#, "400 invalid_field"),
        (#""partition":"0/1","state":"\#(long)""#, "400 invalid_field"),
        (#""partition":"0/1","state":"s","offset":1"#, "400 unknown_field"),
      ] {
        let refused = try await client.post(Self.consumer + "/commit", "{\(fields)}")
        #expect(refused.verdict == expected, "\(fields.prefix(80))")
      }
      let other = try await client.post("/v1/feed/consumers/nobody/commit", #"{"partition":"0/1","state":"s"}"#)
      #expect(other.verdict == "404 consumer_not_found")
      let progress = try await Self.progress(client)
      #expect(progress["state"] == nil)
    }
  }

  @Test func workersShareThePartitions() async throws {
    try await TestGateway.run(feed: true) { gateway in
      let client = gateway.client
      func lease(_ worker: String, held: [String] = [], seconds: Int = 8) async throws -> [String] {
        let list = held.map { "\"\($0)\"" }.joined(separator: ",")
        let fields = #""worker":"\#(worker)","partitions":4,"held":[\#(list)],"ttl_seconds":\#(seconds)"#
        let response = try await client.post(Self.consumer + "/lease", "{\(fields)}")
        #expect(response.status == 200 && response.json["worker"] as? String == worker)
        #expect(response.json["expires_in"] as? Int == seconds)
        return try #require(response.json["partitions"] as? [String])
      }
      _ = try await client.put(Self.consumer, "{}")
      let all = ["0/4", "1/4", "2/4", "3/4"]
      #expect(try await lease("w1") == all)
      // A partition moves only once its worker no longer holds it.
      #expect(try await lease("w2") == [])
      #expect(try await lease("w1", held: all) == ["0/4", "1/4"])
      #expect(try await lease("w2") == [])
      #expect(try await lease("w1", held: ["0/4", "1/4"]) == ["0/4", "1/4"])
      #expect(try await lease("w2") == ["2/4", "3/4"])
      let others = try await client.post(Self.consumer + "/lease", #"{"worker":"w3","partitions":2}"#)
      #expect(others.verdict == "409 consumer_conflict")
      // One worker leaves; the lease of the other one ends.
      #expect(try await lease("w1", seconds: 0) == [])
      #expect(try await lease("w2", held: ["2/4", "3/4"]) == all)
      try await gateway.store.advance(milliseconds: 9_000)
      #expect(try await lease("w3") == all)
      let nobody = try await client.post("/v1/feed/consumers/nobody/lease", #"{"worker":"w1","partitions":4}"#)
      #expect(nobody.verdict == "404 consumer_not_found")
    }
  }

  @Test func storeWithoutFeedRefusesEveryRoute() async throws {
    try await TestGateway.run { gateway in
      let client = gateway.client
      let requests: [(HTTP2Method, String, String?)] = [
        (.put, Self.consumer, "{}"), (.get, Self.consumer, nil), (.delete, Self.consumer, nil),
        (.get, "/v1/feed/consumers", nil), (.get, Self.feed, nil),
        (.post, Self.consumer + "/commit", #"{"partition":"0/1","state":"s"}"#),
        (.post, Self.consumer + "/lease", #"{"worker":"w1","partitions":4}"#),
      ]
      for (method, path, body) in requests {
        let response = try await client.request(method, path, body, token: TestTokens.server)
        #expect(response.verdict == "409 feed_off", "\(method) \(path)")
        let user = try await client.request(method, path, body, token: TestTokens.user("alice"))
        #expect(user.verdict == "403 server_token_required", "\(method) \(path)")
      }
    }
  }

  // MARK: Failures

  @Test func refusalOfOneShardIsAnsweredAndRequestsMayBeRepeated() async throws {
    try await TestGateway.run(feed: true) { gateway in
      let (client, store) = (gateway.client, gateway.store)
      let home = store.shard(of: "messaging:c")
      try await store.script(.putConsumer) { $0.shard == home ? .refusal(.busy) : .engine }
      let refused = try await client.put(Self.consumer, "{}")
      #expect(refused.verdict == "503 store_busy" && refused.headers["retry-after"] == "2")
      try await store.set(.normal)
      // The other shards have the consumer already.
      #expect(try await client.put(Self.consumer, "{}").status == 201)
      try await Self.converse(gateway)

      try await store.script(.openPartition) { $0.shard == home ? .refusal(.busy) : .engine }
      #expect(try await client.get(Self.feed).verdict == "503 store_busy")
      try await store.set(.closing(.openPartition))
      #expect(try await client.get(Self.feed).verdict == "503 outcome_unknown")
      try await store.set(.normal)
      let stream = try await Self.open(client)
      let records = try await Self.records(6, stream.lines)
      #expect(records.map(\.text) == Self.conversation)

      try await store.script(.commitConsumer) { $0.shard == home ? .refusal(.busy) : .engine }
      let late = try await Self.commit(client, cursor: records[5].cursor, epoch: stream.epoch)
      #expect(late.verdict == "503 store_busy")
      #expect(try await Self.progress(client)["lag_records"] as? Int == 6)
      try await store.set(.normal)
      #expect(try await Self.commit(client, cursor: records[5].cursor, epoch: stream.epoch).status == 200)
      #expect(try await Self.progress(client)["lag_records"] as? Int == 0)
    }
  }

  @Test func openStreamOutlivesRefusedReadsAndLostConnection() async throws {
    try await TestGateway.run(feed: true) { gateway in
      let (client, store) = (gateway.client, gateway.store)
      try await gateway.setUp("messaging:c", members: ["alice", "bob"])
      _ = try await client.put(Self.consumer, "{}")
      let stream = try await Self.open(client)
      try await store.set(.refusingKind(.readFeed, .busy))
      _ = try await store.takeLog()
      try await Self.register("m1", client)
      try await Self.register("m2", client)
      try await eventually("a read is refused") { try await store.takeLog().contains(.readFeed) }
      try await store.set(.normal)
      let records = try await Self.records(2, stream.lines)
      #expect(records.map(\.text) == ["message.registered alice m1", "message.registered alice m2"])
      try await store.dropConnections()
      // Answered over the next connection.
      #expect(try await client.get(Self.channel).status == 200)
      try await Self.register("m3", client)
      #expect(try await Self.records(1, stream.lines).map(\.text) == ["message.registered alice m3"])
    }
  }

  @Test func endedStreamTellsItsReason() async throws {
    try await TestGateway.run(feed: true) { gateway in
      let (client, store) = (gateway.client, gateway.store)
      _ = try await client.put(Self.consumer, "{}")
      let expiry = Int(Date().timeIntervalSince1970) + 600
      let expiring = try await Self.open(client, token: TestTokens.make(#"{"server":true,"exp":\#(expiry)}"#))
      gateway.clock.advance(by: .seconds(601))
      #expect(try await Self.next(expiring.lines) == ["type": "error", "code": "token_expired"])
      #expect(await expiring.lines.line() == nil)

      let deleted = try await Self.open(client)
      #expect(try await client.delete(Self.consumer).body == "{}")
      #expect(try await Self.next(deleted.lines) == ["type": "error", "code": "consumer_not_found"])
      #expect(await deleted.lines.line() == nil)
      #expect(try await client.get(Self.consumer).verdict == "404 consumer_not_found")
      #expect(try await client.delete(Self.consumer).status == 200)

      _ = try await client.put(Self.consumer, "{}")
      let garbled = try await Self.open(client)
      try await store.script(.readFeed) { _ in .reply(ByteBuffer(repeating: 0xFF, count: 20)) }
      // Ends the read that the store has already.
      try await gateway.setUp("messaging:c", members: ["alice"])
      var last = try await Self.next(garbled.lines)
      while last["id"] != nil { last = try await Self.next(garbled.lines) }
      #expect(last == ["type": "error", "code": "internal_error"])
      #expect(await garbled.lines.line() == nil)
    }
  }

  @Test func abortedStreamsAreForgotten() async throws {
    try await TestGateway.run(feed: true) { gateway in
      let (client, store) = (gateway.client, gateway.store)
      _ = try await client.put(Self.consumer, "{}")
      let live = try await Self.open(client)
      _ = try await store.takeLog()
      try await store.set(.ignoringKind(.openPartition))
      let opening = try await client.lines(Self.feed)
      try await eventually("the store has the second stream's requests") {
        try await store.takeLog().contains(.openPartition)
      }
      #expect(try await gateway.metric("feed_streams") == 2)
      try await client.reset(live.lines)
      try await client.reset(opening)
      try await eventually("the gateway has forgotten both") { try await gateway.metric("feed_streams") == 0 }
      try await store.set(.normal)
      try await Self.converse(gateway)
      let next = try await Self.open(client)
      #expect(try await Self.records(6, next.lines).map(\.text) == Self.conversation)
    }
  }

  /// A client that takes no records gets what its window and the gateway's bounded queue hold, and is then reset.
  @Test func unreadStreamReadsNoFurtherAndIsReset() async throws {
    var limits = GatewayLimits()
    limits.eventStallTimeout = .seconds(2)
    try await TestGateway.run(limits: limits, feed: true) { gateway in
      let client = gateway.client
      _ = try await client.put(Self.consumer, "{}")
      func members(_ range: Range<Int>) -> [String] {
        range.map { String(repeating: "u", count: 120) + "\($0)" }
      }
      try await gateway.setUp("messaging:c", members: members(0..<1_000))
      for start in [1_000, 2_000, 3_000, 4_000] {
        let names = members(start..<(start + 1_000)).map { "\"\($0)\"" }.joined(separator: ",")
        _ = try await client.post(Self.channel + "/members", "{\"add\":[\(names)]}")
      }
      #expect(try await Self.progress(client)["lag_records"] as? Int == 5_001)
      let stalled = try await TestClient.connect(port: gateway.port, window: 65_535, on: gateway.eventLoop)
      _ = try await stalled.get(Self.consumer)
      try await stalled.stopReading()
      _ = try await stalled.lines(Self.feed)
      try await eventually("the unread stream is reset") {
        try await gateway.metric("feed_streams_stalled_total") == 1
      }
      let sent = try await gateway.metric("feed_records_total")
      #expect(sent > 0 && sent < 5_001)
      #expect(try await gateway.metric("feed_streams") == 0)
      // Nothing was committed: the next stream begins again.
      let next = try await Self.open(client)
      #expect(try await Self.records(1, next.lines).map(\.text) == ["channel.created"])
      try await stalled.close()
    }
  }
}
