import Foundation
import LocalStack
import NIOCore
import Operations
import ReceiptModel
import ReceiptWire
import StoreEngine
import StoreRocksDB
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// A real store whose clock jumps forward and back (R20).
  @Suite struct Clocks {
    private static let hour: Int64 = 3_600
    private static let day: Int64 = 24 * hour

    @Test func clockJumpIsHeldUntilCorrected() async throws {
      try await Self.with { services, clock in
        let (channel, bob) = try await Self.makeChannel(services)
        let state = channel + "/read-state"
        let before = try await services.curl("GET", state, token: bob)
        // Queries are answered throughout.
        try await services.withWellBehavedClient("GET", state, token: bob, beside: "a clock set forward") {
          try clock.set(aheadSeconds: 2 * Self.hour)
          try await services.waitForStore(503, saying: "clock: the clock is 7")
          try await Self.expectCommandsAreRefused(services, channel, bob)
          // Queries still work: no mark has moved, and no acknowledgement request has expired.
          #expect(try await services.curl("GET", state, token: bob).body == before.body)
          let status = try await services.curl("GET", channel + "/messages/m2/status", token: bob)
          #expect(status.body.contains(#""receipt_status":"processing""#), "\(status)")
          let ahead = try await Scrape.value("tidemark_store_clock_ahead_seconds", of: services.stack.plan.storeAdmin)
          #expect(try await Scrape.value("tidemark_store_clock_held", of: services.stack.plan.storeAdmin) == 1)
          #expect(ahead > 7_190 && ahead < 7_330, "\(ahead)")

          // The store catches up by itself with a clock that is within the bound. The next step is counted from there.
          for minutes in [30, 80] {
            try clock.set(aheadSeconds: Int64(minutes) * 60)
            try await services.waitForStore(200)
          }
        }
        try await services.expect(200, "POST", channel + "/read", token: bob, json: #"{"message_id":"m2"}"#)
        #expect(try await Scrape.value("tidemark_store_clock_held", of: services.stack.plan.storeAdmin) == 0)
        let read = try await services.curl("GET", state, token: bob).body
        #expect(try Self.latest(read) < Self.now() + 81 * 60_000, "\(read)")

        await services.stack.stopStore()
        let log = try Self.log(services)
        #expect(log.count { $0.contains("The clock was set forward: commands are refused") } == 1)
        #expect(log.count { $0.contains("The clock is within its bound again") } == 1)
        let latest = try Self.times(in: services.stack.files.data).max() ?? 0
        // Except the end of the acknowledgement request, which is an hour after its message.
        #expect(latest < Self.now() + 81 * 60_000, "\(latest)")
      }
    }

    /// The store was stopped for what looks like a year.
    @Test func plausibleClockAtStartIsAcceptedAndLogged() async throws {
      try await Self.with { services, clock in
        let (channel, bob) = try await Self.makeChannel(services)
        await services.stack.stopStore()
        try clock.set(aheadSeconds: 366 * Self.day)
        try await services.stack.startStore()
        try await services.stack.waitUntilGatewaysAreReady()
        let year = try Self.log(services).filter {
          $0.contains("far ahead of the last log entry and was accepted")
        }
        #expect(year.count == 1 && year[0].contains("last_logged=") && year[0].contains("clock="), "\(year)")
        try await services.expect(200, "POST", channel + "/unread", token: bob, json: #"{"message_id":"m1"}"#)
      }
    }

    /// The store answers only queries until the clock is right or the operator confirms the time.
    @Test func implausibleClockAtStartIsHeldUntilCorrectedOrConfirmed() async throws {
      try await Self.with(aheadSeconds: 366 * Self.day) { services, clock in
        let (channel, bob) = try await Self.makeChannel(services)
        await services.stack.stopStore()
        try clock.set(aheadSeconds: 1_000 * Self.day)
        try await services.stack.startStore(untilReady: false)
        try await services.waitForStore(503, saying: "--clock-start-max")
        try await eventually("a query beside a clock that is held") {
          try await services.curl("GET", channel + "/read-state", token: bob).status == 200
        }
        let held = try await services.curl("POST", channel + "/read", token: bob, json: "{}")
        #expect(held.status == 503 && held.body.contains("clock_jump"), "\(held)")
        try clock.set(aheadSeconds: 370 * Self.day)
        try await services.waitForStore(200)
        await services.stack.stopStore()
        try clock.set(aheadSeconds: 1_000 * Self.day)
        await services.stack.setStoreFlags(["--clock-start-max", "700d"])
        try await services.stack.startStore()
        try await services.stack.waitUntilGatewaysAreReady()
        try await services.expect(200, "POST", channel + "/read", token: bob, json: "{}")
      }
    }

    /// Each record with a timestamp is logged in the year 2262 and then repaired.
    @Test func futureTimestampsAreRepaired() async throws {
      let ahead: Int64 = 236 * 365 * Self.day
      try await Self.with(aheadSeconds: ahead) { services, clock in
        let stale = try await Self.writeOneOfEach(services)
        // Into pages too, not only the log.
        try await eventually("no page is dirty") {
          try await Scrape.value("tidemark_store_dirty_pages", of: services.stack.plan.storeAdmin) == 0
        }
        try await services.expect(
          200,
          "POST",
          "/v1/channels/messaging:a/unread",
          token: try await services.token("bob"),
          json: #"{"message_id":"m3"}"#
        )
        await services.stack.stopStore()
        try clock.set(aheadSeconds: 0)
        let data = services.stack.files.data

        let before = try Self.times(in: data)
        let counted = try await Backups.tidemark("repair-clock", "--dry-run", data)
        let kinds = try Self.changed(counted)
        let expected = TimeRepair.Kind.allCases.filter { ![.webhooks, .consumers].contains($0) }
        for kind in expected { #expect((kinds[kind.rawValue] ?? 0) > 0, "\(kind.rawValue): \(counted)") }
        #expect(try Self.times(in: data) == before, "a dry run changes nothing")

        // The repair is killed while it runs, or soon after: no store opens the data until the repair has run again.
        let killed = try await Self.killedRepair(data, services)
        let isHalf = FileManager.default.fileExists(atPath: data + "/" + RocksDBEngine.repairingName)
        #expect(isHalf, "\(killed)")
        if isHalf {
          await #expect { try await services.stack.startStore() } throws: { error in
            "\(error)".contains("run tidemark repair-clock again")
          }
          let another = try await Backups.tidemark("repair-clock", "--at", "2026-01-01T00:00:00Z", data)
          #expect(another.status == 1 && another.error.contains("leave --at out"), "\(another)")
        }
        let repaired = try await Backups.tidemark("repair-clock", data)
        #expect(repaired.status == 0 && !repaired.out.contains(#""former_store":null"#), "\(repaired)")
        let latest = try Self.times(in: data).max() ?? 0
        #expect(latest <= Self.now(), "\(latest)")
        let checked = try await Backups.tidemark("check", data)
        #expect(checked.status == 0, "\(checked)")
        let again = try await Backups.tidemark("repair-clock", data)
        #expect(again.out.contains(#""former_store":null"#), "\(again)")
        #expect(try Self.changed(again).values.allSatisfy { $0 == 0 }, "\(again)")

        try await services.stack.startStore()
        try await services.stack.waitUntilGatewaysAreReady()
        try await Self.checkAnswers(services, staleEvent: stale)
      }
    }

    // MARK: Details

    private static func with(
      aheadSeconds: Int64 = 0,
      _ body: (TestServices, FakeClock) async throws -> Void
    ) async throws {
      let directory = NSTemporaryDirectory() + "tidemark-clock-\(UUID().uuidString)"
      try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
      defer { try? FileManager.default.removeItem(atPath: directory) }
      let clock = try await FakeClock(in: directory, aheadSeconds: aheadSeconds)
      try await TestServices.with(storeVariables: clock.variables) { services in
        try await body(services, clock)
      }
    }

    private static let members = #"{"members":["alice","bob"]}"#

    /// Make a channel with two messages of alice that request an acknowledgement; bob has read the first.
    ///
    /// - Returns: the channel's path, and bob's token.
    private static func makeChannel(_ services: TestServices) async throws -> (channel: String, bob: String) {
      let type = #"{"receipt_ttl":3600}"#
      try await services.expect(
        200,
        "PUT",
        "/v1/channel-types/timed",
        token: services.serverToken,
        json: type
      )
      let channel = "/v1/channels/timed:a"
      try await services.expect(201, "PUT", channel, token: services.serverToken, json: members)
      for id in ["m1", "m2"] {
        let json = #"{"id":"\#(id)","user_id":"alice","receipt":true}"#
        try await services.expect(201, "POST", channel + "/messages", token: services.serverToken, json: json)
      }
      let bob = try await services.token("bob")
      try await services.expect(200, "POST", channel + "/read", token: bob, json: #"{"message_id":"m1"}"#)
      return (channel, bob)
    }

    /// Expect that marks and new channels are refused because of the clock.
    private static func expectCommandsAreRefused(_ services: TestServices, _ channel: String, _ bob: String)
      async throws
    {
      let refused = try await services.curl(
        "POST",
        channel + "/read",
        token: bob,
        json: #"{"message_id":"m2"}"#,
        arguments: ["-i"]
      )
      #expect(refused.status == 503 && refused.body.contains(#""code":"clock_jump""#), "\(refused)")
      #expect(refused.body.lowercased().contains("retry-after: 10"), "\(refused)")
      let delivered = try await services.curl(
        "POST",
        "/v1/channels/delivered",
        token: bob,
        json: #"{"latest_delivered_messages":[{"cid":"timed:a","id":"m2"}]}"#
      )
      #expect(delivered.body.contains(#""code":"clock_jump""#), "\(delivered)")
      // Also in shards that have received no request from this gateway before.
      for number in 0..<24 {
        let path = "/v1/channels/timed:new-\(number)"
        let response = try await services.curl("PUT", path, token: services.serverToken, json: members)
        #expect(response.status == 503 && response.body.contains("clock_jump"), "\(response)")
      }
      try await services.expect(
        503,
        "PUT",
        "/v1/channels/timed:b",
        token: services.serverToken,
        json: members
      )
    }

    /// - Returns: the id of an event.
    private static func writeOneOfEach(_ services: TestServices) async throws -> String {
      let server = services.serverToken
      let bob = try await services.token("bob")
      let channel = "/v1/channels/messaging:a"
      try await services.expect(
        200,
        "PUT",
        "/v1/channel-types/messaging",
        token: server,
        json: #"{"status_rule":"all"}"#
      )
      let members = #"{"members":["alice","bob","carol","dora"]}"#
      try await services.expect(201, "PUT", channel, token: server, json: members)
      let stream = try Companion(
        "curl",
        [
          "-sS", "-N", "--http2-prior-knowledge", "-H", "authorization: Bearer \(bob)",
          services.h2cURL + "/v1/events",
        ]
      )
      defer { stream.end() }
      // Enough that their steps fill a segment: each moves positions of its sender's and its reader's.
      for number in 1...20 {
        let reminders = #"[{"after":86400,"when":"unread"}]"#
        let json = #"{"id":"m\#(number)","user_id":"alice","reminders":\#(reminders)}"#
        try await services.expect(201, "POST", channel + "/messages", token: server, json: json)
        let read = #"{"message_id":"m\#(number)"}"#
        try await services.expect(200, "POST", channel + "/read", token: bob, json: read)
        let delivered = #"{"latest_delivered_messages":[{"cid":"messaging:a","id":"m\#(number)"}]}"#
        try await services.expect(201, "POST", "/v1/channels/delivered", token: bob, json: delivered)
      }
      let devices = #"[{"provider":"p","token":"t"}]"#
      let push = #"{"cid":"messaging:a","message_id":"m20","users":[{"user_id":"bob","devices":\#(devices)}]}"#
      let calls: [(Int, String, String, String?)] = [
        (202, "POST", "/v1/push/jobs", push),
        (201, "POST", channel + "/messages", #"{"id":"r1","user_id":"bob","parent_id":"m1"}"#),
        (200, "POST", channel + "/unread", #"{"user_id":"carol"}"#),
        (200, "DELETE", channel + "/messages/m2", nil),
        (201, "POST", channel + "/messages", #"{"id":"m21","user_id":"alice","receipt":true}"#),
        (200, "POST", channel + "/receipts", #"{"message_ids":["m21"],"user_id":"bob"}"#),
        (200, "POST", channel + "/members", #"{"remove":["dora"]}"#),
        (201, "PUT", "/v1/channels/messaging:gone", #"{"members":["bob"],"options":{"status_rule":2}}"#),
        (200, "POST", "/v1/channels/messaging:gone/truncate", "{}"),
        (200, "DELETE", "/v1/channels/messaging:gone", nil),
        (200, "PUT", "/v1/tokens/leaked", #"{"revoked":true,"expires_at":"2270-01-01T00:00:00Z"}"#),
        (200, "PUT", "/v1/users/carol", #"{"privacy_settings":{"read_receipts":{"enabled":false}}}"#),
        (200, "DELETE", "/v1/users/dora", nil),
      ]
      for (status, method, path, json) in calls {
        try await services.expect(status, method, path, token: server, json: json)
      }
      return try await within("an event's id") {
        while let line = await stream.line() {
          if line.hasPrefix("id: ") { return String(line.dropFirst(4)) }
        }
        throw Unexpected("the stream ended without an event")
      }
    }

    /// No response of the API contains a time in 2262, positions move from now on, and old event ids are invalid.
    private static func checkAnswers(_ services: TestServices, staleEvent: String) async throws {
      let bob = try await services.token("bob")
      let channel = "/v1/channels/messaging:a"
      var paths = [channel, channel + "/read-state", channel + "/members", channel + "/messages"]
      paths += ["/readers", "/members?user_ids=alice,bob,carol"].map { channel + "/messages/m1" + $0 }
      for path in paths {
        let response = try await services.curl("GET", path, token: services.serverToken)
        let latest = try latest(response.body)
        #expect(response.status == 200 && latest <= now(), "\(path): \(response)")
      }
      let start = now()
      try await services.expect(200, "POST", channel + "/read", token: bob, json: #"{"message_id":"m20"}"#)
      let json = #"{"id":"new","user_id":"alice"}"#
      try await services.expect(201, "POST", channel + "/messages", token: services.serverToken, json: json)
      let row = try await services.curl("POST", channel + "/read", token: bob, json: "{}").body
      let moved = try latest(row)
      #expect(moved >= start && moved <= now() && row.contains(#""last_read_message_id":"new""#), "\(row)")
      let stream = try Companion(
        "curl",
        [
          "-sS", "-N", "--http2-prior-knowledge", "-H", "authorization: Bearer \(bob)",
          "-H", "Last-Event-ID: \(staleEvent)", services.h2cURL + "/v1/events",
        ]
      )
      defer { stream.end() }
      try await within("a reset of a stream that was resumed from 2262") {
        while let line = await stream.line() {
          if line == "event: stream.reset" { return }
        }
        throw Unexpected("the stream ended without a reset")
      }
    }

    /// A repair that is killed as soon as it has begun to write.
    private static func killedRepair(_ data: String, _ services: TestServices) async throws -> String {
      let marker = data + "/" + RocksDBEngine.repairingName
      let repair = try ChildProcess(
        name: "repair-clock",
        executable: TestServices.binaries + "/tidemark",
        arguments: ["repair-clock", data],
        logFile: services.directory + "/repair.log"
      )
      defer { repair.kill() }
      try await eventually("the repair to begin to write, or to end", pollInterval: .microseconds(100)) {
        !repair.isRunning || FileManager.default.fileExists(atPath: marker)
      }
      repair.kill()
      return "\(repair.waitForExitBlocking())"
    }

    private static func changed(_ output: Command.Output) throws -> [String: Int] {
      let object = try JSONSerialization.jsonObject(with: Data(output.out.utf8)) as? [String: Any]
      return try #require(object?["changed"] as? [String: Int], "\(output)")
    }

    /// All times in the pages and batches of a stopped store, in milliseconds since 1970, except the ends of
    /// acknowledgement requests, which lie in the future.
    private static func times(in data: String) throws -> [Int64] {
      let reader = try RocksDBReader(data)
      defer { reader.close() }
      var found: [Int64] = []
      func note(_ effects: [Effect]) throws {
        for effect in effects {
          var effect = effect
          if case .channel(let number, .messageAssigned(let sequence, var record)) = effect {
            record.acknowledgementExpiresAt = .none
            effect = .channel(number, .messageAssigned(sequence, record))
          }
          // The caller chooses when a revocation ends.
          if case .shard(.tokenRevoked) = effect { continue }
          // A timer keeps its distance to the registration, and a push job its lifetime.
          if case .shard(.timerAssigned) = effect { continue }
          if case .shard(.pushJob) = effect { continue }
          // Finds times at any depth: every timestamp prints in this form.
          for match in "\(effect)".matches(of: /Timestamp\(milliseconds: (\d+)\)/) {
            found.append(try #require(Int64(match.1)))
          }
          switch effect {
          case .channel(_, .stepsSealed(_, _, let bytes)):
            found += try #require(StepBytes.steps(bytes)).map(\.time.milliseconds)
          case .channel(_, .stepTailAssigned(_, let record)):
            found += try #require(StepBytes.steps(record.tail)).map(\.time.milliseconds)
          default: break
          }
        }
      }
      var batches: [LogBatch] = []
      var pages: [Page] = []
      try reader.scanLog { _, _, bytes throws(StorageError) in
        do throws(WireError) { batches.append(try LogBatch(bytes.readableBytesSpan)) } catch {
          throw .corrupt("\(error)")
        }
      }
      try reader.scanPages { entry, bytes throws(StorageError) in
        guard case .page = entry else { return }
        do throws(WireError) { pages.append(try Page(bytes.readableBytesSpan)) } catch {
          throw .corrupt("\(error)")
        }
      }
      for batch in batches {
        found.append(batch.time.milliseconds)
        found += batch.sessions.map(\.lastWritten.milliseconds)
        try note(batch.effects)
      }
      for page in pages { try note(page.effects) }
      return found
    }

    private static func now() -> Int64 { Int64(Date().timeIntervalSince1970 * 1_000) }

    /// The latest time in a response.
    private static func latest(_ body: String) throws -> Int64 {
      var latest: Int64 = 0
      for match in body.matches(of: /\d{4}-\d\d-\d\dT[0-9:.]+Z/) {
        latest = max(latest, try #require(Times.milliseconds(String(match.0)), "\(match.0)"))
      }
      return latest
    }

    private static func log(_ services: TestServices) throws -> [Substring] {
      try services.log(of: "tidemark-store")
        .split(separator: "\n")
    }
  }
}
