import ArgumentParser
import LocalStack
import TLSSession

/// Where a gateway is and how its certificate is verified: the same for every command that is a gateway's client.
struct GatewayOptions: ParsableArguments {
  @Option(help: ArgumentHelp("The gateway; http:// for one with h2c.", valueName: "url"))
  var gateway: String
  @Option(help: ArgumentHelp("Verify the gateway's certificate with this PEM file.", valueName: "file"))
  var ca: String?
  @Flag(help: "Do not verify the gateway's certificate.")
  var insecure = false

  func validate() throws {
    guard let url = GatewayURL(gateway) else {
      throw ValidationError("--gateway \"\(gateway)\": give https://HOST:PORT or http://HOST:PORT")
    }
    guard ca == nil || !insecure else { throw ValidationError("--ca and --insecure: one or the other") }
    guard url.isTLS || ca == nil && !insecure else {
      throw ValidationError("--ca and --insecure are for https://")
    }
  }

  /// The gateway, and the context for one with TLS.
  func place() throws -> (url: GatewayURL, tls: TLSContext?) {
    guard let url = GatewayURL(gateway) else {
      throw StackError("--gateway \"\(gateway)\": no gateway's URL")
    }
    guard url.isTLS else { return (url, nil) }
    var configuration = TLSClientConfiguration(authorityFile: ca)
    configuration.verifiesServer = !insecure
    return (url, try TLSContext(client: configuration))
  }
}
