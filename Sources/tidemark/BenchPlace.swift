import ArgumentParser
import Foundation
import LocalStack

/// Where the programs of a bench are, where its data goes and how it is told: the same for every bench that starts its own services.
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

  /// A measurement as one JSON document.
  static func document(_ value: some Encodable) -> String {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys]
    return (try? encoder.encode(value)).map { String(decoding: $0, as: UTF8.self) } ?? "{}"
  }
}
