import Foundation
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// The commands of the README and of its tour run, line by line.
  @Suite struct Readme {
    @Test(arguments: [("README.md", 5), ("docs/guides/tour.md", 27)])
    func answersMatchPage(_ page: String, _ count: Int) async throws {
      try await TestServices.with { services in
        let block = try Self.block(of: page)
        #expect(block.commands.count == count, "\(page) has \(block.commands.count) commands that say what they answer")
        // The page's ports and folder are replaced by this pair's; everything else stays as printed.
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
        for (command, response) in block.commands {
          let script = here(block.preparation + "\n" + command)
          let output = try await Command.run("/bin/bash", ["-c", script])
          #expect(output.status == 0 && output.error.isEmpty, "\(command)\n\(output)")
          #expect(
            output.out.contains(response),
            "\(command)\nhas to answer \(response)\nanswered \(output.out)"
          )
        }
      }
    }

    /// The lines of a page's `sh` block. Lines without a response are preparation; the other lines have their answer
    /// below them, after `#>`.
    private static func block(
      of page: String
    ) throws -> (preparation: String, commands: [(String, response: String)]) {
      let text = try String(contentsOfFile: TestServices.packageRoot + "/" + page, encoding: .utf8)
      guard let start = text.range(of: "```sh\n"),
        let end = text.range(of: "```", range: start.upperBound..<text.endIndex)
      else { throw Unexpected("\(page) has no block of sh") }
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
