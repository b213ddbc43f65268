import ArgumentParser
import CommandSupport
import Backup
import LocalStack
import Operations

/// Command `tidemark check`.
struct CheckCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "check",
    abstract: "Verifies a backup or a data directory.",
    discussion: """
      DIR is a backup, a directory of backups, whose newest backup is checked, or the data directory of a stopped \
      store. For a backup, the command verifies the manifest and every file's checksum. Then it reads every table, log \
      record and page as a store does. It changes nothing in DIR.

      Progress and each fault, with its remedy, go to standard error; the last line on standard output is \
      {"checked","store","shards","pages","log_batches","faults"} as JSON. Exits with 0 only if there is no fault.

      Example: tidemark check /var/backups/tidemark
      """
  )

  @Argument(help: ArgumentHelp("Backup, directory of backups, or data directory.", valueName: "dir"))
  var directory: String

  func run() async throws {
    try await reportingErrors("tidemark check") {
      let check = StoreCheck(directory: directory)
      let report = try await withProgress { try await check.run(note: $0) }
      for fault in report.faults { Terminal.printError("tidemark check: \(fault)") }
      Terminal.print(report.document)
      if !report.faults.isEmpty { throw ExitCode(1) }
    }
  }
}
