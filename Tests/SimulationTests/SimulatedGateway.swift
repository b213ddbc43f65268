import DequeModule
import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import TestSupport

/// A request issued by a gateway.
struct Request {
  var content: RequestContent
  var shard: Int
  /// 0 for queries.
  var counter: UInt64
  var correlation: UInt32
  /// Rises with every request that a loop receives.
  var arrival = 0

  func payload() -> ByteBuffer {
    var buffer = ByteBuffer()
    content.write(counter: counter, into: &buffer)
    return buffer
  }
}

/// One connection of a gateway, from its socket to the loops: frames and replies in flight.
final class Connection {
  /// An item that a connection passes to a loop, in order.
  enum Item {
    case open
    case request(Request, isResend: Bool)
    case close
  }

  /// The oracle's answer to a request.
  struct Expectation {
    /// One for each slice of the request.
    var replies: [Reply]
    var shard: Int
    var needs: Int
    var cid: String?
    /// Deletions of the channel before the first slice.
    var deletions = 0

    /// Whether a reply is right. Each status of a sliced query is that of one of its slices, no status of an earlier
    /// slice than the one before it; but a message that was deleted meanwhile has none. Deleting the channel ends the
    /// query.
    func admits(_ reply: Reply, isSliced: Bool, deletions: Int) -> Bool {
      if isSliced, deletions > self.deletions, reply == .refused(NaiveShard.Code.channelNotFound) { return true }
      guard replies.count > 1, case .statuses(let found) = reply, case .statuses(let last) = replies.last else {
        return reply == replies.last
      }
      let all = replies.compactMap { reply in
        if case .statuses(let statuses) = reply { statuses } else { nil }
      }
      guard found.count == last.count else { return false }
      var slice = 0
      for (place, status) in found.enumerated() {
        if last[place].code != 0, status == last[place] { continue }
        guard let next = all.indices.dropFirst(slice).first(where: { all[$0][place] == status }) else { return false }
        slice = next
      }
      return true
    }
  }

  let gateway: Int
  let session: SessionID
  let serial: UInt64
  var lanes: [ReplyLane] = []
  /// Sent by the gateway, not yet read by the store.
  var wire: Deque<(request: Request, isResend: Bool)> = []
  var inboxes: [Deque<Item>]
  /// Written by the store, not yet read by the gateway.
  var back: Deque<(correlation: UInt32, reply: Reply)> = []
  var expected: [UInt32: Expectation] = [:]
  /// Received by a loop and not answered.
  var requests: [UInt32: Request] = [:]
  /// Those of them that continue in another slice.
  var sliced: Set<UInt32> = []
  /// The gateway has dropped it.
  var isCut = false
  /// The store has closed it.
  var isEnded = false

  init(gateway: Int, session: SessionID, serial: UInt64, loops: Int) {
    self.gateway = gateway
    self.session = session
    self.serial = serial
    inboxes = Array(repeating: [.open], count: loops)
  }
}

/// A gateway: its session, its unanswered requests, and its connection.
struct SimulatedGateway {
  var session: SessionID
  var nextCounter: UInt64 = 1
  /// In order of issue.
  var outstanding: [Request] = []
  var connection: Connection?
}

/// Random requests that depend only on the seed.
struct SimulatedRequestGenerator {
  var random: SplitMix64
  let cids: [String]
  private var nextMessage: [String: Int] = [:]
  private var nextReply: [String: Int] = [:]
  private let users = Self.users
  /// Some users have ids like cids, some have ids in the style of other systems. Only the names separate indexes from
  /// channels.
  private static let users = [
    "u0", "team:c1", "u2", large, "@u4:example.org", "u5", "auth0|u6", "u/7", "Zoë", "team:none",
  ]
  /// Long ids, so that adding all is a wide request.
  static let crowd = (0..<60).map { "crowd\($0)-of-a-thousand-people" }
  static var everybody: [String] { users + crowd }
  static let types = ["team", "dm"]

  /// A large channel, whose rows and messages fill several pages.
  static let large = "team:large"
  static let crowded = "dm:crowded"

  init(seed: UInt64) {
    random = SplitMix64(seed: seed ^ 0xA5A5)
    cids = [Self.large, Self.large] + (0..<9).map { "\($0 % 3 == 0 ? "dm" : "team"):c\($0)" }
  }

  mutating func next() -> RequestContent {
    let cid = random.oneIn(150) ? "team:none" : random.pick(cids)
    if cid == Self.large, random.oneIn(2) { return register(cid) }
    if random.oneIn(6) { return inThread(cid) }
    if random.oneIn(25) { return removal(cid) }
    switch random.below(100) {
    case 0..<4: return .put(cid: cid, options(), members(2))
    case 4..<14: return change(cid)
    case 14..<34: return register(cid)
    case 34..<37: return .deleteMessage(cid: cid, id: message(cid))
    case 37..<40: return settings()
    case 40..<45:
      let ids = (0...random.below(4)).map { _ in message(cid) }
      return .acknowledge(cid: cid, user: user(), note: random.oneIn(2) ? "seen" : "", ids: ids)
    case 45..<57:
      return .read(cid: cid, user: user(), message: random.oneIn(4) ? "" : message(cid), epoch: epoch())
    case 57..<62: return push(cid)
    case 62..<68: return .delivered(cid: cid, user: user(), message: random.oneIn(4) ? "" : message(cid))
    case 68..<70: return member(cid)
    case 70..<80: return .unread(cid: cid, user: user(), message: message(cid), epoch: epoch())
    case 80..<82:
      let name = random.pick(Self.types)
      if random.oneIn(3) { return .assignType(name, version: UInt64(1 + random.below(50)), options()) }
      return .patchType(name, options())
    case 82..<86: return .getChannel(cid: cid)
    case 86..<91:
      let cursor = random.oneIn(3) ? UInt32(random.below(300)) : nil
      let viewer = random.oneIn(3) ? "" : user()
      let isServer = viewer.isEmpty || random.oneIn(2)
      return .readState(
        cid: cid,
        viewer: viewer,
        isServer: isServer,
        limit: 1 + random.below(20),
        cursor: cursor
      )
    case 91..<97:
      let ids = (0...random.below(6)).map { _ in random.oneIn(4) ? reply(cid) : message(cid) }
      return .statuses(cid: cid, ids: ids)
    case 97: return .getType(random.pick(Self.types))
    case 98: return .listTypes
    default: return random.oneIn(4) ? .malformed(cid: cid) : .getChannel(cid: cid)
    }
  }

  /// An acknowledgement, often late or in the future, or a request on a few webhooks or tokens.
  private mutating func push(_ cid: String) -> RequestContent {
    let time = 1_000_000_000 + Int64(random.below(random.oneIn(2) ? 20_000 : 20_000_000))
    if random.oneIn(4) {
      if random.oneIn(3) { return token(time) }
      let key = "relay/\(random.below(40))"
      return random.oneIn(2) ? .known(key: key) : .note(key: key, until: time)
    }
    return .push(
      cid: cid,
      user: user(),
      message: random.oneIn(4) ? reply(cid) : message(cid),
      acked: random.oneIn(3) ? 0 : random.oneIn(20) ? 1 : time
    )
  }

  private mutating func token(_ time: Int64) -> RequestContent {
    let token = "token/\(random.below(30))"
    switch random.below(6) {
    case 0: return .token(token)
    case 1:
      let known = UInt64(random.below(40))
      return .tokens(known: known, after: random.oneIn(4) ? UInt64(random.below(40)) : known)
    case 2: return .revoke(token: token, until: 0)
    default: return .revoke(token: token, until: time)
    }
  }

  /// Create and delete one channel repeatedly, with so many members that its deletion takes slices.
  private mutating func removal(_ cid: String) -> RequestContent {
    switch random.below(10) {
    case 0..<2: return .truncate(cid: cid, before: random.oneIn(12) ? "" : message(cid))
    case 2..<5:
      return .eraseMember(cid: random.oneIn(3) ? Self.crowded : cid, user: random.pick(Self.everybody))
    case 5: return .deleteChannel(cid: cid == Self.large ? Self.crowded : cid)
    case 6: return .deleteChannel(cid: Self.crowded)
    case 7: return random.oneIn(2) ? .getChannel(cid: Self.crowded) : register(Self.crowded)
    default:
      return .put(cid: Self.crowded, OptionChange(), Self.crowd.map { MemberSpec(user: $0) })
    }
  }

  /// Versions from another shard arrive in any order.
  private mutating func settings() -> RequestContent {
    let user = random.pick(users)
    switch random.below(4) {
    case 0: return .getUser(user)
    case 1:
      return .assignUser(
        SettingsView(
          user: user,
          version: UInt64(1 + random.below(40)),
          hidesRead: random.oneIn(2),
          hidesDelivered: random.oneIn(2),
          readShownSince: Int64(2_000_000_000_000 + random.below(1000)),
          deliveredShownSince: Int64(2_000_000_000_000 + random.below(1000))
        )
      )
    default:
      return .patchUser(
        user,
        showsRead: random.oneIn(3) ? nil : random.oneIn(2),
        showsDelivered: random.oneIn(3) ? nil : random.oneIn(2)
      )
    }
  }

  private mutating func change(_ cid: String) -> RequestContent {
    if cid == Self.large, random.oneIn(6) {
      return .change(
        cid: cid,
        add: (0..<40).map { _ in MemberSpec(user: "many\(random.below(700))") },
        remove: []
      )
    }
    let add = random.oneIn(2) ? members(2) : []
    // A wide request that removes hardly anybody.
    if random.oneIn(6) { return .change(cid: cid, add: add, remove: Self.crowd) }
    return .change(cid: cid, add: add, remove: random.oneIn(2) ? members(2).map(\.user) : [])
  }

  /// Flag a channel unread, or change the settings of one member in a channel.
  private mutating func member(_ cid: String) -> RequestContent {
    if random.oneIn(2) { return .unread(cid: cid, user: user(), message: "", epoch: epoch()) }
    return .member(
      cid: cid,
      user: random.oneIn(100) ? "no\u{7}body" : user(),
      role: random.oneIn(3) ? random.pick(["admin", "guest"]) : "",
      isMuted: random.oneIn(4) ? nil : random.oneIn(2),
      joins: random.oneIn(2)
    )
  }

  private mutating func register(_ cid: String) -> RequestContent {
    var id = message(cid)
    if !random.oneIn(6) {
      id = "m\(nextMessage[cid, default: 1])"
      nextMessage[cid, default: 1] += 1
    }
    if random.oneIn(80) { id = "m\u{7}1" }
    return .register(
      cid: cid,
      id: id,
      sender: random.oneIn(10) ? "" : user(),
      created: random.oneIn(4) ? Int64(1 + random.below(1000)) : 0,
      isSilent: random.oneIn(8),
      requestsAcknowledgement: random.oneIn(3),
      movesPosition: !random.oneIn(6),
      mentions: mentions()
    )
  }

  private mutating func mentions() -> [String] {
    if random.oneIn(12) { return [RequestContent.everybody] }
    return random.oneIn(5) ? (0..<(1 + random.below(3))).map { _ in user() } : []
  }

  /// Mostly on a few messages, so that their threads grow.
  private mutating func inThread(_ cid: String) -> RequestContent {
    let newest = nextMessage[cid, default: 1]
    var parent = "m\(max(1, newest / 16 * 16 - 16 * random.below(3)))"
    if random.oneIn(6) { parent = message(cid) }
    if random.oneIn(30) { parent = reply(cid) }
    let user = user()
    let to = random.oneIn(3) ? "" : reply(cid)
    switch random.below(12) {
    case 0..<5:
      var id = random.oneIn(2) ? reply(cid) : message(cid)
      if !random.oneIn(8) {
        id = "r\(nextReply[cid, default: 1])"
        nextReply[cid, default: 1] += 1
      }
      return .inThread(
        parent,
        .register(
          cid: cid,
          id: id,
          sender: random.oneIn(10) ? "" : user,
          created: 0,
          isSilent: random.oneIn(8),
          requestsAcknowledgement: random.oneIn(8),
          movesPosition: !random.oneIn(6),
          mentions: mentions()
        )
      )
    case 5..<8: return .inThread(parent, .read(cid: cid, user: user, message: to, epoch: epoch()))
    case 8: return .read(cid: cid, user: user, message: reply(cid), epoch: epoch())
    case 9: return .inThread(parent, .delivered(cid: cid, user: user, message: to))
    case 10: return .inThread(parent, .unread(cid: cid, user: user, message: to, epoch: epoch()))
    default: return .deleteMessage(cid: cid, id: reply(cid))
    }
  }

  private mutating func reply(_ cid: String) -> String {
    "r\(max(0, nextReply[cid, default: 1] - random.below(12)))"
  }

  private mutating func user() -> String { random.oneIn(40) ? "nobody" : random.pick(users) }

  private mutating func message(_ cid: String) -> String {
    let newest = nextMessage[cid, default: 1]
    return "m\(max(0, newest - random.below(random.oneIn(3) ? newest + 1 : 12)))"
  }

  private mutating func epoch() -> UInt32? { random.oneIn(3) ? UInt32(random.below(6)) : nil }

  /// No user twice: which of two roles would apply is undefined.
  private mutating func members(_ most: Int) -> [MemberSpec] {
    var members: [MemberSpec] = []
    for _ in 0..<random.below(most + 1) {
      let user = random.oneIn(100) ? "no\u{7}body" : random.pick(users)
      let role = random.oneIn(3) ? random.pick(["admin", "guest"]) : ""
      if !members.contains(where: { $0.user == user }) { members.append(MemberSpec(user: user, role: role)) }
    }
    return members
  }

  private mutating func options() -> OptionChange {
    var options = OptionChange()
    if random.oneIn(4) { options.readEvents = !random.oneIn(3) }
    if random.oneIn(4) { options.deliveryEvents = !random.oneIn(3) }
    if random.oneIn(3) { options.markUnread = random.pick([0, 0, 1, 1, 2]) }
    if random.oneIn(3) { options.history = random.pick([0, 1]) }
    return options
  }
}
