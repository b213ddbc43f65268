import Foundation
import HTTP2Session
import NIOCore
import ReceiptModel
import ReceiptWire
import StoreClient
import Testing

@testable import Gateway

/// JSON answers, parsed by Foundation.
@Suite struct ResponseTests {
  private func object(_ write: (inout ByteBuffer) -> Void) throws -> NSDictionary {
    var buffer = ByteBuffer()
    write(&buffer)
    let data = Data(buffer.readableBytesView)
    return try #require(try JSONSerialization.jsonObject(with: data) as? NSDictionary)
  }

  private func row(
    user: String = "alice",
    lastRead: Int64 = 1_700_000_000_123,
    readMessage: String = "m5",
    readSequence: UInt32 = 5,
    delivered: Int64 = 0,
    deliveredMessage: String = "",
    deliveredSequence: UInt32 = 0,
    own: (unread: UInt32, first: String, epoch: UInt32)? = nil
  ) -> ByteBuffer {
    var buffer = ByteBuffer()
    buffer.writeField(user)
    buffer.writeTime(Timestamp(milliseconds: lastRead))
    buffer.writeField(readMessage)
    buffer.writeVarint(readSequence)
    buffer.writeTime(Timestamp(milliseconds: delivered))
    buffer.writeField(deliveredMessage)
    buffer.writeVarint(deliveredSequence)
    buffer.writeVarint(own == nil ? 0 : 1)
    if let own {
      buffer.writeVarint(own.unread)
      buffer.writeField(own.first)
      buffer.writeVarint(own.epoch)
    }
    return buffer
  }

  private func answer(_ row: ByteBuffer) throws -> NSDictionary {
    let reply = try MarkReply(row.readableBytesSpan)
    return try object { RowJSON.writeResponse(reply, into: &$0) }
  }

  @Test func ownRowHasAllFields() throws {
    let found = try answer(
      row(delivered: 1_700_000_000_000, deliveredMessage: "m6", deliveredSequence: 6, own: (3, "m6", 2))
    )
    #expect(
      found == [
        "read": [
          "user": ["id": "alice"], "last_read": "2023-11-14T22:13:20.123Z", "last_read_message_id": "m5",
          "last_read_seq": 5, "unread_messages": 3, "last_delivered_at": "2023-11-14T22:13:20.000Z",
          "last_delivered_message_id": "m6", "last_delivered_seq": 6, "first_unread_message_id": "m6",
          "unread_epoch": 2,
        ]
      ]
    )
  }

  @Test func absentRowFieldsAreOmitted() throws {
    #expect(
      try answer(row(readMessage: "", readSequence: 0)) == [
        "read": [
          "user": ["id": "alice"], "last_read": "2023-11-14T22:13:20.123Z", "last_read_seq": 0,
          "last_delivered_seq": 0,
        ]
      ]
    )
    #expect(
      try answer(row(own: (0, "", 0))) == [
        "read": [
          "user": ["id": "alice"], "last_read": "2023-11-14T22:13:20.123Z", "last_read_message_id": "m5",
          "last_read_seq": 5, "unread_messages": 0, "last_delivered_seq": 0, "unread_epoch": 0,
        ]
      ]
    )
  }

  @Test func largestRowFitsItsBuffer() throws {
    let quotes = String(repeating: "\"", count: 255)
    let found = try answer(
      row(
        user: quotes,
        lastRead: .max,
        readMessage: quotes,
        readSequence: .max,
        delivered: .max,
        deliveredMessage: quotes,
        deliveredSequence: .max,
        own: (.max, quotes, .max - 1)
      )
    )
    let read = try #require(found["read"] as? NSDictionary)
    #expect(read["first_unread_message_id"] as? String == quotes)
    #expect(read["last_read"] as? String == "9999-12-31T23:59:59.999Z")
  }

  @Test func statusHasAllFields() throws {
    let status = ShownStatus(
      sequence: SequenceNumber(7),
      status: .delivered,
      readCount: 1,
      deliveredCount: 4,
      memberCount: 9,
      readEvents: true,
      deliveryEvents: false,
      createdAt: Timestamp(milliseconds: 0)
    )
    let (message, cid) = (Array("m\"7".utf8), Array("messaging:c".utf8))
    #expect(
      try object { StatusJSON.write(status, message: message.span.bytes, cid: cid.span.bytes, into: &$0) }
        == [
          "message_id": "m\"7", "cid": "messaging:c", "seq": 7, "status": "delivered",
          "receipt_status": "none",
          "read_count": 1, "delivered_count": 4, "unread_count": 8, "member_count": 9, "read_events": true,
          "delivery_events": false, "created_at": "1970-01-01T00:00:00.000Z",
        ]
    )
    #expect(
      try object { StatusJSON.write(.messageDeleted, message: message.span.bytes, into: &$0) }
        == ["message_id": "m\"7", "code": "message_deleted"]
    )
  }

  @Test(arguments: [
    (AcknowledgementStatus.none, "none"), (.processing, "processing"), (.done, "done"), (.expired, "expired"),
  ])
  func receiptStatusHasItsName(_ acknowledgement: AcknowledgementStatus, _ expected: String) throws {
    let status = ShownStatus(
      sequence: SequenceNumber(7),
      status: .sent,
      acknowledgement: acknowledgement,
      readCount: 0,
      deliveredCount: 0,
      memberCount: 1,
      readEvents: true,
      deliveryEvents: true,
      createdAt: Timestamp(milliseconds: 0)
    )
    let (message, cid) = (Array("m".utf8), Array("a:b".utf8))
    let found = try object {
      StatusJSON.write(status, message: message.span.bytes, cid: cid.span.bytes, into: &$0)
    }
    #expect(found["receipt_status"] as? String == expected)
  }

  @Test func userSettingsAreWritten() throws {
    var settings = UserSettings(user: "a@b", version: 3, hidesRead: true)
    #expect(
      try object { UserJSON.write(settings, into: &$0) } == [
        "id": "a@b",
        "privacy_settings": ["read_receipts": ["enabled": false], "delivery_receipts": ["enabled": true]],
      ]
    )
    settings.user = String(repeating: "u", count: 255)
    settings.hidesDelivered = true
    settings.tokensRevokedBefore = Timestamp(milliseconds: .max)
    let found = try object { UserJSON.write(settings, into: &$0) }
    #expect(found["revoke_tokens_before"] as? String == "9999-12-31T23:59:59.999Z")
  }

  @Test func largestListFitsItsBuffer() throws {
    var buffer = ByteBuffer()
    buffer.writeVarint(100)
    let entry = ListEntry(
      row: MemberOrdinal(0),
      at: Timestamp(milliseconds: .max),
      isExact: false,
      note: String(repeating: "\u{1}", count: 1_024)
    )
    let user = Array(String(repeating: "\"", count: 255).utf8)
    for _ in 0..<100 { buffer.writeListEntry(user: user.span.bytes, entry) }
    buffer.writeField(String(repeating: "\"", count: 150))
    buffer.writeVarint(100)
    for list in MemberList.allCases {
      let found = try object { out in
        var reader = FieldReader(buffer.readableBytesSpan)
        do { try ListJSON.write(list, &reader, into: &out) } catch { Issue.record(error) }
      }
      let members = try #require(found["members"] as? [NSDictionary])
      #expect(members.count == 100 && (found["next"] as? String)?.count == 150)
      let notes = list == .readers || list == .acknowledged ? 1_024 : nil
      #expect((members[99]["note"] as? String)?.count == notes)
    }
  }

  @Test func batchEntriesAndMessagesAreWritten() throws {
    let (id, cid, none) = (Array("m".utf8), Array("a:b".utf8), [UInt8]())
    #expect(
      try object { StatusJSON.writeEntry(cid: cid.span.bytes, id: id.span.bytes, code: nil, into: &$0) }
        == ["cid": "a:b", "id": "m", "ok": true]
    )
    #expect(
      try object {
        StatusJSON.writeEntry(cid: cid.span.bytes, id: none.span.bytes, code: .notAMember, into: &$0)
      }
        == ["cid": "a:b", "ok": false, "code": "not_a_member"]
    )
    #expect(
      try object {
        StatusJSON.writeMessage(id: id.span.bytes, cid: cid.span.bytes, sequence: 9, status: .sent, into: &$0)
      } == ["id": "m", "cid": "a:b", "seq": 9, "status": "sent"]
    )
    let longest = Array(String(repeating: "\"", count: 255).utf8)
    for (refusal, expected) in [
      (AcknowledgementRequestRefusal.none, nil), (.limitReached, "receipt_limit_reached"),
      (.notAllowed, "receipt_not_allowed"),
    ] as [(AcknowledgementRequestRefusal, String?)] {
      let found = try object {
        StatusJSON.writeMessage(
          id: longest.span.bytes,
          cid: longest.span.bytes,
          sequence: .max,
          status: .delivered,
          refusal: refusal,
          into: &$0
        )
      }
      #expect(found["receipt_refused"] as? String == expected)
    }
  }

  @Test func channelsAndTypesAreWritten() throws {
    var options = ChannelTypeOptions()
    options.readEvents = false
    options.markUnread = .off
    options.history = .hidden
    let expected: NSDictionary = [
      "read_events": false, "delivery_events": true, "mark_unread": "off", "history": "hidden",
      "read_acks_receipts": "direct", "receipt_ttl": NSNull(), "receipt_max_members": NSNull(),
      "receipt_daily_limit": NSNull(), "receipt_request_roles": NSNull(), "counts_visible_to": "members",
      "status_rule": "any", "kept_steps": 64,
    ]
    #expect(try object { OptionsJSON.write(options, into: &$0) } == expected)
    #expect(
      try object { ChannelJSON.write(ChannelTypeRecord(name: "t", version: 3, options: options), into: &$0) }
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
      try object { ChannelJSON.writeResponse(channel, into: &$0) } == [
        "channel": [
          "cid": "messaging:x", "type": "messaging", "id": "x", "created_at": "1970-01-01T00:00:00.001Z",
          "member_count": 2, "options": expected,
          "newest_message": ["id": "m\\4", "seq": 4, "registered_at": "1970-01-01T00:00:00.002Z"],
        ]
      ]
    )
    channel.newestMessage = ""
    let found = try object { ChannelJSON.writeResponse(channel, into: &$0) }
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
    (#"{"kept_steps":null}"#, "invalid_option"),
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
    let found = try object { OptionsJSON.write(options, into: &$0) }
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
          var buffer = ByteBuffer()
          OptionsJSON.write(options, into: &buffer)
          let tape = JSONTape()
          let patch = try OptionsJSON.patch(try tape.parse(buffer.readableBytesSpan))
          #expect(ChannelTypeOptions().applying(patch) == options)
        }
      }
    }
  }

  // MARK: Problems

  @Test(arguments: ProblemCode.allCases)
  func problemHasAllFieldsAndHeaders(_ code: ProblemCode) throws {
    let problem = Problem(code, code == .invalidField ? "field \"a\" is\nwrong" : "")
    let found = try object { problem.write(requestID: "r-1", into: &$0) }
    #expect(
      found == [
        "type": "urn:tidemark:problem:\(code.rawValue)", "title": "\(code.title)", "status": code.status,
        "code": code.rawValue, "detail": problem.detail.isEmpty ? "\(code.title)" : problem.detail,
        "request_id": "r-1",
      ]
    )
    #expect((400..<600).contains(code.status))
    let headers = Dictionary(
      uniqueKeysWithValues: problem.headers(requestID: "r-1").map { ("\($0.name)", $0.value) }
    )
    #expect(headers["x-request-id"] == "r-1")
    #expect(
      (headers["retry-after"] != nil) == ([429, 503].contains(code.status) || code == .messageNotFound)
    )
    #expect((headers["www-authenticate"] != nil) == (code.status == 401 && code != .webhookSignatureInvalid))
  }

  @Test(arguments: [
    (StoreFailure.busy, true, "store_busy 1"), (.unavailable, true, "store_unavailable 1"),
    (.outcomeUnknown, true, "outcome_unknown 1"),
    (.refused(.busy, retryAfterMilliseconds: 2_001, detail: "x"), true, "store_busy 3"),
    (.refused(.unavailable, retryAfterMilliseconds: 0, detail: ""), true, "store_unavailable 1"),
    (.refused(.notAMember, retryAfterMilliseconds: 0, detail: ""), true, "member_not_found -"),
    (.refused(.notAMember, retryAfterMilliseconds: 0, detail: ""), false, "channel_not_found -"),
    (.refused(.messageNotFound, retryAfterMilliseconds: 0, detail: ""), false, "message_not_found 1"),
    (.refused(.messageDeleted, retryAfterMilliseconds: 0, detail: ""), false, "message_deleted -"),
    (.refused(.markUnreadOff, retryAfterMilliseconds: 0, detail: ""), false, "mark_unread_off -"),
    (.refused(.invalidField, retryAfterMilliseconds: 0, detail: "name"), false, "invalid_field -"),
    (.refused(.tokenRevoked, retryAfterMilliseconds: 0, detail: ""), false, "token_revoked -"),
    (.refused(.countsNotVisible, retryAfterMilliseconds: 0, detail: ""), false, "counts_not_visible -"),
    (.refused(.orderNotAvailable, retryAfterMilliseconds: 0, detail: ""), true, "order_not_available -"),
    (.refused(.invalidCursor, retryAfterMilliseconds: 0, detail: ""), true, "invalid_cursor -"),
    (.refused(.malformedFrame, retryAfterMilliseconds: 0, detail: "secret"), false, "internal_error -"),
  ])
  func storeFailureMapsToProblem(_ failure: StoreFailure, _ isServer: Bool, _ expected: String) {
    let problem = Problem(failure, route: .markRead, isServer: isServer)
    let after = problem.retryAfterSeconds.map { "\($0)" } ?? "-"
    #expect("\(problem.code.rawValue) \(after)" == expected)
    #expect(!problem.detail.contains("secret"))
  }

  @Test(arguments: [
    ("abc-123", "abc-123"), (String(repeating: "x", count: 64), String(repeating: "x", count: 64)),
    (String(repeating: "x", count: 65), nil), ("", nil), ("a b", nil), ("a\u{7F}", nil), ("é", nil),
  ])
  func validRequestIDIsAdopted(_ given: String, _ accepted: String?) {
    var ids = RequestIDs(random: 12_345)
    let bytes = Array(given.utf8)
    let id = ids.id(given: bytes.span.bytes)
    if let accepted {
      #expect(id == accepted)
    } else {
      #expect(id == "9ix-1")
      #expect(ids.id(given: bytes.span.bytes) == "9ix-2")
    }
  }
}
