import NIOCore
import ReceiptModel
import ReceiptWire

/// A reply in plain values: expected by the oracle, or parsed from a reply frame.
enum Reply: Hashable {
  /// The wire's error code.
  case refused(UInt64)
  case row(RowView)
  case message(isNew: Bool, sequence: Int, status: UInt8)
  case sequence(Int)
  /// Whether there was anything to remove.
  case removed(Bool)
  /// For each message 0, or the wire's error code.
  case acknowledged([UInt64])
  /// `isNew` only in the reply to put.
  case channel(ChannelView, isNew: Bool?)
  case rows([RowView], next: UInt32?)
  case statuses([StatusView])
  case type(TypeView)
  case types([TypeView])
  case settings(SettingsView)
  case member(role: String, joinedAt: Int64, isMuted: Bool, isNew: Bool)
  /// With cid, user and message.
  case delivery(moved: Bool, sent: Int64, delivered: Int64, [String])
  /// Whether a webhook is known, or was just recorded.
  case known(Bool)
  /// `until` 0: the token is not revoked.
  case token(until: Int64, version: UInt64)
  case tokens(version: UInt64, isAnew: Bool, [String])
}

struct RowView: Hashable {
  var user: String
  var readAt: Int64
  var readID: String
  var read: Int
  var deliveredAt: Int64
  var deliveredID: String
  var delivered: Int
  var own: Own?
  /// After the row in a mark's reply: why it counts nowhere; 0: it counts.
  var uncounted: UInt8 = 0

  struct Own: Hashable {
    var unread: Int
    var firstUnread: String
    var epoch: Int
    var isFlagged = false
    /// In the own row.
    var mentions = 0
  }
}

/// A user's settings.
struct SettingsView: Hashable {
  var user: String
  var version: UInt64 = 0
  var hidesRead = false
  var hidesDelivered = false
  var readShownSince: Int64 = 0
  var deliveredShownSince: Int64 = 0
}

struct ChannelView: Hashable {
  var cid: String
  var created: Int64
  var options: OptionView
  var members: Int
  var newest: Int
  var newestID: String
  var newestAt: Int64
}

struct StatusView: Hashable {
  /// 0, or an error code without further fields.
  var code: UInt8
  var sequence = 0
  var status: UInt8 = 0
  var receipt: UInt8 = 0
  var read = 0
  var delivered = 0
  var members = 0
  var flags = 0
  var created: Int64 = 0
  var acknowledged = 0
}

/// Options in force.
struct OptionView: Hashable {
  var readEvents = true
  var deliveryEvents = true
  var markUnread: UInt8 = 0
  var history: UInt8 = 0

  func changed(by change: OptionChange) -> OptionView {
    OptionView(
      readEvents: change.readEvents ?? readEvents,
      deliveryEvents: change.deliveryEvents ?? deliveryEvents,
      markUnread: change.markUnread ?? markUnread,
      history: change.history ?? history
    )
  }
}

struct TypeView: Hashable {
  var name: String
  var version: UInt64
  var options: OptionView
}

extension Reply {
  /// Parse a reply.
  init(_ header: FrameHeader, _ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    guard header.isReply || header.kind == .error else { throw .unknownKind(header.kindByte) }
    switch header.kind {
    case .error:
      self = .refused(try ErrorFrame(payload).rawCode)
      return
    case .markRead, .markUnread, .markDelivered:
      let reply = try MarkReply(payload)
      var row = RowView(reply.row)
      row.uncounted = reply.uncounted?.rawValue ?? 0
      self = .row(row)
      return
    case .registerMessage:
      let reply = try RegistrationReply(payload)
      self = .message(
        isNew: reply.isNew,
        sequence: Int(reply.sequence.rawValue),
        status: reply.status.rawValue
      )
      return
    case .acknowledge:
      self = .acknowledged(try AcknowledgeReply(payload).codes.map { UInt64($0?.rawValue ?? 0) })
      return
    case .deleteMessage:
      self = .sequence(Int(try DeleteMessageReply(payload).sequence.rawValue))
      return
    case .putChannel:
      let reply = try PutChannelReply(payload)
      self = .channel(ChannelView(reply.channel), isNew: reply.isNew)
      return
    case .deleteChannel, .eraseMember:
      self = .removed(try FlagReply(payload).isSet)
      return
    case .changeMembers, .getChannel, .truncateChannel:
      self = .channel(ChannelView(try ChannelFields(payload)), isNew: nil)
      return
    case .setMember:
      let member = try SetMemberReply(payload)
      self = .member(
        role: member.role,
        joinedAt: member.joinedAt.milliseconds,
        isMuted: member.isMuted,
        isNew: member.hasJoined
      )
      return
    case .readState:
      var rows: [RowView] = []
      for _ in 0..<(try reader.count()) { rows.append(RowView(try RowFields(&reader))) }
      self = .rows(rows, next: try reader.optional32())
    case .statuses:
      let results = try StatusResultFields.all(payload)
      self = .statuses(
        results.map { result in
          switch result {
          case .found(let status): StatusView(status)
          case .refused(let code): StatusView(code: UInt8(code?.rawValue ?? 0))
          }
        }
      )
      return
    case .patchChannelType, .assignChannelType, .getChannelType:
      self = .type(TypeView(try reader.channelTypeRecord()))
    case .patchUser, .assignUser, .getUser:
      self = .settings(SettingsView(try reader.userSettings()))
    case .acknowledgePush:
      let delivery = try DeliveryReply(payload)
      let names = [
        delivery.cid.withUnsafeBytes { String(decoding: $0, as: UTF8.self) },
        delivery.user.withUnsafeBytes { String(decoding: $0, as: UTF8.self) },
        delivery.message.withUnsafeBytes { String(decoding: $0, as: UTF8.self) },
      ]
      self = .delivery(
        moved: delivery.moved,
        sent: delivery.sent.milliseconds,
        delivered: delivery.delivered.milliseconds,
        names
      )
      return
    case .noteWebhook, .webhookKnown:
      self = .known(try FlagReply(payload).isSet)
      return
    case .revokeToken, .getToken:
      let state = try TokenReply(payload)
      self = .token(until: state.until.milliseconds, version: state.version)
      return
    case .listRevokedTokens:
      let list = try RevokedTokensReply(payload)
      let tokens = list.revocations.map { "\($0.id) until \($0.until.milliseconds) by \($0.version)" }
      self = .tokens(version: list.version, isAnew: list.isAnew, tokens)
      return
    case .listChannelTypes:
      self = .types(try reader.channelTypeRecords().map(TypeView.init))
    default:
      throw .unknownKind(header.kind.rawValue)
    }
    try reader.end()
  }
}

extension RowView {
  init(_ row: borrowing RowFields) {
    func text(_ bytes: RawSpan) -> String { bytes.withUnsafeBytes { String(decoding: $0, as: UTF8.self) } }
    self.init(
      user: text(row.user),
      readAt: row.lastRead.milliseconds,
      readID: text(row.lastReadMessage),
      read: Int(row.lastReadSequence.rawValue),
      deliveredAt: row.lastDelivered.milliseconds,
      deliveredID: text(row.lastDeliveredMessage),
      delivered: Int(row.lastDeliveredSequence.rawValue)
    )
    if row.hasOwnDetails {
      own = Own(
        unread: Int(row.unreadMessages),
        firstUnread: text(row.firstUnreadMessage),
        epoch: Int(row.unreadEpoch),
        isFlagged: row.isFlaggedUnread,
        mentions: Int(row.unreadMentions)
      )
    }
  }
}

extension ChannelView {
  init(_ fields: ChannelFields) {
    self.init(
      cid: fields.cid,
      created: fields.created.milliseconds,
      options: OptionView(fields.options),
      members: Int(fields.memberCount),
      newest: Int(fields.newest.rawValue),
      newestID: fields.newestMessage,
      newestAt: fields.newestRegistered.milliseconds
    )
  }
}

extension StatusView {
  init(_ reply: ShownStatus) {
    self.init(
      code: 0,
      sequence: Int(reply.sequence.rawValue),
      status: reply.status.rawValue,
      receipt: reply.acknowledgement.rawValue,
      read: Int(reply.readCount),
      delivered: Int(reply.deliveredCount),
      members: Int(reply.memberCount),
      flags: (reply.readEvents ? 1 : 0) | (reply.deliveryEvents ? 2 : 0),
      created: reply.createdAt.milliseconds,
      acknowledged: Int(reply.acknowledgedCount ?? 0)
    )
  }
}

extension OptionView {
  init(_ options: ChannelTypeOptions) {
    self.init(
      readEvents: options.readEvents,
      deliveryEvents: options.deliveryEvents,
      markUnread: options.markUnread.rawValue,
      history: options.history.rawValue
    )
  }
}

extension SettingsView {
  init(_ settings: UserSettings) {
    self.init(
      user: settings.user,
      version: settings.version,
      hidesRead: settings.hidesRead,
      hidesDelivered: settings.hidesDelivered,
      readShownSince: settings.readShownSince.milliseconds,
      deliveredShownSince: settings.deliveredShownSince.milliseconds
    )
  }
}

extension TypeView {
  init(_ record: ChannelTypeRecord) {
    self.init(name: record.name, version: record.version, options: OptionView(record.options))
  }
}
