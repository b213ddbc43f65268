import ArgumentParser
import LocalStack
import TLSSession

/// Address of a gateway and verification of its certificate, for every command that is a gateway's client.
struct GatewayOptions: ParsableArguments {
  @Option(help: ArgumentHelp("URL of the gateway; http:// for h2c.", valueName: "url"))
  var gateway: String
  @Option(help: ArgumentHelp("Verify the gateway's certificate with this PEM file.", valueName: "file"))
  var ca: String?
  @Flag(help: "Do not verify the gateway's certificate.")
  var insecure = false

  func validate() throws {
    guard let url = GatewayURL(gateway) else {
      throw ValidationError("--gateway \"\(gateway)\": give https://HOST:PORT or http://HOST:PORT")
    }
    guard ca == nil || !insecure else { throw ValidationError("give either --ca or --insecure") }
    guard url.isTLS || ca == nil && !insecure else {
      throw ValidationError("--ca and --insecure are for https://")
    }
  }

  /// Return the gateway's URL, and the TLS context if it uses TLS.
  func resolve() throws -> (url: GatewayURL, tls: TLSContext?) {
    guard let url = GatewayURL(gateway) else {
      throw StackError("--gateway \"\(gateway)\": not a gateway URL")
    }
    guard url.isTLS else { return (url, nil) }
    var configuration = TLSClientConfiguration(authorityFile: ca)
    configuration.verifiesServer = !insecure
    return (url, try TLSContext(client: configuration))
  }
}
