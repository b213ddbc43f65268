import ArgumentParser
import CommandSupport
import Foundation
import HTTP2Session
import LocalStack
import Operations
import Watch

/// Command `tidemark console`.
struct ConsoleCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "console",
    abstract: "Prints a link to the console of a gateway, which logs in once within 60 s.",
    discussion: """
      The gateway has to run with --console. Gives it a server token, and gets a one-time code, which is in the link \
      after the #: browsers do not send that part. The session that it opens lasts 8 h, and ends with the gateway's \
      process or when the token is revoked. Name one gateway, not a load balancer: each has its own sessions.
        tidemark console --gateway https://localhost:8443 --insecure --jwt-secret-file .tidemark/jwt-secret
      """
  )

  /// Validity of the token that asks for the code.
  private static let tokenLifetime = Duration.seconds(60)

  @OptionGroup var gatewayOptions: GatewayOptions
  @Option(help: ArgumentHelp("A server token to send.", valueName: "jwt"))
  var token: String?
  @Option(
    help: ArgumentHelp("File whose first line is the gateway's secret, to create a token with.", valueName: "file")
  )
  var jwtSecretFile: String?

  /// The gateway's answer.
  private struct Issued: Decodable {
    var code: String
  }

  func validate() throws {
    guard (token == nil) != (jwtSecretFile == nil) else {
      throw ValidationError("give either --token or --jwt-secret-file")
    }
  }

  func run() async throws {
    try await reportingErrors("tidemark console") {
      let gateway = gatewayOptions.gateway
      let client: AsyncHTTP2Client
      do {
        client = try await AsyncHTTP2Client.connect(to: gateway.endpoint, tls: try gatewayOptions.makeTLS())
      } catch {
        throw StackError("\(gateway.endpoint): \(ErrorText.of(error))")
      }
      let response = try await client.call(.post, "/console/codes", token: try await serverToken())
      await client.close()
      let issued = try? JSONDecoder().decode(Issued.self, from: Data(response.body))
      guard response.status == 201, let issued else {
        if response.status == 404 {
          throw StackError("\(gateway.endpoint): has no console: start that gateway with --console")
        }
        let (code, detail) = ProblemDocument.parts(of: response.body)
        let words = ["\(response.status)", code, detail].filter { !$0.isEmpty }.joined(separator: " ")
        throw StackError("the gateway answered \(words)")
      }
      Terminal.print("\(gateway.isTLS ? "https" : "http")://\(gateway.endpoint)/console#\(issued.code)")
    }
  }

  private func serverToken() async throws -> String {
    if let token { return token }
    let issuer = try await TokenIssuer(secretFile: jwtSecretFile ?? "", warn: Terminal.printError)
    return try await issuer.server(lifetime: Self.tokenLifetime)
  }
}
