import Testing

@testable import NaiveReceiptModel
@testable import ReceiptModel

/// Stories of events: commands as in ``ThreadStory``, and the events that subscribers receive.
///
/// | row | answers |
/// | --- | --- |
/// | `clock`, `hide`, `show`, `options`, `join`, `leave`, `swap`, `post`, `delete`, `reply`, `read`, `delivered`, `unread`, `recover` | as in ``ThreadStory`` |
/// | `ask m1 by alice`, `ack bob m1` | posts with an acknowledgement request; acknowledges |
/// | `push bob m1 acked 900` | acknowledges a push |
/// | `truncate m3`, `erase bob`, `type read_events=false` | |
/// | `expire` | records the acknowledgement requests that have expired |
/// | `events` | all events since the last `events`, in order; `nothing` |
/// | `since 2000` | the changes since that time; `everything` where a resume is refused |
/// | `since 2000 within 10 scanning 5` | the same with limits: statuses that may have changed; rows, messages, acknowledgement requests and threads to scan |
/// | `events times`, `since 2000 times` | the same with times: `bob: read@2000` |
///
/// A row's events begin with `bob:`. The own devices get `read` and `unread`; others get `+read`, `+delivered` and
/// `+row`. A thread's events begin with its parent, `m1/`. `new m1 moving both shown read` is a message that also moves
/// its sender's positions: both for the own devices, only the read one for others. Statuses are `alice:m1…m3=read`,
/// acknowledgement requests `receipt:m1=done by bob`.
struct EventStory {
  private var story = ThreadStory()
  private var clock = 1000
  private var expiredThrough = Timestamp(milliseconds: 1000)
  private var shard: TestShard { story.shard }

  init() {
    shard.watch()
    shard.pending = [:]
  }

  /// Run one row; return the failure, or nil. A refused command is a failure.
  mutating func run(_ row: String) -> String? {
    do {
      return try step(row)
    } catch {
      return "refused: \((error as? Refused)?.code ?? "\(error)")"
    }
  }

  private struct Refused: Error { var code: String }

  private func perform(_ command: Command) throws {
    if case .refused(let code) = shard.perform(command, clock: clock) { throw Refused(code: code) }
  }

  private mutating func step(_ row: String) throws -> String? {
    let halves = storyRow(row)
    guard let command = halves.first, let verb = command.first else { return "an empty row" }
    let cid = "team:room"
    switch verb {
    case "clock":
      clock = Int(command[1])!
      return story.run(row)
    case "ask":
      try perform(
        .post(
          cid: cid,
          id: command[1],
          sender: command[3],
          created: 0,
          isSilent: false,
          requestsAcknowledgement: true
        )
      )
    case "ack":
      try perform(.acknowledge(cid: cid, user: command[1], messages: [command[2]], note: ""))
    case "read", "delivered", "unread":
      if command.contains("in") { return story.run(row) }
      let message = command.count > 2 ? command[2] : ""
      try perform(
        verb == "read"
          ? .read(cid: cid, user: command[1], message: message, epoch: nil)
          : verb == "delivered"
            ? .delivered(cid: cid, user: command[1], message: message)
            : .unread(cid: cid, user: command[1], message: message, epoch: nil)
      )
    case "push":
      let acked = Self.number(after: "acked", command) ?? 0
      try perform(.push(cid: cid, user: command[1], message: command[2], acked: acked))
    case "truncate": try perform(.truncate(cid: cid, before: command[1]))
    case "erase": try perform(.eraseMember(cid: cid, user: command[1]))
    case "type":
      let parts = command[1].split(separator: "=").map(String.init)
      try perform(.patchType(name: "team", settings: [parts[0]: parts[1]]))
    case "expire":
      let slot = shard.slot(cid)!
      let now = shard.state.advance(clock: Timestamp(milliseconds: Int64(clock)))
      let number = shard.state[slot].number
      shard.state.refresh(slot)
      _ = shard.state[slot].recordExpiries(
        after: expiredThrough,
        through: now,
        &shard.pending![number, default: PendingChannelEvents()]
      )
      expiredThrough = now
    case "events":
      let slot = shard.slot(cid)!
      return expect(shard.takeEvents(slot), halves, withTimes: command.contains("times"))
    case "since":
      let slot = shard.slot(cid)!
      let since = Timestamp(milliseconds: Int64(command[1])!)
      _ = shard.state.advance(clock: Timestamp(milliseconds: Int64(clock)))
      let statusesMax = Int(Self.number(after: "within", command) ?? 100)
      var left = 1_000_000
      let found = shard.state.events(
        in: slot,
        since: since,
        limit: 100,
        statusesMax: statusesMax,
        remaining: &left
      )
      if let scanned = Self.number(after: "scanning", command), 1_000_000 - left != scanned {
        return "scanned \(1_000_000 - left)"
      }
      guard let events = found else {
        return halves[1] == ["everything"] ? nil : "the resume is refused"
      }
      return expect(events, halves, withTimes: command.contains("times"))
    default: return story.run(row)
    }
    shard.seal()
    return shard.faults.first
  }

  private func expect(_ events: [ChannelEvent], _ halves: [[String]], withTimes: Bool) -> String? {
    let words = events.map { text($0) + (withTimes ? "@\(time($0))" : "") }
    let received = words.isEmpty ? "nothing" : words.joined(separator: ", ")
    let expected = halves.count == 2 ? halves[1].joined(separator: " ") : ""
    return received == expected ? nil : "events: \(received)"
  }

  private static func number(after word: String, _ command: [String]) -> Int? {
    command.firstIndex(of: word).flatMap { Int(command[$0 + 1]) }
  }

  private func time(_ event: ChannelEvent) -> Int64 {
    switch event {
    case .row(let row): row.at.milliseconds
    case .messageNew(let thread, let sequence, _):
      thread == .zero
        ? shard.state[shard.slot("team:room")!].messages.registeredAt(sequence).milliseconds : 0
    case .messageDeleted(_, _, let at), .truncated(_, let at), .updated(let at), .memberAdded(_, let at),
      .memberRemoved(_, let at), .status(_, _, let at), .acknowledgement(_, _, let at):
      at.milliseconds
    }
  }

  private func text(_ event: ChannelEvent) -> String {
    let slot = shard.slot("team:room")!
    func prefix(_ thread: SequenceNumber) -> String {
      thread == .zero ? "" : "\(shard.state[slot].messages.text(thread))/"
    }
    func place(_ thread: SequenceNumber) -> ChannelSlot {
      thread == .zero ? slot : slot.thread(shard.state[slot].threads.index(of: thread)!)
    }
    func user(_ row: MemberOrdinal, _ place: ChannelSlot) -> String {
      shard.state[place].users.text(shard.state[place].rows.user(row))
    }
    func message(_ sequence: SequenceNumber, _ thread: SequenceNumber = .zero) -> String {
      shard.state[place(thread)].messages.text(sequence)
    }
    switch event {
    case .row(let row):
      var words: [String] = []
      if row.isRead { words.append("read") }
      if row.isUnread { words.append("unread") }
      if row.showsRead { words.append("+read") }
      if row.showsDelivered { words.append("+delivered") }
      if row.showsRow { words.append("+row") }
      return prefix(row.thread) + user(row.row, place(row.thread)) + ": " + words.joined(separator: " ")
    case .messageNew(let thread, let sequence, let moves):
      return prefix(thread) + "new " + message(sequence, thread) + Self.text(moves)
    case .messageDeleted(let thread, let sequence, _):
      return prefix(thread) + "deleted " + message(sequence, thread)
    case .truncated(let sequence, _): return "truncated " + message(sequence)
    case .updated: return "updated"
    case .memberAdded(let row, _): return "added " + user(row, slot)
    case .memberRemoved(let user, _): return "removed " + user
    case .status(let thread, let run, _):
      let sender = shard.state[place(thread)].users.text(run.sender)
      let range =
        run.from == run.to
        ? message(run.from, thread) : message(run.from, thread) + "…" + message(run.to, thread)
      return prefix(thread) + "\(sender):\(range)=\(run.status)"
    case .acknowledgement(let sequence, let row, _):
      let status = shard.state[slot].acknowledgementStatus(sequence, at: shard.state.time)
      return "receipt:\(message(sequence))=\(status)" + (row.map { " by " + user($0, slot) } ?? "")
    }
  }
}

extension EventStory {
  /// The moves of the sender's positions in a message event, for the own devices and for others.
  private static func text(_ moves: ChannelEvent.SenderMoves) -> String {
    func words(_ read: Bool, _ delivered: Bool) -> String {
      read && delivered ? "both" : read ? "read" : delivered ? "delivered" : "none"
    }
    let own = words(moves.contains(.read), moves.contains(.delivered))
    let shown = words(moves.contains(.readShown), moves.contains(.deliveredShown))
    return own == "none" ? "" : own == shown ? " moving \(own)" : " moving \(own) shown \(shown)"
  }
}

/// Run a story of events; the first failing row is reported at its own line.
func eventStory(_ table: String, sourceLocation: SourceLocation = #_sourceLocation) {
  var story = EventStory()
  tell(table, sourceLocation) { story.run($0) }
}

/// Watches the channels of a shard, as a store does.
extension TestShard {
  /// Start watching all channels.
  func watch() { pending = [:] }

  /// The changes of a channel since the last call.
  func takeEvents(_ slot: ChannelSlot) -> [ChannelEvent] {
    guard let noted = pending?.removeValue(forKey: state[slot].number) else { return [] }
    return state.events(noted, in: slot)
  }

  func recordBeforeAssign(_ effect: Effect) {
    guard case .channel(let number, let effect) = effect, let slot = slots[number], !state[slot].isIndex
    else { return }
    if case .channelDeleted = effect {
      pending![number] = nil
      return
    }
    state.record(effect, in: slot, at: state.time, &pending![number, default: PendingChannelEvents()])
  }

  /// Note effects that belong to no channel but change some.
  func recordAfterAssign(_ effect: Effect) {
    for (number, slot) in slots where !state[slot].isIndex {
      switch effect {
      case .shard(.channelTypeAssigned(let record)):
        guard state.types[state[slot].type].name == record.name else { continue }
        state.recordOptionsChange(
          in: slot,
          at: state.time,
          &pending![number, default: PendingChannelEvents()]
        )
      case .shard(.userAssigned(_, let settings)):
        let user = Array(settings.user.utf8)
        let changed = state.applySettingsChange(of: user.span.bytes, in: slot)
        state.recordSettingsChange(
          of: user.span.bytes,
          in: changed,
          at: state.time,
          &pending![number, default: PendingChannelEvents()]
        )
      default: return
      }
    }
  }
}

/// Events as text.
extension TestShard {
  /// The channel's slot, or the slot of the thread under a message; the channel's slot where that thread does not
  /// exist.
  func place(ofThread parent: SequenceNumber, in slot: ChannelSlot) -> ChannelSlot {
    parent == .zero ? slot : state[slot].threads.index(of: parent).map { slot.thread($0) } ?? slot
  }

  /// An event of an acknowledgement request, as text.
  func text(
    ofReceipt sequence: SequenceNumber,
    by row: MemberOrdinal?,
    at time: Timestamp,
    in slot: ChannelSlot
  ) -> String {
    let by = row.map { state[slot].users.text(state[slot].rows.user($0)) } ?? "nobody named"
    return
      "receipt of \(sequence): \(state[slot].acknowledgementStatus(sequence, at: time)) by \(by) at \(time)"
  }
}
