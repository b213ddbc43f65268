import Foundation
import Glibc
import Operations
import TestSupport
import Testing

@testable import GatewayClient
@testable import CommandOutput
@testable import LocalStack

@Suite struct ChildProcessTests {
  private let log = NSTemporaryDirectory() + "/tidemark-child-" + UUID().uuidString

  private func shell(_ script: String) throws -> ChildProcess {
    try ChildProcess(name: "shell", executable: "/bin/sh", arguments: ["-c", script], logFile: log)
  }

  private func output() -> String {
    defer { try? FileManager.default.removeItem(atPath: log) }
    return FileManager.default.contents(atPath: log).map { String(decoding: $0, as: UTF8.self) } ?? ""
  }

  @Test func exitStatusIsReported() async throws {
    let child = try shell("echo out; echo err >&2; exit 3")
    #expect(await child.waitForExit() == .exited(code: 3))
    #expect(await child.waitForExit() == .exited(code: 3))
    #expect(!child.isRunning)
    child.signal(SIGKILL)
    #expect(output() == "out\nerr\n")
  }

  @Test func processIsStopped() async throws {
    let child = try shell("exec sleep 60")
    #expect(child.isRunning)
    #expect(await child.stop() == .signalled(SIGTERM))
    _ = output()
  }

  @Test func processIsKilledAfterGracePeriod() async throws {
    let child = try shell("trap '' TERM; echo ready; while :; do sleep 0.05; done")
    try await eventually("the script has printed a line") {
      (FileManager.default.contents(atPath: log)?.count ?? 0) != 0
    }
    #expect(await child.stop(grace: .milliseconds(100)) == .signalled(SIGKILL))
    _ = output()
  }

  @Test func missingProgramIsReported() {
    #expect(throws: StackError("cannot start /no/such/program: No such file or directory")) {
      try ChildProcess(name: "none", executable: "/no/such/program", arguments: [], logFile: "/dev/null")
    }
  }

  @Test func processInheritsNeitherDescriptorsNorSettings() async throws {
    setenv("TIDEMARK_TEST_ONLY", "1", 1)
    let descriptor = open("/dev/null", O_RDONLY)
    defer { close(descriptor) }
    let child = try shell("env | grep -c '^TIDEMARK_'; test -e /proc/$$/fd/\(descriptor) && echo open")
    await child.waitForExit()
    #expect(output() == "0\n")
  }

  @Test func anotherProcessCannotClaimBlockOfPortHandedOut() async throws {
    let port = try LoopbackPorts.free(1)[0].port
    // Blocks of 64 ports from 20,000.
    let name = "\\0tidemark-loopback-ports-\(port - (port - 20_000) % 64)"
    let child = try shell(
      """
      python3 -c 'import errno, socket
      try: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).bind("\(name)")
      except OSError as error: print(errno.errorcode[error.errno])'
      """
    )
    await child.waitForExit()
    #expect(output() == "EADDRINUSE\n")
  }

  @Test func portsAreFreeUntilListenerStarts() throws {
    let ports = try LoopbackPorts.free(20)
    #expect(Set(ports).count == 20)
    #expect(ports.allSatisfy { LoopbackPorts.isFree($0.port) })
  }
}

@Suite struct TerminalTests {
  @Test(
    arguments: [
      (true, [:], true), (false, [:], false), (true, ["TERM": "dumb"], false),
      (true, ["NO_COLOR": "1"], false),
      (true, ["NO_COLOR": ""], true), (false, ["FORCE_COLOR": "1"], true),
      (true, ["FORCE_COLOR": "0"], false),
      (false, ["FORCE_COLOR": "1", "NO_COLOR": "1"], false),
    ] as [(Bool, [String: String], Bool)]
  )
  func colorDependsOnTerminalAndEnvironment(isTerminal: Bool, environment: [String: String], expected: Bool) {
    #expect(Terminal.usesColor(isTerminal: isTerminal, environment: environment) == expected)
  }
}

@Suite struct GatewayURLTests {
  @Test(arguments: [
    ("https://localhost:8443", "localhost:8443", true), ("http://127.0.0.1:8080/", "127.0.0.1:8080", false),
    ("https://chat.example.org", "chat.example.org:443", true), ("http://[::1]:80", "[::1]:80", false),
    ("https://[::1]", "[::1]:443", true),
  ]) func gatewayURLsAreParsed(_ text: String, _ endpoint: String, _ isTLS: Bool) throws {
    let url = try #require(GatewayURL(text))
    #expect("\(url.endpoint)" == endpoint && url.isTLS == isTLS)
  }

  @Test(arguments: [
    "", "localhost:8443", "ftp://localhost", "https://", "https:///", "https://localhost/v1", "https://localhost:0",
    "https://localhost:65536", "https://a b",
  ]) func invalidGatewayURLsAreRejected(_ text: String) { #expect(GatewayURL(text) == nil) }

  @Test func problemDocumentsAreParsed() {
    func parts(_ text: String) -> [String] {
      let (code, detail) = ProblemDocument.parts(of: Array(text.utf8))
      return [code, detail]
    }
    #expect(parts(#"{"code":"not_a_member","detail":"no","status":403}"#) == ["not_a_member", "no"])
    #expect(parts(#"{"status":403}"#) == ["", ""])
    #expect(parts("<html>") == ["", ""])
  }
}
