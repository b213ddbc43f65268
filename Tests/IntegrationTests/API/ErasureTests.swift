import Foundation
import LocalStack
import TestPrograms
import Testing

extension RealProcesses {
  /// After an erasure, no file of the store except RocksDB's tables contains the user's name, and no response does
  /// (R16).
  @Suite struct Erasure {
    @Test func erasedUserIsInNoFile() async throws {
      let name = "erika.mustermann@example.org"
      try await TestServices.with { services in
        let server = services.serverToken
        for number in 0..<4 {
          let cid = "messaging:room-\(number)"
          try await services.expect(
            201,
            "PUT",
            "/v1/channels/\(cid)",
            token: server,
            json: #"{"members":["alice","\#(name)"]}"#
          )
          for (id, sender) in [("a", "alice"), ("b", name)] {
            try await services.expect(
              201,
              "POST",
              "/v1/channels/\(cid)/messages",
              token: server,
              json: #"{"id":"\#(id)","user_id":"\#(sender)","receipt":true}"#
            )
          }
          try await services.expect(
            201,
            "POST",
            "/v1/channels/\(cid)/messages",
            token: server,
            json: #"{"id":"r","user_id":"\#(name)","parent_id":"a"}"#
          )
          try await services.expect(
            200,
            "POST",
            "/v1/channels/\(cid)/receipts",
            token: server,
            json: #"{"message_ids":["a"],"note":"read by \#(name)","user_id":"\#(name)"}"#
          )
        }
        // Channels that the user had left, and channels in which the user only sent messages.
        try await services.expect(
          200,
          "POST",
          "/v1/channels/messaging:room-2/members",
          token: server,
          json: #"{"remove":["\#(name)"]}"#
        )
        try await services.expect(
          201,
          "PUT",
          "/v1/channels/messaging:guest",
          token: server,
          json: #"{"members":["alice"]}"#
        )
        try await services.expect(
          201,
          "POST",
          "/v1/channels/messaging:guest/messages",
          token: server,
          json: #"{"id":"g","user_id":"\#(name)"}"#
        )
        try await services.expect(
          200,
          "PUT",
          "/v1/users/\(name)",
          token: server,
          json: #"{"privacy_settings":{"read_receipts":{"enabled":false}}}"#
        )
        #expect(
          try Self.files(with: name, in: services.stack.files.data) != [],
          "the search finds what is there"
        )

        try await services.expect(200, "DELETE", "/v1/users/\(name)", token: server)
        #expect(try Self.files(with: name, in: services.stack.files.data) == [])
        // The channels do not contain the name either, nor does a store that has read all data again.
        for _ in 0..<2 {
          for cid in (0..<4).map({ "messaging:room-\($0)" }) + ["messaging:guest"] {
            let state = try await services.curl("GET", "/v1/channels/\(cid)/read-state", token: server)
            #expect(state.status == 200 && !state.body.contains(name), "\(cid): \(state.body)")
          }
          let readers = try await services.curl(
            "GET",
            "/v1/channels/messaging:room-0/messages/a/readers",
            token: server
          )
          #expect(readers.status == 200 && !readers.body.contains(name), "\(readers.body)")
          let channels = try await services.expect(200, "GET", "/v1/users/\(name)/channels", token: server)
          #expect((channels["channels"] as? [Any])?.isEmpty == true)
          await services.stack.killStore()
          try await services.stack.startStore()
          try await services.stack.waitUntilGatewaysAreReady()
        }
        #expect(try Self.files(with: name, in: services.stack.files.data) == [])
      }
    }

    /// Purges for one another and for deleted channels do not delay each other: each caller waits for a numbered
    /// round (Proto/frames.md, 0x2B).
    @Test func concurrentErasuresAndDeletions() async throws {
      try await TestServices.with { services in
        let output = try await Command.run(
          TestServices.python,
          [
            TestServices.client("API/erasures_beside_deletions.py"), "\(services.h2cPort)",
            services.serverToken, "20", "4",
          ]
        )
        #expect(output.status == 0 && output.out.hasPrefix("ok 20 users"), "\(output.out) \(output.error)")
      }
    }

    /// Files of the data directory, RocksDB's tables aside, that contain the text.
    private static func files(with text: String, in directory: String) throws -> [String] {
      let enumerator = FileManager.default.enumerator(atPath: directory)
      let wanted = Data(text.utf8)
      return try (enumerator?.allObjects as? [String] ?? []).filter { name in
        let path = directory + "/" + name
        var isDirectory: ObjCBool = false
        guard !name.hasSuffix(".sst"),
          FileManager.default.fileExists(atPath: path, isDirectory: &isDirectory),
          !isDirectory.boolValue
        else { return false }
        return try Data(contentsOf: URL(fileURLWithPath: path)).range(of: wanted) != nil
      }
    }
  }
}
