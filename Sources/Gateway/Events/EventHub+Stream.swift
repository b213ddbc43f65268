internal import ReceiptModel
internal import ReceiptWire

/// A stream of the hub, and its phases.
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

  /// Phase of a stream.
  enum Phase: Equatable {
    /// Waiting to be opened. Becomes `subscribingUser`, or `subscribing` for a server's stream.
    case waiting
    /// Subscribing to its user. Becomes `listing`.
    case subscribingUser
    /// Listing its user's channels. Becomes `subscribing`.
    case listing
    /// Subscribing to its channels. Becomes `live`.
    case subscribing
    case live
  }

  /// Phase of relisting a live stream's channels, after membership changes may have been missed.
  enum Relisting: Equatable {
    case none
    /// Waiting for an opening slot. Becomes `subscribingUser`.
    case waiting
    /// Subscribing to its user. Becomes `listing`.
    case subscribingUser
    /// Becomes `none`.
    case listing
  }

  struct Stream {
    let request: Request
    /// Index of its user; nil: a server's stream.
    let user: UserIndex?
    var phase = Phase.waiting
    var start: EventCursor.Start
    var relisting = Relisting.none
    /// Whether the stream must be relisted once it is live.
    var isStale = false
    /// Whether 200 was answered.
    var hasBegun = false
    /// Pending replies; while there are any, the stream's events have no id.
    var pending = 0
    var attached: [ChannelIndex: Attachment] = [:]
    /// Empty unless the stream is opened or relisted.
    var listing = Listing()
    /// The channels that the request names; nil: all.
    var named: Set<ExactText>?
  }

  /// A stream's attachment to a channel.
  struct Attachment {
    /// The stream's index among the channel's streams.
    var index: UInt32
    /// The tick at which the attachment ends after the user's index has reported a leave; 0: no leave.
    var endsAt: UInt32 = 0
    /// When its user joined, according to the user's index or the channel.
    var joinedAt: Timestamp
  }

  /// The channels of a stream's user, as their index lists them while the stream is opened or relisted.
  struct Listing {
    private(set) var channels: [(cid: String, joinedAt: Timestamp)] = []
    /// Channels left and deleted since the time the stream resumes from.
    private(set) var left: [String] = []
    private(set) var deleted: [(cid: String, at: Timestamp)] = []
    /// Listed channels that the user joined after that time; they are replayed from the join on (R6).
    private(set) var joined: [ExactText: Timestamp] = [:]

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
