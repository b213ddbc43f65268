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
