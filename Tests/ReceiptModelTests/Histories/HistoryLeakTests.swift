import TestSupport
import Testing

@testable import NaiveReceiptModel
@testable import ReceiptModel

/// R6, checked against every query. Two histories differ only before a newcomer joined under hidden history. They must
/// give equal answers to the newcomer, and to a server that asks on the newcomer's behalf.
///
/// `TIDEMARK_SEED=n` runs the pair of that seed, `TIDEMARK_SEEDS=n` the pairs 1 to n. `TIDEMARK_STEPS=n` sets the
/// number of commands in each history.
@Suite("Leaks of hidden history", .computing)
struct HistoryLeakTests {
  static let seeds = TestRun.seeds(12, long: 250)
  static let steps = TestRun.number("TIDEMARK_STEPS") ?? 120

  @Test("no answer shows a newcomer anything from before their join", arguments: seeds)
  func noAnswerShowsNewcomerAnythingFromBeforeJoin(seed: UInt64) {
    TestRun.printSeed(seed, steps: Self.steps, of: "history leak")
    var pair = HistoryLeakPair(seed: seed, isHidden: true)
    for _ in 0..<Self.steps {
      pair.advance()
      if let difference = pair.differences.first {
        Issue.record(
          """
          \(difference.value)
          replay with TIDEMARK_SEED=\(seed) TIDEMARK_STEPS=\(pair.step)
          \(pair.story.joined(separator: "\n"))
          """
        )
        return
      }
    }
  }

  @Test("control: with visible history every kind of answer differs")
  func visibleHistoryChangesEveryKindOfAnswer() {
    var seen: [String: Int] = [:]
    for seed in UInt64(1)...20 {
      var pair = HistoryLeakPair(seed: seed, isHidden: false)
      for _ in 0..<120 { pair.advance() }
      for name in pair.differences.keys { seen[name, default: 0] += 1 }
    }
    for name in HistoryLeakPair.kinds { #expect(seen[name, default: 0] > 0, "never seen in \(name)") }
  }
}

extension HistoryLeakTests {
  /// The events that a resuming newcomer receives, after `past` happened before their join and `since` after it.
  private func resumeEvents(past: [Command], since: [Command]) -> [String]? {
    let (shard, cid) = (TestShard(), "team:room")
    var clock = 1_000
    let members = ["alice", "bob", "carol"].map { MemberSpec(user: $0) }
    let made = Command.put(cid: cid, settings: ["history": "hidden"], members: members)
    let joining = Command.change(cid: cid, add: [MemberSpec(user: "newcomer")], remove: [])
    for command in [made] + past + [joining] + since {
      clock += 1_000
      _ = shard.perform(command, clock: clock)
      shard.seal()
    }
    return shard.resume(cid, for: "newcomer", since: 1_500)
  }

  @Test("no event names a thread without replies since the join", arguments: [true, false])
  func threadWithoutNewRepliesIsInNoEvent(showsRead: Bool) {
    let cid = "team:room"
    let message = Command.post(cid: cid, id: "m1", sender: "alice", created: 0, isSilent: false)
    let reply = Command.inThread(
      "m1",
      .post(cid: cid, id: "r1", sender: "bob", created: 0, isSilent: false)
    )
    let hiding = Command.patchUser(
      "bob",
      showsRead: showsRead,
      showsDelivered: !showsRead,
      revoked: nil
    )
    let events = resumeEvents(past: [message, reply], since: [hiding])
    // The same number of commands, so that the following ones have the same times.
    #expect(
      events
        == resumeEvents(past: [message, .delivered(cid: cid, user: "bob", message: "m1")], since: [hiding])
    )
    #expect(events?.contains { $0.contains("row in 1") } == false)
  }
}

/// Two shards with the same numbers of messages and replies, under other ids, by other senders and with other marks.
/// Then a user joins. From then on both shards get the same commands, also on the old messages.
struct HistoryLeakPair {
  static let kinds = [
    "read state", "status", "statuses", "readers", "delivered", "unread", "members", "commands", "a resume",
  ]

  private let newcomer = "newcomer"
  private let others = ["alice", "bob", "carol", "dave"]
  private let shards = [TestShard(), TestShard()]
  private let cid = "team:room"
  private let oldCount: Int
  private let oldReplies: Int
  private var random: SplitMix64
  private var clock = 3 * 86_400_000
  private var posted = 0
  private var replied = 0
  private(set) var step = 0
  /// The first difference of each kind.
  private(set) var differences: [String: String] = [:]
  /// The commands as text; before the join only those of the first shard.
  private(set) var story: [String] = []

  init(seed: UInt64, isHidden: Bool) {
    random = SplitMix64(seed: seed)
    oldCount = 3 + random.below(6)
    oldReplies = random.below(4)
    var settings: Settings = ["history": isHidden ? "hidden" : "visible", "kept_steps": "4096"]
    let names = [
      ("mark_unread", ["private", "public"]), ("read_acks_receipts", ["direct", "always", "never"]),
      ("receipt_max_members", ["null", "1", "2"]), ("counts_visible_to", ["members", "members", "sender"]),
      ("status_rule", ["any", "all", "2", "50%"]),
    ]
    for (name, values) in names where random.oneIn(2) { settings[name] = random.pick(values) }
    for place in shards.indices { past(place, settings) }
    let joining = Command.change(cid: cid, add: [MemberSpec(user: newcomer)], remove: [])
    story.append("\(clock) \(joining)")
    for shard in shards { _ = shard.perform(joining, clock: clock) }
  }

  // MARK: Before the join

  /// The ids of one shard's old messages. The first two are the same in both shards, as parents of later replies.
  private func old(_ place: Int, _ number: Int) -> String {
    number <= 2 ? "p\(number)" : "old\(place)-\(number)"
  }
  private func oldReply(_ place: Int, _ number: Int) -> String { "oldr\(place)-\(number)" }

  private mutating func past(_ place: Int, _ settings: Settings) {
    var clock = clock - 100_000
    let shard = shards[place]
    func perform(_ command: Command) {
      clock += random.below(40)
      if place == 0 { story.append("\(clock) \(command)") }
      _ = shard.perform(command, clock: clock)
    }
    // All of them joined at the same time.
    perform(.put(cid: cid, settings: settings, members: others.map { MemberSpec(user: $0) }))
    for number in 1...oldCount {
      perform(
        .post(
          cid: cid,
          id: old(place, number),
          // A thread participant stays one.
          sender: number <= 2 ? "alice" : random.pick(others),
          created: 0,
          isSilent: random.oneIn(4),
          requestsAcknowledgement: random.oneIn(2)
        )
      )
      for _ in 0..<random.below(4) {
        let user = random.pick(others)
        let message = old(place, 1 + random.below(number))
        switch random.below(6) {
        case 0..<2: perform(.read(cid: cid, user: user, message: message, epoch: nil))
        case 2: perform(.delivered(cid: cid, user: user, message: message))
        case 3: perform(.unread(cid: cid, user: user, message: message, epoch: nil))
        case 4: perform(.acknowledge(cid: cid, user: user, messages: [message], note: "secret"))
        default: if number > 2 { perform(.delete(cid: cid, id: old(place, number))) }
        }
      }
    }
    for number in 0..<oldReplies {
      let reply = Command.post(
        cid: cid,
        id: oldReply(place, number),
        sender: others[number % others.count],
        created: 0,
        isSilent: false
      )
      perform(.inThread("p1", reply))
      let user = others[random.below(number + 1)]
      if random.oneIn(2) { perform(.inThread("p1", .read(cid: cid, user: user, message: "", epoch: nil))) }
    }
    shard.seal()
  }

  // MARK: After the join

  mutating func advance() {
    step += 1
    clock += random.below(30)
    let make = command()
    let commands = shards.indices.map { make($0) }
    story.append("\(clock) \(commands[0])")
    let outcomes = shards.indices.map { shards[$0].perform(commands[$0], clock: clock) }
    // Answers to other users may differ.
    if Self.user(of: commands[0]) == newcomer, outcomes[0] != outcomes[1] {
      differ("commands", "\(commands[0]): \(outcomes[0]), else \(outcomes[1])")
    }
    for shard in shards { shard.seal() }
    if random.oneIn(30) {
      for shard in shards { for number in shard.slots.keys.sorted() { shard.evictAndLoad(number) } }
    }
    compare()
  }

  private static func user(of command: Command) -> String {
    switch command {
    case .inThread(_, let command): user(of: command)
    case .read(_, let user, _, _), .delivered(_, let user, _), .unread(_, let user, _, _),
      .acknowledge(_, let user, _, _), .push(_, let user, _, _):
      user
    default: ""
    }
  }

  /// The same command for both shards, on an old message by its index or on a new one by its id.
  private mutating func command() -> (Int) -> Command {
    let (cid, isNewcomer) = (cid, random.oneIn(3))
    let user = isNewcomer ? newcomer : random.pick(others)
    let roll = random.below(100)
    let old = 1 + random.below(oldCount)
    let isOld = random.oneIn(2)
    let new = "m\(max(1, posted - random.below(6)))"
    let pair = self
    func message(_ place: Int) -> String { isOld ? pair.old(place, old) : new }
    switch roll {
    case 0..<14:
      posted += 1
      let (id, sender) = ("m\(posted)", random.oneIn(5) ? newcomer : random.pick(others))
      let requestsAcknowledgement = random.oneIn(2)
      return { _ in
        .post(
          cid: cid,
          id: id,
          sender: sender,
          created: 0,
          isSilent: false,
          requestsAcknowledgement: requestsAcknowledgement
        )
      }
    case 14..<20:
      replied += 1
      let (id, sender) = ("r\(replied)", random.oneIn(5) ? newcomer : random.pick(others))
      let parent = random.oneIn(2) ? "p1" : random.oneIn(2) ? "p2" : new
      return { _ in .inThread(parent, .post(cid: cid, id: id, sender: sender, created: 0, isSilent: false)) }
    case 20..<24: return { .delete(cid: cid, id: message($0)) }
    case 24..<27:
      let settings: [Settings] = [
        ["mark_unread": random.pick(["private", "public"])],
        ["status_rule": random.pick(["any", "all", "2", "50%"])],
        ["counts_visible_to": random.pick(["members", "sender"])],
        ["read_events": random.pick(["true", "true", "false"])],
        ["delivery_events": random.pick(["true", "true", "false"])],
      ]
      let picked = random.pick(settings)
      return { _ in .put(cid: cid, settings: picked, members: []) }
    case 27..<30:
      let (read, delivered) = (random.oneIn(2), random.oneIn(2))
      let user = random.pick(others)
      return { _ in .patchUser(user, showsRead: read, showsDelivered: delivered, revoked: nil) }
    case 30..<45: return { .read(cid: cid, user: user, message: message($0), epoch: nil) }
    case 45..<58: return { .delivered(cid: cid, user: user, message: message($0)) }
    case 58..<68: return { .unread(cid: cid, user: user, message: message($0), epoch: nil) }
    case 68..<78:
      let note = "note \(random.below(100))"
      return { .acknowledge(cid: cid, user: user, messages: [message($0), new], note: note) }
    // Acknowledged now. An earlier time is at least the row's last step (R20), which may be of an old message.
    case 78..<82: return { .push(cid: cid, user: user, message: message($0), acked: 0) }
    default:
      let parent = random.oneIn(3) ? new : random.oneIn(2) ? "p1" : "p2"
      let reply = 1 + random.below(max(1, replied))
      let oldReply = random.below(max(1, oldReplies))
      let named = random.below(3)
      func text(_ place: Int) -> String {
        named == 0 ? "" : named == 1 ? "r\(reply)" : pair.oldReply(place, oldReply)
      }
      switch random.below(3) {
      case 0: return { .inThread(parent, .read(cid: cid, user: user, message: text($0), epoch: nil)) }
      case 1: return { .inThread(parent, .delivered(cid: cid, user: user, message: text($0))) }
      default: return { .inThread(parent, .unread(cid: cid, user: user, message: text($0), epoch: nil)) }
      }
    }
  }

  // MARK: Queries by the newcomer

  private mutating func compare() {
    let (cid, users) = (cid, others + [newcomer])
    for viewer in [Viewer.member(newcomer), .serverFor(newcomer)] {
      let limit = 1 + random.below(6)
      compare("read state", "read state for \(viewer)") { $0.readState(cid, viewer, limit: limit) }
      var ids = ["never", "m\(posted)", "m\(max(1, posted - 1))", "r\(max(1, replied))", "p1", "p2"]
      let (old, reply) = (1 + random.below(oldCount), random.below(oldReplies + 1))
      // One id of this shard, and one of the other.
      for place in shards.indices { ids += [self.old(place, old), oldReply(place, reply)] }
      compare("statuses", "statuses of \(ids) for \(viewer)") { $0.statuses(cid, ids, viewer) }
      let id = random.pick(ids)
      compare("status", "status of \(id) for \(viewer)") { $0.status(cid, id, viewer) }
      for list in ListName.allCases {
        for order in OrderName.allCases {
          compare(list.rawValue, "\(list) of \(id) by \(order) for \(viewer)") { shard in
            shard.pages { shard.list(cid, id, viewer, list, order, limit: limit, cursor: $0) }
          }
        }
      }
      compare("members", "members of \(id) for \(viewer)") {
        $0.memberStatuses(cid, id, viewer, users + ["nobody"])
      }
    }
    let newcomer = newcomer
    let since = clock - random.below(4_000)
    compare("a resume", "what has changed since \(since)") { $0.resume(cid, for: newcomer, since: since) }
    compare("own row", "own row") { $0.ownRow(cid, newcomer) }
    compare("totals", "what is unread") { $0.unread(cid, newcomer) }
    for parent in ["p1", "p2", "m\(max(1, posted))"] {
      compare("thread", "row in the thread of \(parent)") { $0.threadRow(cid, newcomer, under: parent) }
    }
  }

  private mutating func compare<Answer: Equatable>(
    _ kind: String,
    _ name: String,
    _ ask: (TestShard) -> Answer
  ) {
    let (a, b) = (ask(shards[0]), ask(shards[1]))
    if a != b { differ(kind, "\(name): \(a), else \(b)") }
  }

  private mutating func differ(_ kind: String, _ text: String) {
    if differences[kind] == nil { differences[kind] = text }
  }
}

extension TestShard {
  /// The events that a resuming member receives, sorted; nil where a resume is refused.
  fileprivate func resume(_ cid: String, for user: String, since: Int) -> [String]? {
    let name = Array(user.utf8)
    guard let slot = slot(cid), let member = state[slot].row(of: name.span.bytes) else { return [] }
    let joinedAt = state[slot].rows.joinedAt(member)
    var left = Int.max
    let since = Timestamp(milliseconds: Int64(since))
    let events = state.events(in: slot, since: since, limit: .max, statusesMax: .max, remaining: &left)
    return events?.compactMap { event in
      let limit = state.historyLimits(of: event, in: slot).first {
        $0.from <= joinedAt && joinedAt <= $0.through
      }
      if limit?.hidden.contains(.event) == true { return nil }
      return text(of: event, in: slot, to: user, limit, joinedAt: joinedAt)
    }.sorted()
  }

  private func text(
    of event: ChannelEvent,
    in slot: ChannelSlot,
    to user: String,
    _ limit: HistoryLimit?,
    joinedAt: Timestamp
  ) -> String? {
    func place(_ thread: SequenceNumber) -> ChannelSlot { self.place(ofThread: thread, in: slot) }
    func isOwn(_ number: UserNumber, _ place: ChannelSlot) -> Bool {
      number != .nobody && state[place].users.text(number) == user
    }
    let hidesPosition = limit?.hidden.contains(.position) == true
    switch event {
    case .row(let row):
      let place = place(row.thread)
      var text = "row in \(row.thread):"
      if isOwn(state[place].rows.user(row.row), place) {
        text += " own, read \(row.isRead), unread \(row.isUnread)"
      }
      var shown = state.shownRow(place, row.row, withOwnDetails: false)
      if let limit { shown = shown.seen(since: limit.joined, at: joinedAt) }
      let view = state.view(place, shown)
      if row.showsRead, !hidesPosition { text += " read \(view.lastRead) at \(view.lastReadAt)" }
      if row.showsDelivered, limit?.hidden.contains(.delivered) != true {
        text += " delivered \(view.lastDelivered) at \(view.lastDeliveredAt)"
      }
      if row.showsRow, limit?.hidden.contains(.row) != true { text += " row \(view)" }
      return text.hasSuffix(":") ? nil : "\(view.user): \(text)"
    case .messageNew(let thread, let sequence, let moves):
      let kinds = "\(moves.contains(.readShown)) \(moves.contains(.deliveredShown))"
      return hidesPosition
        ? nil : "new \(state[place(thread)].messages.text(sequence)) in \(thread): \(kinds)"
    case .messageDeleted, .truncated: return hidesPosition ? nil : "\(event)"
    case .updated(let time): return "updated at \(time)"
    case .memberAdded(let row, let time):
      return "added \(state[slot].users.text(state[slot].rows.user(row))) at \(time)"
    case .memberRemoved(let user, let time): return "removed \(user) at \(time)"
    case .acknowledgement(let sequence, let row, let time):
      guard isOwn(state[slot].messages.sender(sequence), slot) else { return nil }
      return text(ofReceipt: sequence, by: row, at: time, in: slot)
    // Repeated whether changed or not, as long as it is unknown what moved. The queries compare its content.
    case .status: return nil
    }
  }
}
