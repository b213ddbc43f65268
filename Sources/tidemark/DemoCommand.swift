import ArgumentParser
import CommandSupport
import Demo
import LocalStack

/// Command `tidemark demo`.
struct DemoCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "demo",
    abstract: "Plays a conversation through the real gateway and store and draws every message's ticks.",
    discussion: """
      Both run on free loopback ports with new data, over HTTP/2 and TLS. Exits with 0 if every result was correct. \
      Output on a terminal is coloured; NO_COLOR and FORCE_COLOR override this.
      """
  )

  @Option(help: "Playback speed on a terminal: 2 is twice as fast, 0 makes no pauses.")
  var speed = 1.0

  func validate() throws {
    guard speed >= 0 && speed <= 1000 else { throw ValidationError("--speed \(speed): give 0 to 1000") }
  }

  func run() async throws {
    try await reportingErrors("tidemark demo") {
      let executables = try Executables.besideCurrentExecutable()
      let pause = Terminal.outputIsTerminal && speed > 0 ? 0.7 / speed : 0
      let demo = Demo(usesColor: Terminal.usesColor, pause: pause)
      let isRight = try await withInterrupts { try await demo.run(executables: executables) }
      if !isRight { throw ExitCode(1) }
    }
  }
}
