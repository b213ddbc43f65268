import Foundation
import TestSupport
import Testing

@testable import TidemarkClient

@Suite struct StoreTests {
  private static func withDirectory(_ body: (URL) async throws -> Void) async throws {
    let directory = FileManager.default.temporaryDirectory.appendingPathComponent("tidemark-\(UUID().uuidString)")
    defer { try? FileManager.default.removeItem(at: directory) }
    try await body(directory)
  }

  private static func text(_ store: any Store) async throws -> [String] {
    try await store.all().map { "\($0.key) \(String(decoding: $0.value, as: UTF8.self))" }
  }

  @Test func entriesAreKeptInOrderOfKeys() async throws {
    try await Self.withDirectory { directory in
      let stores: [any Store] = [MemoryStore(), FileStore(directory: directory)]
      for store in stores {
        #expect(try await Self.text(store) == [])
        try await store.put("2", Data("b".utf8))
        try await store.put("1", Data("a".utf8))
        try await store.put("3", Data("c".utf8))
        try await store.put("2", Data("B".utf8))
        try await store.delete("3")
        try await store.delete("unknown")
        #expect(try await Self.text(store) == ["1 a", "2 B"])
      }
    }
  }

  @Test func filesSurviveRestart() async throws {
    try await Self.withDirectory { directory in
      let store = FileStore(directory: directory)
      try await store.put("1", Data("a".utf8))
      try await store.put("2", Data("b".utf8))
      try await store.delete("1")
      #expect(try await Self.text(FileStore(directory: directory)) == ["2 b"])
    }
  }

  @Test func damagedFileCostsOneMark() async throws {
    try await Self.withDirectory { directory in
      let gateway = FakeGateway()
      let offline = gateway.client(store: FileStore(directory: directory))
      await offline.markRead("messaging:a", "m1")
      await offline.markRead("messaging:b", "m2")
      await offline.close()
      let files = try FileManager.default.contentsOfDirectory(atPath: directory.path).sorted()
      #expect(files.count == 2)
      try Data(#"{"kind":"re"#.utf8).write(to: directory.appendingPathComponent(files[0]))
      try Data("not a mark".utf8).write(to: directory.appendingPathComponent("notes.txt"))

      let client = gateway.client(store: FileStore(directory: directory))
      try await client.start()
      try await eventually("no mark waits") { await client.pending == 0 && !gateway.marks.isEmpty }
      #expect(gateway.marks == ["POST /v1/channels/messaging:b/read m2"])
      #expect(try FileManager.default.contentsOfDirectory(atPath: directory.path) == ["notes.txt"])
      await client.close()
    }
  }

  @Test func unusableDirectoryIsReported() async throws {
    try await Self.withDirectory { directory in
      try Data().write(to: directory)
      let client = FakeGateway().client(store: FileStore(directory: directory))
      var changes = client.changes.makeAsyncIterator()
      await client.markRead("messaging:a", "m1")
      guard case .refused(let refusal) = await changes.next() else { throw Unexpected() }
      #expect(refusal.code == "store_failed")
      #expect(await client.pending == 0)
      await client.close()
    }
  }

  @Test func keysRiseWhileClockStandsStill() {
    let sharing = StoreSharing()
    let now = Date()
    let keys = (0..<100).map { _ in sharing.makeKey(now: now, random: 0.5) }
    #expect(keys == keys.sorted() && Set(keys).count == 100)
    let later = sharing.makeKey(now: now - 60, random: 0.5)
    #expect(later > keys[99])
  }

  @Test func turnsPassOneByOne() async throws {
    let sharing = StoreSharing()
    try await sharing.beginTurn()
    let cancelled = Task { try await sharing.beginTurn() }
    let waiting = Task { try await sharing.beginTurn() }
    cancelled.cancel()
    let result = try await within("the end of the cancelled turn") { await cancelled.result }
    #expect(throws: CancellationError.self) { try result.get() }
    sharing.endTurn()
    try await within("the waiting turn") { try await waiting.value }
    sharing.endTurn()
    try await sharing.beginTurn()
    sharing.endTurn()
  }
}
