import ArgumentParser

#if canImport(Probe)
  import Probe
#endif

/// tidemark: what a person at a terminal uses. Each command is a thin file over a library.
@main
struct Tidemark: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "tidemark",
    abstract: "Tidemark on this machine: try it, load it, look at its frames.",
    subcommands: commands
  )

  private static var commands: [any ParsableCommand.Type] {
    var commands: [any ParsableCommand.Type] = [RunCommand.self, DemoCommand.self, TokenCommand.self]
    #if canImport(Probe)
      commands.append(ProbeCommand.self)
    #endif
    return commands + [BenchCommand.self]
  }
}
