package import Operations

/// URL of a gateway: `https://HOST[:PORT]`, or `http://HOST[:PORT]` for h2c.
package struct GatewayURL: Hashable, Sendable {
  package var endpoint: Endpoint
  package var isTLS: Bool

  /// Parse a URL; nil if it is invalid or has a path other than `/`.
  package init?(_ text: String) {
    let rest: Substring
    if text.hasPrefix("https://") {
      (isTLS, rest) = (true, text.dropFirst(8))
    } else if text.hasPrefix("http://") {
      (isTLS, rest) = (false, text.dropFirst(7))
    } else {
      return nil
    }
    let place = rest.hasSuffix("/") ? rest.dropLast() : rest
    guard !place.isEmpty, !place.contains("/") else { return nil }
    let standard = isTLS ? 443 : 80
    guard let endpoint = Endpoint(place) ?? Endpoint("\(place):\(standard)"), endpoint.port > 0 else {
      return nil
    }
    self.endpoint = endpoint
  }
}
