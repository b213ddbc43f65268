@testable import ReceiptModel

/// The real shard's queries, in plain text and integers.
extension TestShard {
  func slot(_ cid: String) -> ChannelSlot? {
    let cid = Array(cid.utf8)
    return state.slot(of: cid.span.bytes)
  }

  /// What a store does before it asks the model: no such channel is the store's own answer.
  func loaded(_ cid: String) throws(Refusal) -> ChannelSlot {
    guard let slot = slot(cid) else { throw .channelNotFound }
    return slot
  }

  func view(_ slot: ChannelSlot, _ answer: RowAnswer) -> RowView { state.view(slot, answer) }

  func ownRow(_ cid: String, _ user: String) -> RowView? {
    let user = Array(user.utf8)
    guard let slot = slot(cid), let row = try? state.member(user.span.bytes, in: slot) else { return nil }
    return view(slot, state.ownRow(slot, row))
  }

  func status(_ cid: String, _ id: String) -> StatusResult { state.statusResult(slot(cid)!, id) }

  /// One page of a read state.
  func page(_ cid: String, _ viewer: Viewer, limit: Int, cursor: UInt32?) -> Result<
    (rows: [RowView], next: UInt32?), NamedRefusal
  > {
    let slot = slot(cid)!
    let user = Array((viewer.user ?? "").utf8)
    do throws(Refusal) {
      let page = try state.readState(
        slot,
        viewer: user.span.bytes,
        isServer: viewer.isServer,
        limit: limit,
        cursor: cursor
      )
      return .success((page.rows.map { view(slot, $0) }, page.next))
    } catch {
      return .failure(NamedRefusal(name: error.wireName))
    }
  }

  /// The pages of a whole read state, one after the other.
  func readState(_ cid: String, _ viewer: Viewer, limit: Int) -> Result<[[RowView]], NamedRefusal> {
    var pages: [[RowView]] = []
    var cursor: UInt32?
    repeat {
      switch page(cid, viewer, limit: limit, cursor: cursor) {
      case .failure(let refusal): return .failure(refusal)
      case .success(let page):
        pages.append(page.rows)
        cursor = page.next
      }
    } while cursor != nil
    return .success(pages)
  }

  /// Everything that can be asked of the shard.
  func digest() -> ShardDigest { ShardDigest(state, slots) }
}

/// Every answer that a shard can give, so that two shards can be compared.
struct ShardDigest: Equatable {
  struct Channel: Equatable {
    var cid: String
    var created: Timestamp
    var own: OptionPatch
    var options: ChannelTypeOptions
    var members: Int
    var rowCount: Int
    var newest: SequenceNumber
    var roles: [String]
    var ownRows: [RowView]
    var shownRows: [RowView]
    var statuses: [StatusResult]
    var messages: [MessageRecord]
    /// Rows that were left, as a page would write them.
    var rows: [Effect]
  }

  var nextChannel: ChannelNumber
  var types: [String: ChannelTypeRecord]
  var channels: [ChannelNumber: Channel] = [:]

  init(_ state: borrowing ShardState, _ slots: [ChannelNumber: ChannelSlot]) {
    nextChannel = state.nextChannel
    let set = state.types.filter { $0.version > 0 }
    types = Dictionary(uniqueKeysWithValues: set.map { ($0.name, $0) })
    for (number, slot) in slots { channels[number] = Channel(state, slot) }
  }

  /// Where two digests first differ, in words.
  static func difference(_ a: ShardDigest, _ b: ShardDigest) -> String? {
    if a == b { return nil }
    if a.nextChannel != b.nextChannel { return "next channel: \(a.nextChannel), \(b.nextChannel)" }
    if a.types != b.types { return "types: \(a.types), \(b.types)" }
    for (number, channel) in a.channels.sorted(by: { $0.key < $1.key }) {
      guard let other = b.channels[number] else { return "channel \(channel.cid) is not in both" }
      for (name, value, otherValue) in zip3(Mirror(reflecting: channel), Mirror(reflecting: other))
      where value != otherValue {
        return "channel \(channel.cid), \(name): \(value), \(otherValue)"
      }
    }
    return "different channels"
  }

  private static func zip3(_ a: Mirror, _ b: Mirror) -> [(String, String, String)] {
    zip(a.children, b.children).map { ($0.label ?? "", String(describing: $0.value), "\($1.value)") }
  }
}

extension ShardDigest.Channel {
  init(_ state: borrowing ShardState, _ slot: ChannelSlot) {
    let options = state.options(slot)
    cid = String(decoding: state[slot].cid, as: UTF8.self)
    created = state[slot].created
    own = state[slot].ownOptions
    self.options = options
    members = state[slot].rows.activeCount
    rowCount = state[slot].rows.rowCount
    newest = state[slot].messages.newest
    roles = []
    ownRows = []
    shownRows = []
    statuses = []
    messages = []
    rows = []
    for position in 0..<rowCount {
      let row = MemberOrdinal(UInt32(position))
      roles.append(state[slot].rows.roles[row.rawValue] ?? "")
      guard state[slot].rows.isActive(row) else { continue }
      ownRows.append(state.view(slot, state[slot].ownRow(row)))
      shownRows.append(
        state.view(slot, state[slot].shownRow(row, options: options, withOwnDetails: true))
      )
    }
    for page in 0..<(rowCount + 255) / 256 { rows += state.effects(of: .rows(UInt32(page)), in: slot) }
    for number in 0..<UInt32(state[slot].messages.segmentCount) {
      for case .messageAssigned(_, _, let record) in state.effects(of: .segment(number), in: slot) {
        messages.append(record)
        statuses.append(state.statusResult(slot, record.id))
      }
    }
  }
}

extension ShardState {
  func view(_ slot: ChannelSlot, _ answer: RowAnswer) -> RowView {
    func id(_ sequence: SequenceNumber) -> String {
      withMessage(slot, sequence) { bytes in bytes.withUnsafeBytes { String(decoding: $0, as: UTF8.self) } }
    }
    return RowView(
      user: withUser(slot, answer.row) { bytes in
        bytes.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
      },
      lastReadAt: Int(answer.lastRead.milliseconds),
      lastRead: Int(answer.lastReadSequence.rawValue),
      lastReadID: id(answer.lastReadSequence),
      lastDeliveredAt: Int(answer.lastDelivered.milliseconds),
      lastDelivered: Int(answer.lastDeliveredSequence.rawValue),
      lastDeliveredID: id(answer.lastDeliveredSequence),
      own: answer.own.map {
        RowView.OwnView(
          unread: Int($0.unreadMessages),
          firstUnreadID: id($0.firstUnread),
          epoch: Int($0.unreadEpoch)
        )
      }
    )
  }

  func statusResult(_ slot: ChannelSlot, _ id: String) -> StatusResult {
    let id = Array(id.utf8)
    do throws(Refusal) {
      let answer = try status(slot, message: id.span.bytes)
      return .status(
        StatusView(
          sequence: Int(answer.sequence.rawValue),
          word: "\(answer.status)",
          readCount: Int(answer.readCount),
          deliveredCount: Int(answer.deliveredCount),
          unreadCount: Int(answer.unreadCount),
          memberCount: Int(answer.memberCount),
          readEvents: answer.readEvents,
          deliveryEvents: answer.deliveryEvents,
          createdAt: Int(answer.createdAt.milliseconds)
        )
      )
    } catch {
      return .refused(error.wireName)
    }
  }
}

extension Refusal {
  /// As in Proto/frames.md, "Errors".
  var wireName: String {
    switch self {
    case .channelNotFound: "channel_not_found"
    case .notAMember: "not_a_member"
    case .messageNotFound: "message_not_found"
    case .messageDeleted: "message_deleted"
    case .markUnreadOff: "mark_unread_off"
    case .limitReached: "limit_reached"
    }
  }
}

extension ShardState.NewMember {
  init(_ seat: Seat) { self.init(user: seat.user, role: seat.role) }
}

extension OptionPatch {
  /// From the names of API.md. A name or value that is not in its table is a mistake of the test.
  init(_ settings: Settings) {
    self.init()
    for (name, value) in settings {
      switch name {
      case "read_events": readEvents = Bool(value)!
      case "delivery_events": deliveryEvents = Bool(value)!
      case "mark_unread": markUnread = MarkUnreadOption.allCases.first { "\($0)" == value }!
      case "history": history = HistoryOption.allCases.first { "\($0)" == value }!
      default: preconditionFailure("no such option: \(name)")
      }
    }
  }
}

extension ChannelTypeOptions {
  var settings: Settings {
    [
      "read_events": "\(readEvents)", "delivery_events": "\(deliveryEvents)", "mark_unread": "\(markUnread)",
      "history": "\(history)",
    ]
  }
}
