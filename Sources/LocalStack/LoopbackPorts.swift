internal import Glibc
package import Operations

/// Ports of 127.0.0.1. What is free now may be taken a moment later; a listener that then fails says so itself.
package enum LoopbackPorts {
  /// The address that everything here listens on.
  package static let host = "127.0.0.1"

  /// Ports that nobody listens on, all different, chosen by the system.
  package static func free(_ count: Int) throws(StackError) -> [Endpoint] {
    // All are held until the last is found: a port given back could be given again.
    var descriptors: [Int32] = []
    defer { for descriptor in descriptors { close(descriptor) } }
    var endpoints: [Endpoint] = []
    for _ in 0..<count {
      guard let bound = bind(port: 0) else { throw StackError("no free port on \(host)") }
      descriptors.append(bound.descriptor)
      endpoints.append(Endpoint(host: host, port: bound.port))
    }
    return endpoints
  }

  /// Whether one could listen there now.
  package static func isFree(_ port: Int) -> Bool {
    guard let bound = bind(port: UInt16(port)) else { return false }
    close(bound.descriptor)
    return true
  }

  private static func bind(port: UInt16) -> (descriptor: Int32, port: Int)? {
    let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    guard descriptor >= 0 else { return nil }
    // As servers do: a port whose last connections are in TIME_WAIT counts as free.
    var yes: Int32 = 1
    setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout<Int32>.size))
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    address.sin_addr = in_addr(s_addr: UInt32(0x7F00_0001).bigEndian)
    var size = socklen_t(MemoryLayout<sockaddr_in>.size)
    let isBound = withUnsafeMutablePointer(to: &address) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { generic in
        // Listening too: with SO_REUSEADDR alone a bind can succeed beside another socket that is not listening yet.
        Glibc.bind(descriptor, generic, size) == 0 && listen(descriptor, 1) == 0
          && getsockname(descriptor, generic, &size) == 0
      }
    }
    guard isBound else {
      close(descriptor)
      return nil
    }
    return (descriptor, Int(UInt16(bigEndian: address.sin_port)))
  }
}
