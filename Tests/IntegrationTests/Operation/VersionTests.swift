import Foundation
import Operations
import TestPrograms
import Testing

extension RealProcesses {
  @Suite struct Version {
    @Test(arguments: ["tidemark-store", "tidemark-gateway", "tidemark"])
    func programsPrintTheirVersion(_ program: String) async throws {
      let output = try await Command.run("\(TestServices.binaries)/\(program)", ["--version"])
      #expect(output.status == 0 && output.out == "\(program) \(ProductVersion.current)\n", "\(output)")
      let help = try await Command.run("\(TestServices.binaries)/\(program)", ["--help"])
      #expect(help.out.contains("--version"), "\(help)")
    }

    /// The newest section of the change log is for the version that the programs print.
    @Test func changeLogMatchesVersion() throws {
      let log = try String(contentsOfFile: TestServices.packageRoot + "/CHANGELOG.md", encoding: .utf8)
      let newest = log.split(separator: "\n").first { $0.hasPrefix("## [") }
      #expect(newest?.hasPrefix("## [\(ProductVersion.current)] - ") == true, "\(newest ?? "no section")")
    }
  }
}
