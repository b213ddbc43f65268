package import NIOCore

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
package struct HTTPURL: Hashable, Sendable, CustomStringConvertible {
  /// The text as it was given.
  package let description: String
  /// With the scheme's port by default.
  package let endpoint: Endpoint
  /// Path and query; "/" without a path.
  package let path: String
  package let usesTLS: Bool

  /// Nil for an invalid URL.
  package init?(_ text: String) {
    description = text
    let lower = text.lowercased()
    guard let scheme = ["http://", "https://"].first(where: { lower.hasPrefix($0) }) else { return nil }
    usesTLS = scheme == "https://"
    let rest = text.dropFirst(scheme.count)
    let authority = rest.prefix { $0 != "/" && $0 != "?" && $0 != "#" }
    let tail = rest.dropFirst(authority.count).prefix { $0 != "#" }
    guard tail.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) else { return nil }
    guard let endpoint = Endpoint(authority) ?? Endpoint("\(authority):\(usesTLS ? 443 : 80)") else { return nil }
    self.endpoint = endpoint
    path = tail.hasPrefix("/") ? String(tail) : "/" + tail
  }
}

/// IP address of a peer, 128 bits; IPv4 as its mapped IPv6 address (RFC 4291 section 2.5.5.2).
package struct PeerAddress: Hashable, Sendable {
  package var high: UInt64
  package var low: UInt64

  private static let mappedPrefix: UInt64 = 0xFFFF << 32

  package init(high: UInt64, low: UInt64) {
    self.high = high
    self.low = low
  }

  /// Convert a socket address; nil for a Unix socket.
  package init?(_ address: SocketAddress) {
    // The address offsets in sockaddr_in (4 bytes) and sockaddr_in6 (16), in network order.
    let bytes = address.withSockAddr { pointer, count in
      Array(UnsafeRawBufferPointer(start: UnsafeRawPointer(pointer), count: count))
    }
    func number(_ range: Range<Int>) -> UInt64 { bytes[range].reduce(0) { $0 << 8 | UInt64($1) } }
    switch address {
    case .v4: self.init(high: 0, low: Self.mappedPrefix | number(4..<8))
    case .v6: self.init(high: number(8..<16), low: number(16..<24))
    case .unixDomainSocket: return nil
    }
  }

  /// Parse an address with or without a port: `192.0.2.7`, `192.0.2.7:5000`, `2001:db8::1`, `[2001:db8::1]:5000`. Nil
  /// for invalid or overlong text.
  package init?(text: RawSpan) {
    guard !text.isEmpty, text.byteCount <= Self.textBytesMax else { return nil }
    var host = text.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }[...]
    if host.first == "[" {
      guard let end = host.firstIndex(of: "]") else { return nil }
      host = host[host.index(after: host.startIndex)..<end]
    } else if host.count(where: { $0 == ":" }) == 1 {
      host = host.prefix { $0 != ":" }
    }
    guard let address = try? SocketAddress(ipAddress: String(host), port: 0) else { return nil }
    self.init(address)
  }

  /// Length of `[`, an IPv6 address, `]:65535`.
  private static let textBytesMax = 53

  package var isIPv4: Bool { high == 0 && low >> 32 == 0xFFFF }

  /// Whether the address is in `127.0.0.0/8`, or `::1`.
  package var isLoopback: Bool { isIPv4 ? low >> 24 & 0xFF == 127 : high == 0 && low == 1 }

  /// Address or network that identifies one peer: an IPv4 address, or the 64-bit network of an IPv6 address, in which a
  /// host may choose any number of addresses (RFC 4291 section 2.5.1). A NAT64 address (RFC 6052 section 2.1) becomes
  /// its IPv4 address.
  package var network: PeerAddress {
    if isIPv4 { return self }
    if high == 0x0064_FF9B_0000_0000, low >> 32 == 0 {
      return PeerAddress(high: 0, low: Self.mappedPrefix | low)
    }
    return PeerAddress(high: high, low: 0)
  }
}

extension PeerAddress: CustomStringConvertible {
  /// Format as in RFC 5952, but without shortening: `192.0.2.7`, `2001:db8:0:0:0:0:0:1`.
  package var description: String {
    if isIPv4 { return (0..<4).map { "\(low >> (24 - 8 * UInt64($0)) & 0xFF)" }.joined(separator: ".") }
    return [high, low].flatMap { half in
      (0..<4).map { String(half >> (48 - 16 * UInt64($0)) & 0xFFFF, radix: 16) }
    }.joined(separator: ":")
  }
}

/// Range of IP addresses in CIDR notation (RFC 4632 section 3.1): `10.0.0.0/8`, `2001:db8::/32`, or one address.
package struct AddressRange: Hashable, Sendable {
  private let first: PeerAddress
  private let maskHigh: UInt64
  private let maskLow: UInt64

  /// Parse a range, or return nil.
  package init?(_ text: String) {
    let parts = text.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
    guard
      let address = (try? SocketAddress(ipAddress: String(parts[0]), port: 0)).flatMap({ PeerAddress($0) })
    else { return nil }
    let width = address.isIPv4 ? 32 : 128
    var length = width
    if parts.count == 2 {
      guard let given = Int(parts[1]), (0...width).contains(given) else { return nil }
      length = given
    }
    // The prefix of an IPv4 address follows that of its mapped form.
    let bits = length + 128 - width
    maskHigh = Self.mask(min(bits, 64))
    maskLow = Self.mask(max(bits - 64, 0))
    first = PeerAddress(high: address.high & maskHigh, low: address.low & maskLow)
  }

  package func contains(_ address: PeerAddress) -> Bool {
    address.high & maskHigh == first.high && address.low & maskLow == first.low
  }

  private static func mask(_ bits: Int) -> UInt64 { bits == 0 ? 0 : ~0 << UInt64(64 - bits) }
}
