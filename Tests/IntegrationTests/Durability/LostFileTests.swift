import Foundation
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// A real store whose files disappear, or that cannot open files.
  @Suite struct LostFiles {
    private static let read = "/v1/channels/messaging:a/read"

    @Test func removedDirectoryIsDetected() async throws {
      try await TestServices.with { services in
        try await services.makeChannel("messaging:a", message: "m1")
        let bob = try await services.token("bob")
        let data = services.stack.files.data
        let files = FileManager.default
        func refuses(_ text: String) async throws {
          try await services.waitForStore(503, saying: text)
          let refused = try await services.curl("POST", Self.read, token: bob, json: "{}", arguments: ["-i"])
          #expect(
            refused.status == 503 && refused.body.contains(#""code":"data_directory_lost""#),
            "\(refused)"
          )
          #expect(refused.body.lowercased().contains("retry-after: 10"), "\(refused)")
          try await services.expect(200, "GET", "/v1/channels/messaging:a/read-state", token: bob)
        }
        // Another directory in its place, then none, then the original: the store resumes.
        try files.moveItem(atPath: data, toPath: data + ".away")
        try await refuses("was removed while the store was running")
        try files.createDirectory(atPath: data, withIntermediateDirectories: false)
        try await refuses("is not the directory that was opened")
        #expect(try files.contentsOfDirectory(atPath: data) == [], "nothing is made there")
        try files.removeItem(atPath: data)
        try files.moveItem(atPath: data + ".away", toPath: data)
        try await services.waitForStore(200)
        try await services.expect(200, "POST", Self.read, token: bob, json: "{}")
        // Only the files.
        for name in try files.contentsOfDirectory(atPath: data) {
          try files.removeItem(atPath: data + "/" + name)
        }
        try await refuses("its files were removed or replaced")
        // A loss is logged after it is reported.
        try await eventually("the store has logged three losses") {
          try services.log(of: "tidemark-store")
            .split(separator: "\n").count { $0.contains("The data directory is gone") } == 3
        }
        let store = try #require(await services.stack.storeProcess)
        await services.stack.stopStore()
        #expect(await store.waitForExit() == .exited(code: 0))
      }
    }

    /// With few descriptors left, erasures and backups fail with a message, marks still work, and the store recovers.
    @Test func storeSurvivesDescriptorExhaustion() async throws {
      try await TestServices.with { services in
        try await services.makeChannel("messaging:a", message: "m1")
        let bob = try await services.token("bob")
        let store = try #require(await services.stack.storeProcess)
        let before = 4_096
        func log() throws -> String {
          try services.log(of: "tidemark-store")
        }
        for (round, spare) in [6, 14].enumerated() {
          let user = "user-\(round)"
          let members = #"{"add":["\#(user)"]}"#
          let path = "/v1/channels/messaging:a"
          try await services.expect(
            200,
            "POST",
            path + "/members",
            token: services.serverToken,
            json: members
          )
          try await Self.limit(store, to: try Self.lowestFree(store) + spare)
          async let erased = services.curl(
            "DELETE",
            "/v1/users/\(user)",
            token: services.serverToken,
            arguments: ["--max-time", "2"]
          )
          async let copied = Command.run(
            "timeout",
            ["2", TestServices.binaries + "/tidemark", "backup"] + Backups.storeFlags(services) + [
              services.directory + "/few"
            ]
          )
          for number in 0..<10 {
            let id = "m-\(round)-\(number)"
            let json = #"{"id":"\#(id)","user_id":"alice"}"#
            try await services.expect(
              201,
              "POST",
              path + "/messages",
              token: services.serverToken,
              json: json
            )
            try await services.expect(200, "POST", Self.read, token: bob, json: #"{"message_id":"\#(id)"}"#)
          }
          let outcome = (try? await erased.status, try await copied.status)
          guard store.isRunning else {
            throw Unexpected(
              "\(spare) to spare: \(outcome), \(await store.waitForExit()): \(try log().suffix(2_000))"
            )
          }
          try await Self.limit(store, to: before)
          try await services.waitForStore(200)
          try await eventually("the user is erased, \(spare) to spare") {
            try await services.curl("DELETE", "/v1/users/\(user)", token: services.serverToken).status == 200
          }
          let state = try await services.curl("GET", path + "/read-state", token: bob)
          #expect(state.body.contains("m-\(round)-9") && !state.body.contains(user), "\(state)")
        }
        try await services.backup(services.directory + "/enough")
        #expect(try log().contains("raise the limit of descriptors"))
      }
    }

    /// The descriptor number that the next opened file would get.
    private static func lowestFree(_ process: ChildProcess) throws -> Int {
      let taken = Set(try FileManager.default.contentsOfDirectory(atPath: "/proc/\(process.processID)/fd"))
      return (0...).first { !taken.contains("\($0)") } ?? 0
    }

    /// Set the soft limit of a process's descriptors; the hard limit stays.
    private static func limit(_ process: ChildProcess, to count: Int) async throws {
      let set = try await Command.run("prlimit", ["--pid", "\(process.processID)", "--nofile=\(count):"])
      guard set.status == 0 else { throw Unexpected("prlimit: \(set)") }
    }
  }
}
