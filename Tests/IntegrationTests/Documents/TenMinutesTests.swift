import Foundation
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// docs/guides/ten-minutes.md as a reader follows it: its commands, its page in Chromium, and its Swift program.
  @Suite struct TenMinutes {
    private static let page = "guides/ten-minutes.md"

    @Test(
      .timeLimit(.minutes(10)),
      .needs(
        PythonTools.areInstalled && canMount,
        "playwright is not installed (`make test-deps` gets it), or this is not root, who can mount a certificate"
      )
    )
    func readerSeesTicksTurn() async throws {
      let commands = try CodeBlocks.blocks("sh", of: Self.page)
      try #require(commands.count == 5, "\(commands)")
      let app = try LoopbackPorts.free(1)[0].port
      let start = try #require(commands[0].split(separator: "\n").last).split(separator: " ").map(String.init)
      #expect(commands[0].hasPrefix("make build\n") && start.prefix(2) == [".build/debug/tidemark", "run"])
      let flags = start.dropFirst(2).map { $0.replacingOccurrences(of: "3000", with: "\(app)") }
      try await RunningSession.with(flags) { session in
        let gateway = try session.gateway
        // The page's addresses and folder are replaced by this session's; everything else stays as printed.
        func here(_ text: String) -> String {
          text.replacingOccurrences(of: "https://localhost:8443", with: gateway)
            .replacingOccurrences(of: ".tidemark/", with: session.file(""))
            .replacingOccurrences(of: "my-app", with: session.directory + "/my-app")
            .replacingOccurrences(of: "3000", with: "\(app)")
        }
        let backend = try await Command.run("/bin/bash", ["-ec", here(commands[1])])
        #expect(backend.status == 0 && backend.out.contains(#""seq":1"#), "\(backend)")
        let copied = try await Command.run("/bin/bash", ["-ec", here(commands[2])])
        try #require(copied.status == 0, "\(copied)")
        let html = try #require(try CodeBlocks.blocks("html", of: Self.page).first)
        try here(html).write(toFile: session.directory + "/my-app/index.html", atomically: true, encoding: .utf8)
        let server = try Companion("/bin/bash", ["-c", "exec " + here(commands[3])], limit: .seconds(500))
        defer { server.end() }
        try await session.play("SDK/ten_minutes.py", at: "http://localhost:\(app)", [gateway])
        try await runSwiftProgram(session, here)
      }
    }

    /// Build the program, and run it where the session's certificate is trusted.
    private func runSwiftProgram(_ session: RunningSession, _ here: (String) -> String) async throws {
      let package = session.directory + "/my-swift"
      let blocks = try CodeBlocks.blocks("swift", of: Self.page)
      try #require(blocks.count == 2 && blocks[0].contains(#"path: "..""#))
      try FileManager.default.createDirectory(atPath: package + "/Sources/First", withIntermediateDirectories: true)
      let manifest = blocks[0].replacing(#"path: "..""#, with: #"path: "\#(TestServices.packageRoot)""#)
      try manifest.write(toFile: package + "/Package.swift", atomically: true, encoding: .utf8)
      try here(blocks[1]).write(toFile: package + "/Sources/First/First.swift", atomically: true, encoding: .utf8)
      let program = try await Self.build(package)
      let commands = #"mount --bind "$0" /etc/ssl/certs/ca-certificates.crt; exec "$@""#
      let output = try await Command.run(
        "unshare",
        ["--mount", "/bin/sh", "-ec", commands, session.file("tls-cert.pem"), program]
      )
      #expect(output.out == "read [\"bob\"]\n", "\(output)")
    }

    /// Build a reader's package as printed, in a long run. Otherwise check its manifest, and compile its program
    /// against the module that this run has built: to build the package again takes two minutes.
    ///
    /// - Returns: The path of its program.
    private static func build(_ package: String) async throws -> String {
      if TestRun.isLong {
        let built = try await Command.run("swift", ["build", "--package-path", package], limit: .seconds(1_200))
        try #require(built.status == 0, "\(built)")
        return package + "/.build/debug/First"
      }
      let described = try await Command.run("swift", ["package", "--package-path", package, "dump-package"])
      try #require(described.status == 0 && described.out.contains("TidemarkClient"), "\(described)")
      let build = URL(fileURLWithPath: CommandLine.arguments[0]).deletingLastPathComponent().path
      let objects = build + "/TidemarkClient.build"
      let files = try FileManager.default.contentsOfDirectory(atPath: objects).filter { $0.hasSuffix(".o") }
      let flags = ["-parse-as-library", "-swift-version", "6", "-I", build + "/Modules"]
      let source = package + "/Sources/First/First.swift"
      let output = ["-o", package + "/First"]
      let compiled = try await Command.run("swiftc", flags + [source] + files.map { objects + "/" + $0 } + output)
      try #require(compiled.status == 0, "\(compiled)")
      return package + "/First"
    }
  }
}
