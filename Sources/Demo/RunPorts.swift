package import LocalStack
package import Operations

/// Where the processes of `tidemark run` listen.
package struct RunPorts: Sendable {
  /// Chosen by the person, port 0 for a free one; nil for the default, or another port where that is taken.
  package var store: Endpoint?
  package var storeAdmin: Endpoint?
  package var tls: Endpoint?
  package var tlsAdmin: Endpoint?
  package var h2c: Endpoint?
  package var h2cAdmin: Endpoint?
  /// False: what the person has not chosen is on free ports.
  package var usesDefaults = true

  package init() {}

  /// How many there are.
  package static let count = 6

  /// All of them.
  package struct Chosen: Hashable, Sendable {
    package var store: Endpoint
    package var storeAdmin: Endpoint
    package var tls: Endpoint
    package var tlsAdmin: Endpoint
    package var h2c: Endpoint
    package var h2cAdmin: Endpoint
  }

  /// Chooses those that the person has not chosen, no port twice.
  ///
  /// - Parameters:
  ///   - spare: as many free ports as there are listeners.
  ///   - isFree: whether one could listen on a port of 127.0.0.1 now.
  ///   - note: told of each default that gives way.
  /// - Throws: that two were given the same port.
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
    // What was given comes first: a default gives way to it.
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
