internal import NIOCore

/// Address to listen on or connect to: `HOST:PORT`, with an IPv6 host in brackets, such as `[::1]:8443`.
package struct Endpoint: Hashable, Sendable, CustomStringConvertible {
  /// A host name or address, without brackets.
  package var host: String
  /// 0 to 65535; when listening, 0 lets the system choose.
  package var port: Int

  package init(host: String, port: Int) {
    self.host = host
    self.port = port
  }

  /// Parse `HOST:PORT`, or return nil. The host must not be empty: `0.0.0.0` and `[::]` mean "every address".
  package init?(_ text: some StringProtocol) {
    guard let colon = text.lastIndex(of: ":") else { return nil }
    let hostPart = text[..<colon]
    let portPart = text[text.index(after: colon)...]
    guard (1...5).contains(portPart.utf8.count), portPart.utf8.allSatisfy({ (0x30...0x39).contains($0) }),
      let port = Int(portPart), port <= 65_535
    else { return nil }
    var host = hostPart[...]
    if host.first == "[" {
      guard host.last == "]", host.count > 2 else { return nil }
      host = host.dropFirst().dropLast()
      guard host.contains(":") else { return nil }
    } else {
      // Without brackets, the end of an IPv6 address would be ambiguous.
      guard !host.isEmpty, !host.contains(":"), !host.contains("]") else { return nil }
    }
    guard host.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F && $0 != UInt8(ascii: "/") }) else { return nil }
    self.init(host: String(host), port: port)
  }

  /// Whether the host is `localhost` or a loopback address. Other names are not resolved.
  package var isLoopback: Bool {
    if host == "localhost" { return true }
    return (try? SocketAddress(ipAddress: host, port: port)).flatMap { PeerAddress($0) }?.isLoopback ?? false
  }

  package var description: String {
    host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)"
  }
}

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
