import ArgumentParser
import CommandOutput
import CommandSupport
import Demo
import LocalStack
import Operations

/// Command `tidemark run`.
struct RunCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "run",
    abstract: "Starts a store and gateways, and prints the address of a page that shows them, and commands to try.",
    discussion: """
      Runs until interrupted. If a default port is in use, the command takes a free port and prints a message. It \
      never replaces a port given on the command line. Port 0 means a free port, and --free-ports uses free ports for \
      all listeners, so several instances can run at the same time, each with its own --directory.
      """
  )

  @Option(help: ArgumentHelp("Directory of secrets, certificate, data and logs.", valueName: "dir"))
  var directory = ".tidemark"
  @Option(help: ArgumentHelp("Address of the store. Default 127.0.0.1:7410.", valueName: "host:port"))
  var store: String?
  @Option(help: ArgumentHelp("Address of the gateway with TLS. Default 127.0.0.1:8443.", valueName: "host:port"))
  var tls: String?
  @Option(help: ArgumentHelp("Address of the gateway with h2c. Default 127.0.0.1:8080.", valueName: "host:port"))
  var h2c: String?
  @Option(help: ArgumentHelp("The store's operations listener. Default 127.0.0.1:7411.", valueName: "host:port"))
  var storeAdmin: String?
  @Option(help: ArgumentHelp("Operations listener of the TLS gateway. Default 127.0.0.1:8444.", valueName: "host:port"))
  var tlsAdmin: String?
  @Option(help: ArgumentHelp("Operations listener of the h2c gateway. Default 127.0.0.1:8081.", valueName: "host:port"))
  var h2cAdmin: String?
  @Option(
    help: ArgumentHelp(
      "Nodes of a cluster over three servers of etcd, 2 to 7, instead of a single store (preview; needs etcd).",
      valueName: "n"
    )
  )
  var nodes: Int?
  @Flag(help: "Use free ports for all addresses that are not given.")
  var freePorts = false
  @Option(help: ArgumentHelp("Senders of push webhooks, YAML or JSON, for both gateways.", valueName: "file"))
  var hooksFile: String?
  @Option(parsing: .upToNextOption, help: ArgumentHelp("Allowed CORS origins.", valueName: "origin"))
  var corsOrigin: [String] = []
  @Option(help: ArgumentHelp("Of all processes.", valueName: "level"))
  var logLevel = "info"

  func validate() throws {
    if let nodes { try validateRanges([("nodes", nodes, 2...7)]) }
  }

  func run() async throws {
    try await reportingErrors("tidemark run") {
      var session = RunSession(directory: directory, logLevel: logLevel)
      let addresses: [(RunListener, String?)] = [
        (.store, store), (.storeAdmin, storeAdmin), (.tls, tls), (.tlsAdmin, tlsAdmin), (.h2c, h2c),
        (.h2cAdmin, h2cAdmin),
      ]
      for (listener, text) in addresses { session.ports.given[listener] = try endpoint(listener.flag, text) }
      session.ports.usesDefaults = !freePorts
      session.nodeCount = nodes ?? 1
      if let hooksFile { session.gatewayFlags += ["--hooks-file", hooksFile] }
      if !corsOrigin.isEmpty { session.gatewayFlags += ["--cors-origin"] + corsOrigin }
      let executables = try Executables.besideCurrentExecutable()
      let configured = session
      do {
        try await withInterrupts { try await configured.run(executables: executables) }
      } catch is Interrupted {
        // The regular end.
      }
    }
  }

  private func endpoint(_ key: String, _ text: String?) throws -> Endpoint? {
    guard let text else { return nil }
    guard let endpoint = Endpoint(text) else {
      throw SettingsError(key, "\"\(text)\": give HOST:PORT, with port 0 for a free one")
    }
    return endpoint
  }
}

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

  @Flag(help: "Stay until interrupted, and print the address of the demo page for the browser.")
  var stay = false
  @Option(help: "Playback speed on a terminal: 2 is twice as fast, 0 makes no pauses.")
  var speed = 1.0
  @Option(
    help: ArgumentHelp(
      "Nodes of a cluster over one etcd server, 2 to 7, instead of a single store (needs etcd). Each is killed once.",
      valueName: "n"
    )
  )
  var nodes: Int?

  func validate() throws {
    if let nodes { try validateRanges([("nodes", nodes, 2...7)]) }
    guard speed >= 0 && speed <= 1000 else { throw ValidationError("--speed \(speed): give 0 to 1000") }
  }

  func run() async throws {
    try await reportingErrors("tidemark demo") {
      let executables = try Executables.besideCurrentExecutable()
      let pause = Terminal.outputIsTerminal && speed > 0 ? 0.7 / speed : 0
      let demo = Demo(usesColor: Terminal.usesColor, pause: pause, nodeCount: nodes ?? 1, stays: stay)
      do {
        let isRight = try await withInterrupts { try await demo.run(executables: executables) }
        if !isRight { throw ExitCode(1) }
      } catch is Interrupted where stay {
        // The regular end.
      }
    }
  }
}
