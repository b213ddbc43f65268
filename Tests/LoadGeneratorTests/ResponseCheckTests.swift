import Testing

@testable import LoadGenerator

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
  ])
  func registrationAnswerMustHaveItsMessage(id: String, sequence: Int, isValid: Bool) {
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
  ])
  func statusAnswerMustCountItsReaders(readers: Int, status: String, members: Int, isValid: Bool) {
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

  @Test(arguments: [
    RequestForm.query, .body, .frame, .register, .readState(memberCount: 6), .status, .hashSet,
  ])
  func unrelatedAnswersAreDetected(form: RequestForm) {
    for body in ["", "{}", "hello world\n", #"{"read":{}}"#] { #expect(problem(form, body) != nil) }
  }

  @Test func samplesBecomeRarerWithinConnection() {
    #expect((1...1000).filter { ResponseSample.isKept($0) } == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512])
  }
}
