internal import Glibc
package import Operations
internal import Synchronization

/// Free ports of 127.0.0.1. Processes that search with this type never get the same port: each takes whole blocks of
/// ports for itself. Another program may still take a port that was free a moment ago; the listener then fails with its
/// own error.
package enum LoopbackPorts {
  /// Address that all local processes listen on.
  package static let host = "127.0.0.1"

  /// Find distinct free ports outside the range that the system uses for outgoing connections. A restarted process
  /// therefore finds its port free, however many connections were made meanwhile.
  ///
  /// - Parameter taken: ports for which a process is started later.
  package static func free(_ count: Int, except taken: Set<Int> = []) throws(StackError) -> [Endpoint] {
    var endpoints: [Endpoint] = []
    for _ in candidates where endpoints.count < count {
      let port = nextCandidate()
      if !taken.contains(port), isFree(port) { endpoints.append(Endpoint(host: host, port: port)) }
    }
    guard endpoints.count == count else { throw StackError("no free port on \(host) in \(candidates)") }
    return endpoints
  }

  /// Return whether a process could listen on the port now.
  package static func isFree(_ port: Int) -> Bool {
    // A child that started now would listen too, until it runs its program.
    ChildProcess.spawning.withLock { _ in
      guard let descriptor = bind(port: UInt16(port)) else { return false }
      close(descriptor)
      return true
    }
  }

  // MARK: Candidates

  /// Ports below the system's range for outgoing connections (ip_local_port_range, ip(7)) and above those of well-known
  /// servers.
  private static let candidates: Range<Int> = {
    let lowest = 20_000
    let ephemeral = contents(of: "/proc/sys/net/ipv4/ip_local_port_range").split(
      whereSeparator: \.isWhitespace
    ).first.flatMap { Int($0) }
    return lowest..<max(ephemeral ?? 32_768, lowest + 1_000)
  }()

  /// Ports that this process took for itself and those among them that it handed out.
  private struct Blocks {
    /// Ports in a block. A test process hands out some hundreds, a `tidemark run` six.
    static let size = 64
    /// All ports of the blocks taken. The process holds a block until it exits.
    var ports: [Int] = []
    var handedOut = 0
    /// Blocks looked at, from a random start.
    var looked = 0
    let start = Int.random(in: 0..<1 << 20)

    /// Return a port that was not handed out before; once no further block is free, the one handed out first.
    mutating func next() -> Int {
      let count = candidates.count / Blocks.size
      while handedOut == ports.count, looked < count {
        let first = candidates.lowerBound + (start + looked) % count * Blocks.size
        looked += 1
        if LoopbackPorts.claim(block: first) { ports.append(contentsOf: first..<first + Blocks.size) }
      }
      defer { handedOut += 1 }
      return ports.isEmpty ? candidates.lowerBound + handedOut % candidates.count : ports[handedOut % ports.count]
    }
  }

  private static let blocks = Mutex(Blocks())

  private static func nextCandidate() -> Int { blocks.withLock { $0.next() } }

  /// Claim the block for the lifetime of this process. The claim is a bound abstract socket (unix(7)): the system
  /// allows one for each name, in the same network namespace as the ports, and frees it with the process.
  private static func claim(block first: Int) -> Bool {
    // Children must not inherit the claim: they may live longer.
    let descriptor = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    guard descriptor >= 0 else { return false }
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    let name = [0] + Array("tidemark-loopback-ports-\(first)".utf8)
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: name) }
    let length = socklen_t(MemoryLayout<sa_family_t>.size + name.count)
    let isBound = withUnsafePointer(to: &address) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { Glibc.bind(descriptor, $0, length) == 0 }
    }
    if !isBound { close(descriptor) }
    return isBound
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
        // Listen too: with SO_REUSEADDR alone, bind can succeed beside another socket that is not listening yet.
        Glibc.bind(descriptor, generic, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0 && listen(descriptor, 1) == 0
      }
    }
    guard isBound else {
      close(descriptor)
      return nil
    }
    return descriptor
  }
}
