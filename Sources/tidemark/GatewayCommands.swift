import ArgumentParser
import CommandOutput
import CommandSupport
import GatewayClient
import TLSSession
import TicketPost
import Watch

/// Address of a gateway and verification of its certificate, for every command that is a gateway's client.
struct GatewayOptions: ParsableArguments {
  @Option(
    help: ArgumentHelp("URL of the gateway; http:// for h2c.", valueName: "url"),
    transform: parsing("https://HOST:PORT or http://HOST:PORT", GatewayURL.init)
  )
  var gateway: GatewayURL
  @OptionGroup var verification: VerificationOptions

  func validate() throws { try verification.check(gateway) }

  /// Return the TLS context; nil for a gateway without TLS.
  func makeTLS() throws -> TLSContext? { try verification.makeTLS(gateway) }
}

/// Verification of a gateway's certificate.
struct VerificationOptions: ParsableArguments {
  @Option(help: ArgumentHelp("Verify the gateway's certificate with this PEM file.", valueName: "file"))
  var ca: String?
  @Flag(help: "Do not verify the gateway's certificate.")
  var insecure = false

  var isEmpty: Bool { ca == nil && !insecure }

  /// - Throws: if the options contradict each other or the URL.
  func check(_ gateway: GatewayURL) throws {
    guard ca == nil || !insecure else { throw ValidationError("give either --ca or --insecure") }
    guard gateway.isTLS || isEmpty else {
      throw ValidationError("--ca and --insecure are for https://")
    }
  }

  /// Return the TLS context; nil for a gateway without TLS.
  func makeTLS(_ gateway: GatewayURL) throws -> TLSContext? {
    guard gateway.isTLS else { return nil }
    var configuration = TLSClientConfiguration(authorityFile: ca)
    configuration.verifiesServer = !insecure
    return try TLSContext(client: configuration)
  }
}

/// The token of a command that is a gateway's client: a given one, or one that it creates.
struct TokenOptions: ParsableArguments {
  @OptionGroup var source: TokenSource

  func validate() throws { try source.check() }

  var token: String? { source.token }

  /// Return what creates tokens; nil if one is given.
  func makeIssuer() async throws -> TokenIssuer? { try await source.makeIssuer() }
}

/// Where the token comes from.
struct TokenSource: ParsableArguments {
  @Option(help: ArgumentHelp("The token to send; other users of this machine see it in ps.", valueName: "jwt"))
  var token: String?
  @Option(
    help: ArgumentHelp("File whose first line is the gateway's secret, to create a token with.", valueName: "file")
  )
  var jwtSecretFile: String?

  var isEmpty: Bool { token == nil && jwtSecretFile == nil }

  /// - Throws: unless there is exactly one source.
  func check() throws {
    guard (token == nil) != (jwtSecretFile == nil) else {
      throw ValidationError("give either --token or --jwt-secret-file")
    }
  }

  /// Return what creates tokens; nil if one is given.
  func makeIssuer() async throws -> TokenIssuer? {
    guard let jwtSecretFile else { return nil }
    return try await TokenIssuer(secretFile: jwtSecretFile, warn: Terminal.printError)
  }
}

/// Command `tidemark token`.
struct TokenCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "token",
    abstract: "Prints a token (JWT, HS256) for a user or for a chat backend, and nothing else."
  )

  @Option(help: ArgumentHelp("File whose first line is the gateway's secret, at least 32 bytes.", valueName: "file"))
  var jwtSecretFile: String
  @Option(help: ArgumentHelp("User of the token.", valueName: "id"))
  var user: String?
  @Flag(help: "Print a server token, for the chat backend, which may call all routes.")
  var server = false
  @Option(help: ArgumentHelp("Lifetime of the token: 90s, 15m, 1h, 7d.", valueName: "time"))
  var ttl = TimeSpanArgument(seconds: 3600)
  @Option(
    help: ArgumentHelp(
      """
      The token's id (jti), which PUT /v1/tokens/{jti} revokes. Default: with --server a random UUID, with \
      --user none. To read a token's id: cut -d. -f2 | tr _- /+ | base64 -d 2>/dev/null
      """,
      valueName: "jti"
    )
  )
  var id: String?

  func validate() throws {
    try ttl.validate("--ttl", in: 1...TimeSpanArgument.daysMax)
    guard (user == nil) == server else { throw ValidationError("give either --user ID or --server") }
    if let user, !Self.isID(user) {
      throw ValidationError("--user \"\(user)\": give 1 to 255 bytes of UTF-8 without control characters")
    }
    if let id, !Self.isID(id) || id == "." || id == ".." {
      throw ValidationError(
        "--id \"\(id)\": give 1 to 255 bytes of UTF-8 without control characters, and not \".\" or \"..\""
      )
    }
  }

  func run() async throws {
    try await reportingErrors("tidemark token") {
      let tokenIssuer = try await TokenIssuer(secretFile: jwtSecretFile, warn: Terminal.printError)
      let lifetime = Duration.milliseconds(ttl.milliseconds)
      let token: String
      if let user {
        token = try await tokenIssuer.user(user, lifetime: lifetime, id: id)
      } else {
        token = try await tokenIssuer.server(lifetime: lifetime, id: id ?? TokenIssuer.randomID())
      }
      Terminal.print(token)
    }
  }

  private static func isID(_ id: String) -> Bool {
    (1...255).contains(id.utf8.count)
      && id.unicodeScalars.allSatisfy { $0.value >= 0x20 && !(0x7F...0x9F).contains($0.value) }
  }
}

/// Command `tidemark watch`.
struct WatchCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "watch",
    abstract: "Prints the events of a user's channels, one line each, until interrupted.",
    discussion: """
      Reads GET /v1/events of a gateway. Reconnects after a lost connection and resumes from the last event's id, \
      with a message on standard error. Times are UTC. docs/api/events.md explains the events.
        tidemark watch --gateway https://localhost:8443 --insecure --jwt-secret-file .tidemark/jwt-secret --user bob
      """
  )

  @OptionGroup var gatewayOptions: GatewayOptions
  @OptionGroup var tokenOptions: TokenOptions
  @Option(help: ArgumentHelp("User whose events are printed.", valueName: "id"))
  var user: String?
  @Option(
    parsing: .upToNextOption,
    help: ArgumentHelp("Only these channels; without --user, the events that every member sees.", valueName: "cids")
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
    guard user != nil || !cids.isEmpty else { throw ValidationError("give --user, or --channels, or both") }
    guard user != nil || !totals else { throw ValidationError("--totals needs --user") }
    if let count, count < 1 { throw ValidationError("--count: give 1 or more") }
  }

  func run() async throws {
    try await reportingErrors("tidemark watch") {
      let tls = try gatewayOptions.makeTLS()
      let tokenIssuer = try await tokenOptions.makeIssuer()
      let (user, given) = (user, tokenOptions.token)
      var watch = EventWatch(
        gateway: gatewayOptions.gateway,
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
}

/// Command `tidemark ack`.
struct AckCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "ack",
    abstract: "Posts tickets as a device does: each ticket marks its message delivered. No token is needed.",
    discussion: """
      Sends POST /v1/push/acks to a gateway. Tickets are arguments, or lines of standard input. Prints a line for each \
      ticket, in order: ok with channel, message and user, or the error. Exits with 0 if the gateway accepted all \
      tickets, and with 1 if it refused one or could not be reached. Tickets without a line can safely be posted again.
        tidemark ack --gateway https://localhost:8443 --insecure Agd…
      """
  )

  @OptionGroup var gatewayOptions: GatewayOptions
  @Flag(help: "Print each answer as a line of JSON.")
  var json = false
  @Argument(help: ArgumentHelp("Tickets that came with pushes; none: read standard input.", valueName: "ticket"))
  var tickets: [String] = []

  func run() async throws {
    try await reportingErrors("tidemark ack") {
      let post = try await TicketPost.connect(to: gatewayOptions.gateway, tls: try gatewayOptions.makeTLS())
      var refused = 0
      var batch = nextBatch(isFirst: true)
      while !batch.isEmpty {
        try await post.post(batch) { responses in
          for response in responses { Terminal.print(json ? response.json : response.line) }
          refused += responses.count { !$0.isDelivered }
        }
        batch = nextBatch(isFirst: false)
      }
      await post.close()
      if refused > 0 { throw ExitCode(1) }
    }
  }

  /// Return all tickets given as arguments, or as many input lines as fit in one request.
  private func nextBatch(isFirst: Bool) -> [String] {
    guard tickets.isEmpty else { return isFirst ? tickets : [] }
    var batch: [String] = []
    while batch.count < TicketPost.batchCountMax, let line = readLine() {
      if !line.isEmpty { batch.append(line) }
    }
    return batch
  }
}
