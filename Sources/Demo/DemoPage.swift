internal import Foundation
internal import GatewayClient
package import LocalStack
package import Operations

/// The demo page of a gateway on this machine (`--demo-file`): its tokens, and the address that gives them.
package struct DemoPage: Sendable {
  /// The people of the page.
  private static let people = ["alice", "bob", "carol"]
  /// Validity of the page's tokens.
  private static let lifetime = Duration.seconds(7 * 24 * 3600)

  private let code: String
  private let certificate: String
  private let file: String

  /// The content of the file.
  private struct Content: Encodable {
    var code: String
    var tokens: [String: String]
  }

  /// Make new tokens and a new code, and write the gateway's file. Only the owner may read it.
  package init(_ files: StackFiles) async throws {
    let issuer = try await TokenIssuer(secretFile: files.jwtSecret)
    var tokens = ["server": try await issuer.server(lifetime: Self.lifetime, id: TokenIssuer.randomID())]
    for person in Self.people { tokens[person] = try await issuer.user(person, lifetime: Self.lifetime) }
    code = StackFiles.makeSecret()
    certificate = files.certificate
    file = files.directory + "/demo.json"
    let content = try JSONEncoder().encode(Content(code: code, tokens: tokens))
    try files.write(String(decoding: content, as: UTF8.self) + "\n", to: file)
  }

  /// Flags of the gateway that serves the page.
  package var gatewayFlags: [String] { ["--demo-file", file] }

  /// Return the page's address. The code is in the fragment, which browsers do not send.
  package func address(at gateway: Endpoint) -> String { "https://\(gateway)/demo#\(code)" }

  /// Return what to print of the page: its address, and what to do about the browser's warning.
  package func lines(at gateway: Endpoint) -> String {
    """
      demo page        \(address(at: gateway))
                       The browser warns: this command made the certificate itself. Go on, or trust it first:
                       \(Self.trustCommand(certificate))
    """
  }

  /// Return the command with which the user's browser trusts a certificate.
  static func trustCommand(_ certificate: String) -> String {
    // Of Debian's libnss3-tools; Chromium reads this database.
    let database = "$HOME/.pki/nssdb"
    let file = RunSession.shellQuoted(certificate)
    return "mkdir -p \(database); certutil -d sql:\(database) -A -t P,, -n tidemark -i \(file)"
  }
}
