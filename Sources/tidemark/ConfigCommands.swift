import ArgumentParser
import CommandOutput
import Operations
import Worker

/// Command `tidemark config`.
struct ConfigCommands: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "config",
    abstract: "Checks files before they are used.",
    subcommands: [ConfigCheckCommand.self]
  )
}

/// Command `tidemark config check`.
struct ConfigCheckCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "check",
    abstract: "Checks tasks files of tidemark-worker, without starting anything.",
    discussion: """
      Reads each file, and the files of secrets, keys and certificates that it names: run it as the worker's user. \
      Prints one line for each fault, at most one of each webhook and of each push provider. Exits with 0 if all \
      files can be used, and with 1 otherwise. docs/api/worker.md describes the file.

      Nothing is sent. What needs the gateway is checked when the worker starts: retry_for, for example, must not be \
      longer than the feed is kept.
        tidemark config check /etc/tidemark/tasks.yaml
      """
  )

  @Argument(help: ArgumentHelp("Tasks files, YAML.", valueName: "file"))
  var files: [String]

  func run() async throws {
    func printError(_ text: String) { Terminal.printError("tidemark config check: \(text.printable)") }
    var isFaulty = false
    for file in files {
      switch TasksFile.check(file, warn: printError) {
      case .success(let tasks): Terminal.print("\(file.printable): ok, \(tasks.summary)")
      case .failure(let faults):
        isFaulty = true
        for fault in faults.all { printError(fault.problem) }
      }
    }
    if isFaulty { throw ExitCode(1) }
  }
}
