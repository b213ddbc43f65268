/// URL `http://HOST[:PORT][/PATH]`, or the same with https.
package struct HTTPURL: Hashable, Sendable {
  /// With the scheme's port by default.
  package let endpoint: Endpoint
  /// Path and query; "/" without a path.
  package let path: String
  package let usesTLS: Bool

  /// Nil for an invalid URL.
  package init?(_ text: String) {
    let lower = text.lowercased()
    guard let scheme = ["http://", "https://"].first(where: { lower.hasPrefix($0) }) else { return nil }
    usesTLS = scheme == "https://"
    let rest = text.dropFirst(scheme.count)
    let authority = rest.prefix { $0 != "/" && $0 != "?" && $0 != "#" }
    let tail = rest.dropFirst(authority.count).prefix { $0 != "#" }
    guard tail.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) else { return nil }
    guard let endpoint = Endpoint(authority) ?? Endpoint("\(authority):\(usesTLS ? 443 : 80)") else {
      return nil
    }
    self.endpoint = endpoint
    path = tail.hasPrefix("/") ? String(tail) : "/" + tail
  }
}
