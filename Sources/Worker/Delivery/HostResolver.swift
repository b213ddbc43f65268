internal import Glibc
package import NIOCore
internal import NIOPosix

/// Resolver of host names, by the system's resolver.
package enum HostResolver {
  /// A lookup: host and port to addresses, in the order of preference.
  package typealias Lookup = @Sendable (_ host: String, _ port: Int) async throws -> [SocketAddress]

  /// A host without addresses.
  private struct Unresolved: Error, CustomStringConvertible {
    var host: String
    var description: String { "cannot resolve \"\(host)\"" }
  }

  /// Resolve a host off the cooperative pool, because the system's resolver blocks.
  package static let system: Lookup = { host, port in
    try await NIOThreadPool.singleton.runIfActive { try addresses(of: host, port: port) }
  }

  private static func addresses(of host: String, port: Int) throws -> [SocketAddress] {
    var hints = addrinfo()
    hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
    hints.ai_protocol = Int32(IPPROTO_TCP)
    var first: UnsafeMutablePointer<addrinfo>?
    guard getaddrinfo(host, "\(port)", &hints, &first) == 0, let first else {
      throw Unresolved(host: host)
    }
    defer { freeaddrinfo(first) }
    var found: [SocketAddress] = []
    for entry in sequence(first: first, next: { $0.pointee.ai_next }) {
      var text = [CChar](repeating: 0, count: Int(NI_MAXHOST))
      let (address, length) = (entry.pointee.ai_addr, entry.pointee.ai_addrlen)
      guard getnameinfo(address, length, &text, socklen_t(text.count), nil, 0, NI_NUMERICHOST) == 0 else { continue }
      let numeric = String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
      // A scope, as in fe80::1%eth0, is only given for link-local addresses, which the rules refuse by this prefix.
      let parsed = try SocketAddress(ipAddress: String(numeric.prefix { $0 != "%" }), port: port)
      if !found.contains(parsed) { found.append(parsed) }
    }
    return found
  }
}
