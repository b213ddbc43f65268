import ArgumentParser
import LocalStack

/// tidemark token
struct TokenCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "token",
    abstract: "Prints a token (JWT, HS256) for a user or for a chat backend, and nothing else."
  )

  @Option(
    help: ArgumentHelp("File whose first line is the gateway's secret, at least 32 bytes.", valueName: "file")
  )
  var jwtSecretFile: String
  @Option(help: ArgumentHelp("A token for this user.", valueName: "id"))
  var user: String?
  @Flag(help: "A token for the chat backend, which may do everything.")
  var server = false
  @Option(help: ArgumentHelp("How long it is valid: 90s, 15m, 1h, 7d.", valueName: "time"))
  var ttl: Lifetime = Lifetime(seconds: 3600)

  func validate() throws {
    guard (user == nil) == server else { throw ValidationError("give either --user ID or --server") }
    if let user, !Self.isUser(user) {
      throw ValidationError("--user \"\(user)\": give 1 to 255 bytes of UTF-8 without control characters")
    }
  }

  func run() async throws {
    try await reportingErrors("tidemark token") {
      let mint = try await TokenMint(secretFile: jwtSecretFile, warn: Terminal.printError)
      let lifetime = Duration.seconds(ttl.seconds)
      let token: String
      if let user {
        token = try await mint.user(user, lifetime: lifetime)
      } else {
        token = try await mint.server(lifetime: lifetime)
      }
      Terminal.print(token)
    }
  }

  private static func isUser(_ id: String) -> Bool {
    (1...255).contains(id.utf8.count)
      && id.unicodeScalars.allSatisfy { $0.value >= 0x20 && !(0x7F...0x9F).contains($0.value) }
  }
}

/// A time span as `90s`, `15m`, `1h` or `7d`; a number alone is in seconds.
struct Lifetime: ExpressibleByArgument, CustomStringConvertible {
  let seconds: Int64

  init(seconds: Int64) { self.seconds = seconds }

  init?(argument: String) {
    let units: [Character: Int64] = ["s": 1, "m": 60, "h": 3600, "d": 86_400]
    let unit = argument.last.flatMap { units[$0] }
    // Ten years: more is a mistake.
    guard let number = Int64(unit == nil ? argument[...] : argument.dropLast()), number >= 1,
      case let (seconds, overflow) = number.multipliedReportingOverflow(by: unit ?? 1), !overflow,
      seconds <= 3650 * 86_400
    else { return nil }
    self.seconds = seconds
  }

  var description: String { seconds % 3600 == 0 ? "\(seconds / 3600)h" : "\(seconds)s" }
  var defaultValueDescription: String { description }
}
