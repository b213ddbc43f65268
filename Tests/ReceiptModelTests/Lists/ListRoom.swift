import ReceiptModel

/// One channel built from effects, with its lists as text. Other stories cover the decisions of commands.
final class ListRoom {
  private var state = ShardState(id: ShardID(0))
  private var slot: ChannelSlot
  private let number = ChannelNumber(1)
  private var rows: [String] = []
  private var users: [String] = []
  private(set) var newest: UInt32 = 0
  var options = OptionPatch()
  /// The shard's time of the next effect.
  var clock: Int64 = 1_000

  init(_ members: [String]) {
    slot = state.insert(number, cid: "team:room", created: .none, own: OptionPatch())
    join(members)
  }

  private var now: Timestamp { Timestamp(milliseconds: clock) }

  private func assign(_ effect: Effect) {
    state.assign(time: now)
    state.assign(effect, to: slot)
    state.refresh(slot)
  }

  private func row(_ user: String) -> MemberOrdinal {
    MemberOrdinal(UInt32(rows.lastIndex(of: user)!))
  }

  // MARK: Changes

  func set(_ change: (inout OptionPatch) -> Void) {
    change(&options)
    assign(.channel(number, .channelAssigned(cid: "team:room", created: .none, own: options)))
  }

  func join(_ members: [String]) {
    for user in members {
      let record = RowRecord(
        user: user,
        joined: SequenceNumber(newest),
        joinedAt: now,
        read: SequenceNumber(newest)
      )
      rows.append(user)
      assign(.channel(number, .rowAssigned(row(user), record)))
    }
  }

  func leave(_ user: String) {
    assign(.channel(number, .rowLeft(row(user), at: now)))
    rows[Int(row(user).rawValue)] = ""
  }

  func post(_ id: String, by sender: String = "", requestsAcknowledgement: Bool = false) {
    newest += 1
    let record = MessageRecord(
      id: id,
      sender: sender,
      flags: requestsAcknowledgement ? .requestsAcknowledgement : [],
      registeredAt: now
    )
    assign(.channel(number, .messageAssigned(SequenceNumber(newest), record)))
    if rows.contains(sender) {
      read(sender, newest)
      receive(sender, newest)
    }
  }

  func delete(_ sequence: UInt32) {
    assign(.channel(number, .messageDeleted(SequenceNumber(sequence), at: now)))
  }

  func read(_ user: String, _ sequence: UInt32) {
    let hides = state[slot].rows.hidesRead(row(user))
    assign(.channel(number, .readMoved(row(user), to: SequenceNumber(sequence), at: now, isHidden: hides)))
  }

  /// - Parameter acked: the time given in the acknowledgement; nil if none was given.
  func receive(_ user: String, _ sequence: UInt32, acked: Int64? = nil) {
    let hides = state[slot].rows.hidesDelivered(row(user))
    if let acked {
      let shown = Timestamp(milliseconds: acked)
      let sequence = SequenceNumber(sequence)
      return assign(
        .channel(number, .deliveredByPushAck(row(user), to: sequence, at: now, ackedAt: shown, isHidden: hides))
      )
    }
    assign(
      .channel(number, .deliveredMoved(row(user), to: SequenceNumber(sequence), at: now, isHidden: hides))
    )
  }

  func markUnread(_ user: String, after sequence: UInt32?) {
    assign(.channel(number, .markerAssigned(row(user), marker: sequence.map(SequenceNumber.init), epoch: 1)))
  }

  func acknowledge(_ user: String, _ sequence: UInt32, note: String = "", isKept: Bool = true) {
    let hides = state[slot].rows.hidesRead(row(user))
    let made = Acknowledgement(row: row(user), at: isKept ? now : .none, isHidden: hides, note: note)
    assign(.channel(number, .acknowledged(SequenceNumber(sequence), made)))
  }

  /// Drop the time and note of an acknowledgement, as an eviction does.
  func forget(_ user: String, _ sequence: UInt32) {
    assign(.channel(number, .acknowledgementForgotten(SequenceNumber(sequence), row(user))))
  }

  /// Set what a user hides from now on; acknowledgement requests that they no longer hide are shown since now.
  func hide(_ user: String, read: Bool = false, delivered: Bool = false) {
    let place = users.firstIndex(of: user)
    if place == nil { users.append(user) }
    let known = place.map { state.settings[UInt32($0)] } ?? UserSettings(user: user)
    var settings = known
    settings.version += 1
    settings.hidesRead = read
    settings.hidesDelivered = delivered
    if known.hidesRead, !read { settings.readShownSince = now }
    if known.hidesDelivered, !delivered { settings.deliveredShownSince = now }
    assign(.shard(.userAssigned(UInt32(place ?? users.count - 1), settings)))
  }

  /// Rebuild the channel from pages, as after a restart.
  func restart() {
    var fresh = ShardState(id: ShardID(0))
    fresh.assign(time: now)
    for (place, _) in users.enumerated() {
      fresh.assign(.userAssigned(UInt32(place), state.settings[UInt32(place)]))
    }
    let again = fresh.insert(number, cid: "team:room", created: .none, own: options)
    let pages =
      (0..<(rows.count + 255) / 256).map { PageID.rows(UInt32($0)) }
      + (0..<(newest + 255) / 256).map { PageID.segment($0) }
    for page in pages { for effect in state.effects(of: page, in: slot) { fresh.assign(effect, to: again) } }
    fresh.refresh(again)
    state = fresh
    slot = again
  }

  // MARK: Answers

  /// A page as text, or the refusal. Each member has `@time` where there is one, with `~` before an inexact time, and
  /// the note after it. `| cursor` follows where there is a next page.
  ///
  /// - Parameter slice: the number of rows scanned before the scan is suspended and resumed.
  func page(
    _ list: MemberList,
    _ message: String = "m1",
    order: ListOrder = .joined,
    limit: Int = 100,
    cursor: String = "",
    viewer: String = "",
    slice: Int = .max
  ) -> String {
    do throws(Refusal) {
      let viewer = try state.viewer(bytes(viewer).span.bytes, isServer: viewer.isEmpty, in: slot)
      var scan = try state.beginList(
        slot,
        viewer: viewer,
        message: bytes(message).span.bytes,
        ShardState.ListQuery(list, order, limit: limit),
        cursor: bytes(cursor).span.bytes,
        times: MemberTimes(now: now)
      )
      var budget = slice
      while try !state.advance(&scan, slot, viewer: viewer, budget: &budget) {
        budget = slice
        betweenSlices()
      }
      let entries = scan.page.map { entry in
        let time = entry.at == .none ? "" : "@\(entry.isExact ? "" : "~")\(entry.at.milliseconds)"
        return name(entry.row) + time + entry.note
      }
      return (entries + (scan.next.map { ["| \($0.text)"] } ?? [])).joined(separator: " ")
    } catch {
      return error.wireName
    }
  }

  var betweenSlices: () -> Void = {}

  /// One member: `read`, `delivered` or `sent`, then the read and delivered times.
  func status(_ user: String, _ message: String = "m1", viewer: String = "") -> String {
    do throws(Refusal) {
      let viewer = try state.viewer(bytes(viewer).span.bytes, isServer: viewer.isEmpty, in: slot)
      let sequence = try state.shownMessage(bytes(message).span.bytes, in: slot, viewer)
      var times = MemberTimes(now: now)
      let status = try state.memberStatus(
        slot,
        viewer: viewer,
        sequence,
        user: bytes(user).span.bytes,
        times: &times
      )
      let exact = status.readIsExact && status.deliveredIsExact ? "" : " ~"
      return "\(status.status) \(status.readAt.milliseconds) \(status.deliveredAt.milliseconds)\(exact)"
    } catch {
      return error.wireName
    }
  }

  /// A member's own unread count and the first unread message.
  func unread(_ user: String) -> String {
    let own = state.ownRow(slot, row(user)).own!
    return "\(own.unreadMessages) from \(own.firstUnread.rawValue)"
  }

  private func bytes(_ text: String) -> [UInt8] { Array(text.utf8) }

  private func name(_ row: MemberOrdinal) -> String {
    state.withUser(slot, row) { user in user.withUnsafeBytes { String(decoding: $0, as: UTF8.self) } }
  }
}
