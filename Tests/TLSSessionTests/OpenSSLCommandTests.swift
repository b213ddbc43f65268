import Foundation
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import TestPrograms
import Testing

@testable import TLSSession

/// The handler on a real socket, tested with the `openssl` command as an independent driver.
@Suite("TLS against openssl s_client", .serialized)
struct OpenSSLCommandTests {
  /// Echoes its input.
  private final class Echo: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
      context.writeAndFlush(data, promise: nil)
    }
  }

  private func withServer(_ body: (Int) async throws -> Void) async throws {
    let tls = try Contexts.server()
    try await withServer(tls, body)
  }

  private func withServer(_ tls: TLSContext, _ body: (Int) async throws -> Void) async throws {
    let server = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
      .childChannelInitializer { channel in
        channel.eventLoop.makeCompletedFuture {
          try channel.pipeline.syncOperations.addHandler(TLSHandler(context: tls))
          try channel.pipeline.syncOperations.addHandler(Echo())
        }
      }
      .bind(host: "127.0.0.1", port: 0).get()
    let port = try #require(server.localAddress?.port)
    try await body(port)
    try await server.close()
  }

  /// The output of the command. It ends with the connection, or after the echo of `input`, or without input after the
  /// handshake. The command is killed after a time limit.
  private func client(_ port: Int, _ arguments: [String], input: String = "") async throws -> String {
    let command = try Companion(
      "openssl",
      ["s_client", "-connect", "127.0.0.1:\(port)", "-CAfile", Certificates.shared.path("ca.pem")]
        + arguments,
      limit: .seconds(60)
    )
    defer { command.end() }
    if !input.isEmpty { command.send(input) }
    var text = ""
    while let line = await command.line() {
      text += line + "\n"
      if input.isEmpty ? line.contains("Verify return code") : line == input { break }
    }
    // s_client exits at the end of its input, even if the server's answer is pending.
    command.closeInput()
    while let line = await command.line() { text += line + "\n" }
    _ = await command.waitForExit()
    return text + command.errors
  }

  @Test("both versions negotiate h2, verify, and echo", arguments: ["-tls1_2", "-tls1_3"])
  func bothVersionsNegotiateH2AndEcho(_ version: String) async throws {
    try await withServer { port in
      let text = try await client(port, ["-alpn", "http/1.1,h2", version], input: "echo this")
      #expect(text.contains("echo this"), "\(text)")
      let details = try await client(port, ["-alpn", "h2", version])
      #expect(details.contains("ALPN protocol: h2"))
      #expect(details.contains("Verify return code: 0 (ok)"))
    }
  }

  @Test("another application protocol is refused with its alert")
  func otherApplicationProtocolIsRefused() async throws {
    try await withServer { port in
      let text = try await client(port, ["-alpn", "http/1.1"])
      #expect(text.contains("alert no application protocol"), "\(text)")
    }
  }

  @Test("TLS 1.1 and ciphers without forward secrecy are refused")
  func oldVersionsAndWeakCiphersAreRefused() async throws {
    try await withServer { port in
      let old = try await client(port, ["-alpn", "h2", "-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"])
      #expect(old.contains("alert protocol version"), "\(old)")
      let weak = try await client(port, ["-alpn", "h2", "-tls1_2", "-cipher", "AES256-GCM-SHA384"])
      #expect(weak.contains("handshake failure"), "\(weak)")
    }
  }

  @Test("renegotiation is refused")
  func renegotiationIsRefused() async throws {
    try await withServer { port in
      let text = try await client(port, ["-alpn", "h2", "-tls1_2"], input: "R")
      #expect(text.contains("no renegotiation") || text.contains("handshake failure"), "\(text)")
    }
  }

  @Test("sessions are resumed by ticket", arguments: ["-tls1_2", "-tls1_3"])
  func sessionsAreResumedByTicket(_ version: String) async throws {
    try await withServer { port in
      let session = Certificates.shared.path("session\(version).pem")
      _ = try await client(port, ["-alpn", "h2", version, "-sess_out", session], input: "x")
      let text = try await client(port, ["-alpn", "h2", version, "-sess_in", session])
      #expect(text.contains("Reused, "), "\(text)")
    }
  }

  @Test(
    "sessions can be resumed after a certificate reload, but not after two changes of the ticket key",
    arguments: ["-tls1_2", "-tls1_3"]
  )
  func sessionsAreResumedAfterReload(_ version: String) async throws {
    let files = Certificates.shared
    let seconds = NIOLockedValueBox<Int64>(0)
    let configuration = TLSServerConfiguration(
      certificateChainFile: files.path("server.pem"),
      privateKeyFile: files.path("server.key")
    )
    let keys = SessionTicketKeys { seconds.withLockedValue { $0 } }
    let tls = try TLSContext(.server(configuration), keys)
    try await withServer(tls) { port in
      let session = files.path("reloaded\(version).pem")
      _ = try await client(port, ["-alpn", "h2", version, "-sess_out", session], input: "x")
      tls.apply(
        try tls.load(
          server: TLSServerConfiguration(
            certificateChainFile: files.path("other.pem"),
            privateKeyFile: files.path("other.key")
          )
        )
      )
      for (age, isResumed) in [(0, true), (SessionTicketKeys.lifetimeSeconds, true), (3, true)] {
        seconds.withLockedValue { $0 += age }
        let text = try await client(port, ["-alpn", "h2", version, "-sess_in", session])
        #expect(text.contains("Reused, ") == isResumed, "\(age): \(text)")
      }
      seconds.withLockedValue { $0 += SessionTicketKeys.lifetimeSeconds }
      let late = try await client(port, ["-alpn", "h2", version, "-sess_in", session])
      #expect(!late.contains("Reused, "), "\(late)")
    }
  }
}
