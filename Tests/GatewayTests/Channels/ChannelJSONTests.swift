import Foundation
import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

@testable import Gateway

/// Responses about channels and types, read back by Foundation.
@Suite struct ChannelJSONTests {
  @Test func channelsAndTypesAreWritten() throws {
    var options = ChannelTypeOptions()
    options.readEvents = false
    options.markUnread = .off
    options.history = .hidden
    let expected: NSDictionary = [
      "read_events": false, "delivery_events": true, "mark_unread": "off", "history": "hidden",
      "read_acks_receipts": "direct", "receipt_ttl": NSNull(), "receipt_max_members": NSNull(),
      "receipt_daily_limit": NSNull(), "receipt_request_roles": NSNull(), "counts_visible_to": "members",
      "status_rule": "any", "kept_steps": 64, "reminders": [],
    ]
    #expect(try jsonObject { OptionsJSON.write(options, into: &$0) } == expected)
    #expect(
      try jsonObject { ChannelJSON.write(ChannelTypeRecord(name: "t", version: 3, options: options), into: &$0) }
        == ["type": "t", "version": 3, "options": expected]
    )
    var channel = ChannelFields(
      cid: "messaging:x",
      created: Timestamp(milliseconds: 1),
      options: options,
      memberCount: 2,
      newest: SequenceNumber(4),
      newestMessage: "m\\4",
      newestRegistered: Timestamp(milliseconds: 2)
    )
    #expect(
      try jsonObject { ChannelJSON.writeResponse(channel, into: &$0) } == [
        "channel": [
          "cid": "messaging:x", "type": "messaging", "id": "x", "created_at": "1970-01-01T00:00:00.001Z",
          "member_count": 2, "options": expected,
          "newest_message": ["id": "m\\4", "seq": 4, "registered_at": "1970-01-01T00:00:00.002Z"],
        ]
      ]
    )
    channel.newestMessage = ""
    let found = try jsonObject { ChannelJSON.writeResponse(channel, into: &$0) }
    #expect((found["channel"] as? NSDictionary)?["newest_message"] == nil)
  }

  // MARK: Options

  private func shown<Value>(_ value: Nullable<Value>) -> String { value.value.map { "\($0)" } ?? "null" }

  private func patch(_ text: String) -> String {
    let tape = JSONTape()
    let bytes = Array(text.utf8)
    do {
      let value = try tape.parse(bytes.span.bytes)
      let patch = try OptionsJSON.patch(value)
      var names: [String] = []
      if let set = patch.readEvents { names.append("read_events=\(set)") }
      if let set = patch.deliveryEvents { names.append("delivery_events=\(set)") }
      if let set = patch.markUnread { names.append("mark_unread=\(set)") }
      if let set = patch.history { names.append("history=\(set)") }
      if let set = patch.readAcksReceipts { names.append("read_acks_receipts=\(set)") }
      if let set = patch.receiptTTL { names.append("receipt_ttl=\(shown(set))") }
      if let set = patch.receiptMembersMax { names.append("receipt_max_members=\(shown(set))") }
      if let set = patch.receiptDailyLimit { names.append("receipt_daily_limit=\(shown(set))") }
      if let set = patch.receiptRequestRoles { names.append("receipt_request_roles=\(shown(set))") }
      if let set = patch.countsVisibleTo { names.append("counts_visible_to=\(set)") }
      if let set = patch.statusRule { names.append("status_rule=\(set)") }
      if let set = patch.keptSteps { names.append("kept_steps=\(set)") }
      if let set = patch.reminders {
        names.append("reminders=\(set.map { "\($0.after) \($0.condition) \($0.membersMax)" })")
      }
      return names.joined(separator: " ")
    } catch let problem as Problem {
      // The detail names the option and its valid values.
      if problem.code == .invalidOption {
        #expect(
          problem.detail.contains("must be ") && problem.detail.hasPrefix("field \""),
          "\(problem.detail)"
        )
      }
      return problem.code.rawValue
    } catch {
      return "\(error)"
    }
  }

  @Test(arguments: [
    (#"{}"#, ""),
    (#"{"read_events":false,"delivery_events":true}"#, "read_events=false delivery_events=true"),
    (#"{"mark_unread":"private"}"#, "mark_unread=private"),
    (#"{"mark_unread":"public"}"#, "mark_unread=public"),
    (#"{"mark_unread":"off","history":"hidden"}"#, "mark_unread=off history=hidden"),
    (#"{"history":"visible"}"#, "history=visible"), (#"{"read_events":"true"}"#, "invalid_option"),
    (#"{"read_events":null}"#, "invalid_option"), (#"{"mark_unread":"no"}"#, "invalid_option"),
    (#"{"mark_unread":1}"#, "invalid_option"), (#"{"history":"Visible"}"#, "invalid_option"),
    (#"{"colour":"red"}"#, "unknown_field"),
    (#"{"read_acks_receipts":"direct"}"#, "read_acks_receipts=direct"),
    (#"{"read_acks_receipts":"always"}"#, "read_acks_receipts=always"),
    (#"{"read_acks_receipts":"never"}"#, "read_acks_receipts=never"),
    (#"{"read_acks_receipts":"x"}"#, "invalid_option"), (#"{"read_acks_receipts":null}"#, "invalid_option"),
    (#"{"receipt_ttl":null}"#, "receipt_ttl=null"), (#"{"receipt_ttl":1}"#, "receipt_ttl=1"),
    (#"{"receipt_ttl":4294967294}"#, "receipt_ttl=4294967294"),
    (#"{"receipt_ttl":4294967295}"#, "invalid_option"), (#"{"receipt_ttl":0}"#, "invalid_option"),
    (#"{"receipt_ttl":"60"}"#, "invalid_option"), (#"{"receipt_ttl":60.0}"#, "invalid_option"),
    (#"{"receipt_max_members":0}"#, "receipt_max_members=0"),
    (#"{"receipt_max_members":null}"#, "receipt_max_members=null"),
    (#"{"receipt_max_members":-5}"#, "invalid_option"),
    (#"{"receipt_daily_limit":4294967294}"#, "receipt_daily_limit=4294967294"),
    (#"{"receipt_daily_limit":4294967295}"#, "invalid_option"),
    (#"{"receipt_daily_limit":1.5}"#, "invalid_option"),
    (#"{"receipt_daily_limit":false}"#, "invalid_option"),
    (#"{"receipt_request_roles":null}"#, "receipt_request_roles=null"),
    (#"{"receipt_request_roles":[]}"#, "receipt_request_roles=[]"),
    (#"{"receipt_request_roles":["admin","a.b_c-1"]}"#, #"receipt_request_roles=["admin", "a.b_c-1"]"#),
    (#"{"receipt_request_roles":["a b"]}"#, "invalid_option"),
    (#"{"receipt_request_roles":[""]}"#, "invalid_option"),
    (#"{"receipt_request_roles":[1]}"#, "invalid_option"),
    (#"{"receipt_request_roles":{}}"#, "invalid_option"),
    (#"{"receipt_request_roles":"admin"}"#, "invalid_option"),
    (#"{"counts_visible_to":"members"}"#, "counts_visible_to=members"),
    (#"{"counts_visible_to":"sender"}"#, "counts_visible_to=sender"),
    (#"{"counts_visible_to":"all"}"#, "invalid_option"), (#"{"status_rule":"any"}"#, "status_rule=any"),
    (#"{"status_rule":"all"}"#, "status_rule=all"), (#"{"status_rule":3}"#, "status_rule=count(3)"),
    (#"{"status_rule":4294967295}"#, "status_rule=count(4294967295)"),
    (#"{"status_rule":4294967296}"#, "invalid_option"), (#"{"status_rule":0}"#, "invalid_option"),
    (#"{"status_rule":-1}"#, "invalid_option"), (#"{"status_rule":1.5}"#, "invalid_option"),
    (#"{"status_rule":"3"}"#, "invalid_option"), (#"{"status_rule":null}"#, "invalid_option"),
    (#"{"status_rule":"1%"}"#, "status_rule=percentage(1)"),
    (#"{"status_rule":"100%"}"#, "status_rule=percentage(100)"),
    (#"{"status_rule":"0%"}"#, "invalid_option"), (#"{"status_rule":"101%"}"#, "invalid_option"),
    (#"{"status_rule":"05%"}"#, "invalid_option"), (#"{"status_rule":"5.5%"}"#, "invalid_option"),
    (#"{"status_rule":"50%%"}"#, "invalid_option"), (#"{"status_rule":"50 %"}"#, "invalid_option"),
    (#"{"status_rule":"x%"}"#, "invalid_option"), (#"{"status_rule":"%"}"#, "invalid_option"),
    (#"{"kept_steps":64}"#, "kept_steps=64"), (#"{"kept_steps":0}"#, "kept_steps=0"),
    (#"{"kept_steps":4096}"#, "kept_steps=4096"), (#"{"kept_steps":4097}"#, "invalid_option"),
    (#"{"kept_steps":null}"#, "invalid_option"), (#"{"reminders":[]}"#, "reminders=[]"),
    (#"{"reminders":[{"after":60,"when":"unread"}]}"#, #"reminders=["60 unread 1000"]"#),
    (
      #"{"reminders":[{"when":"undelivered","after":1,"limit_members":1},{"after":31622400,"when":"unacknowledged","limit_members":100000}]}"#,
      #"reminders=["1 undelivered 1", "31622400 unacknowledged 100000"]"#
    ), (#"{"reminders":null}"#, "invalid_option"), (#"{"reminders":{}}"#, "invalid_option"),
    (#"{"reminders":["unread"]}"#, "invalid_option"),
    (#"{"reminders":[{"after":0,"when":"unread"}]}"#, "invalid_option"),
    (#"{"reminders":[{"after":31622401,"when":"unread"}]}"#, "invalid_option"),
    (#"{"reminders":[{"after":"60","when":"unread"}]}"#, "invalid_option"),
    (#"{"reminders":[{"after":60,"when":"read"}]}"#, "invalid_option"),
    (#"{"reminders":[{"after":60,"when":"unread","limit_members":0}]}"#, "invalid_option"),
    (#"{"reminders":[{"after":60,"when":"unread","limit_members":100001}]}"#, "invalid_option"),
    (#"{"reminders":[{"after":60}]}"#, "invalid_field"), (#"{"reminders":[{"when":"unread"}]}"#, "invalid_field"),
    (#"{"reminders":[{"after":60,"when":"unread","members":5}]}"#, "unknown_field"),
    (
      #"{"reminders":[\#(Array(repeating: #"{"after":1,"when":"unread"}"#, count: 5).joined(separator: ","))]}"#,
      "invalid_option"
    ),
  ])
  func optionsAreParsedOrRefused(_ text: String, _ expected: String) {
    #expect(patch(text) == expected)
  }

  @Test func moreThan64RolesAreRefused() throws {
    let roles = (0..<64).map { "\"r\($0)\"" }
    #expect(patch("{\"receipt_request_roles\":[\(roles.joined(separator: ","))]}").contains("r63"))
    #expect(
      patch("{\"receipt_request_roles\":[\((roles + ["\"x\""]).joined(separator: ","))]}") == "invalid_option"
    )
    var options = ChannelTypeOptions()
    options.receiptRequestRoles = (0..<64).map { String(repeating: "r", count: 62) + "\(10 + $0)" }
    let found = try jsonObject { OptionsJSON.write(options, into: &$0) }
    #expect(found["receipt_request_roles"] as? [String] == options.receiptRequestRoles)
  }

  /// Options that are written and parsed again are equal.
  @Test(arguments: [
    StatusRule.any, .all, .count(1), .count(.max), .percentage(1), .percentage(50), .percentage(100),
  ])
  func writtenOptionsParseToSameValue(_ rule: StatusRule) throws {
    for readAcks in ReadAcksOption.allCases {
      for number: UInt32? in [nil, 1, .max - 1] {
        for roles in [nil, [], ["admin", "b"]] as [[String]?] {
          var options = ChannelTypeOptions()
          options.statusRule = rule
          options.readAcksReceipts = readAcks
          (options.receiptTTL, options.receiptMembersMax, options.receiptDailyLimit) = (
            number, number, number
          )
          options.receiptRequestRoles = roles
          options.countsVisibleTo = number == nil ? .sender : .members
          options.keptSteps = roles == nil ? 4_096 : 0
          if let number {
            let after = min(number, ReminderRule.afterMax)
            let rule = ReminderRule(after: after, .undelivered, membersMax: min(number, 100_000))
            options.reminders = Array(repeating: rule, count: ReminderRule.countMax)
          }
          var buffer = ByteBuffer()
          OptionsJSON.write(options, into: &buffer)
          let tape = JSONTape()
          let patch = try OptionsJSON.patch(try tape.parse(buffer.readableBytesSpan))
          #expect(ChannelTypeOptions().applying(patch) == options)
        }
      }
    }
  }
}
