import Testing

@testable import ReceiptModel

/// One channel with acknowledgement requests, driven row by row. As in a store, commands are decided and their effects
/// assigned; every invariant is checked after each.
///
/// | row | answers |
/// | --- | --- |
/// | `clock 5000` | sets the clock, in milliseconds; it starts at 1000 |
/// | `options ttl=10 max=2 daily=3 roles=admin,host acks=always` | sets options; `-` is null |
/// | `join alice bob [as admin]`, `leave bob`, `hide bob`, `show bob` | |
/// | `post m1…m3 by alice [plain]` | `requested`, `none`, `limitReached`, `notAllowed`: the acknowledgement request of the last message; `plain`: none is requested |
/// | `delete m1`, `truncate [m3]` | |
/// | `erase bob` | `erased`, or `unknown` |
/// | `trace bob` | where the id still occurs: `memory`, and names of pages |
/// | `unread bob` | messages that bob has not read, and the first of them |
/// | `sender m1`, `status m1` | the sender or `-`; the read count and the recipient count |
/// | `ack bob m1 m2 [note hello]` | for each message `ok`, or the reason for the refusal |
/// | `read bob [m1]` | the messages that the read acknowledged, and the highest message, if it was recorded |
/// | `request m1` | `none`, `processing`, `done`, `expired` |
/// | `records m1` | in the page's order: `bob` evicted, `bob@1000`, `(bob@1000)` while hidden, `bob@1000=hello` with a note, `*` an erased user |
/// | `oldest m1` | the oldest kept time, or `-` |
/// | `mark bob m3` | marks unread |
/// | `page m1`, `head`, `pages` | writes the page of a message's acknowledgement request, the head page; all pages |
/// | `recover` | rebuilds the channel from pages and log, read in several orders; all must give the same result |
final class AcknowledgementShard {
  private(set) var state = ShardState(id: ShardID(0))
  private(set) var slot: ChannelSlot
  private var clock: Int64 = 1_000
  private static let channel = ChannelNumber(1)
  private var log: [Effect] = []
  private var pages: [PageID: (index: Int, effects: [Effect])] = [:]

  private struct Fault: Error {
    var text: String
  }

  init(_ options: OptionPatch = OptionPatch()) {
    state.assign(.countersAssigned(nextChannel: ChannelNumber(2), time: Timestamp(milliseconds: 1)))
    slot = Self.insert(into: &state, options)
    log.append(
      .channel(
        Self.channel,
        .channelAssigned(cid: "team:room", created: Timestamp(milliseconds: 1), own: options)
      )
    )
  }

  private static func insert(into state: inout ShardState, _ options: OptionPatch) -> ChannelSlot {
    state.insert(channel, cid: "team:room", created: Timestamp(milliseconds: 1), own: options)
  }

  // MARK: Rows

  /// Run a row; return the failure, or nil.
  func run(_ row: String) -> String? {
    let halves = row.split(separator: "->", maxSplits: 1, omittingEmptySubsequences: false).map {
      $0.split(separator: " ").map(String.init)
    }
    do {
      let answer = try answer(unrolled(halves[0]))
      #if DEBUG
        if let fault = state.checkInvariants() { throw Fault(text: fault) }
      #endif
      guard halves.count == 2, answer != halves[1].joined(separator: " ") else { return nil }
      return "answered \(answer)"
    } catch {
      return (error as? Fault)?.text ?? "\(error)"
    }
  }

  private func answer(_ words: [String]) throws -> String {
    var words = words[...]
    let verb = words.removeFirst()
    switch verb {
    case "clock": clock = Int64(words.first!)!
    case "options": try setOptions(words)
    case "join":
      let role = Self.take("as", from: &words) ?? ""
      let members = words.map { ShardState.NewMember(user: $0, role: role) }
      try decide { try state.decideMembers(slot, add: members, remove: [], at: $0, into: &$1) }
    case "leave":
      try decide { try state.decideMembers(slot, add: [], remove: Array(words), at: $0, into: &$1) }
    case "hide", "show":
      for user in words {
        let patch = UserSettingsPatch(showsRead: verb == "show")
        try decide { state.settings.decidePatch(user, patch, at: $0, into: &$1) }
      }
    case "post": return try post(words)
    case "delete":
      let id = Array(words.first!.utf8)
      try decide { _ = try state.decideDelete(slot, id: id.span.bytes, at: $0, into: &$1) }
    case "truncate":
      let id = Array((words.first ?? "").utf8)
      do {
        try decide { try state[slot].decideTruncate(before: id.span.bytes, at: $0, into: &$1) }
      } catch let refusal as Refusal {
        return "\(refusal)"
      }
    case "mark":
      let (user, id) = (Array(words.first!.utf8), Array(words.last!.utf8))
      try decide {
        _ = try state.decideUnread(
          slot,
          user: user.span.bytes,
          message: id.span.bytes,
          epoch: nil,
          at: state.time,
          into: &$1
        )
      }
    case "erase":
      var scan = EraseScan()
      var isDone = false
      while !isDone {
        var limit = 1
        try decide {
          isDone = state.decideErase(slot, member: words.first!, &scan, limit: &limit, at: $0, into: &$1)
        }
      }
      return scan.isKnown ? "erased" : "unknown"
    case "trace": return trace(words.first!)
    case "unread":
      guard let row = state[slot].row(of: words.first!) else { return "notAMember" }
      let own = state.ownRow(slot, row).own!
      return "\(own.unreadMessages)"
        + (own.firstUnread == .zero ? "" : " from \(state[slot].messages.text(own.firstUnread))")
    case "sender":
      let sender = state[slot].users.text(state[slot].messages.sender(try sequence(words.first!)))
      return sender.isEmpty ? "-" : sender
    case "status":
      let id = Array(words.first!.utf8)
      state.refresh(slot)
      do throws(Refusal) {
        let status = state.status(slot, try state.shownMessage(id.span.bytes, in: slot, .server))
        return "\(status.readCount) of \(status.memberCount)"
      } catch {
        return "\(error)"
      }
    case "ack":
      let note = Self.take("note", from: &words) ?? ""
      let user = words.removeFirst()
      return words.map { acknowledge(user, $0, note: note) }.joined(separator: " ")
    case "read": return try read(words)
    case "request": return "\(state[slot].acknowledgementStatus(try sequence(words.first!), at: now))"
    case "records": return records(of: try sequence(words.first!))
    case "page": write(.acknowledgements(try sequence(words.first!)))
    case "head": write(.head)
    case "pages": for page in pageIDs { write(page) }
    case "recover": try recover()
    default: throw Fault(text: "no such verb")
    }
    return ""
  }

  private func post(_ words: ArraySlice<String>) throws -> String {
    var words = words
    let sender = Array(Self.take("by", from: &words)!.utf8)
    let isPlain = words.last == "plain"
    if isPlain { words.removeLast() }
    var answer = ""
    for word in words {
      let id = Array(word.utf8)
      var registration: ShardState.Registration?
      try decide { time, effects in
        let message = NewMessage(
          id: id.span.bytes,
          sender: sender.span.bytes,
          requestsAcknowledgement: !isPlain
        )
        registration = try state.decideRegister(slot, message, at: time, into: &effects)
      }
      let sequence = registration!.sequence
      let refusal = state.acknowledgementRequestRefusal(slot, sequence)
      answer =
        refusal == .none
        ? state[slot].acknowledgementTable.isRequested(sequence) ? "requested" : "none" : "\(refusal)"
    }
    return answer
  }

  /// `ok`, or the reason for the refusal.
  func acknowledge(_ user: String, _ message: String, note: String = "") -> String {
    let (user, message) = (Array(user.utf8), Array(message.utf8))
    do {
      try decide {
        try state.decideAcknowledge(
          slot,
          state.member(user.span.bytes, in: slot),
          message: message.span.bytes,
          note: note,
          at: $0,
          into: &$1
        )
      }
      return "ok"
    } catch {
      return "\(error)"
    }
  }

  private func read(_ words: ArraySlice<String>) throws -> String {
    let (user, message) = (Array(words.first!.utf8), Array((words.count > 1 ? words.last! : "").utf8))
    let start = log.count
    try decide {
      _ = try state.decideRead(
        slot,
        user: user.span.bytes,
        message: message.span.bytes,
        epoch: nil,
        at: $0,
        into: &$1
      )
    }
    return log[start...].compactMap { effect in
      switch effect {
      case .channel(_, .acknowledged(let sequence, _)): state[slot].messages.text(sequence)
      case .channel(_, .acknowledgedThrough(_, let sequence)): "through \(sequence.rawValue)"
      default: nil
      }
    }
    .joined(separator: " ")
  }

  /// Where an id still occurs; earlier page versions are checked as if they were written now.
  private func trace(_ user: String) -> String {
    let found = pageIDs.filter { "\(state.effects(of: $0, in: slot))".contains("\"\(user)\"") }
    return ((state[slot].users.find(user) == nil ? [] : ["memory"]) + found.map { "\($0)" })
      .joined(separator: " ")
  }

  private func setOptions(_ words: ArraySlice<String>) throws {
    var patch = OptionPatch()
    for word in words {
      let (name, text) = (word.prefix { $0 != "=" }, String(word.drop { $0 != "=" }.dropFirst()))
      let number = Nullable<UInt32>(UInt32(text))
      switch name {
      case "ttl": patch.receiptTTL = number
      case "max": patch.receiptMembersMax = number
      case "daily": patch.receiptDailyLimit = number
      case "roles":
        let roles = text.split(separator: ",").map { String($0) }
        patch.receiptRequestRoles = text == "-" ? .null : .value(roles)
      case "acks": patch.readAcksReceipts = ["direct": .direct, "always": .always, "never": .never][text]!
      default: throw Fault(text: "no such option")
      }
    }
    try decide { try state.decideUpdate(slot, options: patch, members: [], at: $0, into: &$1) }
  }

  private func records(of sequence: SequenceNumber) -> String {
    state[slot].acknowledgementTable.acknowledgements(of: sequence).map { record in
      let name = state[slot].users.text(state[slot].rows.user(record.row))
      let user = name.isEmpty ? "*" : name
      let at = record.at == .none ? "" : "@\(record.at.milliseconds)"
      let text = "\(user)\(at)\(record.note.isEmpty ? "" : "=\(record.note)")"
      return record.isHidden ? "(\(text))" : text
    }
    .joined(separator: " ")
  }

  // MARK: Deciding

  private var now: Timestamp { max(state.time, Timestamp(milliseconds: clock)) }

  /// Apply the effects of a decision.
  private func decide(_ body: (Timestamp, inout [Effect]) throws -> Void) throws {
    let time = state.advance(clock: Timestamp(milliseconds: clock))
    state.refresh(slot)
    var effects: [Effect] = []
    try body(time, &effects)
    for effect in effects {
      log.append(effect)
      state.assign(effect, to: slot)
      #if DEBUG
        if case .channel(_, let effect) = effect,
          let fault = state[slot].checkInvariants(changedBy: effect)
        {
          throw Fault(text: fault)
        }
      #endif
    }
    state.refresh(slot)
  }

  private func sequence(_ message: String) throws -> SequenceNumber {
    let id = Array(message.utf8)
    guard let sequence = state[slot].messages.find(id.span.bytes) else {
      throw Fault(text: "no such message")
    }
    return sequence
  }

  // MARK: Pages and log

  private var pageIDs: [PageID] {
    let rows = (0..<UInt32(state[slot].rows.rowCount + 255) / 256).map { PageID.rows($0) }
    let segments = (0..<UInt32(state[slot].messages.segmentCount)).map { PageID.segment($0) }
    let newest = state[slot].messages.newest.rawValue
    return [.head] + rows + segments + (0..<newest).map { PageID.acknowledgements(SequenceNumber($0 + 1)) }
  }

  private func write(_ page: PageID) { pages[page] = (log.count, state.effects(of: page, in: slot)) }

  /// The effects of all pages if they were written now, and the values derived from them.
  private static func digest(_ state: borrowing ShardState, _ slot: ChannelSlot, _ pages: [PageID])
    -> [String]
  {
    pages.map { "\(state.effects(of: $0, in: slot))" }
      + (0..<state[slot].messages.newest.rawValue).map {
        let sequence = SequenceNumber($0 + 1)
        return "\(sequence.rawValue) \(state[slot].acknowledgementStatus(sequence, at: state.time))"
      }
  }

  private func recover() throws {
    let own = Set(self.pages.keys).union(log.filter { $0.channel != nil }.map(\.page))
    func pages(_ isWanted: (PageID) -> Bool) -> [PageID] {
      own.filter(isWanted).sorted { $0.order < $1.order }
    }
    // Acknowledgement requests come before their messages and before the rows that they name; segments must be in
    // rising order.
    let rows = pages { $0.isRows }
    let segments = pages { if case .segment = $0 { true } else { false } }
    let requests = pages { if case .acknowledgements = $0 { true } else { false } }
    let orders = [
      rows + segments + requests, requests.reversed() + rows.reversed() + segments,
      rows + requests + segments,
    ]
    let wanted = Self.digest(state, slot, pageIDs)
    for order in orders {
      var fresh = ShardState(id: state.id)
      fresh.assign(time: state.time)
      fresh.assign(.countersAssigned(nextChannel: ChannelNumber(2), time: .none))
      for case .shard(let effect) in log { fresh.assign(effect) }
      let slot = Self.insert(into: &fresh, OptionPatch())
      for page in [PageID.head] + order {
        let stored = self.pages[page] ?? (0, [])
        let tail = log[stored.index...].filter { $0.channel != nil && $0.page == page }
        for effect in stored.effects + tail { fresh.assign(effect, to: slot) }
      }
      fresh.refresh(slot)
      #if DEBUG
        if let fault = fresh.checkInvariants() { throw Fault(text: "recovered, \(fault)") }
      #endif
      for (found, wanted) in zip(Self.digest(fresh, slot, pageIDs), wanted) where found != wanted {
        throw Fault(text: "recovered as \(found), not as \(wanted)")
      }
      state = fresh
      self.slot = slot
    }
  }

  // MARK: Words

  private static func take(_ name: String, from words: inout ArraySlice<String>) -> String? {
    guard let place = words.firstIndex(of: name), place + 1 < words.endIndex else { return nil }
    let value = words[place + 1]
    words.removeSubrange(place...(place + 1))
    return value
  }
}

/// Run a story of acknowledgement requests; the first failing row is reported at its own line.
func acknowledgementStory(_ table: String, sourceLocation: SourceLocation = #_sourceLocation) {
  let shard = AcknowledgementShard()
  tell(table, sourceLocation) { shard.run($0) }
}
