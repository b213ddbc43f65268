@testable import NaiveReceiptModel
@testable import ReceiptModel

/// The real shard's queries in plain text and integers.
extension TestShard {
  /// The channel's slot; as in a store, an unknown channel is refused before the model is queried.
  func loaded(_ cid: String) throws(Refusal) -> ChannelSlot {
    guard let slot = slot(cid) else { throw .channelNotFound }
    return slot
  }

  func view(_ slot: ChannelSlot, _ answer: ShownRow) -> RowView { state.view(slot, answer) }

  func ownRow(_ cid: String, _ user: String) -> RowView? {
    let user = Array(user.utf8)
    guard let slot = slot(cid), let row = try? state.member(user.span.bytes, in: slot) else { return nil }
    return view(slot, state.ownRow(slot, row))
  }

  func status(_ cid: String, _ id: String, _ viewer: Viewer = .server) -> StatusResult {
    let (slot, id, user) = (slot(cid)!, Array(id.utf8), Array((viewer.user ?? "").utf8))
    do throws(Refusal) {
      let asker = try state.viewer(user.span.bytes, isServer: viewer.isServer, in: slot)
      let place = state.targetSlot(of: id.span.bytes, in: slot)
      let viewer = state.viewer(asker, in: place)
      let sequence = try state.shownMessage(id.span.bytes, in: place, viewer)
      return .status(StatusView(state.status(place, sequence, viewer: viewer)))
    } catch {
      return .refused(error.wireName)
    }
  }

  /// Query several messages at once; the counts must equal those of single queries.
  func statuses(_ cid: String, _ ids: [String], _ viewer: Viewer) -> [StatusResult] {
    let (slot, user) = (slot(cid)!, Array((viewer.user ?? "").utf8))
    do throws(Refusal) {
      let viewer = try state.viewer(user.span.bytes, isServer: viewer.isServer, in: slot)
      var answers: [Result<ShownStatus, Refusal>] = []
      for id in ids {
        let id = Array(id.utf8)
        let targetSlot = state.targetSlot(of: id.span.bytes, in: slot)
        answers.append(state.askedStatus(targetSlot, message: id.span.bytes, viewer: viewer))
      }
      state.statuses(slot, viewer: viewer, &answers)
      return answers.map { answer in
        switch answer {
        case .success(let status): .status(StatusView(status))
        case .failure(let refusal): .refused(refusal.wireName)
        }
      }
    } catch {
      return ids.map { _ in .refused(error.wireName) }
    }
  }

  /// A page of a list of a message's members, built in slices; an empty cursor means none.
  func list(
    _ cid: String,
    _ id: String,
    _ viewer: Viewer,
    _ list: ListName,
    _ order: OrderName,
    limit: Int,
    cursor: String?
  ) -> Result<([EntryView], String?), NamedRefusal> {
    let (slot, id, user) = (slot(cid)!, Array(id.utf8), Array((viewer.user ?? "").utf8))
    let cursor = Array((cursor ?? "").utf8)
    let query = ShardState.ListQuery(MemberList(list), ListOrder(order), limit: limit)
    do throws(Refusal) {
      let asker = try state.viewer(user.span.bytes, isServer: viewer.isServer, in: slot)
      let slot = state.targetSlot(of: id.span.bytes, in: slot)
      let viewer = state.viewer(asker, in: slot)
      var times = MemberTimes(now: state.time)
      while true {
        var scan = try state.beginList(
          slot,
          viewer: viewer,
          message: id.span.bytes,
          query,
          cursor: cursor.span.bytes,
          times: times
        )
        var budget = 1
        while try !state.advance(&scan, slot, viewer: viewer, budget: &budget) { budget = 3 }
        if scan.times.missing.isEmpty {
          let total = state.total(query.list, slot, scan.message, viewer: viewer)
          if cursor.isEmpty, scan.next == nil ? total != scan.page.count : total <= scan.page.count {
            faults.append("the total of \(list) is \(total), of \(scan.page.count) on the first page")
          }
          return .success((scan.page.map { view(slot, $0) }, scan.next?.text))
        }
        times = MemberTimes(now: state.time, segments: read(scan.times, slot))
      }
    } catch {
      return .failure(NamedRefusal(name: error.wireName))
    }
  }

  /// The total number of entries that the first page reports.
  func listTotal(_ cid: String, _ id: String, _ viewer: Viewer, _ list: ListName) -> Result<Int, NamedRefusal> {
    let (slot, id, user) = (slot(cid)!, Array(id.utf8), Array((viewer.user ?? "").utf8))
    do throws(Refusal) {
      let asker = try state.viewer(user.span.bytes, isServer: viewer.isServer, in: slot)
      let place = state.targetSlot(of: id.span.bytes, in: slot)
      let viewer = state.viewer(asker, in: place)
      let message = try state.shownMessage(id.span.bytes, in: place, viewer)
      return .success(Int(state.total(MemberList(list), place, message, viewer: viewer)))
    } catch {
      return .failure(NamedRefusal(name: error.wireName))
    }
  }

  func memberStatuses(_ cid: String, _ id: String, _ viewer: Viewer, _ users: [String])
    -> Result<[MemberStatusResult], NamedRefusal>
  {
    let (slot, id, user) = (slot(cid)!, Array(id.utf8), Array((viewer.user ?? "").utf8))
    do throws(Refusal) {
      let asker = try state.viewer(user.span.bytes, isServer: viewer.isServer, in: slot)
      let slot = state.targetSlot(of: id.span.bytes, in: slot)
      let viewer = state.viewer(asker, in: slot)
      let message = try state.shownMessage(id.span.bytes, in: slot, viewer)
      return .success(users.map { memberStatus(slot, viewer, message, $0) })
    } catch {
      return .failure(NamedRefusal(name: error.wireName))
    }
  }

  private func memberStatus(
    _ slot: ChannelSlot,
    _ viewer: ChannelViewer,
    _ message: SequenceNumber,
    _ user: String
  ) -> MemberStatusResult {
    let user = Array(user.utf8)
    var times = MemberTimes(now: state.time)
    do throws(Refusal) {
      while true {
        let status = try state.memberStatus(
          slot,
          viewer: viewer,
          message,
          user: user.span.bytes,
          times: &times
        )
        if times.missing.isEmpty { return .status(MemberStatusView(status)) }
        times = MemberTimes(now: state.time, segments: read(times, slot))
      }
    } catch {
      return .refused(error.wireName)
    }
  }

  /// Read the segments of steps that the times require.
  private func read(_ times: MemberTimes, _ slot: ChannelSlot) -> ReadSegments {
    var read = times.segments
    for range in times.missing {
      for segment in range.segments where !read.contains(range.rowPage, segment) {
        read.add(range.rowPage, segment, steps(state[slot].number, range.rowPage, segment))
      }
    }
    return read
  }

  private func view(_ slot: ChannelSlot, _ entry: ListEntry) -> EntryView {
    EntryView(
      user: state.withUser(slot, entry.row) { bytes in
        bytes.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
      },
      at: Int(entry.at.milliseconds),
      isExact: entry.isExact,
      note: entry.note
    )
  }

  /// The time when a member's watermark reached a message by a move. Segments of steps are read as requested.
  ///
  /// - Parameter seesHidden: whether the member asks about themselves.
  func stepTime(_ cid: String, _ user: String, _ kind: StepKind, _ n: Int, seesHidden: Bool)
    -> NaiveModel.Moment
  {
    let (slot, user) = (slot(cid)!, Array(user.utf8))
    let row = state[slot].row(of: user.span.bytes)!
    var read = ReadSegments()
    while true {
      let time = state[slot].stepTime(
        kind,
        row,
        reaching: SequenceNumber(UInt32(n)),
        kept: state.options(slot).keptSteps,
        seesHidden: seesHidden,
        in: read
      )
      switch time {
      case .exact(let at): return NaiveModel.Moment(at: Int(at.milliseconds))
      case .latest(let at): return NaiveModel.Moment(at: Int(at.milliseconds), isExact: false)
      case .hidden:
        let since = state.withUser(slot, row) { state.settings.shownSince($0) }
        let at = kind == .read ? since.read : since.delivered
        return NaiveModel.Moment(at: Int(at.milliseconds), isExact: false)
      case .stored(let range):
        for segment in range.segments {
          read.add(range.rowPage, segment, steps(state[slot].number, range.rowPage, segment))
        }
      }
    }
  }

  func settings(of user: String) -> UserView { UserView(state.settings[user]) }

  func isRevoked(_ user: String, issuedSeconds: Int) -> Bool {
    let user = Array(user.utf8)
    return state.settings.isRevoked(user.span.bytes, issued: UInt32(issuedSeconds))
  }

  /// One page of a read state.
  func page(_ cid: String, _ viewer: Viewer, limit: Int, cursor: UInt32?) -> Result<
    ([RowView], UInt32?), NamedRefusal
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

  /// All pages of a read state, one after the other.
  func readState(_ cid: String, _ viewer: Viewer, limit: Int) -> Result<[[RowView]], NamedRefusal> {
    pages { page(cid, viewer, limit: limit, cursor: $0) }
  }

  /// Collect page after page, until there is no next one.
  func pages<Entry, Cursor>(_ page: (Cursor?) -> Result<([Entry], Cursor?), NamedRefusal>) -> Result<
    [[Entry]], NamedRefusal
  > {
    var pages: [[Entry]] = []
    var cursor: Cursor?
    repeat {
      switch page(cursor) {
      case .failure(let refusal): return .failure(refusal)
      case .success(let (entries, next)):
        pages.append(entries)
        cursor = next
      }
    } while cursor != nil
    return .success(pages)
  }
}

/// Every answer of a shard, to compare two shards.
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
    var acknowledgements: [Effect]
    /// Rows of former members, as a page would write them.
    var rows: [Effect]
    /// By parent.
    var threads: [[Effect]]
    /// The contents of a user's index of channels.
    var memberships: [Effect]
  }

  var nextChannel: ChannelNumber
  var types: [String: ChannelTypeRecord]
  var users: [UserSettings]
  /// Queued membership changes, and how far they are sent and received.
  var outbox: [Effect]
  var channels: [ChannelNumber: Channel] = [:]

  init(_ state: borrowing ShardState, _ slots: [ChannelNumber: ChannelSlot]) {
    nextChannel = state.nextChannel
    let set = state.types.setRecords
    types = Dictionary(uniqueKeysWithValues: set.map { ($0.name, $0) })
    users = (0..<UInt32(state.settings.count)).map { state.settings[$0] }
    let outboxPages = min(PageID.outboxPages, state.outbox.last / PageID.changesPerOutboxPage + 1)
    outbox = (0..<UInt32(outboxPages)).flatMap { state.effects(ofOwn: .outbox($0)) } + state.effects(ofOwn: .index)
    for (number, slot) in slots { channels[number] = Channel(state, slot) }
  }

  /// The first difference between two digests, as text.
  static func difference(_ a: ShardDigest, _ b: ShardDigest) -> String? {
    if a == b { return nil }
    if a.nextChannel != b.nextChannel { return "next channel: \(a.nextChannel), \(b.nextChannel)" }
    if a.users != b.users { return "users: \(a.users), \(b.users)" }
    if a.outbox != b.outbox { return "outbox: \(a.outbox), \(b.outbox)" }
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

  /// For lists, only the first difference.
  private static func zip3(_ a: Mirror, _ b: Mirror) -> [(String, String, String)] {
    zip(a.children, b.children).flatMap { a, b -> [(String, String, String)] in
      let name = a.label ?? ""
      let (list, otherList) = (Mirror(reflecting: a.value), Mirror(reflecting: b.value))
      guard list.displayStyle == .collection else { return [(name, "\(a.value)", "\(b.value)")] }
      return [("count of \(name)", "\(list.children.count)", "\(otherList.children.count)")]
        + zip(list.children, otherList.children).enumerated().map { place, pair in
          ("\(name) \(place)", "\(pair.0.value)", "\(pair.1.value)")
        }
    }
  }
}

extension ShardDigest.Channel {
  init(_ state: borrowing ShardState, _ slot: ChannelSlot) {
    // A user's index has no channel type.
    let options = state[slot].isIndex ? ChannelTypeOptions() : state.options(slot)
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
    acknowledgements = []
    rows = []
    threads = state.threadContents(slot)
    memberships = (0..<state[slot].memberships.pageCount).flatMap {
      state.effects(of: .memberships($0), in: slot)
    }
    for position in 0..<rowCount {
      let row = MemberOrdinal(UInt32(position))
      roles.append(state[slot].rows.role(row) ?? "")
      guard state[slot].rows.isActive(row) else { continue }
      ownRows.append(state.view(slot, state.ownRow(slot, row)))
      shownRows.append(
        state.view(slot, state.shownRow(slot, row, withOwnDetails: true))
      )
    }
    for page in 0..<(rowCount + 255) / 256 { rows += state.effects(of: .rows(UInt32(page)), in: slot) }
    for number in 0..<UInt32(state[slot].messages.segmentCount) {
      for case .channel(_, .messageAssigned(let sequence, let record)) in state.effects(
        of: .segment(number),
        in: slot
      ) {
        acknowledgements += state.effects(of: .acknowledgements(sequence), in: slot)
        messages.append(record)
        statuses.append(state.statusResult(slot, record.id))
      }
    }
  }
}

extension ShardState {
  func view(_ slot: ChannelSlot, _ answer: ShownRow) -> RowView {
    func id(_ sequence: SequenceNumber) -> String {
      withMessage(slot, sequence) { bytes in bytes.withUnsafeBytes { String(decoding: $0, as: UTF8.self) } }
    }
    return RowView(
      user: withUser(slot, answer.row) { bytes in
        bytes.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
      },
      joined: Int(answer.joined.rawValue),
      lastReadAt: Int(answer.lastRead.milliseconds),
      lastRead: Int(answer.lastReadSequence.rawValue),
      lastReadID: id(answer.named(answer.lastReadSequence)),
      lastDeliveredAt: Int(answer.lastDelivered.milliseconds),
      lastDelivered: Int(answer.lastDeliveredSequence.rawValue),
      lastDeliveredID: id(answer.named(answer.lastDeliveredSequence)),
      own: answer.own.map {
        RowView.OwnView(
          unread: Int($0.unreadMessages),
          firstUnreadID: id($0.firstUnread),
          epoch: Int($0.unreadEpoch),
          isFlagged: $0.isFlaggedUnread,
          mentions: Int($0.unreadMentions)
        )
      }
    )
  }

  func statusResult(_ slot: ChannelSlot, _ id: String) -> StatusResult {
    let id = Array(id.utf8)
    do throws(Refusal) {
      return .status(StatusView(status(slot, try shownMessage(id.span.bytes, in: slot, .server))))
    } catch {
      return .refused(error.wireName)
    }
  }
}

extension StatusView {
  init(_ answer: ShownStatus) {
    self.init(
      sequence: Int(answer.sequence.rawValue),
      word: "\(answer.status)",
      receipt: "\(answer.acknowledgement)",
      readCount: Int(answer.readCount),
      deliveredCount: Int(answer.deliveredCount),
      unreadCount: Int(answer.unreadCount),
      memberCount: Int(answer.memberCount),
      readEvents: answer.readEvents,
      deliveryEvents: answer.deliveryEvents,
      createdAt: Int(answer.createdAt.milliseconds),
      acknowledgedCount: answer.acknowledgedCount.map { Int($0) }
    )
  }
}

extension MemberList {
  init(_ name: ListName) {
    switch name {
    case .readers: self = .readers
    case .delivered: self = .delivered
    case .unread: self = .unread
    case .acknowledged: self = .acknowledged
    case .unacknowledged: self = .unacknowledged
    }
  }
}

extension ListOrder {
  init(_ name: OrderName) {
    switch name {
    case .joined: self = .joined
    case .time: self = .time
    case .timeDescending: self = .timeDescending
    }
  }
}

extension MemberStatusView {
  init(_ status: MemberStatus) {
    self.init(
      word: "\(status.status)",
      readAt: Int(status.readAt.milliseconds),
      deliveredAt: Int(status.deliveredAt.milliseconds),
      readIsExact: status.readIsExact,
      deliveredIsExact: status.deliveredIsExact,
      acknowledgedAt: Int(status.acknowledgedAt.milliseconds)
    )
  }
}

extension UserView {
  init(_ settings: UserSettings) {
    self.init(
      user: settings.user,
      version: Int(settings.version),
      hidesRead: settings.hidesRead,
      hidesDelivered: settings.hidesDelivered,
      readShownSince: Int(settings.readShownSince.milliseconds),
      deliveredShownSince: Int(settings.deliveredShownSince.milliseconds),
      revokedBefore: Int(settings.tokensRevokedBefore.milliseconds),
      isErasing: settings.isErasing,
      isErased: settings.isErased
    )
  }
}

extension UserSettings {
  init(_ view: UserView) {
    self.init(
      user: view.user,
      version: UInt64(view.version),
      hidesRead: view.hidesRead,
      hidesDelivered: view.hidesDelivered,
      readShownSince: Timestamp(milliseconds: Int64(view.readShownSince)),
      deliveredShownSince: Timestamp(milliseconds: Int64(view.deliveredShownSince)),
      tokensRevokedBefore: Timestamp(milliseconds: Int64(view.revokedBefore)),
      isErasing: view.isErasing
    )
  }
}

extension AcknowledgementRequestRefusal {
  var wireName: String {
    switch self {
    case .none: ""
    case .limitReached: "receipt_limit_reached"
    case .notAllowed: "receipt_not_allowed"
    }
  }
}

extension Refusal {
  /// As in Proto/frames.md, "Errors".
  var wireName: String {
    switch self {
    case .channelNotFound: "channel_not_found"
    case .notAMember: "not_a_member"
    case .notInThread: "not_in_thread"
    case .messageNotFound: "message_not_found"
    case .messageDeleted: "message_deleted"
    case .messageConflict: "message_conflict"
    case .markUnreadOff: "mark_unread_off"
    case .limitReached: "limit_reached"
    case .tokenRevoked: "token_revoked"
    case .orderNotAvailable: "order_not_available"
    case .countsNotVisible: "counts_not_visible"
    case .acknowledgementNotRequested: "receipt_not_requested"
    case .ownMessage: "own_message"
    case .acknowledgementExpired: "receipt_expired"
    case .notExpected: "not_expected"
    case .invalidCursor: "invalid_cursor"
    case .userErased: "user_erased"
    case .nestedReply: "invalid_field"
    case .checkMismatch: "ticket_invalid"
    case .importConflict: "import_conflict"
    case .importGap: "import_gap"
    case .importOrder: "import_order"
    case .timeInFuture: "time_in_future"
    }
  }
}

extension ShardState.NewMember {
  init(_ seat: MemberSpec) { self.init(user: seat.user, role: seat.role) }
}

extension OptionPatch {
  /// Parse option names of Proto/openapi.yaml; an unknown name or value is a mistake in the test.
  init(_ settings: Settings) {
    self.init()
    for (name, value) in settings {
      switch name {
      case "read_events": readEvents = Bool(value)!
      case "delivery_events": deliveryEvents = Bool(value)!
      case "mark_unread": markUnread = MarkUnreadOption.allCases.first { "\($0)" == value }!
      case "history": history = HistoryOption.allCases.first { "\($0)" == value }!
      case "read_acks_receipts": readAcksReceipts = ReadAcksOption.allCases.first { "\($0)" == value }!
      case "receipt_ttl": receiptTTL = Nullable(UInt32(value))
      case "receipt_max_members": receiptMembersMax = Nullable(UInt32(value))
      case "receipt_daily_limit": receiptDailyLimit = Nullable(UInt32(value))
      case "receipt_request_roles":
        receiptRequestRoles = value == "null" ? .null : .value(value.split(separator: ",").map(String.init))
      case "counts_visible_to": countsVisibleTo = CountsVisibleOption.allCases.first { "\($0)" == value }!
      case "status_rule": statusRule = StatusRule(name: value)
      case "kept_steps": keptSteps = UInt16(value)!
      default: preconditionFailure("no such option: \(name)")
      }
    }
  }
}

extension StatusRule {
  init(name: String) {
    switch name {
    case "any": self = .any
    case "all": self = .all
    case _ where name.hasSuffix("%"): self = .percentage(UInt8(name.dropLast())!)
    default: self = .count(UInt32(name)!)
    }
  }

  var name: String {
    switch self {
    case .any: "any"
    case .all: "all"
    case .count(let count): "\(count)"
    case .percentage(let percentage): "\(percentage)%"
    }
  }
}

extension ChannelTypeOptions {
  var settings: Settings {
    func text(_ number: UInt32?) -> String { number.map { "\($0)" } ?? "null" }
    return [
      "read_events": "\(readEvents)", "delivery_events": "\(deliveryEvents)", "mark_unread": "\(markUnread)",
      "history": "\(history)", "read_acks_receipts": "\(readAcksReceipts)", "receipt_ttl": text(receiptTTL),
      "receipt_max_members": text(receiptMembersMax), "receipt_daily_limit": text(receiptDailyLimit),
      "receipt_request_roles": receiptRequestRoles.map { $0.joined(separator: ",") } ?? "null",
      "counts_visible_to": "\(countsVisibleTo)", "status_rule": statusRule.name, "kept_steps": "\(keptSteps)",
    ]
  }
}

extension MembershipTable {
  var pageCount: UInt32 { (positionCount + PageID.membershipsPerPage - 1) / PageID.membershipsPerPage }
}
