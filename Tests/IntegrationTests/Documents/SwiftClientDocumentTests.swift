import Foundation
import TestPrograms
import Testing

extension RealProcesses {
  /// The Swift code of docs/api/sdk-swift.md and of the tutorial of TidemarkClient, checked by the compiler.
  @Suite struct DocumentedSwiftClient {
    @Test func exampleOfPageTypeChecks() async throws {
      let blocks = try CodeBlocks.blocks("swift", of: "api/sdk-swift.md").filter { !$0.contains(".package(") }
      #expect(blocks.count == 5)
      let file = NSTemporaryDirectory() + "tidemark-example-\(UUID().uuidString).swift"
      defer { try? FileManager.default.removeItem(atPath: file) }
      try blocks.joined(separator: "\n\n").write(toFile: file, atomically: true, encoding: .utf8)
      try await Self.typeCheck(file)
    }

    @Test func stepsOfTutorialTypeCheck() async throws {
      let folder = TestServices.packageRoot + "/Sources/TidemarkClient/TidemarkClient.docc"
      let tutorial = try String(contentsOfFile: folder + "/FirstScreen.tutorial", encoding: .utf8)
      let steps = tutorial.matches(of: /file: "([\w-]+\.swift)"/).map { String($0.1) }
      let files = try FileManager.default.contentsOfDirectory(atPath: folder + "/Resources").filter {
        $0.hasSuffix(".swift")
      }
      #expect(steps.sorted() == files.sorted() && !steps.isEmpty)
      for step in steps { try await Self.typeCheck(folder + "/Resources/" + step) }
    }

    private static func typeCheck(_ file: String) async throws {
      let modules = TestServices.binaries + "/Modules"
      let output = try await Command.run(
        "swiftc",
        ["-typecheck", "-parse-as-library", "-swift-version", "6", "-I", modules, file]
      )
      #expect(output.status == 0 && output.error.isEmpty, "\(file): \(output)")
    }
  }
}
