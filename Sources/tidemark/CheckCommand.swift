import ArgumentParser
import Backup
import LocalStack
import Operations

/// tidemark check
struct CheckCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "check",
    abstract: "Reads a backup or a data directory and says whether it is whole.",
    discussion: """
      DIR is a backup, a directory of backups (its newest is checked), or the data directory of a store that is stopped. \
      Of a backup the manifest and every file's checksum are verified. Then every table, log record and page is read \
      as a store would read it. Nothing in DIR is changed.

      Standard error says how far it is and names each fault with what helps; the last line on standard output is \
      {"checked","store","shards","pages","log_batches","faults"} as JSON. Ends with 0 only if there is no fault.

      Example: tidemark check /var/backups/tidemark
      """
  )

  @Argument(help: ArgumentHelp("Backup, directory of backups, or data directory.", valueName: "dir"))
  var directory: String

  func run() async throws {
    try await reportingErrors("tidemark check") {
      let progress = ProgressLine()
      let check = StoreCheck(directory: directory)
      let report = try await withInterrupts {
        defer { progress.clear() }
        return try await check.run { progress.show($0) }
      }
      for fault in report.faults { Terminal.printError("tidemark check: \(fault)") }
      Terminal.print(report.document)
      if !report.faults.isEmpty { throw ExitCode(1) }
    }
  }
}
