import ArgumentParser
import CommandSupport
import LocalStack
import Watch

/// Command `tidemark watch`.
struct WatchCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "watch",
    abstract: "Prints the events of a user's channels, one line each, until interrupted.",
    discussion: """
      Reads GET /v1/events of a gateway. Reconnects after a lost connection and resumes from the last event's id, \
      with a message on standard error. Times are UTC. docs/events.md explains the events.
        tidemark watch --gateway https://localhost:8443 --insecure --jwt-secret-file .tidemark/jwt-secret --user bob
      """
  )

  @OptionGroup var gatewayOptions: GatewayOptions
  @Option(help: ArgumentHelp("The token to send.", valueName: "jwt"))
  var token: String?
  @Option(
    help: ArgumentHelp(
      "File whose first line is the gateway's secret, to create a token with.",
      valueName: "file"
    )
  )
  var jwtSecretFile: String?
  @Option(help: ArgumentHelp("User whose events are printed.", valueName: "id"))
  var user: String?
  @Option(
    parsing: .upToNextOption,
    help: ArgumentHelp(
      "Only these channels; without --user, the events that every member sees.",
      valueName: "cids"
    )
  )
  var channels: [CommaList<String>] = []
  @Option(help: ArgumentHelp("Id of an event: changes since then are printed first.", valueName: "id"))
  var since: String?
  @Flag(help: "Print the user's unread totals too, when they change.")
  var totals = false
  @Flag(help: "Print each event as a line of JSON, as received.")
  var json = false
  @Option(help: "Exit after this number of events.")
  var count: Int?

  private var cids: [String] {
    channels.joined()
  }

  func validate() throws {
    guard (token == nil) != (jwtSecretFile == nil) else {
      throw ValidationError("give either --token or --jwt-secret-file")
    }
    guard user != nil || !cids.isEmpty else { throw ValidationError("give --user, or --channels, or both") }
    guard user != nil || !totals else { throw ValidationError("--totals needs --user") }
    if let count, count < 1 { throw ValidationError("--count: give 1 or more") }
  }

  func run() async throws {
    try await reportingErrors("tidemark watch") {
      let (url, tls) = try gatewayOptions.resolve()
      let tokenIssuer = try await makeTokenIssuer()
      let (user, given) = (user, token)
      var watch = EventWatch(
        gateway: url,
        tls: tls,
        request: WatchRequest(user: user, channels: cids, wantsTotals: totals)
      ) {
        guard let tokenIssuer else { return given ?? "" }
        // A stream ends when its token expires, so each connection gets a new token.
        guard let user else { return try await tokenIssuer.server(lifetime: .seconds(3600)) }
        return try await tokenIssuer.user(user, lifetime: .seconds(3600))
      }
      watch.countMax = count
      let configured = watch
      let (since, json) = (since ?? "", json)
      do {
        try await withInterrupts {
          try await configured.run(since: since) { event in
            Terminal.print(json ? EventLineFormatter.json(event) : EventLineFormatter.line(event))
          } note: { line in
            Terminal.printError("tidemark watch: \(line)")
          }
        }
      } catch is Interrupted {
        // The regular end.
      }
    }
  }

  private func makeTokenIssuer() async throws -> TokenIssuer? {
    guard let jwtSecretFile else { return nil }
    return try await TokenIssuer(secretFile: jwtSecretFile, warn: Terminal.printError)
  }
}
