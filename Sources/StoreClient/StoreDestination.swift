package import ReceiptModel

/// The shard that a store request goes to, with the fields that depend on it.
package struct StoreDestination: ~Escapable {
  /// Nil: the shard that owns `name`, a cid.
  let shard: ShardID?
  /// The request's first field; nil if the frame kind has none.
  let name: RawSpan?
  /// Parent message of a thread, not empty; nil: the channel itself.
  let thread: RawSpan?

  @inline(__always)
  @_lifetime(copy name, copy thread)
  private init(shard: ShardID?, name: RawSpan?, thread: RawSpan?) {
    self.shard = shard
    self.name = name
    self.thread = thread
  }

  /// Return the destination of the shard that owns a channel.
  ///
  /// - Parameter thread: parent message of the thread, for kinds that support threads; not empty; nil: the channel
  ///   itself.
  @inline(__always)
  @_lifetime(copy cid, copy thread)
  package static func channel(_ cid: RawSpan, thread: RawSpan? = nil) -> StoreDestination {
    StoreDestination(shard: nil, name: cid, thread: thread)
  }

  /// Return the destination of a given shard.
  ///
  /// - Parameter name: a channel type, a user or a token; nil if the frame kind has no name.
  @inline(__always)
  @_lifetime(copy name)
  package static func shard(_ id: ShardID, name: RawSpan?) -> StoreDestination {
    StoreDestination(shard: id, name: name, thread: nil)
  }
}
