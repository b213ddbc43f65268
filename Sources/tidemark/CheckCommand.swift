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
      DIR is a backup, a directory of backups, of which the newest is checked, or the data directory of a stopped \
      store. Verifies the manifest and the checksum of every file of a backup. Then reads every table, log record and \
      page as a store would. Changes nothing in DIR.

      Progress goes to standard error and names each fault with what helps; the last line on standard output is \
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
