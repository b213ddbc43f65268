package import GatewayClient
package import Operations
package import TLSSession

/// The gateway that a command calls: the settings `gateway` and `gateway-ca`.
package struct GatewayAddress: Sendable {
  /// The gateway's URL.
  package let url: GatewayURL
  /// Nil: the gateway has no TLS.
  package let tls: TLSContext?

  /// Check the settings, and read the CA's file.
  ///
  /// - Parameter authorityFile: CA of the gateway's certificate, PEM; nil: the system's.
  package init(_ text: String, authorityFile: String?) throws(SettingsError) {
    guard let url = GatewayURL(text) else {
      throw SettingsError("gateway", "\"\(text)\": give https://HOST[:PORT], or http://HOST[:PORT] of one with --h2c")
    }
    self.url = url
    guard url.isTLS else {
      guard authorityFile == nil else {
        throw SettingsError("gateway-ca", "is for https://; remove it, or change --gateway")
      }
      tls = nil
      return
    }
    do {
      tls = try TLSContext(client: TLSClientConfiguration(authorityFile: authorityFile))
    } catch {
      throw SettingsError("gateway-ca", "\(authorityFile ?? ""): \(error); give a PEM file of certificates")
    }
  }
}
