internal import NIOCore

/// A place to listen at or connect to: `HOST:PORT`, an IPv6 host in brackets, as in `[::1]:8443`.
package struct Endpoint: Hashable, Sendable, CustomStringConvertible {
  /// A host name or address, without brackets.
  package var host: String
  /// 0 to 65535; 0 lets the system choose when listening.
  package var port: Int

  package init(host: String, port: Int) {
    self.host = host
    self.port = port
  }

  /// Nil where the text is no `HOST:PORT`. The host may not be empty: `0.0.0.0` and `[::]` say "every
  /// address".
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
      // Without brackets it could not be said where an IPv6 address ends and the port begins.
      guard !host.isEmpty, !host.contains(":"), !host.contains("]") else { return nil }
    }
    guard host.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F && $0 != UInt8(ascii: "/") }) else { return nil }
    self.init(host: String(host), port: port)
  }

  /// Whether the host is `localhost` or a loopback address. Other names are not asked for.
  package var isLoopback: Bool {
    if host == "localhost" { return true }
    return (try? SocketAddress(ipAddress: host, port: port)).flatMap { PeerAddress($0) }?.isLoopback ?? false
  }

  package var description: String {
    host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)"
  }
}
