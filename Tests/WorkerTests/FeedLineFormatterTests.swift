import Testing

@testable import FeedClient

@Suite struct FeedLineFormatterTests {
  /// Names cannot control the terminal.
  @Test(
    arguments: [
      (
        #"{"id":"1.2.3","type":"read","cid":"team:a","user":{"id":"bob"},"message_id":"m1","seq":7,"at":"T"}"#,
        "T  read                team:a bob m1 seq=7"
      ),
      (
        #"{"id":"1","type":"reminder.due","cid":"team:a","message_id":"m1","users":[{"id":"a"},{"id":"b"}],"at":"T"}"#,
        "T  reminder.due        team:a m1 users=a,b"
      ), (#"{"id":"1","type":"user.erased","user":{"id":"b\u001bc"},"at":"T"}"#, "T  user.erased         - b\u{FFFD}c"),
      (
        #"{"id":"1","type":"status","cid":"t:a","status":"read","ok":true,"at":"T"}"#,
        "T  status              t:a ok=true status=read"
      ),
    ]
  )
  func recordIsLine(_ json: String, _ expected: String) {
    let record = FeedRecord(cursor: "c", id: "1", json: Array(json.utf8))
    #expect(FeedLineFormatter.line(.record(record)) == expected)
    #expect(FeedLineFormatter.json(.record(record)) == json)
  }

  @Test func gapNamesItsTimes() {
    let gap = FeedLine.gap(cursor: "c", from: "T1", to: "T2")
    #expect(FeedLineFormatter.line(gap).hasSuffix("no records from T1 to T2"))
    #expect(FeedLineFormatter.json(gap) == #"{"type":"gap","from":"T1","to":"T2"}"#)
  }
}
