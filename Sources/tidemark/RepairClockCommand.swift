import ArgumentParser
import CommandSupport
import Backup
import LocalStack
import Operations

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
    )
  )
  var at: String?
  @Argument(help: ArgumentHelp("Data directory of a stopped store.", valueName: "dir"))
  var directory: String

  func validate() throws {
    if let at, Times.milliseconds(at) == nil {
      throw ValidationError("--at \"\(at)\": give a time such as 2026-11-23T05:13:38Z")
    }
  }

  func run() async throws {
    try await reportingErrors("tidemark repair-clock") {
      var repair = ClockRepair(directory: directory)
      repair.isDryRun = dryRun
      repair.time = at.flatMap { Times.milliseconds($0) }
      let summary = try await withProgress { [repair] in try await repair.run(note: $0) }
      Terminal.print(summary.document)
    }
  }
}
