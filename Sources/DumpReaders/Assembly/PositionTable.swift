/// The furthest positions of the users of a channel and its threads.
struct PositionTable {
  /// A user in the channel, or in one of its threads.
  struct Owner: Hashable {
    var user: ExactID
    /// Key of the thread's first message; nil: the channel.
    var thread: ExactID?

    init(_ user: String, in thread: String? = nil) {
      self.user = ExactID(user)
      self.thread = thread.map(ExactID.init)
    }
  }

  /// A position in a history.
  struct Place: Hashable {
    var rank: Int
    var at: DumpTime?
    var isHidden: Bool

    /// Return whether this is the one of two that counts: the further one, then the one that others may see, then the
    /// earlier one.
    func isAhead(of other: Self) -> Bool {
      if rank != other.rank { return rank > other.rank }
      if isHidden != other.isHidden { return !isHidden }
      guard let at else { return false }
      return other.at.map { at < $0 } ?? true
    }
  }

  struct Places: Hashable {
    var read: Place?
    var delivered: Place?
  }

  /// In the order of the dump.
  private(set) var owners: [Owner] = []
  private var places: [Owner: Places] = [:]

  /// - Parameter events: times of what is no message, by its id.
  init(
    _ positions: [DumpPosition],
    in order: MessageOrder,
    events: [ExactID: DumpTime],
    _ leftOut: inout LeftOutCounts
  ) {
    for position in positions {
      let owner = Owner(position.user, in: position.thread)
      var known = places[owner] ?? Places()
      if places[owner] == nil { owners.append(owner) }
      if let place = Self.place(of: position, in: order, events: events, &leftOut) {
        switch position.kind {
        case .read: known.read = Self.ahead(known.read, place)
        case .delivered: known.delivered = Self.ahead(known.delivered, place)
        }
      }
      places[owner] = known
    }
  }

  subscript(owner: Owner) -> Places { places[owner] ?? Places() }

  private static func ahead(_ known: Place?, _ place: Place) -> Place {
    guard let known, !place.isAhead(of: known) else { return place }
    return known
  }

  /// Return where a position is: at the message that it names, else at the last message up to a time; nil: before the
  /// first one, or unknown.
  private static func place(
    of position: DumpPosition,
    in order: MessageOrder,
    events: [ExactID: DumpTime],
    _ leftOut: inout LeftOutCounts
  ) -> Place? {
    var end = position.isUpToTime ? position.at : nil
    if let key = position.message {
      if let index = order.index(of: key) {
        if let rank = order.rank(of: index, in: position.thread) {
          return Place(rank: rank, at: position.at, isHidden: position.isHidden)
        }
        // A message of another history: what is older than it has been read, too.
        end = order.messages[index].createdAt
      } else if let event = events[ExactID(key)] {
        end = event
      } else if end == nil {
        leftOut.add("positions at messages that are not in the dump")
      }
    }
    return end.flatMap { order.lastRank(upTo: $0, in: position.thread) }
      .map { Place(rank: $0, at: position.at, isHidden: position.isHidden) }
  }
}
