package import LocalStack
package import Operations

/// Addresses of the processes of `tidemark run`.
package struct RunPorts: Sendable {
  /// Addresses given on the command line, port 0 for a free port. Nil: the default, or a free port if the default is
  /// taken.
  package var store: Endpoint?
  package var storeAdmin: Endpoint?
  package var tls: Endpoint?
  package var tlsAdmin: Endpoint?
  package var h2c: Endpoint?
  package var h2cAdmin: Endpoint?
  /// False: addresses that were not given use free ports.
  package var usesDefaults = true

  package init() {}

  /// Number of addresses.
  package static let count = 6

  /// The complete set of addresses.
  package struct Chosen: Hashable, Sendable {
    package var store: Endpoint
    package var storeAdmin: Endpoint
    package var tls: Endpoint
    package var tlsAdmin: Endpoint
    package var h2c: Endpoint
    package var h2cAdmin: Endpoint
  }

  /// Choose the addresses that were not given, without using a port twice.
  ///
  /// - Parameters:
  ///   - spare: as many free ports as there are listeners.
  ///   - isFree: whether a process could listen on a port of 127.0.0.1 now.
  ///   - note: called for each default port that is taken.
  /// - Throws: if two addresses were given the same port.
  package func choose(
    spare: [Endpoint],
    isFree: (Int) -> Bool,
    note: (String) -> Void
  ) throws(StackError) -> Chosen {
    let listeners: [(flag: String, given: Endpoint?, port: Int, what: String)] = [
      ("store", store, 7410, "the store"),
      ("store-admin", storeAdmin, 7411, "the store's operations listener"),
      ("tls", tls, 8443, "HTTP/2 over TLS"),
      ("tls-admin", tlsAdmin, 8444, "its operations listener"),
      ("h2c", h2c, 8080, "h2c"),
      ("h2c-admin", h2cAdmin, 8081, "its operations listener"),
    ]
    // Given addresses come first: a default port gives way to them.
    var taken: [Int: String] = [:]
    for listener in listeners {
      guard let given = listener.given, given.port != 0 else { continue }
      if let other = taken.updateValue(listener.flag, forKey: given.port) {
        throw StackError("--\(other) and --\(listener.flag) have the same port \(given.port)")
      }
    }
    var spare = spare.filter { taken[$0.port] == nil }
    var chosen: [Endpoint] = []
    for listener in listeners {
      if let given = listener.given, given.port != 0 {
        chosen.append(given)
        continue
      }
      let host = listener.given?.host ?? LoopbackPorts.host
      if listener.given == nil, usesDefaults, taken[listener.port] == nil, isFree(listener.port) {
        chosen.append(Endpoint(host: host, port: listener.port))
        continue
      }
      guard let other = spare.popLast() else { throw StackError("no free port for --\(listener.flag)") }
      if listener.given == nil && usesDefaults {
        note("port \(listener.port) is taken: \(listener.what) is on \(other.port)")
      }
      chosen.append(Endpoint(host: host, port: other.port))
    }
    return Chosen(
      store: chosen[0],
      storeAdmin: chosen[1],
      tls: chosen[2],
      tlsAdmin: chosen[3],
      h2c: chosen[4],
      h2cAdmin: chosen[5]
    )
  }
}
