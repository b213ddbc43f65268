import Testing

@testable import LoadGenerator

@Suite struct RequestWalkTests {
  private let names = BenchNames(prefix: "run")

  private func next(_ walk: inout RequestWalk, stream: Int) -> (path: String, body: String)? {
    var request: (String, String)?
    let exists = walk.next(stream: stream) { path, body in
      request = (String(decoding: path, as: UTF8.self), String(decoding: body, as: UTF8.self))
    }
    return exists ? request : nil
  }

  private func walk(_ form: RequestForm, channels: Int, messages: Int, streams: Int) -> RequestWalk {
    RequestWalk(
      names: names,
      form: form,
      connection: 7,
      channelCount: channels,
      messageCount: messages,
      streams: streams
    )
  }

  @Test(arguments: [
    (RequestForm.frame, "messaging:run-0011", "run-0011-000001"),
    (.register, "/v1/channels/messaging:run-0011/messages", #"{"id":"run-r7-0011-000001"}"#),
    (.readState(memberCount: 16), "/v1/channels/messaging:run-0011/read-state", ""),
    (.status, "/v1/channels/messaging:run-0011/messages/run-0011-000001/status", ""),
    (.hashSet, "/HSET/run-0011/run-user-7/000001", ""),
  ]) func everyFormHasItsPathAndBody(form: RequestForm, path: String, body: String) throws {
    var walk = walk(form, channels: 12, messages: 3, streams: 12)
    walk.answered(stream: 11, isAcknowledged: true)
    let request = try #require(next(&walk, stream: 11))
    #expect(request.path == path)
    #expect(request.body == body)
    let isFirst = request.body == #"{"id":"\#(names.message(1, of: 11, by: 7))"}"#
    #expect(isFirst == (form == .register))
  }

  @Test func queriesRestartAfterLastMessageAndMarksEnd() throws {
    for form in [RequestForm.status, .query] {
      var walk = walk(form, channels: 2, messages: 2, streams: 1)
      for _ in 0..<4 {
        #expect(next(&walk, stream: 0) != nil)
        walk.answered(stream: 0, isAcknowledged: true)
      }
      #expect((next(&walk, stream: 0) == nil) == form.isWrite)
    }
  }

  @Test func queryFormHasChannelAndMessage() throws {
    var walk = walk(.query, channels: 12, messages: 3, streams: 12)
    let request = try #require(next(&walk, stream: 11))
    #expect(request.path == "/v1/channels/messaging:run-0011/read?message_id=run-0011-000000")
    #expect(request.body.isEmpty)
    #expect(request.path.contains(names.message(0, of: 11)) && request.path.contains(names.channel(11)))
  }

  @Test func bodyFormHasTheMessage() throws {
    var walk = walk(.body, channels: 2000, messages: 3, streams: 1)
    for _ in 0..<1999 {
      _ = next(&walk, stream: 0)
      walk.answered(stream: 0, isAcknowledged: true)
    }
    let request = try #require(next(&walk, stream: 0))
    #expect(request.path == "/v1/channels/messaging:run-1999/read")
    #expect(request.body == #"{"message_id":"run-1999-000000"}"#)
  }

  @Test func streamCyclesItsChannelsForEachMessage() throws {
    var walk = walk(.query, channels: 4, messages: 2, streams: 2)
    var seen: [String] = []
    while let request = next(&walk, stream: 1) {
      seen.append(String(request.path.suffix(11)))
      walk.answered(stream: 1, isAcknowledged: seen.count != 3)
    }
    #expect(seen == ["0001-000000", "0003-000000", "0001-000001", "0003-000001"])
    #expect(walk.acknowledged == [0, 1, 0, 2])
    #expect(next(&walk, stream: 0)?.path.hasSuffix("0000-000000") == true)
  }

  @Test func unansweredRequestIsRepeated() throws {
    var walk = walk(.query, channels: 2, messages: 2, streams: 1)
    #expect(next(&walk, stream: 0)?.path == next(&walk, stream: 0)?.path)
  }

  @Test func namesHaveRoomForLargestNumbers() throws {
    #expect(names.message(999_999, of: 9_999) == "run-9999-999999")
    #expect(names.channel(9_999) == "messaging:run-9999")
  }
}

/// Checks of sampled responses to the request for message 2 (from 0) in channel 1 by connection 3.
@Suite struct ResponseCheckTests {
  private let names = BenchNames(prefix: "run")

  private func problem(_ form: RequestForm, _ body: String, message: Int = 2) -> String? {
    let check = ResponseCheck(
      names: names,
      form: form,
      positions: form.isWrite ? nil : BenchPositions(messageCount: 4, memberCount: 6)
    )
    return check.problem(ResponseSample(channel: 1, message: message, body: Array(body.utf8)), of: 3)
  }

  @Test(arguments: [
    (3, "run-user-3", "run-0001-000002", true), (2, "run-user-3", "run-0001-000002", false),
    (3, "run-user-4", "run-0001-000002", false), (3, "run-user-3", "run-0001-000001", false),
  ])
  func markAnswerMustHaveItsRow(sequence: Int, user: String, message: String, isValid: Bool) {
    let body =
      #"{"read":{"user":{"id":"\#(user)"},"last_read_seq":\#(sequence),"last_read_message_id":"\#(message)"}}"#
    #expect((problem(.query, body) == nil) == isValid)
    #expect((problem(.body, body) == nil) == isValid)
  }

  @Test(arguments: [
    ("run-r3-0001-000002", 3, true), ("run-r3-0001-000002", 30, true), ("run-r2-0001-000002", 3, false),
    // The third message of one connection cannot be the second message of the channel.
    ("run-r3-0001-000002", 2, false),
  ]) func registrationAnswerMustHaveItsMessage(id: String, sequence: Int, isValid: Bool) {
    let body = #"{"message":{"id":"\#(id)","cid":"messaging:run-0001","seq":\#(sequence),"status":"sent"}}"#
    #expect((problem(.register, body) == nil) == isValid)
  }

  @Test func positionsAreSpreadOverMessages() {
    let positions = BenchPositions(messageCount: 4, memberCount: 6)
    #expect((0..<6).map { positions.lastRead(of: $0) } == [0, 1, 2, 3, 0, 1])
    #expect((0..<4).map { positions.readCount(of: $0) } == [4, 2, 1, 0])
  }

  @Test(arguments: [
    (1, "read", 6, true), (1, "sent", 6, false), (2, "read", 6, false), (1, "read", 5, false),
  ]) func statusAnswerMustCountItsReaders(readers: Int, status: String, members: Int, isValid: Bool) {
    let body =
      #"{"message_id":"run-0001-000002","seq":3,"status":"\#(status)","read_count":\#(readers),"#
      + #""member_count":\#(members)}"#
    #expect((problem(.status, body) == nil) == isValid)
  }

  @Test(arguments: [([0, 1, 2, 3, 0, 1], true), ([0, 1, 2, 3, 0], false), ([0, 1, 2, 3, 1, 1], false)])
  func readStateAnswerMustHaveEveryMember(lastRead: [Int], isValid: Bool) {
    let rows = lastRead.enumerated().map { #"{"user":{"id":"run-user-\#($0)"},"last_read_seq":\#($1)}"# }
    let form = RequestForm.readState(memberCount: 6)
    #expect((problem(form, #"{"read":[\#(rows.joined(separator: ","))]}"#) == nil) == isValid)
    // A page of a longer list is not the whole list.
    #expect(problem(form, #"{"read":[\#(rows.joined(separator: ","))],"next":"x"}"#) != nil)
  }

  @Test func redisAnswerMustMatchFieldExistence() {
    #expect(problem(.hashSet, #"{"HSET":1}"#, message: 0) == nil)
    #expect(problem(.hashSet, #"{"HSET":0}"#, message: 0) != nil)
    #expect(problem(.hashSet, #"{"HSET":0}"#) == nil)
    #expect(problem(.hashSet, #"{"HSET":[false,"READONLY"]}"#) != nil)
  }

  @Test(arguments: [RequestForm.query, .body, .frame, .register, .readState(memberCount: 6), .status, .hashSet])
  func unrelatedAnswersAreDetected(form: RequestForm) {
    for body in ["", "{}", "hello world\n", #"{"read":{}}"#] { #expect(problem(form, body) != nil) }
  }

  @Test func samplesBecomeRarerWithinConnection() {
    #expect((1...1000).filter { ResponseSampler.isKept($0) } == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512])
  }
}
