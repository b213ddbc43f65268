internal import HTTP2Session
internal import Operations

/// The addresses of connections and requests.
extension GatewayLoop {
  /// Record a connection's client: its peer, the client a PROXY header names, or clients that a proxy names per
  /// request.
  ///
  /// - Parameter isNamed: whether a PROXY header names the client; the connection is then that client's alone.
  func recordClient(
    _ index: ConnectionIndex,
    client: PeerAddress?,
    isNamed: Bool,
    _ connection: HTTP2ServerConnection<GatewayLoop>
  ) {
    let isShared = !isNamed && client.map { gate?.isTrusted($0) ?? false } ?? false
    connections.recordClient(index, client: client, isShared: isShared)
    connection.isShared = isShared
  }

  /// Return the client address of a request; nil where unknown.
  func client(_ request: borrowing HTTP2Request, _ index: ConnectionIndex) -> PeerAddress? {
    guard connections[index].isShared else { return connections[index].client }
    return PeerAddress(lastOf: request.forwardedFor)
  }

  /// Return the address that refused tokens count against. Nil where it is unknown or loopback: loopback peers are most
  /// often proxies.
  func chargedAddress(_ request: borrowing HTTP2Request, _ index: ConnectionIndex) -> PeerAddress? {
    guard let address = client(request, index) else { return nil }
    return address.isLoopback && gate?.limits.countsLoopback != true ? nil : address
  }
}

extension PeerAddress {
  /// The last element of a comma-separated list such as `X-Forwarded-For`; nil where the list is empty. All invalid
  /// addresses count as one client.
  init?(lastOf list: RawSpan) {
    if list.isEmpty { return nil }
    var start = list.byteCount
    var end = list.byteCount
    func byte(_ at: Int) -> UInt8 { list.unsafeLoad(fromByteOffset: at, as: UInt8.self) }
    while start > 0, byte(start - 1) != UInt8(ascii: ",") { start -= 1 }
    while start < end, byte(start) == 0x20 || byte(start) == 0x09 { start += 1 }
    while end > start, byte(end - 1) == 0x20 || byte(end - 1) == 0x09 { end -= 1 }
    self = PeerAddress(text: list.extracting(start..<end)) ?? PeerAddress(high: 0, low: 0)
  }
}
