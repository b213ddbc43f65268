import Foundation
import Testing

extension RealProcesses {
  /// Threads and acknowledgements as their senders and recipients see them (R9, R15).
  @Suite struct ThreadsAndAcknowledgements {
    /// A status as text, as its sender sees it.
    private static func status(_ services: TestServices, _ cid: String, _ message: String) async throws
      -> String
    {
      let status = try await services.expect(
        200,
        "GET",
        "/v1/channels/\(cid)/messages/\(message)/status",
        token: services.serverToken
      )
      let counts = ["read_count", "delivered_count", "member_count", "acknowledged_count"]
        .compactMap { status[$0].map { "\($0)" } }
      return "\(status["status"] ?? "?") \(counts.joined(separator: " "))"
    }

    private static func names(_ entries: Any?) -> [String] {
      (entries as? [[String: Any]] ?? []).map { ($0["user"] as? [String: Any])?["id"] as? String ?? "?" }
    }

    private static func send(_ services: TestServices, _ cid: String, _ messages: [String]) async throws {
      for message in messages {
        try await services.expect(
          201,
          "POST",
          "/v1/channels/\(cid)/messages",
          token: services.serverToken,
          json: message
        )
      }
    }

    /// R15: replies are delivered and read, and replies that are not counted show that.
    @Test func repliesAreDeliveredAndRead() async throws {
      try await TestServices.with { services in
        let (two, three) = ("messaging:two", "messaging:three")
        try await services.makeChannel(two, message: "m1")
        try await Self.send(services, two, [#"{"id":"r1","user_id":"alice","parent_id":"m1"}"#])
        #expect(try await Self.status(services, two, "r1") == "sent 0 0 1")
        let delivered = try await services.expect(
          201,
          "POST",
          "/v1/channels/delivered",
          token: services.serverToken,
          json:
            #"{"latest_delivered_messages":[{"cid":"\#(two)","id":"r1","parent_id":"m1"}],"user_id":"bob"}"#
        )
        #expect((delivered["results"] as? [[String: Any]])?.first?["counted"] == nil)
        #expect(try await Self.status(services, two, "r1") == "delivered 0 1 1")
        let read = try await services.expect(
          200,
          "POST",
          "/v1/channels/\(two)/read",
          token: services.serverToken,
          json: #"{"thread_id":"m1","user_id":"bob"}"#
        )
        #expect(read["counted"] == nil)
        #expect(try await Self.status(services, two, "r1") == "read 1 1 1")

        // Three members: bob reads an older reply; one reply is delivered to carol, who does not take part.
        try await services.expect(
          201,
          "PUT",
          "/v1/channels/\(three)",
          token: services.serverToken,
          json: #"{"members":["alice","bob","carol"]}"#
        )
        try await Self.send(
          services,
          three,
          [#"{"id":"m1","user_id":"alice"}"#, #"{"id":"m2","user_id":"alice"}"#]
            + (1...3).map { #"{"id":"r\#($0)","user_id":"alice","parent_id":"m1"}"# }
        )
        try await services.expect(
          200,
          "POST",
          "/v1/channels/\(three)/read?user_id=bob&message_id=r2",
          token: services.serverToken
        )
        #expect(try await Self.status(services, three, "r2") == "read 1 1 1")
        #expect(try await Self.status(services, three, "r3") == "sent 0 0 0")
        let outside = try await services.expect(
          201,
          "POST",
          "/v1/channels/delivered",
          token: services.serverToken,
          json: #"{"latest_delivered_messages":[{"cid":"\#(three)","id":"r3"}],"user_id":"carol"}"#
        )
        let entry = (outside["results"] as? [[String: Any]])?.first
        #expect(entry?["ok"] as? Bool == true && entry?["counted"] as? Bool == false)
        #expect(entry?["reason"] as? String == "not_in_thread")
        let pushed = try await services.curl(
          "POST",
          "/v1/push/acks",
          token: services.serverToken,
          json: #"{"acks":[{"cid":"\#(three)","message_id":"r3","user_id":"carol"}]}"#
        )
        #expect(pushed.body.contains(#""counted":false,"reason":"not_in_thread""#))
        let empty = try await services.expect(
          200,
          "POST",
          "/v1/channels/\(three)/read?user_id=carol&thread_id=m2",
          token: services.serverToken
        )
        #expect(empty["reason"] as? String == "no_replies")

        // The thread's rows, not the channel's.
        let rows = "/v1/channels/\(three)/read-state?thread_id=m1"
        let state = try await services.expect(200, "GET", rows, token: services.serverToken)
        #expect(Self.names(state["read"]) == ["bob", "alice"])
        let seqs = (state["read"] as? [[String: Any]])?.compactMap { $0["last_read_seq"] as? Int }
        #expect(seqs == [2, 3])
        let first = try await services.expect(
          200,
          "GET",
          rows + "&limit=1",
          token: try await services.token("alice")
        )
        #expect(Self.names(first["read"]) == ["alice"])
        let next = try #require(first["next"] as? String)
        let second = try await services.expect(
          200,
          "GET",
          rows + "&limit=1&cursor=\(next)",
          token: try await services.token("alice")
        )
        #expect(Self.names(second["read"]) == ["bob"] && second["next"] == nil)
        // A participant who only reads, and hides reads, appears only on their own page.
        try await services.expect(
          200,
          "PUT",
          "/v1/users/bob",
          token: services.serverToken,
          json: #"{"privacy_settings":{"read_receipts":{"enabled":false}}}"#
        )
        let hidden = try await services.expect(200, "GET", rows, token: services.serverToken)
        #expect(Self.names(hidden["read"]) == ["alice"])
        let own = try await services.expect(200, "GET", rows, token: try await services.token("bob"))
        #expect(Self.names(own["read"]) == ["bob", "alice"])
        #expect(try await Self.status(services, three, "r2") == "sent 0 0 0")
        let none = try await services.expect(
          200,
          "GET",
          "/v1/channels/\(three)/read-state?thread_id=m2",
          token: services.serverToken
        )
        #expect((none["read"] as? [Any])?.isEmpty == true)
        try await services.expect(
          404,
          "GET",
          "/v1/channels/\(three)/read-state?thread_id=m9",
          token: services.serverToken
        )
      }
    }

    /// R9: an acknowledgement appears in counts, lists, times, events and the recipient's own list.
    @Test func acknowledgementAppearsEverywhere() async throws {
      try await TestServices.with { services in
        let cid = "team:desk"
        let path = "/v1/channels/\(cid)"
        try await services.expect(
          200,
          "PUT",
          "/v1/channel-types/team",
          token: services.serverToken,
          json: #"{"read_acks_receipts":"never"}"#
        )
        try await services.expect(
          201,
          "PUT",
          path,
          token: services.serverToken,
          json: #"{"members":["alice","bob","carol"]}"#
        )
        try await Self.send(
          services,
          cid,
          [
            #"{"id":"m1","user_id":"alice","receipt":true}"#, #"{"id":"m2","user_id":"alice"}"#,
            #"{"id":"m3","user_id":"alice","receipt":true}"#,
          ]
        )
        try await services.expect(200, "POST", path + "/read?user_id=bob", token: services.serverToken)
        #expect(try await Self.status(services, cid, "m1") == "read 1 1 2 0")
        #expect(try await Self.status(services, cid, "m2") == "read 1 1 2")
        // The position of the sender's stream before the acknowledgement.
        async let stream = Self.events(services, "alice", since: nil)
        for number in 0..<25 {
          try await Self.send(services, cid, [#"{"id":"tick\#(number)","user_id":"alice","silent":true}"#])
        }
        let before = try await stream
        let since = try #require(before.compactMap { $0.id }.last)
        let pending = "/v1/users/bob/receipts?state=pending"
        let pendingRequests = try await services.expect(
          200,
          "GET",
          pending,
          token: try await services.token("bob")
        )
        #expect(Self.values(pendingRequests["receipts"], "message_id") == ["m3", "m1"])
        try await services.expect(
          200,
          "POST",
          path + "/receipts",
          token: services.serverToken,
          json: #"{"message_ids":["m1"],"note":"on it","user_id":"bob"}"#
        )
        #expect(try await Self.status(services, cid, "m1") == "read 1 1 2 1")
        let message = path + "/messages/m1"
        let have = try await services.expect(
          200,
          "GET",
          message + "/acknowledged",
          token: services.serverToken
        )
        #expect(Self.names(have["members"]) == ["bob"] && have["total"] as? Int == 1)
        #expect(Self.values(have["members"], "note") == ["on it"])
        let missing = try await services.expect(
          200,
          "GET",
          message + "/unacknowledged",
          token: services.serverToken
        )
        #expect(Self.names(missing["members"]) == ["carol"] && missing["total"] as? Int == 1)
        try await services.expect(409, "GET", path + "/messages/m2/acknowledged", token: services.serverToken)
        let chosen = try await services.expect(
          200,
          "GET",
          message + "/members?user_ids=bob,carol",
          token: services.serverToken
        )
        let times = (chosen["members"] as? [[String: Any]])?.map { $0["acknowledged_at"] != nil }
        #expect(times == [true, false])
        let left = try await services.expect(200, "GET", pending + "&limit=1", token: services.serverToken)
        #expect(Self.values(left["receipts"], "message_id") == ["m3"] && left["next"] == nil)
        let done = try await services.expect(
          200,
          "GET",
          "/v1/users/bob/receipts?state=acknowledged",
          token: services.serverToken
        )
        #expect(Self.values(done["receipts"], "message_id") == ["m1"])
        #expect(Self.values(done["receipts"], "note") == ["on it"])
        // The event is also sent after a resume.
        let receiptEvents = try await Self.events(services, "alice", since: since).filter {
          $0.type == "message.receipt"
        }
        #expect(receiptEvents.map(\.user) == ["bob"])
        #expect(receiptEvents.first?.body.contains(#""acknowledged_count":1,"acknowledged_at":"#) == true)
        // The acknowledgement stays visible where readers are hidden, and does not count as a read there.
        try await services.expect(
          200,
          "PUT",
          "/v1/channel-types/team",
          token: services.serverToken,
          json: #"{"read_events":false}"#
        )
        #expect(try await Self.status(services, cid, "m1") == "sent 0 0 2 1")
        try await services.expect(
          403,
          "GET",
          "/v1/users/bob/receipts",
          token: try await services.token("carol")
        )
        // A user who hides reads is not shown to have acknowledged either.
        try await services.expect(
          200,
          "PUT",
          "/v1/users/bob",
          token: services.serverToken,
          json: #"{"privacy_settings":{"read_receipts":{"enabled":false}}}"#
        )
        #expect(try await Self.status(services, cid, "m1") == "sent 0 0 2 0")
        let unseen = try await services.expect(
          200,
          "GET",
          message + "/unacknowledged",
          token: services.serverToken
        )
        #expect(Self.names(unseen["members"]) == ["bob", "carol"] && unseen["total"] as? Int == 2)
      }
    }

    /// R15: a user's threads are listed in pages, unread ones first, and mark-all reads them.
    @Test func threadsOfUserAreListedAndMarkedRead() async throws {
      try await TestServices.with { services in
        for (number, cid) in ["messaging:a", "messaging:b", "messaging:c"].enumerated() {
          try await services.makeChannel(cid, message: "m1")
          try await Self.send(
            services,
            cid,
            [#"{"id":"m2","user_id":"bob"}"#]
              + (1...2).map { #"{"id":"r\#($0)","user_id":"alice","parent_id":"m\#($0)"}"# }
          )
          guard number == 0 else { continue }
          try await services.expect(
            200,
            "POST",
            "/v1/channels/\(cid)/read?user_id=bob&thread_id=m2",
            token: services.serverToken
          )
        }
        let bob = try await services.token("bob")
        var seen: [String] = []
        var path: String? = "/v1/users/bob/threads?limit=2"
        while let page = path, seen.count < 20 {
          let response = try await services.expect(200, "GET", page, token: bob)
          let threads = response["threads"] as? [[String: Any]] ?? []
          #expect(threads.count == 2)
          seen += threads.map { thread in
            "\(thread["cid"] ?? "?") \(thread["thread_id"] ?? "?") \(thread["unread_messages"] ?? "?")"
          }
          path = (response["next"] as? String).map { "/v1/users/bob/threads?limit=2&cursor=\($0)" }
        }
        #expect(
          seen == [
            "messaging:a m1 1", "messaging:b m2 1", "messaging:b m1 1", "messaging:c m2 1",
            "messaging:c m1 1",
            "messaging:a m2 0",
          ]
        )
        let unread = try await services.expect(200, "GET", "/v1/users/bob/threads?unread=true", token: bob)
        let first = (unread["threads"] as? [[String: Any]])?.first
        #expect((unread["threads"] as? [Any])?.count == 5 && unread["next"] == nil)
        #expect(first?["first_unread_message_id"] as? String == "r1")
        #expect(first?["newest_message_id"] as? String == "r1")
        try await services.expect(400, "GET", "/v1/users/bob/threads?cursor=w9-0-0-0", token: bob)
        let before = try await services.expect(200, "GET", "/v1/users/bob/unread", token: bob)
        #expect(before["unread_threads"] as? Int == 5)
        let all = #"{"all":true,"threads":true}"#
        let marked = try await services.expect(200, "POST", "/v1/channels/read", token: bob, json: all)
        #expect(marked["channels_read"] as? Int == 3 && (marked["failed"] as? [Any])?.isEmpty == true)
        let after = try await services.expect(200, "GET", "/v1/users/bob/unread", token: bob)
        #expect(after["unread_threads"] as? Int == 0 && after["unread_channels"] as? Int == 0)
        let none = try await services.expect(200, "GET", "/v1/users/bob/threads?unread=true", token: bob)
        #expect((none["threads"] as? [Any])?.isEmpty == true)
        #expect(try await Self.status(services, "messaging:c", "r2") == "read 1 1 1")
        try await services.expect(
          403,
          "GET",
          "/v1/users/bob/threads",
          token: try await services.token("alice")
        )
      }
    }

    private static func values(_ entries: Any?, _ name: String) -> [String] {
      (entries as? [[String: Any]] ?? []).compactMap { $0[name] as? String }
    }

    private struct Event {
      var id: String?
      var type: String
      var user: String
      var body: String
    }

    /// The events of a user's stream within three seconds.
    private static func events(_ services: TestServices, _ user: String, since: String?) async throws
      -> [Event]
    {
      let response = try await services.curl(
        "GET",
        "/v1/events" + (since.map { "?since=\($0)" } ?? ""),
        token: try await services.token(user),
        arguments: ["-N", "--max-time", "3"]
      )
      return response.body.components(separatedBy: "\n\n").compactMap { block in
        let lines = block.split(separator: "\n")
        let id = lines.first { $0.hasPrefix("id:") }.map {
          $0.dropFirst(3).trimmingCharacters(in: .whitespaces)
        }
        guard let data = lines.first(where: { $0.hasPrefix("data:") })?.dropFirst(5) else {
          return id.map { Event(id: $0, type: "", user: "", body: "") }
        }
        let json = try? JSONSerialization.jsonObject(with: Data(data.utf8)) as? [String: Any]
        let name = (json?["user"] as? [String: Any])?["id"] as? String ?? ""
        return Event(id: id, type: json?["type"] as? String ?? "", user: name, body: String(data))
      }
    }
  }
}
