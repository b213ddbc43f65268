import ArgumentParser
import Backup
import CommandOutput
import CommandSupport
import IndexRebuild
import LinkSecurity
import LocalStack
import Operations

/// Address of a store, the secret shared with it, and TLS.
struct StoreOptions: ParsableArguments {
  @Option(
    help: ArgumentHelp("The store's address for gateways, an IPv6 one in brackets.", valueName: "host:port"),
    transform: parsing("HOST:PORT, such as 10.0.0.5:7410 or [::1]:7410") { text in
      Endpoint(text).flatMap { $0.port > 0 ? $0 : nil }
    }
  )
  var store: Endpoint
  @Option(
    help: ArgumentHelp(
      "File whose first line is the secret shared with the store; a second line is the previous one.",
      valueName: "file"
    )
  )
  var secretFile: String?
  @OptionGroup var tlsFiles: StoreTLSOptions

  var secrets: [[UInt8]] {
    get throws {
      try secretFile.map { try SecretFile.load($0, key: "secret-file", warn: Terminal.printError).all } ?? []
    }
  }

  var tls: LinkTLS? { get throws { try tlsFiles.tls } }
}

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
      let backup = StoreBackup(
        store: storeOptions.store,
        secrets: try storeOptions.secrets,
        tls: try storeOptions.tls,
        target: to
      )
      let summary = try await withProgress { try await backup.run(note: $0) }
      Terminal.print(summary.document)
    }
  }
}

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
      "erasures_complete_through","index_complete"} as JSON. If index_complete is false, run tidemark rebuild-index \
      once the store serves: the backup is that of a cluster's node. Run an interrupted restore again; a store \
      refuses the directory until the restore is complete.

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
      let executables = try Executables.besideCurrentExecutable()
      let restore = StoreRestore(source: from, target: directory, ledger: erasureLedger, executables: executables)
      let summary = try await withProgress { try await restore.run(note: $0) }
      Terminal.print(summary.document)
    }
  }
}

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

/// Command `tidemark rebuild-index`.
struct RebuildIndexCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "rebuild-index",
    abstract: "Makes a store rebuild its index of users' channels from the channels.",
    discussion: """
      Use this if the store has logged that a user's index was unreadable and was restarted, or if a user's channels \
      or totals differ from the channels' data. The store keeps serving during the rebuild.

      In phase 1, every shard sends the memberships of all its channels to the users' shards. In phase 2, every shard \
      removes the index entries that were not sent. Progress goes to standard error; the last \
      line on standard output is {"epoch","shards","channels","changes","entries"} as JSON. Exits with 0 only if every \
      shard has finished. An interrupted rebuild can be run again at any time; it then starts over.
      """
  )

  @OptionGroup var storeOptions: StoreOptions
  @Option(help: ArgumentHelp("Timeout of a shard's answer: 90s, 15m.", valueName: "time"))
  var timeout = TimeSpanArgument(seconds: 60)

  func run() async throws {
    try await reportingErrors("tidemark rebuild-index") {
      var rebuild = IndexRebuild(store: storeOptions.store, secrets: try storeOptions.secrets)
      rebuild.tls = try storeOptions.tls
      rebuild.responseTimeout = .milliseconds(timeout.milliseconds)
      let summary = try await withProgress { [rebuild] note in
        try await rebuild.run { note("\($0)") }
      }
      Terminal.print(summary.document)
    }
  }
}

/// Command `tidemark repair-clock`.
struct RepairClockCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "repair-clock",
    abstract: "Corrects times in a store's data that are in the future.",
    discussion: """
      Use this if a store logged commands while its clock was ahead. Positions, joins and messages keep those times, \
      and later commands cannot have earlier ones. DIR is the data directory of a stopped store. The command sets \
      every time later than now to now, and keeps the order of all times.

      The repaired store has a new store id, like a restored one: apps receive stream.reset and query again, the \
      gateway refuses older tickets as ticket_invalid, and gateways begin new sessions. Before the repair, correct the \
      clock and copy DIR.

      Progress goes to standard error; the last line on standard output is \
      {"repaired","time","dry_run","store","former_store","changed":{kind: rows}} as JSON; former_store is null if \
      nothing changed. Run an interrupted repair again; a store refuses the directory until the repair is complete.

      Example: tidemark repair-clock --dry-run /var/lib/tidemark
      """
  )

  @Flag(help: "Only count the rows of each kind that would change.")
  var dryRun = false
  @Option(
    help: ArgumentHelp(
      "Time that replaces later times, such as 2026-11-23T05:13:38Z. Default and latest: now.",
      valueName: "time"
    ),
    transform: parsing("a time such as 2026-11-23T05:13:38Z", Times.milliseconds)
  )
  var at: Int64?
  @Argument(help: ArgumentHelp("Data directory of a stopped store.", valueName: "dir"))
  var directory: String

  func run() async throws {
    try await reportingErrors("tidemark repair-clock") {
      let repair = ClockRepair(directory: directory, time: at, isDryRun: dryRun)
      let summary = try await withProgress { try await repair.run(note: $0) }
      Terminal.print(summary.document)
    }
  }
}
