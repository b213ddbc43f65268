import Foundation
import Testing

@testable import Worker

@Suite struct PushJobTests {
  static let keys =
    #""keys":{"p256dh":"BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4","#
    + #""auth":"BTBZMqHH6r4Tts7J_aSIgg"}"#

  private static func error(_ line: String) -> PushJobError? {
    do throws(PushJobError) {
      _ = try PushJob(parsing: line.utf8)
      return nil
    } catch {
      return error
    }
  }

  @Test func everyFieldIsRead() throws {
    let line = """
      {"id":"j1","cid":"messaging:a","message_id":"m1","parent_id":"m0","title":"T","body":"","data":{"n":1.5,"x":[null]},\
      "urgency":"low","ttl":60,"collapse_key":"k","users":[{"user_id":"bob","devices":[{"provider":"ios","token":"aa",\
      "device":"ipad"},{"provider":"web","subscription":{"endpoint":"https://x/y","expirationTime":null,\(Self.keys)}}]},\
      {"user_id":"carol","devices":[]}]}
      """
    let job = try PushJob(parsing: line.utf8)
    #expect(job.id == "j1" && job.content.cid == "messaging:a" && job.content.messageID == "m1")
    #expect(job.content.parentID == "m0" && job.content.title == "T" && job.content.body == "")
    #expect(job.content.data == ["n": .number(1.5), "x": .array([.null])])
    #expect(job.content.urgency == .low && job.content.ttlSeconds == 60 && job.content.collapseKey == "k")
    #expect(job.users.map(\.id) == ["bob", "carol"] && job.deviceCount == 2)
    #expect(job.users[0].devices[0] == PushDevice(provider: "ios", address: .token("aa"), label: "ipad"))
    guard case .subscription(let subscription) = job.users[0].devices[1].address else {
      Issue.record("a subscription is expected")
      return
    }
    #expect(subscription.endpoint == "https://x/y" && subscription.publicKey.count == 65)
  }

  @Test func defaultsAreThoseOfTheManual() throws {
    let users = #""users":[{"user_id":"bob","devices":[]}]"#
    let quiet = try PushJob(parsing: #"{"cid":"a:b","message_id":"m",\#(users)}"#.utf8)
    #expect(quiet.content.urgency == .normal && quiet.content.ttlSeconds == 604_800)
    let alert = try PushJob(parsing: #"{"cid":"a:b","message_id":"m","title":"T",\#(users)}"#.utf8)
    #expect(alert.content.urgency == .high)
  }

  @Test(arguments: [
    ("", "invalid_json", "the line is not JSON"), ("{", "invalid_json", "the line is not JSON"),
    ("[]", "invalid_field", "the job has to be an object"),
    (#"{"cid":"a:b","mesage_id":"m"}"#, "unknown_field", "mesage_id is unknown; known are id, cid, message_id"),
    (#"{"message_id":"m"}"#, "invalid_field", "cid is missing"),
    (#"{"cid":7}"#, "invalid_field", "cid has to be a string"),
    (#"{"cid":""}"#, "invalid_field", "cid has to be 1 to"),
    (#"{"cid":"a:b","message_id":"m"}"#, "invalid_field", "users is missing or empty"),
    (#"{"cid":"a:b","message_id":"m","users":[]}"#, "invalid_field", "users is missing or empty"),
    (#"{"cid":"a:b","message_id":"m","ttl":-1}"#, "invalid_field", "ttl has to be a whole number from 0 to"),
    (#"{"cid":"a:b","message_id":"m","ttl":1.5}"#, "invalid_field", "ttl has to be a whole number"),
    (#"{"cid":"a:b","message_id":"m","urgency":"now"}"#, "invalid_field", "urgency has to be one of very-low, low"),
    (#"{"cid":"a:b","message_id":"m","data":{"ticket":1}}"#, "invalid_field", "data.ticket is reserved"),
    (#"{"cid":"a:b","message_id":"m","aps":{"badge":1}}"#, "invalid_field", "aps.badge is reserved"),
    (#"{"cid":"a:b","message_id":"m","users":[{"user_id":"b"}]}"#, "invalid_field", "users[0].devices is missing"),
    (
      #"{"cid":"a:b","message_id":"m","users":[{"user_id":"b","devices":[]},{"user_id":"b","devices":[]}]}"#,
      "invalid_field", "users[1].user_id is the id of an earlier entry"
    ),
    (
      #"{"cid":"a:b","message_id":"m","users":[{"user_id":"b","devices":[{"provider":"x"}]}]}"#, "invalid_field",
      "users[0].devices[0] needs either a token or a subscription"
    ),
    (
      #"{"cid":"a:b","message_id":"m","users":[{"user_id":"b","devices":[{"provider":"x","subscription":{"endpoint":"e","#
        + #""keys":{"p256dh":"AA","auth":"AA"}}}]}]}"#,
      "invalid_field", "users[0].devices[0].subscription.keys.p256dh has to be base64url of 65 bytes"
    ),
  ])
  func wrongLinesAreNamed(_ line: String, _ code: String, _ detail: String) {
    let error = Self.error(line)
    #expect(error?.code == code && error?.detail.hasPrefix(detail) == true, "\(String(describing: error))")
  }

  @Test func manyUsersAndDevicesAreRefused() {
    func line(users: Int, devices: Int) -> String {
      let list = (0..<users).map { user in
        let devices = (0..<devices).map { #"{"provider":"ios","token":"\#($0)"}"# }.joined(separator: ",")
        return #"{"user_id":"u\#(user)","devices":[\#(devices)]}"#
      }
      return #"{"cid":"a:b","message_id":"m","users":[\#(list.joined(separator: ","))]}"#
    }
    #expect(Self.error(line(users: 1_000, devices: 5)) == nil)
    #expect(Self.error(line(users: 1_001, devices: 0))?.code == "limit_exceeded")
    #expect(Self.error(line(users: 1_000, devices: 6))?.code == "limit_exceeded")
  }

  @Test func usersAreSplitByNumberAndNames() {
    func users(_ count: Int, _ name: String) -> [PushJob.User] {
      let device = PushDevice(provider: "ios", address: .token("a"))
      return (0..<count).map { PushJob.User(id: "\(name)\($0)", devices: [device]) }
    }
    #expect(JobRunner.chunks(of: users(250, "u")).map(\.count) == [100, 100, 50])
    let long = JobRunner.chunks(of: users(100, String(repeating: "x", count: 250)))
    #expect(long.count > 5 && long.map(\.count).reduce(0, +) == 100)
    #expect(JobRunner.chunks(of: [PushJob.User(id: "u", devices: [])]).isEmpty)
  }

  // MARK: Lines

  @Test(arguments: [1, 2, 3, 7, 100])
  func linesAreAssembled(_ size: Int) {
    var assembler = LineAssembler(byteCountMax: 5)
    let text = Array("a\n\nbcdef\nbcdefg\nx\nlast".utf8)
    var lines: [LineAssembler.Line] = []
    for start in stride(from: 0, to: text.count, by: size) {
      lines += assembler.add(text[start..<min(start + size, text.count)])
    }
    if let last = assembler.end() { lines.append(last) }
    let texts = ["a", "", "bcdef", nil, "x", "last"]
    #expect(lines == texts.map { $0.map { .text(Array($0.utf8)) } ?? .tooLong })
    #expect(assembler.end() == nil)
  }
}
