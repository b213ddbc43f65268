package import NIOCore
internal import Operations

/// Rules for addresses of endpoints: only public unicast addresses may be called, so that a webhook cannot reach into
/// the worker's own network (server-side request forgery). The ranges are those of IANA's special-purpose registries
/// (RFC 6890).
package enum AddressRules {
  private static let ranges: [(String, AddressRange)] = [
    ("unspecified", "0.0.0.0/8"), ("private", "10.0.0.0/8"), ("carrier-grade NAT", "100.64.0.0/10"),
    ("loopback", "127.0.0.0/8"), ("link-local", "169.254.0.0/16"), ("private", "172.16.0.0/12"),
    ("protocol assignment", "192.0.0.0/24"), ("documentation", "192.0.2.0/24"), ("6to4 relay", "192.88.99.0/24"),
    ("private", "192.168.0.0/16"), ("benchmarking", "198.18.0.0/15"), ("documentation", "198.51.100.0/24"),
    ("documentation", "203.0.113.0/24"), ("multicast", "224.0.0.0/4"), ("reserved", "240.0.0.0/4"),
    ("unspecified", "::/128"), ("loopback", "::1/128"), ("IPv4-compatible", "::/96"), ("NAT64", "64:ff9b::/96"),
    ("NAT64", "64:ff9b:1::/48"), ("discard", "100::/64"), ("Teredo or protocol assignment", "2001::/23"),
    ("documentation", "2001:db8::/32"), ("6to4", "2002::/16"), ("documentation", "3fff::/20"),
    ("segment routing", "5f00::/16"), ("private", "fc00::/7"), ("link-local", "fe80::/10"),
    ("site-local", "fec0::/10"), ("multicast", "ff00::/8"),
  ].compactMap { name, text in AddressRange(text).map { (name, $0) } }

  /// All public unicast addresses of IPv6 (RFC 4291 section 2.4).
  private static let global = AddressRange("2000::/3")

  /// Return the kind of an address that may not be called; nil for a public address.
  package static func refusal(of address: SocketAddress) -> String? {
    guard let peer = PeerAddress(address) else { return "Unix socket" }
    if case .v6 = address, peer.isIPv4 { return "IPv4-mapped" }
    if let match = ranges.first(where: { $0.1.contains(peer) }) { return match.0 }
    if case .v6 = address, global?.contains(peer) != true { return "reserved" }
    return nil
  }
}
