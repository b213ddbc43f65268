import Foundation
import TestSupport
import Testing

@testable import TidemarkClient

@Suite struct TidemarkTests {
  @Test func refusedTokenIsReplacedOnce() async throws {
    let gateway = FakeGateway()
    gateway.answer { request in
      guard request.headers["authorization"] == "Bearer token 1" else { return nil }
      return (401, #"{"code":"token_expired"}"#)
    }
    let client = gateway.client()
    try await client.start()
    try await client.open("messaging:a")
    #expect(gateway.tokens == 2)
    gateway.answer { _ in (401, #"{"code":"token_invalid"}"#) }
    let error = await #expect(throws: TidemarkError.self) { try await client.setReceipts(read: false) }
    #expect(error?.code == "token_invalid" && error?.isTemporary == true)
    #expect(gateway.tokens == 3)
    await client.close()
  }

  @Test func silentStreamIsGivenUpAndResumed() async throws {
    let gateway = FakeGateway()
    let client = gateway.client(timing: .init(silence: .milliseconds(300)))
    try await client.start()
    gateway.send(event: #"{"type":"poll.closed"}"#, id: "e1")
    gateway.silenceStreams()
    try await eventually("the stream is opened again") {
      gateway.headers("/v1/events?totals=true").count > 1
    }
    #expect(gateway.resets > 0)
    let resumed = gateway.headers("/v1/events?totals=true").map { $0["last-event-id"] }
    #expect(resumed.prefix(2) == [nil, "e1"])
    await client.close()
  }

  @Test func requestWithoutAnswerFails() async throws {
    let gateway = FakeGateway()
    let client = gateway.client(timing: .init(request: .milliseconds(50)))
    try await client.start()
    gateway.answer { _ in
      try await Task.sleep(for: .seconds(3_600))
      return nil
    }
    let error = await #expect(throws: TidemarkError.self) { try await client.setReceipts(read: false) }
    #expect(error?.code == "connection_lost" && gateway.resets > 0)
    await client.close()
  }

  @Test func refusedStreamEndsStart() async throws {
    let gateway = FakeGateway()
    gateway.answer { request in
      request.path.hasPrefix("/v1/events") ? (409, #"{"code":"too_many_channels"}"#) : nil
    }
    let client = gateway.client()
    for _ in 0..<2 {
      let error = await #expect(throws: TidemarkError.self) { try await client.start() }
      #expect(error?.code == "too_many_channels")
    }
    #expect(gateway.headers("/v1/events?totals=true").count == 1)
    await client.close()
  }

  @Test func tokenOfAnotherUserEndsStart() async throws {
    let gateway = FakeGateway()
    gateway.answer { $0.path == "/v1/users/alice" ? (403, #"{"code":"not_allowed"}"#) : nil }
    let client = gateway.client()
    let error = await #expect(throws: TidemarkError.self) { try await client.start() }
    #expect(error?.code == "not_allowed")
    await client.close()
  }

  @Test func startCanBeCancelled() async throws {
    let gateway = FakeGateway()
    gateway.answer { _ in throw URLError(.notConnectedToInternet) }
    let client = gateway.client()
    let starting = Task { try await client.start() }
    try await eventually("a request") { !gateway.log.isEmpty }
    starting.cancel()
    await #expect(throws: CancellationError.self) { try await starting.value }
    await client.close()
    try await client.start()
  }

  @Test func unknownAndBrokenEventsDoNotEndStream() async throws {
    let gateway = FakeGateway()
    let client = gateway.client()
    try await client.start()
    try await client.open("messaging:a")
    gateway.send(event: #"{"type":"message.new","cid":7}"#, id: "e1")
    gateway.send(event: "{", id: "e2")
    let message = Message(cid: "messaging:a", id: "m5", seq: 5, user: "alice")
    // The fake's rows do not have the read, and are queried again after the broken events.
    try await eventually("bob has read") {
      gateway.send(
        event: #"{"type":"message.read","cid":"messaging:a","user":{"id":"bob"},"last_read_seq":5}"#,
        id: "e3"
      )
      return await client.readersFor(message) == ["bob"]
    }
    #expect(gateway.headers("/v1/events?totals=true").count == 1)
    await client.close()
  }

  @Test func resetOfStreamLoadsEverythingAgain() async throws {
    let gateway = FakeGateway()
    let client = gateway.client()
    try await client.start()
    try await client.open("messaging:a")
    let before = gateway.log.count
    gateway.send(event: #"{"type":"stream.reset"}"#, id: "e1")
    let queries: Set = [
      "GET /v1/channels/messaging:a/read-state?limit=100", "GET /v1/users/alice",
      "GET /v1/users/alice/unread?limit=1",
    ]
    try await eventually("everything is queried") { queries.isSubset(of: gateway.log.dropFirst(before)) }
    await client.close()
  }

  @Test func channelsOpenedOfflineAreLoadedLater() async throws {
    let gateway = FakeGateway()
    let client = gateway.client()
    try await client.start()
    gateway.answer { _ in throw URLError(.notConnectedToInternet) }
    try await client.open("messaging:a")
    #expect(await client.countUnread("messaging:a") == nil)
    gateway.answer { _ in nil }
    try await eventually("the channel is loaded") { await client.countUnread("messaging:a") == 0 }
    await client.close()
  }

  @Test func readMadeWhileUnreadIsSentHasItsEpoch() async throws {
    let gateway = FakeGateway()
    let client = gateway.client()
    try await client.start()
    gateway.answer { request in
      if request.path.hasSuffix("/unread") { await client.markRead("messaging:a", "m9") }
      return nil
    }
    await client.markUnread("messaging:a", messageID: "m1")
    try await eventually("both marks are answered") { await client.pending == 0 && gateway.marks.count == 2 }
    let read = try #require(gateway.bodies("/v1/channels/messaging:a/read").first)
    #expect(read["unread_epoch"] as? Int == 8)
    await client.close()
  }

  @Test func dividerStaysUntilPlaceIsMarkedUnread() async throws {
    let gateway = FakeGateway()
    let client = gateway.client()
    try await client.start()
    #expect(await client.unreadWhenOpened("messaging:a") == nil)
    try await client.open("messaging:a")
    #expect(await client.unreadWhenOpened("messaging:a") == UnreadWhenOpened(count: 0))
    let unread =
      #"{"type":"notification.mark_unread","cid":"messaging:a","user":{"id":"alice"},"unread_messages":2,"#
      + #""unread_epoch":7,"first_unread_message_id":"m4","marked_unread":true}"#
    gateway.answer { request in
      guard request.path.contains("/read-state") else { return nil }
      let row =
        #"{"user":{"id":"alice"},"joined_seq":0,"last_read_seq":1,"last_delivered_seq":1,"unread_messages":2,"#
        + #""unread_epoch":7,"first_unread_message_id":"m4"}"#
      return (200, #"{"read":[\#(row)]}"#)
    }
    gateway.send(event: unread, id: "e1")
    try await eventually("the divider moves") {
      await client.unreadWhenOpened("messaging:a") == UnreadWhenOpened(messageID: "m4", count: 2, epoch: 7)
    }
    await client.forget("messaging:a")
    #expect(await client.unreadWhenOpened("messaging:a") == nil)
    await client.close()
  }

  @Test func receiptsAreToldOneByOne() async throws {
    let gateway = FakeGateway()
    let client = gateway.client()
    let changes = client.changes
    try await client.start()
    for user in ["bob", "carol"] {
      gateway.send(
        event: #"{"type":"message.receipt","cid":"messaging:a","message_id":"m1","receipt_status":"processing","#
          + #""acknowledged_count":1,"user":{"id":"\#(user)"},"note":"on it"}"#,
        id: user
      )
    }
    let told = try await within("two receipts") {
      var users: [String?] = []
      for await case .receipt(let receipt) in changes {
        users.append(receipt.user)
        if users.count == 2 { break }
      }
      return users
    }
    #expect(told == ["bob", "carol"])
    await client.close()
  }

  @Test func membersOfMessageAreListedByPage() async throws {
    let gateway = FakeGateway()
    gateway.answer { request in
      guard request.path.contains("/readers") else { return nil }
      let member = #"{"user":{"id":"bob"},"read_at":"2026-01-01T00:00:00.250Z","exact":true}"#
      return (200, #"{"members":[\#(member)],"total":3,"next":"c+1"}"#)
    }
    let client = gateway.client()
    let page = try await client.listMembers("messaging:a", messageID: "m/1", .readers, cursor: "a b", limit: 1)
    #expect(page.members.map(\.user) == ["bob"] && page.total == 3 && page.next == "c+1")
    #expect(page.members.first?.readAt == Date(timeIntervalSince1970: 1_767_225_600.25))
    _ = try await client.listMembers("messaging:a", messageID: "m1", .readers, order: .timeDescending)
    let path = "GET /v1/channels/messaging:a/messages"
    #expect(gateway.log == ["\(path)/m%2F1/readers?cursor=a%20b&limit=1", "\(path)/m1/readers?order=time_desc"])
    await client.close()
  }

  @Test func changesEndWithClient() async throws {
    let client = FakeGateway().client()
    let changes = client.changes
    let reading = Task {
      var count = 0
      for await _ in changes { count += 1 }
      return count
    }
    try await client.start()
    await client.close()
    let count = try await within("the end of the changes") { await reading.value }
    #expect(count > 0)
    let later = try await within("changes of a closed client") {
      var later = client.changes.makeAsyncIterator()
      return await later.next()
    }
    #expect(later == nil)
  }

  @Test func slowReaderGetsEachPlaceOnce() async throws {
    let hub = ChangeHub()
    let changes = hub.subscribe()
    let (first, second) = (Place(cid: "messaging:a"), Place(cid: "messaging:b"))
    for place in [first, second, first] { hub.emit(.place(place)) }
    hub.emit(.online)
    hub.emit(.offline(.lostConnection("")))
    for number in 0..<1_500 {
      hub.emit(.refused(Refusal(kind: .read, messageID: "\(number)", error: .ofEntry("x"))))
    }
    hub.finish()
    let read = try await within("the end of the changes") {
      var read: [Change] = []
      for await change in changes { read.append(change) }
      return read
    }
    #expect(read.prefix(3) == [.place(first), .place(second), .offline(.lostConnection(""))])
    #expect(read.count == 1_003)
    guard case .refused(let oldest) = read[3] else { throw Unexpected() }
    #expect(oldest.messageID == "500")
  }

  @Test func droppedClientEndsItsStream() async throws {
    let gateway = FakeGateway()
    var client: Tidemark? = gateway.client()
    try await client?.start()
    try await client?.open("messaging:a")
    weak let observed = client
    client = nil
    try await eventually("the client is gone") { observed == nil }
  }
}
