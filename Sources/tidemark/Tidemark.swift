import ArgumentParser
import LoadGenerator
import Operations
import Probe

/// Executable `tidemark`, for a person at a terminal. Each command is thin over a library; those of `bench` and `probe`
/// are in theirs.
@main
struct Tidemark: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "tidemark",
    abstract: "Tools for Tidemark: demo, events, load tests, frame tests, repairs, backups, clusters.",
    version: ProductVersion.line(of: "tidemark"),
    subcommands: [
      RunCommand.self, DemoCommand.self, TokenCommand.self, WatchCommand.self, FeedCommand.self, AckCommand.self,
      ConsoleCommand.self, ImportCommand.self, ExportCommand.self, ProbeCommand.self, BenchCommand.self,
      RebuildIndexCommand.self, BackupCommand.self, CheckCommand.self, RestoreCommand.self, RepairClockCommand.self,
      ConfigCommands.self, ClusterCommands.self,
    ]
  )
}
