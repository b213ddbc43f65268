import ArgumentParser
import CommandSupport
import LocalStack

/// Command `tidemark token`.
struct TokenCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "token",
    abstract: "Prints a token (JWT, HS256) for a user or for a chat backend, and nothing else."
  )

  @Option(
    help: ArgumentHelp("File whose first line is the gateway's secret, at least 32 bytes.", valueName: "file")
  )
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
