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
  ])
  func everyFormHasItsPathAndBody(form: RequestForm, path: String, body: String) throws {
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
