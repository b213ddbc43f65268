import Foundation
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// The commands of the README run, line by line.
  @Suite struct Readme {
    @Test func tourAnswersMatchREADME() async throws {
      try await TestServices.with { services in
        let tour = try Self.tour()
        #expect(
          tour.commands.count > 8,
          "the tour has \(tour.commands.count) commands that say what they answer"
        )
        // The tour's ports and folder are replaced by this pair's; everything else stays as printed.
        func here(_ text: String) -> String {
          text.replacingOccurrences(of: "https://localhost:8443", with: services.tlsURL)
            .replacingOccurrences(of: "http://127.0.0.1:8080", with: services.h2cURL)
            .replacingOccurrences(of: ".tidemark/", with: services.directory + "/")
        }
        for name in ["server", "alice", "bob"] {
          let token = name == "server" ? services.serverToken : try await services.token(name)
          try (token + "\n").write(
            toFile: "\(services.directory)/\(name).token",
            atomically: true,
            encoding: .utf8
          )
        }
        for (command, response) in tour.commands {
          let script = here(tour.preparation + "\n" + command)
          let output = try await Command.run("/bin/bash", ["-c", script])
          #expect(output.status == 0 && output.error.isEmpty, "\(command)\n\(output)")
          #expect(
            output.out.contains(response),
            "\(command)\nhas to answer \(response)\nanswered \(output.out)"
          )
        }
      }
    }

    /// The lines of the README's `sh` block. Lines without a response are preparation; the other lines have their
    /// answer below them, after `#>`.
    private static func tour() throws -> (preparation: String, commands: [(String, response: String)]) {
      let text = try String(contentsOfFile: TestServices.packageRoot + "/README.md", encoding: .utf8)
      guard let start = text.range(of: "```sh\n"),
        let end = text.range(of: "```", range: start.upperBound..<text.endIndex)
      else { throw Unexpected("README.md has no tour") }
      let lines = text[start.upperBound..<end.lowerBound].split(separator: "\n").map(String.init)
        .filter { !$0.hasPrefix("# ") }
      var preparation: [String] = []
      var commands: [(String, response: String)] = []
      for (line, next) in zip(lines, lines.dropFirst() + [""]) where !line.hasPrefix("#>") {
        if next.hasPrefix("#> ") {
          commands.append((line, String(next.dropFirst(3))))
        } else {
          preparation.append(line)
        }
      }
      return (preparation.joined(separator: "\n"), commands)
    }
  }
}
