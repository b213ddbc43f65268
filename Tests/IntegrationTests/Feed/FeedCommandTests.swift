import Foundation
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// `tidemark feed` against the real gateway and store.
  @Suite struct FeedCommands {
    private static func feed(_ services: TestServices, _ arguments: [String]) async throws -> Command.Output {
      let options = ["feed", "--gateway", services.h2cURL, "--token", services.serverToken]
      return try await Command.run(TestServices.binaries + "/tidemark", options + arguments)
    }

    @Test func recordsArePrintedAndCommitted() async throws {
      try await TestServices.with(storeFlags: ["--feed-retention", "1h"], usesTLS: false) { services in
        let channel = "/v1/channels/team:feed"
        let members = #"{"members":["ann"]}"#
        _ = try await services.curl("PUT", channel, token: services.serverToken, json: members)
        let message = #"{"id":"m1","user_id":"ann"}"#
        _ = try await services.curl("POST", channel + "/messages", token: services.serverToken, json: message)
        let first = try await Self.feed(services, ["--from", "earliest", "--count", "2"])
        #expect(first.status == 0 && first.error.isEmpty, "\(first)")
        let lines = first.out.split(separator: "\n").map { $0.split(separator: " ").dropFirst().joined(separator: " ") }
        #expect(lines == ["channel.created team:feed", "member.added team:feed ann"])
        // A named consumer continues after what was printed.
        var printed: [String] = []
        for count in ["1", "2"] {
          let options = ["--consumer", "c", "--from", "earliest", "--json", "--count", count]
          let next = try await Self.feed(services, options)
          printed += next.out.split(separator: "\n").map(String.init)
        }
        let types = try printed.map { line in
          let record = try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any]
          return record?["type"] as? String
        }
        #expect(types == ["channel.created", "member.added", "message.registered"])
        let consumers = try await services.curl("GET", "/v1/feed/consumers", token: services.serverToken).body
        #expect(consumers.contains(#""name":"c""#) && !consumers.contains("tidemark-feed-"), "\(consumers)")
      }
    }

    /// Push acks as frames name their provider and their kind of device to the feed, as those of JSON do.
    @Test func framesNameProviderAndDevice() async throws {
      try await TestServices.with(storeFlags: ["--feed-retention", "1h"], usesTLS: false) { services in
        let channel = "/v1/channels/team:push"
        let members = #"{"members":["ann","bob"]}"#
        _ = try await services.curl("PUT", channel, token: services.serverToken, json: members)
        let message = #"{"id":"m1","user_id":"ann"}"#
        _ = try await services.curl("POST", channel + "/messages", token: services.serverToken, json: message)
        let frame = "acknowledge_push cid=team:push user=bob message=m1 flags=2 provider=apns device=tablet"
        let encoded = try await Command.run(
          TestServices.binaries + "/tidemark",
          ["probe", "encode"] + frame.split(separator: " ").map(String.init)
        )
        let file = services.directory + "/push.frames"
        try #require(encoded.status == 0, "\(encoded)")
        let digits = Array(encoded.out.filter(\.isHexDigit))
        let bytes = stride(from: 0, to: digits.count, by: 2)
          .compactMap { UInt8(String(digits[$0..<$0 + 2]), radix: 16) }
        try Data(bytes).write(to: URL(fileURLWithPath: file))
        let type = "Content-Type: application/vnd.tidemark.frames"
        let credential = "Authorization: Bearer \(services.serverToken)"
        let sent = try await Command.run(
          "curl",
          [
            "-sS", "--http2-prior-knowledge", "-H", type, "-H", credential, "--data-binary", "@" + file,
            "-o", "/dev/null", "-w", "%{http_code}", services.h2cURL + "/v1/frames",
          ]
        )
        #expect(sent.out == "200", "\(sent)")
        let told = try await Self.feed(services, ["--from", "earliest", "--json", "--count", "5"])
        let records = try told.out.split(separator: "\n").map { line in
          try #require(try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any])
        }
        let delivered = try #require(records.first { $0["type"] as? String == "delivered" }, "\(told)")
        #expect(delivered["provider"] as? String == "apns" && delivered["device"] as? String == "tablet")
      }
    }

    /// A range of committed records, whose channel is gone, names what it lacks: a replay of dead letters must not take
    /// them as delivered.
    @Test func rangeOfDeletedChannelIsGap() async throws {
      try await TestServices.with(storeFlags: ["--feed-retention", "1h"], usesTLS: false) { services in
        let consumer = "/v1/feed/consumers/range"
        let stream = "/v1/feed?consumer=range&partition=0/1"
        func lines(_ more: String = "") async throws -> [[String: Any]] {
          let credential = "Authorization: Bearer \(services.serverToken)"
          let arguments = ["-sS", "--http2-prior-knowledge", "--max-time", "2", "-H", credential]
          let read = try await Command.run("curl", arguments + [services.h2cURL + stream + more])
          return try read.out.split(separator: "\n").map { line in
            try #require(try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any])
          }
        }
        func commit(_ cursor: String) async throws {
          let body = #"{"partition":"0/1","cursor":"\#(cursor)"}"#
          let reply = try await services.curl("POST", consumer + "/commit", token: services.serverToken, json: body)
          #expect(reply.status == 200, "\(reply)")
        }
        let channel = "/v1/channels/team:range"
        _ = try await services.curl("PUT", consumer, token: services.serverToken, json: #"{"from":"earliest"}"#)
        let members = #"{"members":["ann","bob","carl"]}"#
        _ = try await services.curl("PUT", channel, token: services.serverToken, json: members)
        let told = try await lines()
        let cursors = told.filter { $0["id"] != nil }.compactMap { $0["cursor"] as? String }
        try #require(cursors.count == 4, "\(told)")
        try await commit(cursors[3])
        _ = try await services.curl("DELETE", channel, token: services.serverToken, json: nil)
        let end = try #require(try await lines().last { $0["id"] != nil }?["cursor"] as? String)
        try await commit(end)
        // From the second record to the third, in the middle of the channel's records.
        let range = "&from=\(cursors[0])&to=\(cursors[2])"
        try await eventually("the hold has ended") {
          try await lines(range).contains { $0["type"] as? String == "gap" }
        }
        #expect(try await lines(range).compactMap { $0["type"] as? String } == ["gap", "heartbeat"])
      }
    }

    @Test func refusalsAreNamed() async throws {
      try await TestServices.with(usesTLS: false) { services in
        let off = try await Self.feed(services, [])
        #expect(off.status == 1 && off.error.contains("409 feed_off"), "\(off)")
        let both = try await Self.feed(services, ["--jwt-secret-file", "x"])
        #expect(both.status == 64 && both.error.contains("give one of --token"), "\(both)")
      }
    }
  }
}
