import Foundation
import LocalStack
import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import StoreRocksDB
import TestPrograms
import Testing

extension RealProcesses {
  /// This build opens data directories of earlier builds, with all their data intact.
  ///
  /// `Fixtures/data_directory.py make` wrote the directory and its responses with the earlier build. A response may
  /// change only with its rule, in the same commit.
  @Suite struct EarlierData {
    private static let fixtures = TestServices.packageRoot + "/Tests/IntegrationTests/Fixtures/"

    @Test func earlierDirectoryAnswersAsBefore() async throws {
      try await TestServices.with(prepare: { try await Self.unpack("before_repairs", to: $0.directory) }) {
        services in
        let output = try await Self.compare("before_repairs", services)
        #expect(output.status == 0, "\(output.out)\(output.error)")
        print(output.out, terminator: "")
        // Again, from pages and a log that this build has written.
        await services.stack.killStore()
        try await services.stack.startStore()
        try await services.stack.waitUntilGatewaysAreReady()
        let again = try await Self.compare("before_repairs", services)
        #expect(again.status == 0, "after a restart: \(again.out)\(again.error)")
      }
    }

    /// The directory contains every kind of record that the test needs.
    @Test func earlierDirectoryHasEveryKindOfRecord() async throws {
      let directory = NSTemporaryDirectory() + "tidemark-fixture-\(UUID().uuidString)"
      try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
      defer { try? FileManager.default.removeItem(atPath: directory) }
      try await Self.unpack("before_repairs", to: directory)
      let found = try StoredKinds(directory: directory + "/data")
      #expect(
        found.pages == [
          "head", "rows", "segment", "acknowledgements", "steps", "threadRows", "threadSegment",
          "memberships",
          "types", "users", "shardHead", "outbox",
          "index", "webhooks",
        ]
      )
      let inTheTail: Set<String> = [
        "channelDeleted", "readMoved", "deliveredMoved", "deliveredByPushAck", "markerAssigned", "rowLeft",
        "roleAssigned", "messageDeleted", "acknowledged", "acknowledgementForgotten", "acknowledgedThrough",
        "inThread",
        "stepTailCut", "stepsSealed", "truncated", "membershipQueued", "membershipsReceived",
        "userAssigned",
      ]
      #expect(
        inTheTail.isSubset(of: found.logged),
        "missing: \(inTheTail.subtracting(found.logged).sorted())"
      )
      let missing = StoredKinds.all.subtracting(found.logged).subtracting(found.paged)
      // An erasure leaves its effects in no log, and pages record in another way which steps are kept. The other two
      // need a channel of more than 4,096 members, or an index without channels.
      #expect(
        missing == ["rowErased", "senderErased", "stepsTrimmed", "deletionBegun", "membershipRemoved"],
        "\(missing.sorted())"
      )
    }

    private static func unpack(_ name: String, to directory: String) async throws {
      let output = try await Command.run("tar", ["-xzf", fixtures + name + ".tar.gz", "-C", directory])
      try #require(output.status == 0, "\(output)")
    }

    private static func compare(_ name: String, _ services: TestServices) async throws -> Command.Output {
      try await Command.run(
        TestServices.python,
        [
          fixtures + "data_directory.py", "compare", name, "\(services.h2cPort)",
          services.stack.files.jwtSecret,
        ]
      )
    }
  }
}

/// The kinds of pages in a data directory, and the kinds of effects in its pages and its log.
struct StoredKinds {
  private(set) var pages: Set<String> = []
  private(set) var paged: Set<String> = []
  private(set) var logged: Set<String> = []

  /// The effects that existed before the repairs.
  static let all: Set<String> = [
    "channelAssigned", "rowAssigned", "rowLeft", "roleAssigned", "readMoved", "deliveredMoved",
    "markerAssigned", "messageAssigned",
    "messageDeleted", "optionsChanged", "deliveredByPushAck", "channelTypeAssigned", "countersAssigned",
    "sessionAssigned", "typeSettled",
    "webhookNoted", "acknowledged", "acknowledgementForgotten", "acknowledgedThrough", "stepsSealed",
    "stepTailCut", "stepsTrimmed",
    "stepTailAssigned", "truncated", "channelDeleted", "inThread", "rowErased", "senderErased",
    "messageCountsAssigned", "membershipAssigned",
    "membershipRemoved", "deletionBegun", "userAssigned", "userSettled", "userErased", "membershipQueued",
    "membershipsConfirmed",
    "membershipsReceived", "indexEpochAssigned",
  ]

  init(directory: String) throws {
    let storage = try RocksDBStorage(
      directory: directory,
      shardCount: nil,
      newStore: SessionID(high: 0, low: 0)
    )
    let engine = try storage.open()
    defer { storage.close(engine) }
    for shard in (0..<UInt16(storage.shardCount)).map({ ShardID($0) }) {
      let stored = try engine.recover(shard)
      for (page, bytes) in stored.pages { try note(page, bytes) }
      for (_, bytes) in stored.log {
        for effect in try LogBatch(bytes.readableBytesSpan).effects { logged.insert(Self.name(of: effect)) }
      }
      for number in 1...UInt64(1_000) {
        guard let channel = try engine.read(shard, .number(ChannelNumber(number))) else { continue }
        for (page, bytes) in channel.pages { try note(page, bytes) }
        for step in try engine.readSteps(shard, channel.number, rowPage: 0, segments: 0..<64) {
          try note(.steps(step.rowPage, step.segment), step.bytes)
        }
      }
    }
  }

  private mutating func note(_ page: PageID, _ bytes: ByteBuffer) throws {
    pages.insert(Self.name(of: page))
    for effect in try Page(bytes.readableBytesSpan).effects { paged.insert(Self.name(of: effect)) }
  }

  private static func name(of page: PageID) -> String { firstWord(of: page) }

  private static func name(of effect: Effect) -> String {
    switch effect {
    case .channel(_, let effect): firstWord(of: effect)
    case .shard(let effect): firstWord(of: effect)
    }
  }

  private static func firstWord(of value: some Any) -> String { String("\(value)".prefix { $0.isLetter }) }
}
