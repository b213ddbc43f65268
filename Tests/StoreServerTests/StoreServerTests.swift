import Dispatch
import Glibc
import Logging
import NIOCore
import Operations
import StoreEngine
import Synchronization
import TestSupport
import Testing

@testable import StoreServer

/// The whole server on loopback, with two event loops and storage in memory.
@Suite struct StoreServerTests {
  private static func server(_ storage: FailingStorage, secrets: [String]) -> StoreServer {
    var logger = Logger(label: "test")
    logger.logLevel = .critical
    var configuration = StoreServerConfiguration(host: "127.0.0.1", port: 0, loops: 2)
    configuration.secrets = secrets.map { Array($0.utf8) }
    return StoreServer(configuration: configuration, storage: storage, logger: logger)
  }

  private func withServer(
    _ storage: FailingStorage = FailingStorage(),
    secrets: [String] = [],
    _ body: (StoreServer, SocketAddress) async throws -> Void
  ) async throws {
    let server = Self.server(storage, secrets: secrets)
    let address = try await server.start()
    do {
      try await body(server, address)
    } catch {
      try await within("the server to stop") { await server.stop() }
      throw error
    }
    try await within("the server to stop") { await server.stop() }
  }

  /// Whichever loop has the connection, one of the two shards is another loop's.
  @Test func bothLoopsAnswer() async throws {
    try await withServer { server, address in
      for session in 1...4 as ClosedRange<UInt64> {
        let gateway = try await SocketGateway(opening: address, session: session)
        #expect(try await gateway.nextReplies(2) == ["challenge", "ready"])
        gateway.send { [$0.note("a\(session)", of: 0), $0.note("b\(session)", of: 1)] }
        #expect(try await gateway.nextReplies(2).sorted() == ["1 noted", "2 noted"])
        gateway.send { [$0.known("a\(session)", of: 0), $0.known("b\(session)", of: 1)] }
        #expect(try await gateway.nextReplies(2).sorted() == ["3 known", "4 known"])
        #expect(await server.statistics().connections == 1)
        await gateway.close()
        try await eventually("the server to count no connection") {
          await server.statistics().connections == 0 && server.gate.openCount == 0
        }
      }
      #expect(await server.statistics().connectionsOpened == 4)
    }
  }

  // MARK: - Secrets

  @Test func reloadedSecretsApplyToLaterHandshakesOnly() async throws {
    try await withServer(secrets: ["old"]) { server, address in
      let open = try await SocketGateway(opening: address, session: 1, secret: "old")
      #expect(try await open.nextReplies(2) == ["challenge with proof", "ready"])
      let begun = try await SocketGateway(connectingTo: address, session: 2)
      begun.send { [$0.hello()] }
      #expect(try await begun.nextReplies() == ["challenge with proof"])

      server.replaceSecrets([Array("new".utf8), Array("old".utf8)])
      for (session, secret) in [(3, "old"), (4, "new")] as [(UInt64, String)] {
        let gateway = try await SocketGateway(opening: address, session: session, secret: secret)
        #expect(
          try await gateway.nextReplies(2) == ["challenge with proof", "ready"],
          "both, first \(secret)"
        )
        await gateway.close()
      }

      server.replaceSecrets([Array("new".utf8)])
      let late = try await SocketGateway(opening: address, session: 5, secret: "old")
      #expect(try await late.nextReplies(2) == ["challenge with proof", "error authentication_failed"])
      try await late.waitUntilClosed()
      let new = try await SocketGateway(opening: address, session: 6, secret: "new")
      #expect(try await new.nextReplies(2) == ["challenge with proof", "ready"])

      // Earlier connections stay, even those that have not shown their proof yet.
      begun.send { [$0.proof("old"), $0.known("a")] }
      #expect(try await begun.nextReplies(2) == ["ready", "1 not known"])
      open.send { [$0.known("a")] }
      #expect(try await open.nextReplies() == ["1 not known"])
      for gateway in [open, begun, new] { await gateway.close() }
    }
  }

  // MARK: - Failed storage

  @Test func failedCommitReloadsServer() async throws {
    let storage = FailingStorage()
    try await withServer(storage) { server, address in
      let gateway = try await SocketGateway(opening: address, session: 1)
      gateway.send { [$0.note("a", of: 0), $0.note("b", of: 1)] }
      #expect(try await gateway.nextReplies(4).suffix(2).sorted() == ["1 noted", "2 noted"])
      #expect(server.notReadyReason == nil)

      storage.openFailure = .failed("no disk")
      storage.failure = .failed("no space")
      gateway.send { [$0.note("c", of: 0)] }
      try await gateway.waitUntilClosed()
      #expect(gateway.pending == [], "the outcome of the command is unknown")
      #expect(server.notReadyReason != nil)
      #expect(await server.statistics().failedCommits == 1)

      let refused = try await SocketGateway(opening: address, session: 2)
      #expect(try await refused.nextReplies(2) == ["challenge", "error unavailable, retry after 500 ms"])
      try await refused.waitUntilClosed()
      try await eventually("the server to try again to open its storage") { storage.opens >= 3 }
      #expect(server.notReadyReason != nil)

      storage.failure = nil
      storage.openFailure = nil
      try await eventually("the server to serve again") { server.notReadyReason == nil }
      let again = try await SocketGateway(opening: address, session: 1)
      again.send { [$0.known("a", of: 0), $0.known("b", of: 1), $0.known("c", of: 0)] }
      let replies = try await again.nextReplies(5)
      #expect(replies.prefix(2) == ["challenge", "ready"])
      #expect(replies.suffix(3).sorted() == ["1 known", "2 known", "3 not known"])
      await again.close()
    }
  }

  // MARK: - Drain

  /// A server that stops tells its gateways, finishes what it has begun, and then closes.
  @Test func stoppingDrainsConnections() async throws {
    let storage = FailingStorage()
    let server = Self.server(storage, secrets: [])
    let address = try await server.start()
    let gateway = try await SocketGateway(opening: address, session: 1)
    let idle = try await SocketGateway(opening: address, session: 2)
    // A commit of 30 ms moves later ones to a thread, so that one can be in flight while the event loop runs.
    storage.beforeCommit = { usleep(30_000) }
    gateway.send { [$0.note("a")] }
    #expect(try await gateway.nextReplies(3) == ["challenge", "ready", "1 noted"])
    let drained = DispatchSemaphore(value: 0)
    let begun = Atomic(false)
    storage.beforeCommit = {
      begun.store(true, ordering: .relaxed)
      if drained.wait(timeout: .now() + .seconds(120)) == .timedOut {
        Issue.record("timed out waiting for the drain frame")
      }
    }
    gateway.send { [$0.note("b")] }
    try await eventually("the commit to begin") { begun.load(ordering: .relaxed) }
    storage.beforeCommit = {}
    // The commit ends after the drain frame has arrived. A server waits for a second.
    gateway.whenDrained { drained.signal() }

    let stopped = Task { await server.stop() }
    #expect(try await gateway.nextReplies() == ["drain"])
    await #expect(throws: (any Error).self, "the server accepts no connection while it drains") {
      try await SocketGateway(connectingTo: address)
    }
    #expect(try await gateway.nextReplies() == ["2 noted"])
    #expect(try await idle.nextReplies(3) == ["challenge", "ready", "drain"])
    try await gateway.waitUntilClosed()
    try await idle.waitUntilClosed()
    try await within("the server to stop") { await stopped.value }
  }
}
