internal import ReceiptModel
internal import ReceiptWire

/// The request for a stream, and the list of its user's channels.
extension EventHub {
  /// The parameters of a stream.
  struct Request {
    /// Nil: a server's stream of named channels.
    var user: String?
    /// Whether a server makes the request.
    var isServer: Bool
    /// When the user's token was issued; see ``Caller``.
    var issued: UInt32?
    /// Nil: all channels of the user.
    var channels: [String]?
    var start: EventCursor.Start

    init(
      user: String?,
      isServer: Bool = false,
      issued: UInt32? = nil,
      channels: [String]? = nil,
      start: EventCursor.Start = .live
    ) {
      self.user = user
      self.isServer = isServer
      self.issued = issued
      self.channels = channels
      self.start = start
    }
  }

  /// The channels of a stream's user, as their index lists them while the stream is opened or relisted.
  struct Listing {
    private(set) var channels: [(cid: String, joinedAt: Timestamp)] = []
    /// Channels left and deleted since the time the stream resumes from.
    private(set) var left: [String] = []
    private(set) var deleted: [(cid: String, at: Timestamp)] = []
    /// Listed channels that the user joined after that time; they are replayed from the join on (R6).
    private(set) var joined: [ExactText: Timestamp] = [:]

    init() {}

    /// The channels that a server's stream names.
    init(named cids: [String]) { channels = cids.map { ($0, .none) } }

    /// The channels by name. The latest join counts of one that was both listed and joined meanwhile.
    var latestJoins: [ExactText: Timestamp] {
      Dictionary(channels.map { (ExactText($0.cid), $0.joinedAt) }) { max($0, $1) }
    }

    mutating func append(_ cid: String, joinedAt: Timestamp) { channels.append((cid, joinedAt)) }

    mutating func remove(_ cid: String) { channels.removeAll { $0.cid.isExactly(cid) } }

    /// Record an entry for a stream that resumes from a time.
    ///
    /// - Parameter start: where the replay of its user's joins begins.
    mutating func record(_ entry: ChannelEntryFields, since start: Timestamp) {
      if entry.deletedAt != .none {
        deleted.append((entry.cid, entry.deletedAt))
      } else if !entry.isMember {
        left.append(entry.cid)
      }
      if entry.isMember, entry.joinedAt > start { joined[ExactText(entry.cid)] = entry.joinedAt }
    }
  }
}
