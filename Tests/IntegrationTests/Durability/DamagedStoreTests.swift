import Foundation
import Glibc
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// The real store over data with wrong or missing bytes. It serves what was acknowledged, exits with one line that
  /// names the place, or answers 503 for unreadable data. It never dies by a signal, and never loses data silently.
  @Suite struct DamagedStores {
    private static let channels = (0..<3).map { "messaging:damage-\($0)" }
    /// Marks of one user, one after the other, round-robin over the channels.
    private static let marks = 90

    private enum Outcome {
      /// The number of marks present in each channel, or nil where the channel answers 503.
      case serves([Int?])
      /// The program's output.
      case refuses(String)
    }

    @Test func wrongBytesLoseNoDataSilently() async throws {
      var random = SplitMix64(printingSeedOf: "wrong bytes in the real store's data")
      try await TestServices.with { services in
        let source = try await Self.killedStore(services)
        var counts = (whole: 0, refused: 0, unread: 0)
        for number in 0..<21 {
          let kinds = [".log", ".sst", "MANIFEST-", ".sst", "CURRENT", ".sst", ".log"]
          let kind = kinds[number % kinds.count]
          let files = try FileManager.default.contentsOfDirectory(atPath: source).sorted().filter {
            kind.hasPrefix(".") ? $0.hasSuffix(kind) : $0.hasPrefix(kind)
          }
          let file = try #require(files.isEmpty ? nil : files[random.below(files.count)])
          try Self.restore(source, services)
          let path = services.stack.files.data + "/" + file
          var bytes = try Data(contentsOf: URL(fileURLWithPath: path))
          guard !bytes.isEmpty else { continue }
          let offset = random.below(bytes.count)
          bytes[offset] ^= UInt8(1 << random.below(8))
          try bytes.write(to: URL(fileURLWithPath: path))
          let name = "\(file), byte \(offset), seed \(random.seed)"
          switch try await Self.start(services) {
          case .refuses(let line):
            counts.refused += 1
            #expect(line.contains("exited with code 78"), "\(name): \(line)")
            #expect(line.contains(services.stack.files.data), "\(name): the data is not named: \(line)")
          case .serves(let found):
            let expected = Self.positions(after: Self.marks)
            for (have, want) in zip(found, expected) {
              #expect(have == nil || have == want, "\(name): \(found), acknowledged \(expected)")
            }
            if found.contains(where: { $0 == nil }) {
              counts.unread += 1
              let log = try services.log(of: "tidemark-store")
              let report = log.split(separator: "\n").last { $0.contains("Stored data cannot be used") } ?? ""
              #expect(report.contains(services.stack.files.data), "\(name): not reported: \(log.suffix(500))")
            } else {
              counts.whole += 1
            }
          }
        }
        print(
          "\(counts.refused) refused, \(counts.unread) with channels that answer 503, \(counts.whole) whole"
        )
        #expect(counts.refused > 0)
        // The undamaged store works: the faults above came from the damage.
        try Self.restore(source, services)
        guard case .serves(let found) = try await Self.start(services),
          found == Self.positions(after: Self.marks)
        else {
          throw Unexpected("the data without damage is not served")
        }
      }
    }

    /// A log cut short inside a record: it keeps every mark up to some mark, and none after it.
    @Test func tornLogKeepsPrefixOfMarks() async throws {
      var random = SplitMix64(printingSeedOf: "cut logs of the real store")
      try await TestServices.with { services in
        let source = try await Self.killedStore(services)
        let logs = try FileManager.default.contentsOfDirectory(atPath: source).filter { $0.hasSuffix(".log") }
          .sorted()
        let log = try #require(logs.last)
        let size = try #require(
          FileManager.default.attributesOfItem(atPath: source + "/" + log)[.size] as? Int
        )
        try #require(size > 1_000)
        // StoreRocksDBTests cuts the last record byte by byte; this test covers the whole path to the caller.
        for length in [size - 1, size - 20] + (0..<4).map({ _ in random.below(size) }) {
          try Self.restore(source, services)
          try #require(truncate(services.stack.files.data + "/" + log, off_t(length)) == 0)
          guard case .serves(let found) = try await Self.start(services) else {
            Issue.record("\(log) with \(length) of \(size) bytes is refused")
            continue
          }
          let prefix = (0...Self.marks).first { Self.positions(after: $0).map { $0 } == found }
          #expect(
            prefix != nil,
            "\(log) with \(length) of \(size) bytes, seed \(random.seed): \(found) was never the state"
          )
          if length < size / 2 {
            #expect(prefix ?? 0 < Self.marks, "half of the log was cut off, and nothing is missing")
          }
        }
      }
    }

    /// RocksDB takes no more writes after it finds damage during a compaction. The store keeps running without
    /// compactions, and serves the undamaged data.
    @Test func damageFoundDuringCompactionKeepsStoreServing() async throws {
      try await TestServices.with { services in
        let source = try await Self.killedStore(services)
        let expected = try await Self.damageOneTableOfPages(services, source)
        let token = try await services.token("user-0")
        // Each start writes a table, and RocksDB compacts a few of them.
        for round in 0..<8 {
          try await services.stack.startStore()
          try await services.stack.waitUntilGatewaysAreReady()
          try await Self.makeChannel("messaging:new-\(round)", services)
          if try await Self.compactionFindsDamage(services) {
            try await services.stack.waitUntilGatewaysAreReady()
            try await Self.makeChannel("messaging:after", services)
            #expect(try await Self.queryPositions(services) == expected)
            let readable = try #require(expected.firstIndex { $0 != nil })
            try await services.expect(200, "POST", "/v1/channels/\(channels[readable])/read", token: token)
            return
          }
          await services.stack.killStore()
        }
        throw Unexpected("no merge met the damage in 8 starts")
      }
    }

    // MARK: Details

    private var channels: [String] { Self.channels }

    private static func makeChannel(_ cid: String, _ services: TestServices) async throws {
      try await services.expect(
        201,
        "PUT",
        "/v1/channels/\(cid)",
        token: services.serverToken,
        json: #"{"members":["user-0"]}"#
      )
    }

    /// Return whether a compaction of the running store finds the damage within 2 s.
    ///
    /// This is no wait for a certain event: a start compacts at once, or has too few tables for a compaction. Then the
    /// caller starts the store again.
    private static func compactionFindsDamage(_ services: TestServices) async throws -> Bool {
      for _ in 0..<20 {
        if try services.log(of: "tidemark-store").contains("compaction is off") { return true }
        try await Task.sleep(for: .milliseconds(100))
      }
      return false
    }

    /// Leave a wrong byte in the services' data that makes a channel unreadable; return the responses served from it.
    private static func damageOneTableOfPages(_ services: TestServices, _ source: String) async throws
      -> [Int?]
    {
      let files = try FileManager.default.contentsOfDirectory(atPath: source).filter { $0.hasSuffix(".sst") }
      // The start of a table holds the channels' names; without it no channel is found.
      for (file, part) in files.sorted().reversed().flatMap({ file in [0.5, 0.35, 0.65].map { (file, $0) } }) {
        func damage() throws {
          try restore(source, services)
          let path = services.stack.files.data + "/" + file
          var bytes = try Data(contentsOf: URL(fileURLWithPath: path))
          bytes[Int(Double(bytes.count) * part)] ^= 4
          try bytes.write(to: URL(fileURLWithPath: path))
        }
        try damage()
        if case .serves(let found) = try await start(services), found.contains(where: { $0 == nil }),
          found.contains(where: { $0 != nil })
        {
          try damage()
          return found
        }
      }
      throw Unexpected("no table of \(files) has pages of some channels and not of others in the middle")
    }

    /// The user's position in each channel after `count` marks.
    private static func positions(after count: Int) -> [Int?] {
      channels.indices.map { channel in (0..<count).filter { $0 % channels.count == channel }.count }
    }

    /// Make channels and marks, kill the store, and return a copy of its data: pages and an old log in tables,
    /// with a new log after them.
    private static func killedStore(_ services: TestServices) async throws -> String {
      try await services.makeChannels(channels, messages: 2_000, users: 1)
      let token = try await services.token("user-0")
      for mark in 0..<marks {
        // A start writes the log's contents to pages at once. The next start writes the contents of RocksDB's own log
        // to tables.
        if mark == marks / 3 || mark == marks / 2 {
          await services.stack.killStore()
          try await services.stack.startStore()
          try await services.stack.waitUntilGatewaysAreReady()
          try await eventually("every page is written") {
            try await Scrape.value("tidemark_store_dirty_pages", of: services.stack.plan.storeAdmin) == 0
          }
        }
        let path =
          "/v1/channels/\(channels[mark % channels.count])/read?message_id=m\(mark / channels.count + 1)"
        try await services.expect(200, "POST", path, token: token)
      }
      await services.stack.killStore()
      let copy = services.directory + "/killed"
      try FileManager.default.copyItem(atPath: services.stack.files.data, toPath: copy)
      return copy
    }

    private static func restore(_ source: String, _ services: TestServices) throws {
      try? FileManager.default.removeItem(atPath: services.stack.files.data)
      try FileManager.default.copyItem(atPath: source, toPath: services.stack.files.data)
    }

    /// Start the store over its data, query every channel, and kill it again.
    private static func start(_ services: TestServices) async throws -> Outcome {
      do {
        try await services.stack.startStore()
      } catch let error as StackError {
        await services.stack.killStore()
        return .refuses(error.description)
      }
      try await services.stack.waitUntilGatewaysAreReady()
      let found = try await queryPositions(services)
      await services.stack.killStore()
      return .serves(found)
    }

    /// The user's position in each channel; nil where the response is 503.
    private static func queryPositions(_ services: TestServices) async throws -> [Int?] {
      var found: [Int?] = []
      for cid in channels {
        let response = try await services.curl(
          "GET",
          "/v1/channels/\(cid)/read-state",
          token: services.serverToken
        )
        if response.status == 503 {
          found.append(nil)
          continue
        }
        let body = try JSONSerialization.jsonObject(with: Data(response.body.utf8)) as? [String: Any]
        let rows = body?["read"] as? [[String: Any]] ?? []
        guard response.status == 200, let position = rows.first?["last_read_seq"] as? Int else {
          throw Unexpected("\(cid): \(response)")
        }
        found.append(position)
      }
      return found
    }
  }
}
