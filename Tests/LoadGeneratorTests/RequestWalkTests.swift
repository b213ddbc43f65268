import Testing

@testable import LoadGenerator

@Suite struct MarkWalkTests {
  private let names = MarkNames(prefix: "run")

  private func next(_ walk: inout MarkWalk, stream: Int) -> (path: String, body: String)? {
    var request: (String, String)?
    let isThere = walk.next(stream: stream) { path, body in
      request = (String(decoding: path, as: UTF8.self), String(decoding: body, as: UTF8.self))
    }
    return isThere ? request : nil
  }

  @Test func aQueryNamesChannelAndMessage() throws {
    var walk = MarkWalk(names: names, form: .query, channelCount: 12, messageCount: 3, streams: 12)
    let request = try #require(next(&walk, stream: 11))
    #expect(request.path == "/v1/channels/messaging:run-0011/read?message_id=run-0011-000000")
    #expect(request.body.isEmpty)
    #expect(request.path.contains(names.message(0, of: 11)) && request.path.contains(names.channel(11)))
  }

  @Test func aBodyNamesTheMessage() throws {
    var walk = MarkWalk(names: names, form: .body, channelCount: 2000, messageCount: 3, streams: 1)
    for _ in 0..<1999 {
      _ = next(&walk, stream: 0)
      walk.answered(stream: 0, isAcknowledged: true)
    }
    let request = try #require(next(&walk, stream: 0))
    #expect(request.path == "/v1/channels/messaging:run-1999/read")
    #expect(request.body == #"{"message_id":"run-1999-000000"}"#)
  }

  @Test func aStreamGoesRoundItsOwnChannelsAndThenToTheNextMessage() throws {
    var walk = MarkWalk(names: names, form: .query, channelCount: 4, messageCount: 2, streams: 2)
    var seen: [String] = []
    while let request = next(&walk, stream: 1) {
      seen.append(String(request.path.suffix(11)))
      walk.answered(stream: 1, isAcknowledged: seen.count != 3)
    }
    #expect(seen == ["0001-000000", "0003-000000", "0001-000001", "0003-000001"])
    #expect(walk.acknowledged == [0, 1, 0, 2])
    #expect(next(&walk, stream: 0)?.path.hasSuffix("0000-000000") == true)
  }

  @Test func aRequestIsTheSameUntilItIsAnswered() throws {
    var walk = MarkWalk(names: names, form: .query, channelCount: 2, messageCount: 2, streams: 1)
    #expect(next(&walk, stream: 0)?.path == next(&walk, stream: 0)?.path)
  }

  @Test func widthsHoldTheLargestNumbers() throws {
    #expect(names.message(999_999, of: 9_999) == "run-9999-999999")
    #expect(names.channel(9_999) == "messaging:run-9999")
  }
}
