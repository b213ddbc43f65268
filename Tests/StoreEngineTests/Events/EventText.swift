import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine

/// Descriptions of events, decoded as in a gateway (`ReceiptWire/Events`). So they check the store's
/// encoding against the decoder.
enum EventText {
  static func frame(_ payload: RawSpan) -> String {
    do {
      let fields = try EventsFields(payload)
      let events = fields.channels.map(words) + fields.users.map(words)
      let list = events.isEmpty ? "" : ": " + events.joined(separator: "; ")
      return "events\(fields.isLost ? " lost" : "") through \(fields.through.milliseconds)\(list)"
    } catch {
      return "events that do not parse: \(error)"
    }
  }

  static func subscribed(_ payload: RawSpan) -> String {
    do {
      let fields = try SubscribedFields(payload)
      let list =
        fields.channels.isEmpty ? "" : ": " + fields.channels.map(words).joined(separator: "; ")
      return
        "subscribed through \(fields.through.milliseconds)\(fields.isComplete ? "" : " not complete")\(list)"
    } catch {
      return "a subscription that does not parse: \(error)"
    }
  }

  private static func words(_ channel: ChannelEventsFields) -> String {
    "\(channel.cid) \(channel.events.map(words).joined(separator: ", "))"
  }

  private static func words(_ user: UserEventsFields) -> String {
    "\(user.user) \(user.events.map(words).joined(separator: ", "))"
  }

  private static func words(_ event: EventFields) -> String {
    switch event {
    case .row(let row):
      var words = row.thread.isEmpty ? "row" : "row in \(row.thread)"
      words += " \(row.ownRow.user) read \(row.ownRow.lastReadSequence.rawValue)"
      words += " unread \(row.ownRow.own?.unreadMessages ?? 0)"
      if let unread = row.unreadInChannel { words += " (\(unread))" }
      if let shown = row.shownRow { words += " shown \(shown.lastReadSequence.rawValue)" }
      if row.shown.contains(.serversOnly) { words += " to servers" }
      return words
    case .messageNew(let message):
      let place = message.thread.isEmpty ? "" : " in \(message.thread)"
      let isMoving = message.flags.contains(.read)
      let moves = isMoving ? message.flags.contains(.readShown) ? " moving" : " moving hidden" : ""
      let audience = message.flags.contains(.serversOnly) ? " to servers" : ""
      return "new \(message.message) \(message.sequence.rawValue)\(place)\(moves)\(audience)"
    case .messageDeleted(_, let sequence, let message, _): return "deleted \(message) \(sequence.rawValue)"
    case .truncated(let through, _): return "truncated \(through.rawValue)"
    case .channelUpdated(_, let channel): return "updated of \(channel.memberCount)"
    case .channelDeleted: return "gone"
    case .memberAdded(let member):
      return "+\(member.user) of \(member.memberCount) at \(member.readSequence.rawValue)"
    case .memberRemoved(let user, _, let count): return "-\(user) of \(count)"
    case .status(let status): return "\(status.from.rawValue)-\(status.to.rawValue) \(status.status)"
    case .receipt(let receipt):
      return "receipt \(receipt.message) \(receipt.status) by \(receipt.user): \(receipt.note)"
    }
  }

  private static func words(_ event: UserEventFields) -> String {
    switch event {
    case .membership(let entry, _, let isGone):
      return "\(isGone ? "gone from" : entry.isMember ? "in" : "left") \(entry.cid)"
    case .tokensRevoked(let before): return "revoked before \(before.milliseconds)"
    }
  }
}

extension Gateway {
  /// - Parameter since: in milliseconds; nil: subscribes without earlier changes.
  func subscribe(_ cids: [String], since: Int64? = nil, shard: UInt16 = 0) {
    send(.subscribe, nil, shard: shard) { payload in
      payload.writeVarint(UInt64(since == nil ? 0 : 1))
      payload.writeTime(Timestamp(milliseconds: since ?? 0))
      Self.write(cids, into: &payload)
    }
  }

  func unsubscribe(_ cids: [String]) {
    send(.unsubscribe, nil) { Self.write(cids, into: &$0) }
  }

  func subscribe(user: String, on: UInt8 = 1, issued: UInt32? = nil, shard: UInt16 = 0) {
    send(.subscribeUser, user, shard: shard, issued: issued) { $0.writeInteger(on) }
  }

  func announce(_ user: String, _ cids: [String]) {
    send(.announceRow, user) { Self.write(cids, into: &$0) }
  }

  private static func write(_ cids: [String], into payload: inout ByteBuffer) {
    payload.writeVarint(cids.count)
    for cid in cids { payload.writeField(cid) }
  }
}
