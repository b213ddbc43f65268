import ArgumentParser
import Backup
import LocalStack
import Operations

/// tidemark backup
struct BackupCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "backup",
    abstract: "Copies a store while it serves.",
    discussion: """
      Writes a consistent copy of everything that the store has acknowledged into a new folder of TO, named by its time. \
      Tables that are already in TO's newest backup are not sent again; the folder is a whole backup all the same. \
      The copy is verified before it counts: a folder without manifest.json is none, and the next run removes it.

      Standard error says how far it is; the last line on standard output is \
      {"backup","store","time","files","bytes","files_kept","bytes_sent"} as JSON. One backup of a store at a time. \
      It may be interrupted and run again. Remove old folders as you like: none needs another.

      Example: tidemark backup --store 127.0.0.1:7410 --secret-file frame.secret /var/backups/tidemark
      """
  )

  @OptionGroup var place: StoreOptions
  @Argument(help: ArgumentHelp("Directory of backups; created if missing.", valueName: "to"))
  var to: String

  func run() async throws {
    try await reportingErrors("tidemark backup") {
      var backup = StoreBackup(store: try place.endpoint, secrets: try place.secrets, target: to)
      backup.tls = try place.tls
      let configured = backup
      let progress = ProgressLine()
      let summary = try await withInterrupts {
        defer { progress.clear() }
        return try await configured.run { progress.show($0) }
      }
      Terminal.print(summary.document)
    }
  }
}
