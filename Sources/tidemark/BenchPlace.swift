import ArgumentParser
import Foundation
import LoadGenerator
import LocalStack

/// Where the programs of a bench are, where its data goes and how it is told: the same for every bench that starts its
/// own services.
struct BenchPlace: ParsableArguments {
  @Option(help: ArgumentHelp("Where the data of the run goes.", valueName: "dir"))
  var directory = ".tidemark"
  @Option(help: ArgumentHelp("Where tidemark-store and tidemark-gateway are.", valueName: "dir"))
  var programs: String?

  func executables() throws -> Executables {
    try programs.map { try Executables(directory: $0) } ?? Executables.besideThisOne()
  }

  /// A new name under ``directory``.
  func runDirectory(_ name: String) -> String {
    let path = FileManager.default.currentDirectoryPath
    let parent = directory.hasPrefix("/") ? directory : path + "/" + directory
    return parent + "/\(name)-" + String(UInt32.random(in: 0...UInt32.max), radix: 16)
  }

  /// Runs a bench on services of its own, in a new directory and with progress, and prints what it found: one JSON
  /// document, or a table and the machine under it.
  func measure<Report: Encodable & Sendable>(
    _ name: String,
    asJSON: Bool,
    table: @escaping @Sendable (Report) -> String,
    _ run:
      @escaping @Sendable (Executables, _ directory: String, _ note: @escaping @Sendable (String) -> Void)
      async throws -> Report
  ) async throws {
    try await reportingErrors("tidemark bench \(name)") {
      if Machine.isDebugBuild {
        Terminal.printError("tidemark bench: this is a debug build; measure with a release build")
      }
      let executables = try executables()
      let directory = runDirectory(name)
      let progress = ProgressLine()
      try await withInterrupts {
        defer { progress.clear() }
        let report = try await run(executables, directory, progress.show)
        progress.clear()
        Terminal.print(asJSON ? Self.document(report) : table(report))
      }
      if !asJSON { Terminal.print("\n\(Machine.summary)") }
    }
  }

  /// A measurement as one JSON document.
  static func document(_ value: some Encodable) -> String {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys]
    return (try? encoder.encode(value)).map { String(decoding: $0, as: UTF8.self) } ?? "{}"
  }
}
