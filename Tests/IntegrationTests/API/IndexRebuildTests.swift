import Foundation
import LocalStack
import NIOCore
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
      try await Pair.with { pair in
        let cids = (0..<6).map { "messaging:room-\($0)" }
        for cid in cids {
          try await pair.expect(
            201,
            "PUT",
            "/v1/channels/\(cid)",
            token: pair.serverToken,
            json: #"{"members":["bob","carol"]}"#
          )
        }
        try await pair.expect(
          200,
          "POST",
          "/v1/channels/\(cids[5])/members",
          token: pair.serverToken,
          json: #"{"remove":["carol"]}"#
        )
        try await Self.waitUntilWritten(pair)
        await pair.stack.stopStore()

        // Manual damage: bob's index lacks one of his channels. carol's index has a channel that never existed, and
        // one that she has left.
        try Self.alter("bob", in: pair) { entries in entries.removeAll { $0.cid == cids[2] } }
        try Self.alter("carol", in: pair) { entries in
          for place in entries.indices where entries[place].cid == cids[5] { entries[place].isMember = true }
          var ghost = entries[0]
          ghost.cid = "messaging:ghost"
          entries.append(ghost)
        }
        try await pair.stack.startStore()
        try await pair.stack.waitUntilGatewaysAreReady()
        #expect(try await Self.channels("bob", pair) == cids.filter { $0 != cids[2] }, "it is broken")
        #expect(
          try await Self.channels("carol", pair) == (cids + ["messaging:ghost"]).sorted(),
          "it is broken"
        )

        let rebuilt = try await Self.rebuild(pair)
        #expect(rebuilt.status == 0, "\(rebuilt)")
        #expect(try await Self.channels("bob", pair) == cids)
        #expect(try await Self.channels("carol", pair) == Array(cids[..<5]))
        // A second rebuild changes nothing.
        #expect(try await Self.rebuild(pair).status == 0)
        #expect(try await Self.channels("bob", pair) == cids)
      }
    }

    private static func rebuild(_ pair: Pair) async throws -> Command.Output {
      try await Command.run(
        Pair.binaries + "/tidemark",
        [
          "rebuild-index", "--store", "\(pair.stack.plan.store)", "--secret-file",
          pair.stack.files.frameSecret,
        ]
      )
    }

    private static func channels(_ user: String, _ pair: Pair) async throws -> [String] {
      let response = try await pair.expect(200, "GET", "/v1/users/\(user)/channels", token: pair.serverToken)
      let entries = response["channels"] as? [[String: Any]] ?? []
      return entries.compactMap { $0["cid"] as? String }.sorted()
    }

    /// Wait until the log has no tail: the store then reads what the test changes on storage.
    private static func waitUntilWritten(_ pair: Pair) async throws {
      try await eventually("all pages are written") {
        let metrics = try await Command.run("curl", ["-sS", "http://\(pair.stack.plan.storeAdmin)/metrics"])
        let lines = metrics.out.split(separator: "\n")
        return lines.contains("tidemark_store_dirty_pages 0")
          && !lines.contains("tidemark_store_pages_written_total 0")
      }
    }

    /// Change the entries of a user's index on storage; no process has it open.
    private static func alter(
      _ user: String,
      in pair: Pair,
      _ change: (inout [Membership]) -> Void
    ) throws {
      let storage = try RocksDBStorage(
        directory: pair.stack.files.data,
        shardCount: nil,
        newStore: SessionID(high: 0, low: 0)
      )
      let engine = try storage.open()
      defer { storage.close(engine) }
      let name = Array(user.utf8)
      let home = ShardID.owning(name.span.bytes, count: storage.shardCount)
      let index = try #require(try engine.read(home, .cid(name)))
      var group = CommitGroup()
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
        group.pages.append(CommitGroup.PageWrite(key: key, cid: nil, bytes: altered))
      }
      #expect(group.pages.count == 1)
      try engine.commit(group)
    }
  }
}
