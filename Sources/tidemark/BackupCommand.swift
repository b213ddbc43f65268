import ArgumentParser
import CommandSupport
import Backup
import LocalStack
import Operations

/// Command `tidemark backup`.
struct BackupCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "backup",
    abstract: "Copies a store while it serves.",
    discussion: """
      Writes a consistent copy of everything that the store has acknowledged into a new folder of TO, named after the \
      time. Tables of TO's newest backup are not transferred again; every folder is a complete backup. The command \
      verifies the copy before it writes manifest.json. A folder without manifest.json is incomplete; the next run \
      removes it.

      Progress goes to standard error; the last line on standard output is \
      {"backup","store","time","files","bytes","files_kept","bytes_sent"} as JSON. One backup of a store runs at a \
      time. It can be interrupted and run again. Any old folder can be removed: no backup depends on another.

      Example: tidemark backup --store 127.0.0.1:7410 --secret-file frame.secret /var/backups/tidemark
      """
  )

  @OptionGroup var storeOptions: StoreOptions
  @Argument(help: ArgumentHelp("Directory of backups; created if missing.", valueName: "to"))
  var to: String

  func run() async throws {
    try await reportingErrors("tidemark backup") {
      var backup = StoreBackup(
        store: try storeOptions.endpoint,
        secrets: try storeOptions.secrets,
        target: to
      )
      backup.tls = try storeOptions.tls
      let summary = try await withProgress { [backup] in try await backup.run(note: $0) }
      Terminal.print(summary.document)
    }
  }
}
