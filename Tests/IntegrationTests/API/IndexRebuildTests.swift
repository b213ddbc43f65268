import Foundation
import LocalStack
import NIOCore
import Operations
import ReceiptModel
import ReceiptWire
@testable import StoreEngine
import StoreRocksDB
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// A user's index that disagrees with the channels is rebuilt while the store serves (R13, R14).
  @Suite struct IndexRebuild {
    @Test func damagedIndexIsRebuilt() async throws {
      try await TestServices.with { services in
        let cids = (0..<6).map { "messaging:room-\($0)" }
        for cid in cids {
          try await services.expect(
            201,
            "PUT",
            "/v1/channels/\(cid)",
            token: services.serverToken,
            json: #"{"members":["bob","carol"]}"#
          )
        }
        try await services.expect(
          200,
          "POST",
          "/v1/channels/\(cids[5])/members",
          token: services.serverToken,
          json: #"{"remove":["carol"]}"#
        )
        try await Self.waitUntilWritten(services)
        await services.stack.stopStore()

        // Manual damage: bob's index lacks one of his channels. carol's index has a channel that never existed, and
        // one that she has left.
        try Self.alter("bob", in: services) { entries in entries.removeAll { $0.cid == cids[2] } }
        try Self.alter("carol", in: services) { entries in
          for place in entries.indices where entries[place].cid == cids[5] { entries[place].isMember = true }
          var ghost = entries[0]
          ghost.cid = "messaging:ghost"
          entries.append(ghost)
        }
        try await services.stack.startStore()
        try await services.stack.waitUntilGatewaysAreReady()
        #expect(try await Self.channels("bob", services) == cids.filter { $0 != cids[2] }, "it is broken")
        #expect(
          try await Self.channels("carol", services) == (cids + ["messaging:ghost"]).sorted(),
          "it is broken"
        )

        let rebuilt = try await Self.rebuild(services)
        #expect(rebuilt.status == 0, "\(rebuilt)")
        #expect(try await Self.channels("bob", services) == cids)
        #expect(try await Self.channels("carol", services) == Array(cids[..<5]))
        // A second rebuild changes nothing.
        #expect(try await Self.rebuild(services).status == 0)
        #expect(try await Self.channels("bob", services) == cids)
      }
    }

    private static func rebuild(_ services: TestServices) async throws -> Command.Output {
      try await Command.run(
        TestServices.binaries + "/tidemark",
        [
          "rebuild-index", "--store", "\(services.stack.plan.store)", "--secret-file",
          services.stack.files.frameSecret,
        ]
      )
    }

    private static func channels(_ user: String, _ services: TestServices) async throws -> [String] {
      let response = try await services.expect(
        200,
        "GET",
        "/v1/users/\(user)/channels",
        token: services.serverToken
      )
      let entries = response["channels"] as? [[String: Any]] ?? []
      return entries.compactMap { $0["cid"] as? String }.sorted()
    }

    /// Wait until the log has no tail: the store then reads what the test changes on storage.
    private static func waitUntilWritten(_ services: TestServices) async throws {
      try await eventually("all pages are written") {
        let text = try await Scrape.text(of: services.stack.plan.storeAdmin)
        return MetricText.value("tidemark_store_dirty_pages", in: text) == 0
          && MetricText.value("tidemark_store_pages_written_total", in: text) != 0
      }
    }

    /// Change the entries of a user's index on storage; no process has it open.
    private static func alter(
      _ user: String,
      in services: TestServices,
      _ change: (inout [Membership]) -> Void
    ) throws {
      let storage = try RocksDBStorage(
        directory: services.stack.files.data,
        shardCount: nil,
        newStore: SessionID(high: 0, low: 0)
      )
      let engine = try storage.open()
      defer { storage.close(engine) }
      let name = Array(user.utf8)
      let home = ShardID.owning(name.span.bytes, count: storage.shardCount)
      let index = try #require(try engine.read(home, .cid(name)))
      var commit = LoopCommit()
      for (id, bytes) in index.pages where id == .memberships(0) {
        var page = try Page(bytes.readableBytesSpan)
        var entries = page.effects.compactMap { effect -> Membership? in
          if case .channel(_, .membershipAssigned(_, let entry)) = effect { entry } else { nil }
        }
        change(&entries)
        page.effects = entries.enumerated().map { place, entry in
          .channel(index.number, .membershipAssigned(position: UInt32(place), entry))
        }
        var altered = ByteBuffer()
        page.write(into: &altered)
        let key = PageKey(shard: home, channel: index.number, page: id)
        commit.pages.append(LoopCommit.PageWrite(key: key, cid: nil, bytes: altered))
      }
      #expect(commit.pages.count == 1)
      try engine.commit(commit)
    }
  }
}
