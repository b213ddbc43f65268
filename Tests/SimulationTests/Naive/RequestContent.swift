import NIOCore
import ReceiptModel
import ReceiptWire

/// Options as a request gives them, in plain values; nil keeps the value.
struct OptionChange: Hashable {
  var readEvents: Bool?
  var deliveryEvents: Bool?
  var markUnread: UInt8?
  var history: UInt8?

  var wire: OptionPatch {
    var patch = OptionPatch()
    patch.readEvents = readEvents
    patch.deliveryEvents = deliveryEvents
    patch.markUnread = markUnread.map { MarkUnreadOption(rawValue: $0)! }
    patch.history = history.map { HistoryOption(rawValue: $0)! }
    return patch
  }
}

struct MemberSpec: Hashable {
  var user: String
  var role = ""
}

/// A request in plain values, and its encoding.
enum RequestContent {
  case put(cid: String, OptionChange, [MemberSpec])
  case change(cid: String, add: [MemberSpec], remove: [String])
  case register(
    cid: String,
    id: String,
    sender: String,
    created: Int64,
    isSilent: Bool,
    requestsAcknowledgement: Bool,
    movesPosition: Bool,
    /// User ids, or ``everybody`` alone.
    mentions: [String]
  )
  case acknowledge(cid: String, user: String, note: String, ids: [String])
  case deleteMessage(cid: String, id: String)
  /// Deletes the messages before one, or all for an empty id.
  case truncate(cid: String, before: String)
  case deleteChannel(cid: String)
  case eraseMember(cid: String, user: String)
  /// An empty message means the newest.
  case read(cid: String, user: String, message: String, epoch: UInt32?)
  case unread(cid: String, user: String, message: String, epoch: UInt32?)
  case delivered(cid: String, user: String, message: String)
  /// An empty role or nil keeps the value; `joins`: adds the user if they are no member.
  case member(cid: String, user: String, role: String, isMuted: Bool?, joins: Bool)
  /// A push ack by channel, user and message; the reply has names. `acked` 0 means now.
  case push(cid: String, user: String, message: String, acked: Int64)
  case note(key: String, until: Int64)
  case known(key: String)
  /// `until` 0 withdraws the revocation.
  case revoke(token: String, until: Int64)
  case token(String)
  case tokens(known: UInt64, after: UInt64)
  /// A request of the four kinds that may have the flag `thread`, with the thread's parent message.
  indirect case inThread(String, RequestContent)
  case patchType(String, OptionChange)
  case assignType(String, version: UInt64, OptionChange)
  /// nil keeps the value.
  case patchUser(String, showsRead: Bool?, showsDelivered: Bool?)
  case assignUser(SettingsView)
  case getUser(String)
  case getChannel(cid: String)
  case readState(cid: String, viewer: String, isServer: Bool, limit: Int, cursor: UInt32?)
  case statuses(cid: String, ids: [String])
  case getType(String)
  case listTypes
  /// A query with an extra byte, for which the store must close the connection.
  case malformed(cid: String)

  /// In `mentions`: all members, or all who take part in a thread.
  static let everybody = "*"

  /// nil for requests that concern no channel.
  var cid: String? {
    switch self {
    case .put(let cid, _, _), .change(let cid, _, _), .register(let cid, _, _, _, _, _, _, _),
      .deleteMessage(let cid, _),
      .read(let cid, _, _, _), .unread(let cid, _, _, _), .delivered(let cid, _, _), .getChannel(let cid),
      .member(let cid, _, _, _, _),
      .readState(let cid, _, _, _, _), .statuses(let cid, _), .acknowledge(let cid, _, _, _),
      .malformed(let cid), .truncate(let cid, _), .deleteChannel(let cid), .eraseMember(let cid, _),
      .push(let cid, _, _, _):
      cid
    case .inThread(_, let content): content.cid
    case .patchType, .assignType, .getType, .listTypes, .patchUser, .assignUser, .getUser, .note, .known,
      .revoke, .token, .tokens:
      nil
    }
  }

  /// The request's webhook.
  var webhook: String? {
    switch self {
    case .note(let key, _), .known(let key): key
    default: nil
    }
  }

  /// Whether the request concerns tokens, and so goes to one shard.
  var isAboutTokens: Bool {
    switch self {
    case .revoke, .token, .tokens: true
    default: false
    }
  }

  /// The user whose settings the request concerns.
  var settingsUser: String? {
    switch self {
    case .patchUser(let user, _, _), .getUser(let user): user
    case .assignUser(let settings): settings.user
    default: nil
    }
  }

  /// The flags in its frame's header.
  var flags: FrameHeader.Flags { if case .inThread = self { .thread } else { [] } }
  var withoutThread: RequestContent { if case .inThread(_, let content) = self { content } else { self } }

  var isCommand: Bool { kind.isCommand }
  var isPut: Bool { kind == .putChannel }
  /// Whether it succeeds for a missing channel.
  var isRemoval: Bool { kind == .deleteChannel || kind == .eraseMember }

  var kind: FrameKind {
    switch self {
    case .put: .putChannel
    case .change: .changeMembers
    case .register: .registerMessage
    case .acknowledge: .acknowledge
    case .deleteMessage: .deleteMessage
    case .truncate: .truncateChannel
    case .deleteChannel: .deleteChannel
    case .eraseMember: .eraseMember
    case .read: .markRead
    case .unread: .markUnread
    case .delivered: .markDelivered
    case .member: .setMember
    case .push: .acknowledgePush
    case .note: .noteWebhook
    case .known: .webhookKnown
    case .revoke: .revokeToken
    case .token: .getToken
    case .tokens: .listRevokedTokens
    case .inThread(_, let content): content.kind
    case .patchType: .patchChannelType
    case .assignType: .assignChannelType
    case .patchUser: .patchUser
    case .assignUser: .assignUser
    case .getUser: .getUser
    case .getChannel, .malformed: .getChannel
    case .readState: .readState
    case .statuses: .statuses
    case .getType: .getChannelType
    case .listTypes: .listChannelTypes
    }
  }

  /// The payload (Proto/frames.md, "Requests").
  func write(counter: UInt64, into buffer: inout ByteBuffer) {
    if case .inThread(let parent, let content) = self {
      content.write(counter: counter, into: &buffer)
      buffer.writeField(parent)
      return
    }
    if let cid { buffer.writeField(cid) }
    switch self {
    case .patchType(let name, _), .assignType(let name, _, _), .getType(let name): buffer.writeField(name)
    case .revoke(let name, _), .token(let name): buffer.writeField(name)
    default: if let first = settingsUser ?? webhook { buffer.writeField(first) }
    }
    if kind.isCommand { buffer.writeVarint(counter) }
    switch self {
    case .put(_, let options, let members):
      buffer.writeOptionPatch(options.wire)
      Self.write(members, into: &buffer)
    case .change(_, let add, let remove):
      Self.write(add, into: &buffer)
      buffer.writeVarint(remove.count)
      for user in remove { buffer.writeField(user) }
    case .acknowledge(_, let user, let note, let ids):
      buffer.writeField(user)
      buffer.writeField(note)
      buffer.writeVarint(ids.count)
      for id in ids { buffer.writeField(id) }
    case .register(
      _,
      let id,
      let sender,
      let created,
      let isSilent,
      let requestsAcknowledgement,
      let moves,
      let mentions
    ):
      let flags = (isSilent ? 1 : 0) | (requestsAcknowledgement ? 2 : 0) | (moves ? 0 : 4)
      buffer.writeField(id)
      buffer.writeField(sender)
      buffer.writeTime(Timestamp(milliseconds: created))
      let toAll = mentions == [Self.everybody]
      buffer.writeVarint(flags | (toAll ? 8 : mentions.isEmpty ? 0 : 16))
      if !toAll, !mentions.isEmpty {
        buffer.writeVarint(mentions.count)
        for user in mentions { buffer.writeField(user) }
      }
    case .deleteMessage(_, let id), .truncate(_, let id):
      buffer.writeField(id)
    case .eraseMember(_, let user):
      buffer.writeField(user)
    case .read(_, let user, let message, let epoch), .unread(_, let user, let message, let epoch):
      buffer.writeField(user)
      buffer.writeField(message)
      buffer.writeOptional(epoch.map(UInt64.init))
    case .delivered(_, let user, let message):
      buffer.writeField(user)
      buffer.writeField(message)
    case .member(_, let user, let role, let isMuted, let joins):
      buffer.writeField(user)
      buffer.writeField(role)
      buffer.writeVarint((isMuted == nil ? 0 : 1) | (isMuted == true ? 2 : 0) | (joins ? 4 : 0))
    case .push(_, let user, let message, let acked):
      buffer.writeField(user)
      buffer.writeField(message)
      buffer.writeTime(Timestamp(milliseconds: acked))
      buffer.writeVarint(1)
    case .note(_, let until):
      buffer.writeTime(Timestamp(milliseconds: until))
    case .revoke(_, let until):
      buffer.writeInteger(UInt8(until == 0 ? 0 : 1))
      buffer.writeTime(Timestamp(milliseconds: until))
    case .tokens(let known, let after):
      buffer.writeVarint(known)
      buffer.writeVarint(after)
    case .patchType(_, let options):
      buffer.writeOptionPatch(options.wire)
    case .assignType(_, let version, let options):
      buffer.writeVarint(version)
      buffer.writeOptions(ChannelTypeOptions().applying(options.wire))
    case .readState(_, let viewer, let isServer, let limit, let cursor):
      buffer.writeVarint(isServer ? 1 : 0)
      buffer.writeField(viewer)
      buffer.writeVarint(limit)
      buffer.writeOptional(cursor.map(UInt64.init))
    case .statuses(_, let ids):
      buffer.writeVarint(1)
      buffer.writeEmptyField()
      buffer.writeVarint(ids.count)
      for id in ids { buffer.writeField(id) }
    case .malformed:
      buffer.writeInteger(UInt8(7))
    case .patchUser(_, let showsRead, let showsDelivered):
      buffer.writeVarint((showsRead == nil ? 0 : 1) | (showsDelivered == nil ? 0 : 2))
      buffer.writeVarint((showsRead == true ? 1 : 0) | (showsDelivered == true ? 2 : 0))
      buffer.writeTime(.none)
    case .assignUser(let settings):
      buffer.writeVarint(settings.version)
      buffer.writeVarint((settings.hidesRead ? 1 : 0) | (settings.hidesDelivered ? 2 : 0))
      buffer.writeTime(Timestamp(milliseconds: settings.readShownSince))
      buffer.writeTime(Timestamp(milliseconds: settings.deliveredShownSince))
      buffer.writeTime(.none)
    case .getChannel, .getType, .listTypes, .getUser, .inThread, .deleteChannel, .known, .token:
      break
    }
  }

  private static func write(_ members: [MemberSpec], into buffer: inout ByteBuffer) {
    buffer.writeVarint(members.count)
    for member in members {
      buffer.writeField(member.user)
      buffer.writeField(member.role)
    }
  }
}
