import ArgumentParser
import CommandSupport
import Demo
import LocalStack
import Operations

/// Command `tidemark run`.
struct RunCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "run",
    abstract: "Starts a store and gateways with generated secrets and certificate, and says how to try them.",
    discussion: """
      Runs until interrupted. If a default port is taken, it uses a free one, with a message; a port from the command \
      line is never replaced. Port 0 is a free port, and --free-ports makes all ports free ones: several can run at \
      the same time, each with its own --directory.
      """
  )

  @Option(help: ArgumentHelp("Where secrets, certificate, data and logs are kept.", valueName: "dir"))
  var directory = ".tidemark"
  @Option(help: ArgumentHelp("The store. Default 127.0.0.1:7410.", valueName: "host:port"))
  var store: String?
  @Option(help: ArgumentHelp("The gateway with TLS. Default 127.0.0.1:8443.", valueName: "host:port"))
  var tls: String?
  @Option(help: ArgumentHelp("The gateway with h2c. Default 127.0.0.1:8080.", valueName: "host:port"))
  var h2c: String?
  @Option(
    help: ArgumentHelp("The store's operations listener. Default 127.0.0.1:7411.", valueName: "host:port")
  )
  var storeAdmin: String?
  @Option(help: ArgumentHelp("That of the gateway with TLS. Default 127.0.0.1:8444.", valueName: "host:port"))
  var tlsAdmin: String?
  @Option(help: ArgumentHelp("That of the gateway with h2c. Default 127.0.0.1:8081.", valueName: "host:port"))
  var h2cAdmin: String?
  @Flag(help: "Free ports of this machine for everything that is not given.")
  var freePorts = false
  @Option(help: ArgumentHelp("Senders of push webhooks, YAML or JSON, for both gateways.", valueName: "file"))
  var hooksFile: String?
  @Option(
    parsing: .upToNextOption,
    help: ArgumentHelp("Allowed CORS origins.", valueName: "origin")
  )
  var corsOrigin: [String] = []
  @Option(help: ArgumentHelp("Of all processes.", valueName: "level"))
  var logLevel = "info"

  func run() async throws {
    try await reportingErrors("tidemark run") {
      var session = RunSession(directory: directory, logLevel: logLevel)
      session.ports.store = try endpoint("store", store)
      session.ports.storeAdmin = try endpoint("store-admin", storeAdmin)
      session.ports.tls = try endpoint("tls", tls)
      session.ports.tlsAdmin = try endpoint("tls-admin", tlsAdmin)
      session.ports.h2c = try endpoint("h2c", h2c)
      session.ports.h2cAdmin = try endpoint("h2c-admin", h2cAdmin)
      session.ports.usesDefaults = !freePorts
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
