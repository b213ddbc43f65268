import Testing

@testable import ReceiptModel

/// R19: the number of members required for a message to be delivered or read.
@Suite("The status rule")
struct StatusRuleTests {
  /// The members' state for the message, one letter each.
  ///
  /// | letter | |
  /// | --- | --- |
  /// | `-` | nothing |
  /// | `R`, `D`, `A` | has read it, has had it delivered, has acknowledged it |
  /// | `r` | has read it and hides that |
  /// | `d` | has had it delivered and hides that |
  /// | `q` | has read it and had it delivered, and hides the reading only |
  /// | `e` | has read it, and hides delivery only |
  /// | `h`, `g` | nothing, and hides reading, hides delivery |
  /// | `X` | had read it, and left |
  /// | `J` | joined after it, and has read everything |
  struct Row: Sendable, CustomTestStringConvertible {
    var rule: StatusRule
    var members: String
    var status: MessageStatus
    var testDescription: String { "\(rule) of \(members): \(status)" }

    init(_ rule: StatusRule, _ members: String, _ status: MessageStatus) {
      self.rule = rule
      self.members = members
      self.status = status
    }
  }

  static let rows: [Row] = [
    // any: one member is enough.
    Row(.any, "---", .sent), Row(.any, "D--", .delivered), Row(.any, "R--", .read), Row(.any, "A--", .read),
    Row(.any, "r--", .sent), Row(.any, "q--", .delivered), Row(.any, "d--", .sent), Row(.any, "e--", .read),
    Row(.any, "X--", .sent), Row(.any, "J--", .sent), Row(.any, "", .sent), Row(.any, "X", .sent),
    Row(.any, "J", .sent), Row(.any, "h", .sent), Row(.any, "r", .sent),
    // all: every recipient who does not hide it.
    Row(.all, "RRR", .read), Row(.all, "RRD", .delivered), Row(.all, "RR-", .sent),
    Row(.all, "DDD", .delivered),
    Row(.all, "RRA", .read), Row(.all, "RRh", .read), Row(.all, "RRr", .read), Row(.all, "RRX", .read),
    Row(.all, "RRJ", .read), Row(.all, "hh", .sent), Row(.all, "rr", .sent), Row(.all, "", .sent),
    // Delivery waits for members who hide reads, but not for those who hide deliveries.
    Row(.all, "RDh", .sent), Row(.all, "RDq", .delivered), Row(.all, "RDg", .delivered),
    Row(.all, "RDd", .delivered),
    Row(.all, "DDd", .delivered), Row(.all, "e-", .sent), Row(.all, "eD", .delivered), Row(.all, "eR", .read),
    Row(.all, "qq", .delivered), Row(.all, "dd", .sent), Row(.all, "ee", .read),
    // count: that number, or all where there are fewer.
    Row(.count(1), "R--", .read), Row(.count(2), "R--", .sent), Row(.count(2), "RD-", .delivered),
    Row(.count(2), "RR-", .read), Row(.count(5), "RR", .read), Row(.count(5), "R-", .sent),
    Row(.count(2), "Rhh", .read), Row(.count(2), "Rrh", .read), Row(.count(2), "RDh", .delivered),
    Row(.count(2), "", .sent), Row(.count(3), "RRX", .read),
    // percentage: rounded up, at least one.
    Row(.percentage(50), "RR--", .read), Row(.percentage(50), "R--", .sent),
    Row(.percentage(50), "RR-", .read),
    Row(.percentage(51), "RR--", .sent), Row(.percentage(51), "RRD-", .delivered),
    Row(.percentage(1), "R---", .read),
    Row(.percentage(1), "", .sent), Row(.percentage(100), "RRR", .read),
    Row(.percentage(100), "RRD", .delivered),
    Row(.percentage(50), "Rhh-", .read), Row(.percentage(67), "RR-hX", .sent),
    Row(.percentage(66), "RR-hX", .read),
  ]

  @Test("the rule counts expected current members who do not hide", arguments: rows)
  func ruleCountsExpectedCurrentMembersWhoDoNotHide(row: Row) throws {
    let room = try Room("sender") { $0.statusRule = row.rule }
    let members = row.members.enumerated().map { (name: "user\($0.offset)", letter: $0.element) }
    try room.change(add: members.filter { $0.letter != "J" }.map(\.name))
    try room.postWithAcknowledgementRequest("m1", by: "sender")
    try room.change(add: members.filter { $0.letter == "J" }.map(\.name))
    for (name, letter) in members {
      switch letter {
      case "-": break
      case "R", "J": try room.read(name)
      case "D": try room.deliver(name)
      case "A": try room.acknowledge(name, "m1")
      case "r":
        try room.read(name)
        try room.hide(name, .read)
      case "d":
        try room.hide(name, .delivered)
        try room.deliver(name)
      case "q":
        try room.hide(name, .read)
        try room.read(name)
        try room.deliver(name)
      case "e":
        try room.hide(name, .delivered)
        try room.read(name)
      case "h": try room.hide(name, .read)
      case "g": try room.hide(name, .delivered)
      case "X":
        try room.read(name)
        try room.change(remove: [name])
      default: Issue.record("no such letter: \(letter)")
      }
    }
    let answer = room.state.status(room.slot, room.sequence("m1"))
    #expect(answer.status == row.status)
    // The counts do not depend on the rule.
    let shown = Set("RAe")
    #expect(Int(answer.readCount) == members.count { shown.contains($0.letter) })
    #expect(Int(answer.deliveredCount) == members.count { shown.union("Dq").contains($0.letter) })
    #expect(Int(answer.memberCount) == members.count { !"XJ".contains($0.letter) })
  }

  @Test("a kind that is switched off never meets the rule")
  func kindThatIsSwitchedOffNeverMeetsRule() throws {
    let room = try Room("alice bob carol") { $0.statusRule = .all }
    try room.post("m1", by: "alice")
    try room.read("bob")
    try room.deliver("carol")
    #expect(try room.status("m1") == "delivered 1 2 of 2")
    try room.type { $0.deliveryEvents = false }
    #expect(try room.status("m1") == "sent 1 1 of 2")
    try room.type {
      $0.deliveryEvents = true; $0.readEvents = false
    }
    #expect(try room.status("m1") == "sent 0 1 of 2")
    try room.deliver("bob")
    #expect(try room.status("m1") == "delivered 0 2 of 2")
  }
}
