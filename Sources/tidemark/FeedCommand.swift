import ArgumentParser
import CommandOutput
import CommandSupport
import FeedClient

/// Command `tidemark feed`.
struct FeedCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "feed",
    abstract: "Prints the records of the change feed, one line each, until interrupted.",
    discussion: """
      Reads GET /v1/feed of a gateway, for which it needs a server token. Without --consumer it makes a consumer of \
      its own, and deletes it at the end. With --consumer it continues where that consumer has committed, and commits \
      what it has printed: it takes over from other readers of that consumer. docs/api/feed.md explains the records.
        tidemark feed --gateway https://localhost:8443 --insecure --jwt-secret-file .tidemark/jwt-secret
      """
  )

  @OptionGroup var gatewayOptions: GatewayOptions
  @Option(help: ArgumentHelp("A server token to send; other users of this machine see it in ps.", valueName: "jwt"))
  var token: String?
  @Option(help: ArgumentHelp("File whose first line is a server token; it is read again.", valueName: "file"))
  var tokenFile: String?
  @Option(
    help: ArgumentHelp("File whose first line is the gateway's secret, to create tokens with.", valueName: "file")
  )
  var jwtSecretFile: String?
  @Option(help: ArgumentHelp("Read as this consumer, which is created if there is none.", valueName: "name"))
  var consumer: String?
  @Option(help: ArgumentHelp("Where a new consumer begins: now, earliest, or a time.", valueName: "start"))
  var from = "now"
  @Option(parsing: .upToNextOption, help: ArgumentHelp("Only these types of records.", valueName: "types"))
  var types: [CommaList<String>] = []
  @Option(parsing: .upToNextOption, help: ArgumentHelp("Only channels of these types.", valueName: "types"))
  var channelTypes: [CommaList<String>] = []
  @Flag(help: "Print each record as a line of JSON, as received but for its cursor.")
  var json = false
  @Option(help: "Exit after this number of records.")
  var count: Int?

  func validate() throws {
    guard [token, tokenFile, jwtSecretFile].compactMap({ $0 }).count == 1 else {
      throw ValidationError("give one of --token, --token-file and --jwt-secret-file")
    }
    if let count, count < 1 { throw ValidationError("--count: give 1 or more") }
  }

  func run() async throws {
    try await reportingErrors("tidemark feed") {
      let gateway = FeedGateway(
        url: gatewayOptions.gateway,
        tls: try gatewayOptions.makeTLS(),
        credential: try await credential()
      )
      let name = consumer ?? "tidemark-feed-\(String(UInt64.random(in: 0 ... .max), radix: 36))"
      try await gateway.createConsumer(name, from: from, types: types.joined(), channelTypes: channelTypes.joined())
      var follower = FeedFollower(gateway, consumer: name)
      follower.countMax = count
      let (configured, json, isOwn) = (follower, json, consumer == nil)
      try await withCleanup {
        do {
          try await withInterrupts {
            try await configured.run { line in
              Terminal.print(json ? FeedLineFormatter.json(line) : FeedLineFormatter.line(line))
            } note: { text in
              Terminal.printError("tidemark feed: \(text)")
            }
          }
        } catch is Interrupted {
          // The regular end.
        }
      } cleanUp: {
        if isOwn { try? await gateway.deleteConsumer(name) }
        await gateway.close()
      }
    }
  }

  private func credential() async throws -> ServerCredential {
    if let token { return .token(token) }
    if let tokenFile { return try ServerCredential.tokenFile(tokenFile, warn: Terminal.printError) }
    return try await ServerCredential.secretFile(jwtSecretFile ?? "", warn: Terminal.printError)
  }
}
