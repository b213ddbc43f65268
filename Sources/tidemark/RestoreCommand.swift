import ArgumentParser
import CommandSupport
import Backup
import LocalStack
import Operations

/// Command `tidemark restore`.
struct RestoreCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "restore",
    abstract: "Creates a data directory from a backup.",
    discussion: """
      FROM is a backup, or a directory of backups, whose newest backup is restored. DIR must be empty or new. Start \
      tidemark-store with --data DIR afterwards. The command verifies every file while it copies it, and then reads \
      all data once.

      The restored store has a new store id: apps receive stream.reset and query again, the gateway refuses older \
      tickets as ticket_invalid, and gateways begin new sessions. Never run the old store at the same time.

      Progress goes to standard error; the last line on standard output is \
      {"restored","backup","time","store","former_store","shards","pages","log_batches","erased_again",\
      "erasures_complete_through"} as JSON. Run an interrupted restore again; a store refuses the directory \
      until the restore is complete.

      --erasure-ledger names the file that the store keeps outside its data directory. The command erases again the \
      users that the ledger lists as erased and the backup does not. For this it runs the tidemark-store and \
      tidemark-gateway beside this program, on loopback ports.

      Example: tidemark restore /var/backups/tidemark /var/lib/tidemark/data
      """
  )

  @Argument(help: ArgumentHelp("Backup, or directory of backups.", valueName: "from"))
  var from: String
  @Option(help: ArgumentHelp("The store's --erasure-ledger, or a copy of it.", valueName: "file"))
  var erasureLedger: String?
  @Argument(help: ArgumentHelp("Data directory to create; empty or new.", valueName: "dir"))
  var directory: String

  func run() async throws {
    try await reportingErrors("tidemark restore") {
      var restore = StoreRestore(source: from, target: directory, executables: try .besideCurrentExecutable())
      restore.ledger = erasureLedger
      let summary = try await withProgress { [restore] in try await restore.run(note: $0) }
      Terminal.print(summary.document)
    }
  }
}
