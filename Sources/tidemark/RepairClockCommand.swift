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
      For a store that has logged commands while its clock was set forward: positions, joins and messages carry that \
      time for ever, and what comes later cannot carry an earlier one. DIR is the data directory of a store that is \
      stopped. Every time in it that is later than now becomes now; the order of all times stays as it was.

      The repaired store is a new one, as a restored one is: apps get stream.reset and query again, tickets of before are \
      refused as ticket_invalid, and gateways begin new sessions. Set the clock right first, and make a copy of DIR.

      Progress goes to standard error; the last line on standard output is \
      {"repaired","time","dry_run","store","former_store","changed":{kind: rows}} as JSON, former_store null where \
      nothing was changed. A repair that was interrupted can be run again; a store refuses its directory until then.

      Example: tidemark repair-clock --dry-run /var/lib/tidemark
      """
  )

  @Flag(help: "Only count the rows that would change, of each kind.")
  var dryRun = false
  @Option(
    help: ArgumentHelp(
      "What later times become, such as 2026-11-23T05:13:38Z, where that is not now; not later than now.",
      valueName: "time"
    )
  )
  var at: String?
  @Argument(help: ArgumentHelp("Data directory of a store that is stopped.", valueName: "dir"))
  var directory: String

  func validate() throws {
    if let at, Times.milliseconds(at) == nil {
      throw ValidationError("--at \"\(at)\": give a time such as 2026-11-23T05:13:38Z")
    }
  }

  func run() async throws {
    try await reportingErrors("tidemark repair-clock") {
      let progress = ProgressLine()
      var repair = ClockRepair(directory: directory)
      repair.isDryRun = dryRun
      repair.time = at.flatMap { Times.milliseconds($0) }
      let configured = repair
      let summary = try await withInterrupts {
        defer { progress.clear() }
        return try await configured.run { progress.show($0) }
      }
      Terminal.print(summary.document)
    }
  }
}
