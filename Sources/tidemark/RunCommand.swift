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
      given on the command line does not.
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
      session.store = try endpoint("store", store)
      session.tls = try endpoint("tls", tls)
      session.h2c = try endpoint("h2c", h2c)
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
    guard let endpoint = Endpoint(text), endpoint.port > 0 else {
      throw SettingsError(key, "\"\(text)\": give HOST:PORT")
    }
    return endpoint
  }
}
