import ArgumentParser
import CommandOutput
import CommandSupport
import Foundation
import GatewayClient
import HTTP2Session
import LocalStack
import Operations
import Watch

/// Command `tidemark console`.
struct ConsoleCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "console",
    abstract: "Prints a link that opens the console of a gateway.",
    discussion: """
      The link is valid once, for 60 s. Whoever opens it can read everything for 8 h, and change everything if the \
      gateway has --console-writes. The gateway has to run with --console and with TLS. Name one gateway, not a load \
      balancer: each has its own sessions. To end a session early, revoke the token whose id is printed.
        tidemark console --gateway https://localhost:8443 --ca .tidemark/tls-cert.pem \
      --jwt-secret-file .tidemark/jwt-secret
      """
  )

  /// Validity of the token that asks for the code.
  private static let tokenLifetime = Duration.seconds(60)

  @OptionGroup var gatewayOptions: GatewayOptions
  @OptionGroup var tokenOptions: TokenOptions

  /// The gateway's answer.
  private struct Issued: Decodable {
    var code: String
  }

  func validate() throws {
    guard gatewayOptions.gateway.isTLS else {
      throw ValidationError(
        "--gateway: browsers open the console over TLS only: give the https:// address of a gateway with --tls-cert"
      )
    }
  }

  func run() async throws {
    try await reportingErrors("tidemark console") {
      let gateway = gatewayOptions.gateway
      let tokenID = TokenIssuer.randomID()
      let client: AsyncHTTP2Client
      do {
        client = try await AsyncHTTP2Client.connect(to: gateway.endpoint, tls: try gatewayOptions.makeTLS())
      } catch {
        throw StackError("\(gateway.endpoint): \(ErrorText.of(error))")
      }
      let issuer = try await tokenOptions.makeIssuer()
      let token = try await issuer?.server(lifetime: Self.tokenLifetime, id: tokenID) ?? tokenOptions.token
      let response = try await client.call(.post, "/console/codes", token: token)
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
      if issuer != nil { Terminal.printError("the session ends early if the token \(tokenID) is revoked") }
      Terminal.print("https://\(gateway.endpoint)/console#\(issued.code)")
    }
  }
}
