import Foundation
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// Checks the files under Deploy and the compose file against the programs that they start. `make deploy-check`
  /// runs them; these tests find drift within seconds.
  @Suite struct DeploymentFiles {
    /// One command line of a container file or of the compose file.
    private struct Line: Decodable {
      var `where`: String
      var program: String
      var words: [String]
      var secrets: [String]?
      var variables: [String]?
    }

    private static let describe = TestServices.packageRoot + "/Deploy/check/describe.py"
    private static let quiet = ["PYTHONDONTWRITEBYTECODE": "1"]

    @Test func haproxyAcceptsItsFile() async throws {
      let directory = NSTemporaryDirectory() + "tidemark-test-\(UUID().uuidString)"
      defer { try? FileManager.default.removeItem(atPath: directory) }
      let files = StackFiles(directory: directory)
      try files.prepare()
      let ports = try LoopbackPorts.free(6)
      let variables = try LoadBalancedServices.environment(
        gateways: [(ports[0], ports[1].port), (ports[2], ports[3].port)],
        listen: ports[4],
        operations: ports[5],
        files: files
      )
      let program = try #require(Executables.find("haproxy"))
      let output = try await Command.run(
        "/usr/bin/env",
        variables + [program, "-c", "-f", LoadBalancedServices.configuration]
      )
      #expect(output.status == 0, "\(output)")
      #expect(!(output.out + output.error).contains("WARNING"), "\(output)")
    }

    /// The help of each program lists every flag of its command lines, and each service gets every secret that it
    /// uses.
    @Test(arguments: [
      ("docker-compose.yml", ["haproxy"]),
      ("Deploy/cluster/docker-compose.yml", ["haproxy", "gcr.io/etcd-development/etcd"]),
    ])
    func commandLinesMatchPrograms(file: String, foreign: [String]) async throws {
      let lines = try await Self.lines(of: file)
      let programs = Set(lines.map(\.program)).subtracting(foreign)
      #expect(programs == ["tidemark-store", "tidemark-gateway", "tidemark-worker", "tidemark"])
      var flagsSeen = 0
      for program in programs {
        let help = try await Self.help(of: program)
        let known = Set(help.out.matches(of: /--[a-z0-9-]+/).map { String($0.output) })
        #expect(known.contains("--help"), "\(help)")
        for line in lines where line.program == program {
          for word in line.words where word.hasPrefix("-") {
            let flag = String(word.prefix { $0 != "=" })
            #expect(known.contains(flag), "\(line.where): \(program) has no \(flag)")
            flagsSeen += 1
          }
        }
      }
      #expect(flagsSeen > 20)
      let configuration = try String(contentsOfFile: LoadBalancedServices.configuration, encoding: .utf8)
      for line in lines {
        for word in line.words {
          guard let secrets = line.secrets, let start = word.range(of: "/run/secrets/") else { continue }
          #expect(
            secrets.contains(String(word[start.upperBound...])),
            "\(line.where): \(word) is not among its secrets"
          )
        }
        for variable in line.variables ?? [] where line.program == "haproxy" {
          #expect(configuration.contains("\"${\(variable)-"), "haproxy.cfg does not read \(variable)")
        }
      }
    }

    /// The help of each program lists every flag of the Kubernetes file, which mounts every file that they name from a
    /// secret that its comment makes, and has the addresses that certificates, Services and probes need.
    @Test func kubernetesFileMatchesPrograms() async throws {
      let directory = NSTemporaryDirectory() + "tidemark-test-\(UUID().uuidString)"
      defer { try? FileManager.default.removeItem(atPath: directory) }
      for script in ["/Deploy/service-secrets.sh", "/Deploy/cluster/cluster-secrets.sh"] {
        let made = try await Command.run("/bin/bash", [TestServices.packageRoot + script, directory])
        try #require(made.status == 0, "\(made)")
      }
      let output = try await Command.run(
        "/usr/bin/python3",
        [
          TestServices.packageRoot + "/Deploy/check/kubernetes.py",
          TestServices.packageRoot + "/Deploy/cluster/kubernetes.yaml", directory, TestServices.binaries,
        ]
      )
      #expect(output.status == 0 && output.out.hasPrefix("ok: "), "\(output)")
    }

    /// The units for systemd pass only flags that the programs have.
    @Test(arguments: ["tidemark-store", "tidemark-gateway", "tidemark-worker"])
    func unitsPassKnownFlags(_ program: String) async throws {
      let unit = try String(
        contentsOfFile: TestServices.packageRoot + "/Deploy/systemd/\(program).service",
        encoding: .utf8
      )
      let start = try #require(unit.split(separator: "ExecStart=").last)
      let command = try #require(start.split(separator: "ExecReload=").first)
      let help = try await Self.help(of: program).out
      let flags = command.matches(of: /--[a-z-]+/).map { String($0.output) }
      #expect(flags.count >= 4)
      for flag in flags { #expect(help.contains(flag + " "), "\(flag)") }
    }

    /// A service's compose command is the same as its image's own: `docker run` starts the command that the tests
    /// check.
    @Test func composeAndImagesAgree() async throws {
      let lines = try await Self.lines(of: "docker-compose.yml")
      func words(_ place: String, _ program: String) throws -> [String] {
        let line = try #require(lines.first { $0.where == place && $0.program == program })
        return line.words.flatMap { $0.split(separator: "=", maxSplits: 1).map(String.init) }
      }
      func pairs(_ words: [String]) -> Set<String> {
        Set(zip(words, words.dropFirst() + ["--"]).filter { $0.0.hasPrefix("--") }.map { "\($0) \($1)" })
      }
      for (service, stage, program) in [
        ("service store", "stage store", "tidemark-store"),
        ("service gateway-1", "stage gateway", "tidemark-gateway"),
        ("service gateway-2", "stage gateway", "tidemark-gateway"),
        ("service worker", "stage worker", "tidemark-worker"),
      ] {
        #expect(try pairs(words(service, program)) == pairs(words(stage, program)), "\(service)")
      }
    }

    /// The check reports an instruction that it cannot run, with its line, instead of skipping it.
    @Test(
      arguments: [
        ("FROM debian:bookworm-slim AS a\nADD x /x", "line 2: ADD is not handled"),
        ("FROM debian:bookworm-slim", "line 1: FROM has to be"),
        ("RUN true", "line 1: RUN before FROM"),
        ("FROM a AS a\nRUN --mount=type=cache,target=/x true", "line 2: RUN is handled in shell form"),
        ("FROM a AS a\nCOPY --link x /x", "line 2: COPY --link"),
        ("FROM a AS a\nENTRYPOINT tidemark", "line 2: ENTRYPOINT is handled in exec form only"),
        ("FROM a AS a\nHEALTHCHECK NONE", "line 2: HEALTHCHECK NONE is not handled"),
        ("FROM a AS a\nWORKDIR $HOME", "line 2: variables are handled in RUN only"),
        ("# syntax=docker/dockerfile:1\nFROM a AS a", "line 1: parser directives"),
        ("FROM a AS a\nRUN true \\", "line 2: continued past the end"),
      ]
    )
    func checkRejectsUnsupportedInstructions(text: String, complaint: String) async throws {
      let path = NSTemporaryDirectory() + "tidemark-container-\(UUID().uuidString)"
      defer { try? FileManager.default.removeItem(atPath: path) }
      try text.write(toFile: path, atomically: true, encoding: .utf8)
      let output = try await Command.run(TestServices.python, [Self.describe, path], environment: Self.quiet)
      #expect(output.status == 1 && output.error.hasPrefix(complaint), "\(output)")
    }

    /// Secrets are created once, and only their owner can read them.
    @Test func secretsAreMadeOnce() async throws {
      let directory = NSTemporaryDirectory() + "tidemark-secrets-\(UUID().uuidString)"
      defer { try? FileManager.default.removeItem(atPath: directory) }
      var contents: [[Data]] = []
      for _ in 0...1 {
        for script in ["service-secrets.sh", "cluster/cluster-secrets.sh"] {
          let output = try await Command.run("/bin/bash", [TestServices.packageRoot + "/Deploy/" + script, directory])
          #expect(output.status == 0, "\(output)")
        }
        contents.append(
          try [
            "frame-secret", "jwt-secret", "ticket-secret", "haproxy.pem", "haproxy.crt", "link-ca.pem",
            "link-ca-key.pem", "store-cert.pem", "store-key.pem", "gateway-cert.pem", "gateway-key.pem",
            "node-cert.pem",
            "node-key.pem", "etcd/link-ca.pem", "etcd/etcd-cert.pem", "etcd/node-key.pem",
          ].map {
            try Data(contentsOf: URL(fileURLWithPath: "\(directory)/\($0)"))
          }
        )
      }
      #expect(contents[0] == contents[1])
      #expect(Set(contents[0]).count == contents[0].count)
      let mode = try FileManager.default.attributesOfItem(atPath: directory)[.posixPermissions] as? Int
      #expect(mode == 0o700)
    }

    /// The help of a program with the flags of its services. The worker has them in its default command.
    private static func help(of program: String) async throws -> Command.Output {
      let arguments = program == "tidemark-worker" ? ["run", "--help"] : ["--help"]
      return try await Command.run("\(TestServices.binaries)/\(program)", arguments)
    }

    /// The command lines of a compose file and of the container file. docker-compose parses the compose file without an
    /// engine.
    private static func lines(of file: String) async throws -> [Line] {
      let compose = TestServices.packageRoot + "/" + file
      let output = try await Command.run(
        "/bin/bash",
        [
          "-c", #"set -o pipefail; docker-compose --file "$1" config | "$2" "$3""#, "describe", compose,
          TestServices.python,
          describe,
        ],
        environment: quiet
      )
      guard output.status == 0, output.error.isEmpty else {
        throw Unexpected("docker-compose config: \(output)")
      }
      return try JSONDecoder().decode([Line].self, from: Data(output.out.utf8))
    }
  }
}
