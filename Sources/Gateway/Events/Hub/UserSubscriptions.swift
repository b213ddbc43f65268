/// The users of an ``EventHub``, their streams, and what the store knows of them. A user is kept while a stream is
/// theirs, while a request names them, or while the store may have a subscription to them.
struct UserSubscriptions {
  typealias Index = NamedTable<User>.Index

  struct User {
    let name: String
    /// The shard of the user's index.
    let home: Int
    /// The slots of the user's streams.
    fileprivate(set) var streams: [UInt32] = []
    /// Whether the store has confirmed the subscription.
    fileprivate(set) var isLive = false
    fileprivate var isSubscribing = false
    /// Whether the store may have a subscription to them, also after a refusal or a late reply.
    fileprivate var mayBeSubscribed = false
    /// Unsubscribe requests in flight.
    fileprivate var unsubscribesInFlight = 0
    /// Whether the user is queued to be checked for remaining streams.
    fileprivate var isIdle = false

    fileprivate var isUnused: Bool { streams.isEmpty && !isSubscribing && unsubscribesInFlight == 0 }
  }

  /// Users whose last stream has gone.
  struct Unused {
    /// Users to unsubscribe from.
    var subscribed: [(index: Index, name: String)] = []
    /// The home of each user that is no longer live.
    var endedShards: [Int] = []
  }

  private var users = NamedTable<User>()
  private var idle: [Index] = []

  var count: Int { users.count }

  /// The indexes in use, in order.
  var indexes: [Index] { users.indexes }

  func index(of name: String) -> Index? { users.index(of: name) }

  /// A user; nil: the table does not have them.
  subscript(index: Index) -> User? { _read { yield users[index] } }

  mutating func insert(_ name: String, home: Int) -> Index {
    users.insert(User(name: name, home: home), named: name)
  }

  // MARK: Streams

  mutating func add(_ ref: EventHub.Ref, to index: Index) { users[index]?.streams.append(ref.slot) }

  /// Remove a stream. A user without streams is unsubscribed at the next tick.
  mutating func remove(_ ref: EventHub.Ref, from index: Index) {
    users[index]?.streams.removeAll { $0 == ref.slot }
    markIdle(index)
  }

  /// Queue a user without streams for ``takeUnused()``.
  private mutating func markIdle(_ index: Index) {
    guard let user = users[index], user.streams.isEmpty, !user.isIdle else { return }
    users[index]?.isIdle = true
    idle.append(index)
  }

  // MARK: Requests

  /// Begin to subscribe. False: a request is in flight.
  mutating func beginSubscribing(_ index: Index) -> Bool {
    guard users[index]?.isSubscribing == false else { return false }
    users[index]?.isSubscribing = true
    return true
  }

  /// Record that the store has confirmed the subscription.
  ///
  /// - Returns: whether the user was live before; nil: there was no request.
  mutating func confirm(_ index: Index) -> Bool? {
    guard let user = users[index], user.isSubscribing else { return nil }
    users[index]?.isSubscribing = false
    users[index]?.mayBeSubscribed = true
    users[index]?.isLive = true
    markIdle(index)
    return user.isLive
  }

  /// Record a failed request, which may have been carried out. False: the user is not known.
  mutating func subscribeFailed(_ index: Index) -> Bool {
    guard users[index] != nil else { return false }
    users[index]?.isSubscribing = false
    users[index]?.mayBeSubscribed = true
    markIdle(index)
    return true
  }

  /// Handle the reply to an unsubscribe request, and remove the user if nothing is left of them.
  ///
  /// - Parameter failed: whether the request failed: it is sent again at the next tick if the user has no streams.
  mutating func unsubscribed(_ index: Index, failed: Bool) {
    if failed { users[index]?.mayBeSubscribed = true }
    guard let user = users[index], user.unsubscribesInFlight > 0 else { return }
    users[index]?.unsubscribesInFlight -= 1
    if users[index]?.isUnused == true, !user.isIdle, !user.mayBeSubscribed {
      users.remove(index, named: user.name)
    } else {
      markIdle(index)
    }
  }

  /// Remove the unused users among those marked idle, and begin to unsubscribe those that the store may have
  /// subscriptions to.
  mutating func takeUnused() -> Unused {
    var unused = Unused()
    for index in idle {
      users[index]?.isIdle = false
      guard let user = users[index], user.isUnused else { continue }
      if user.isLive { unused.endedShards.append(user.home) }
      users[index]?.isLive = false
      if user.mayBeSubscribed {
        users[index]?.mayBeSubscribed = false
        users[index]?.unsubscribesInFlight += 1
        unused.subscribed.append((index, user.name))
      } else {
        users.remove(index, named: user.name)
      }
    }
    idle = []
    return unused
  }

  /// Record a new connection to the store, which has no subscriptions.
  ///
  /// - Parameter shards: the shards that the connection serves; nil: all.
  /// - Returns: the users who were live.
  mutating func connected(_ shards: Set<Int>?) -> [Index] {
    var ended: [Index] = []
    for index in users.indexes {
      if let shards, let user = users[index], !shards.contains(user.home) { continue }
      users[index]?.mayBeSubscribed = false
      guard users[index]?.isLive == true else { continue }
      users[index]?.isLive = false
      ended.append(index)
    }
    return ended
  }

  /// The first broken invariant; nil: there is none.
  func brokenInvariant(_ streams: HubStreamTable) -> String? {
    let marked = users.indexes.filter { users[$0]?.isIdle == true }
    if Set(idle) != Set(marked) || idle.count != marked.count { return "idle users" }
    var streamCount = 0
    for index in users.indexes {
      guard let user = users[index] else { continue }
      streamCount += user.streams.count
      if user.isUnused, !user.isIdle { return "unused user" }
      if user.streams.contains(where: { streams[streams.ref(slot: $0)]?.user != index }) { return "streams of a user" }
    }
    if streamCount != streams.refs.count(where: { streams[$0]?.user != nil }) { return "users of streams" }
    return nil
  }
}
