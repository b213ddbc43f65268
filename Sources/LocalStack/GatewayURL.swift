package import Operations

/// URL of a gateway: `https://HOST[:PORT]`, or `http://HOST[:PORT]` for h2c.
package struct GatewayURL: Hashable, Sendable {
  package var endpoint: Endpoint
  package var isTLS: Bool

  /// Parse a URL; nil if it is invalid or has a path other than `/`.
  package init?(_ text: String) {
    guard let url = HTTPURL(text), url.path == "/", url.endpoint.port > 0 else { return nil }
    endpoint = url.endpoint
    isTLS = url.usesTLS
  }
}
