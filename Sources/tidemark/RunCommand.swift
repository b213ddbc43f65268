import ArgumentParser
import Demo
import LocalStack
import Operations

/// tidemark run
struct RunCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "run",
    abstract: "Starts a store and gateways with generated secrets and certificate, and says how to try them.",
    discussion: """
      Stays up until interrupted. A default port that is taken gives way to a free one, with a message; one that was \
      given on the command line does not. Port 0 is a free one, and --free-ports has all of them be so: several can run \
      side by side, each with its own --directory.
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
    help: ArgumentHelp("Origins whose pages may call.", valueName: "origin")
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
      let executables = try Executables.besideThisOne()
      let configured = session
      do {
        try await withInterrupts { try await configured.run(executables: executables) }
      } catch is Interrupted {
        // The way to end it.
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
