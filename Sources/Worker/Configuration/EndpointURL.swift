internal import Foundation
package import NIOCore

/// URL of an HTTP endpoint that the worker calls, in parts.
///
/// The request is made to ``text``, which is put together from the checked parts. So the client cannot read another
/// host out of it than the one whose addresses were checked.
package struct EndpointURL: Hashable, Sendable {
  /// Whether the scheme is https.
  package let usesTLS: Bool
  /// Host name in lower case, or an IP address without brackets.
  package let host: String
  /// 1 to 65,535; the scheme's port by default.
  package let port: Int
  /// Path and query, from "/".
  package let path: String

  /// Nil for anything but `http(s)://HOST[:PORT][/PATH]` without user, fragment, spaces and non-ASCII characters.
  package init?(_ text: String) {
    guard text.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F && !Self.refusedBytes.contains($0) }) else { return nil }
    let lower = text.lowercased()
    guard let scheme = ["http://", "https://"].first(where: lower.hasPrefix) else { return nil }
    usesTLS = scheme == "https://"
    let rest = text.dropFirst(scheme.count)
    let authority = rest.prefix { $0 != "/" && $0 != "?" }
    let tail = rest.dropFirst(authority.count)
    path = tail.hasPrefix("/") ? String(tail) : "/" + tail
    var host = authority[...]
    var portText: Substring?
    if host.first == "[" {
      guard let end = host.firstIndex(of: "]") else { return nil }
      let after = host[host.index(after: end)...]
      guard after.isEmpty || after.first == ":" else { return nil }
      portText = after.isEmpty ? nil : after.dropFirst()
      host = host[host.index(after: host.startIndex)..<end]
      guard (try? SocketAddress(ipAddress: String(host), port: 0)) != nil, host.contains(":") else { return nil }
    } else {
      if let colon = host.firstIndex(of: ":") {
        portText = host[host.index(after: colon)...]
        host = host[..<colon]
      }
      guard !host.isEmpty, host.utf8.count <= 253, host.utf8.allSatisfy(Self.isHostByte) else { return nil }
    }
    self.host = host.lowercased()
    if let portText {
      guard portText.utf8.count <= 5, portText.utf8.allSatisfy({ (0x30...0x39).contains($0) }),
        let port = Int(portText), (1...65_535).contains(port)
      else { return nil }
      self.port = port
    } else {
      port = usesTLS ? 443 : 80
    }
    guard URL(string: self.text)?.host == self.host else { return nil }
  }

  /// The normalised URL.
  package var text: String {
    "\(usesTLS ? "https" : "http")://\(host.contains(":") ? "[\(host)]" : host):\(port)\(path)"
  }

  /// Scheme, host and port (RFC 6454 section 6.2), without the scheme's default port.
  package var origin: String {
    let authority = host.contains(":") ? "[\(host)]" : host
    let scheme = usesTLS ? "https" : "http"
    return port == (usesTLS ? 443 : 80) ? "\(scheme)://\(authority)" : "\(scheme)://\(authority):\(port)"
  }

  /// The same origin with another path, which begins with "/".
  package func appending(path: String) -> EndpointURL? { EndpointURL("\(origin)\(path)") }

  /// The address, if the host is one.
  package var literalAddress: SocketAddress? { try? SocketAddress(ipAddress: host, port: port) }

  private static let refusedBytes: Set<UInt8> = [
    UInt8(ascii: "#"), UInt8(ascii: "@"), UInt8(ascii: "\\"), UInt8(ascii: "\""), UInt8(ascii: "<"),
    UInt8(ascii: ">"), UInt8(ascii: "^"), UInt8(ascii: "`"), UInt8(ascii: "{"), UInt8(ascii: "}"), UInt8(ascii: "|"),
  ]

  private static func isHostByte(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
      UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"):
      true
    default: false
    }
  }
}
