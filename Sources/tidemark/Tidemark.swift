import ArgumentParser
import Operations
import Probe

/// tidemark: what a person at a terminal uses. Each command is a thin file over a library.
@main
struct Tidemark: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "tidemark",
    abstract:
      "Tidemark on this machine: try it, watch it, load it, look at its frames, mend its index and its times, back it up.",
    version: ProductVersion.line(of: "tidemark"),
    subcommands: [
      RunCommand.self, DemoCommand.self, TokenCommand.self, WatchCommand.self, AckCommand.self,
      ProbeCommand.self, BenchCommand.self, RebuildIndexCommand.self, BackupCommand.self, CheckCommand.self,
      RestoreCommand.self, RepairClockCommand.self,
    ]
  )
}
