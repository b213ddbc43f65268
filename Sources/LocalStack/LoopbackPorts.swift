internal import Glibc
package import Operations
internal import Synchronization

/// Ports of 127.0.0.1. What is free now may be taken a moment later; a listener that then fails says so itself.
package enum LoopbackPorts {
  /// The address that everything here listens on.
  package static let host = "127.0.0.1"

  /// Ports that nobody listens on, all different, and none that the system gives connections for their own end: so a
  /// process that is ended and started again finds its port free, however many connections were made in between.
  package static func free(_ count: Int) throws(StackError) -> [Endpoint] {
    // All are held until the last is found: another process that looks meanwhile finds others.
    var descriptors: [Int32] = []
    defer { for descriptor in descriptors { close(descriptor) } }
    var endpoints: [Endpoint] = []
    for _ in candidates where endpoints.count < count {
      let port = nextCandidate()
      guard let descriptor = bind(port: UInt16(port)) else { continue }
      descriptors.append(descriptor)
      endpoints.append(Endpoint(host: host, port: port))
    }
    guard endpoints.count == count else { throw StackError("no free port on \(host) in \(candidates)") }
    return endpoints
  }

  /// Whether one could listen there now.
  package static func isFree(_ port: Int) -> Bool {
    guard let descriptor = bind(port: UInt16(port)) else { return false }
    close(descriptor)
    return true
  }

  // MARK: Candidates

  /// Below the ports for connections' own ends (ip_local_port_range, ip(7)), above those that well-known servers use.
  private static let candidates: Range<Int> = {
    let lowest = 20_000
    let ephemeral = contents(of: "/proc/sys/net/ipv4/ip_local_port_range").split(
      whereSeparator: \.isWhitespace
    ).first.flatMap { Int($0) }
    return lowest..<max(ephemeral ?? 32_768, lowest + 1_000)
  }()

  /// How many were handed out, from a place that differs between processes: a port comes again only after all others.
  private static let handedOut = Atomic(Int.random(in: 0..<1 << 20))

  private static func nextCandidate() -> Int {
    candidates.lowerBound + handedOut.add(1, ordering: .relaxed).oldValue % candidates.count
  }

  private static func contents(of path: String) -> String {
    let descriptor = open(path, O_RDONLY)
    guard descriptor >= 0 else { return "" }
    defer { close(descriptor) }
    return String(unsafeUninitializedCapacity: 64) { max(read(descriptor, $0.baseAddress, $0.count), 0) }
  }

  private static func bind(port: UInt16) -> Int32? {
    let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    guard descriptor >= 0 else { return nil }
    // As servers do: a port whose last connections are in TIME_WAIT counts as free.
    var yes: Int32 = 1
    setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout<Int32>.size))
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    address.sin_addr = in_addr(s_addr: UInt32(0x7F00_0001).bigEndian)
    let isBound = withUnsafePointer(to: &address) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { generic in
        // Listening too: with SO_REUSEADDR alone a bind can succeed beside another socket that is not listening yet.
        Glibc.bind(descriptor, generic, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0
          && listen(descriptor, 1) == 0
      }
    }
    guard isBound else {
      close(descriptor)
      return nil
    }
    return descriptor
  }
}
