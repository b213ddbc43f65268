import ArgumentParser
import CommandSupport
import Backup
import LocalStack
import Operations

/// Command `tidemark restore`.
struct RestoreCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "restore",
    abstract: "Makes a data directory from a backup.",
    discussion: """
      FROM is a backup or a directory of backups, of which the newest is taken. DIR has to be empty or new; start \
      tidemark-store with --data DIR afterwards. Every file is verified while it is copied, and everything is read once.

      The restored store is a new one: apps get stream.reset and query again, tickets of before are refused as \
      ticket_invalid, and gateways begin new sessions. Never start the old store again beside it.

      Progress goes to standard error; the last line on standard output is \
      {"restored","backup","time","store","former_store","shards","pages","log_batches","erased_again",\
      "erasures_complete_through"} as JSON. A restore that was interrupted can be run again; a store refuses its \
      directory until then.

      --erasure-ledger names the file that the store kept outside of its data directory. Users whose erasure it has, \
      and the backup has not, are erased before the command ends, by tidemark-store and tidemark-gateway from beside \
      this program, on loopback ports.

      Example: tidemark restore /var/backups/tidemark /var/lib/tidemark/data
      """
  )

  @Argument(help: ArgumentHelp("Backup, or directory of backups.", valueName: "from"))
  var from: String
  @Option(help: ArgumentHelp("The store's --erasure-ledger, or a copy of it.", valueName: "file"))
  var erasureLedger: String?
  @Argument(help: ArgumentHelp("Data directory to make; empty or new.", valueName: "dir"))
  var directory: String

  func run() async throws {
    try await reportingErrors("tidemark restore") {
      let progress = ProgressLine()
      var restore = StoreRestore(source: from, target: directory, executables: try .besideCurrentExecutable())
      restore.ledger = erasureLedger
      let configured = restore
      let summary = try await withInterrupts {
        defer { progress.clear() }
        return try await configured.run { progress.show($0) }
      }
      Terminal.print(summary.document)
    }
  }
}
