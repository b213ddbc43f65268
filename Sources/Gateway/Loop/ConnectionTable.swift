internal import HTTP2Session
internal import Operations

/// The index of a connection in its loop's ``ConnectionTable``, which requests carry.
package struct ConnectionIndex: Hashable, Sendable, BitwiseCopyable {
  package let rawValue: UInt32

  package init(_ rawValue: UInt32) { self.rawValue = rawValue }
}

/// The HTTP/2 connections of one event loop.
///
/// Not a ``SlotTable``: each request reads and changes its connection's entry in place. An index may be
/// stale; the handle of its stream then finds nothing.
///
/// A class, so that its owner can share it and only its own operations change it.
final class ConnectionTable {
  /// The loop's state for one connection.
  private struct Entry {
    var connection: HTTP2ServerConnection<GatewayLoop>?
    /// Whether answers were written outside the connection's own read and are not flushed.
    var isDirty = false
    var credentials = ConnectionCredentials()
    var client: PeerAddress?
    var isShared = false
  }

  private var entries: [Entry] = []
  private var free: [ConnectionIndex] = []
  private var dirty: [ConnectionIndex] = []

  /// The entry of a connection, changed in place.
  private subscript(index: ConnectionIndex) -> Entry {
    @inline(__always) _read { yield entries[Int(index.rawValue)] }
    @inline(__always) _modify { yield &entries[Int(index.rawValue)] }
  }

  /// Open connections.
  var count: Int { entries.count - free.count }

  /// All open connections.
  var all: [HTTP2ServerConnection<GatewayLoop>] { entries.compactMap(\.connection) }

  /// Add a connection, and store its index in the connection (``HTTP2ServerConnection/tableIndex``).
  @discardableResult
  func insert(_ connection: HTTP2ServerConnection<GatewayLoop>) -> ConnectionIndex {
    let index: ConnectionIndex
    if let reused = free.popLast() {
      index = reused
      self[index] = Entry(connection: connection)
    } else {
      index = ConnectionIndex(UInt32(entries.count))
      entries.append(Entry(connection: connection))
    }
    connection.userData = UInt64(index.rawValue)
    return index
  }

  /// Remove a closed connection. Its index may be reused; a stream's handle tells the two apart.
  func remove(_ connection: HTTP2ServerConnection<GatewayLoop>) {
    let index = connection.tableIndex
    guard Int(index.rawValue) < entries.count, self[index].connection === connection else { return }
    self[index] = Entry()
    free.append(index)
  }

  func connection(_ index: ConnectionIndex) -> HTTP2ServerConnection<GatewayLoop>? { self[index].connection }

  /// Return the connection of a stream that is answered now, to be flushed in this turn; nil where the client has
  /// closed the stream or the connection.
  func answering(_ stream: HTTP2StreamHandle, on index: ConnectionIndex) -> HTTP2ServerConnection<GatewayLoop>? {
    guard let connection = connection(index), connection.isOpen(stream) else { return nil }
    markDirty(index)
    return connection
  }

  /// Return a connection's client: its peer, or the client that a PROXY header names. Nil where that is no IP address.
  func client(_ index: ConnectionIndex) -> PeerAddress? { self[index].client }

  /// Return whether the connection is a proxy's that many clients share: each request names its client itself.
  @inline(__always)
  func isShared(_ index: ConnectionIndex) -> Bool { self[index].isShared }

  /// Look up a connection's last credential, if it is this one.
  @inline(__always)
  func verdict(of identity: UInt32, on index: ConnectionIndex) -> Authenticator.Verdict {
    entries[Int(index.rawValue)].credentials.verdict(identity: identity)
  }

  /// The results of a connection's tokens, changed in place.
  subscript(credentialsOf index: ConnectionIndex) -> ConnectionCredentials {
    @inline(__always) _read { yield entries[Int(index.rawValue)].credentials }
    @inline(__always) _modify { yield &entries[Int(index.rawValue)].credentials }
  }

  /// Clear every connection's cached credential.
  func clearCredentials() {
    for index in entries.indices { entries[index].credentials.clear() }
  }

  /// Record where a connection comes from.
  func recordClient(_ index: ConnectionIndex, client: PeerAddress?, isShared: Bool) {
    self[index].client = client
    self[index].isShared = isShared
  }

  /// Mark a connection to be flushed at the end of the loop's turn.
  func markDirty(_ index: ConnectionIndex) {
    if self[index].isDirty { return }
    self[index].isDirty = true
    dirty.append(index)
  }

  /// Return the next connection to flush.
  func nextDirty() -> HTTP2ServerConnection<GatewayLoop>? {
    while let index = dirty.popLast() {
      guard self[index].isDirty else { continue }
      self[index].isDirty = false
      if let connection = self[index].connection { return connection }
    }
    return nil
  }
}

extension HTTP2ServerConnection<GatewayLoop> {
  /// The connection's index in its loop's ``ConnectionTable``.
  var tableIndex: ConnectionIndex { ConnectionIndex(UInt32(truncatingIfNeeded: userData)) }
}
