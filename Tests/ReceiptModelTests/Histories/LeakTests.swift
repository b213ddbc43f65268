import TestSupport
import Testing

@testable import NaiveReceiptModel
@testable import ReceiptModel

/// R7 and R8, checked against every query. Two histories differ only in what one member did while hidden. They must
/// give equal answers to all other users.
///
/// `TIDEMARK_SEED=n` runs the pair of that seed, `TIDEMARK_SEEDS=n` the pairs 1 to n. `TIDEMARK_STEPS=n` sets the
/// number of commands in each history.
@Suite("Leaks of hidden activity", .computing)
struct LeakTests {
  static let seeds = TestRun.seeds(12, long: 250)
  static let steps = TestRun.number("TIDEMARK_STEPS") ?? 160

  @Test("no answer shows other users a hidden member's activity", arguments: seeds)
  func noAnswerShowsOtherUsersHiddenMemberActivity(seed: UInt64) {
    TestRun.printSeed(seed, steps: Self.steps, of: "leak")
    var pair = LeakPair(seed: seed, isHiding: true)
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
    #expect(Self.steps < 160 || pair.actsHidden > 0, "TIDEMARK_SEED=\(seed): nothing was hidden")
  }

  @Test("control: where the member does not hide, every kind of answer differs")
  func shownActivityChangesEveryKindOfAnswer() {
    var seen: [String: Int] = [:]
    for seed in UInt64(1)...20 {
      var pair = LeakPair(seed: seed, isHiding: false)
      for _ in 0..<160 { pair.advance() }
      for name in pair.differences.keys { seen[name, default: 0] += 1 }
    }
    for name in LeakPair.kinds { #expect(seen[name, default: 0] > 0, "never seen in \(name)") }
  }
}

/// Two shards with the same commands, except those of one member (the ghost) after they started hiding. One shard gets
/// those; in the other only the clock advances.
struct LeakPair {
  /// The kinds that the member hides; both shards get their commands of the other kind.
  enum HiddenKinds: CaseIterable {
    case both, read, delivered
    /// The channel hides all reads (R8).
    case channel
  }

  static let kinds =
    ["read state", "status", "receipt", "readers", "delivered", "unread", "members", "a resume"]
    + ["status", "readers", "delivered", "unread", "members"].map { "\($0) of replies" }

  private let ghost = "ghost"
  private let hiddenKinds: HiddenKinds
  private let isHiding: Bool
  private let withActivity = TestShard()
  private let withoutActivity = TestShard()
  /// The state for the generator; it gets every command.
  private var model = NaiveModel()
  private var random: SplitMix64
  private var clock = 3 * 86_400_000 - 2000
  private var posted = 0
  private var replied = 0
  private var hasHidden = false
  private let cid: String
  private let users: [String]
  private(set) var step = 0
  private(set) var actsHidden = 0
  /// The first difference of each kind.
  private(set) var differences: [String: String] = [:]
  /// The commands as text.
  private(set) var story: [String] = []

  init(seed: UInt64, isHiding: Bool) {
    random = SplitMix64(seed: seed)
    hiddenKinds = HiddenKinds.allCases[Int(seed % 4)]
    self.isHiding = isHiding
    cid = "team:room"
    // Every fifth seed has a direct channel.
    users = ["ghost", "alice"] + (seed % 5 == 0 ? [] : ["bob", "carol", "dave"])
    let names = [
      ("mark_unread", ["private", "public"]), ("history", ["visible", "hidden"]),
      ("read_acks_receipts", ["direct", "always", "never"]), ("receipt_ttl", ["null", "1", "60"]),
      ("receipt_max_members", ["null", "0", "1", "2", "3"]), ("receipt_daily_limit", ["null", "4"]),
      ("counts_visible_to", ["members", "members", "members", "sender"]),
      ("status_rule", ["any", "all", "2", "50%"]), ("kept_steps", ["0", "1", "2", "64"]),
    ]
    var settings: Settings = [:]
    for (name, values) in names where random.oneIn(2) { settings[name] = random.pick(values) }
    perform(.put(cid: cid, settings: settings, members: random.shuffled(users).map { MemberSpec(user: $0) }))
  }

  mutating func advance() {
    step += 1
    clock += random.below(30)
    if random.oneIn(100) { clock += 3_000_000 }
    if !hasHidden, step > 10, step == 40 || random.oneIn(20) {
      hasHidden = true
      if isHiding { perform(startHiding) }
    }
    let command = command()
    if hasHidden, isSecret(command) {
      actsHidden += 1
      story.append("\(clock) (hidden) \(command)")
      _ = model.perform(command, clock: clock)
      _ = withActivity.perform(command, clock: clock)
      withoutActivity.pass(to: clock)
    } else {
      perform(command)
    }
    withActivity.seal()
    withoutActivity.seal()
    if random.oneIn(40) {
      let seed = random.next()
      for shard in [withActivity, withoutActivity] {
        var random = SplitMix64(seed: seed)
        for key in shard.allPageKeys where random.oneIn(2) { shard.writePage(key) }
        shard.crash()
      }
      story.append("\(clock) crash")
    }
    if random.oneIn(40) {
      for shard in [withActivity, withoutActivity] {
        for number in shard.slots.keys.sorted() { shard.evictAndLoad(number) }
      }
      story.append("\(clock) evict")
    }
    compare()
  }

  private var startHiding: Command {
    if hiddenKinds == .channel {
      // Acknowledgements made by reading are shown anyway (R9).
      return .put(cid: cid, settings: ["read_events": "false", "read_acks_receipts": "never"], members: [])
    }
    return .patchUser(
      ghost,
      showsRead: hiddenKinds == .delivered ? nil : false,
      showsDelivered: hiddenKinds == .read ? nil : false,
      revoked: nil
    )
  }

  /// Perform the command on both shards, and compare the results for other users.
  private mutating func perform(_ command: Command) {
    story.append("\(clock) \(command)")
    _ = model.perform(command, clock: clock)
    let (a, b) = (withActivity.perform(command, clock: clock), withoutActivity.perform(command, clock: clock))
    guard a != b else { return }
    switch command.inRoom {
    case .read(_, ghost, _, _), .delivered(_, ghost, _), .unread(_, ghost, _, _),
      .acknowledge(_, ghost, _, _):
      // Results of the ghost's own commands may differ.
      break
    default: differ("commands", "\(command): \(a), without hidden activity \(b)")
    }
  }

  private var isHiddenByChannel: Bool { hiddenKinds == .channel && hasHidden }

  private func isSecret(_ command: Command) -> Bool {
    switch command.inRoom {
    case .read(_, ghost, _, _), .unread(_, ghost, _, _): hiddenKinds != .delivered
    // Acknowledgements are shown even where reads are not (R9).
    case .acknowledge(_, ghost, _, _): hiddenKinds == .both || hiddenKinds == .read
    case .delivered(_, ghost, _): hiddenKinds == .both || hiddenKinds == .delivered
    default: false
    }
  }

  private mutating func command() -> Command {
    let user = random.oneIn(2) ? ghost : random.pick(users)
    if posted > 1, random.oneIn(3) { return commandInThread(user) }
    let message = random.oneIn(3) ? "" : "m\(1 + random.below(posted + 1))"
    let name = message.isEmpty ? "m\(posted)" : message
    switch random.below(100) {
    case 0..<12:
      posted += 1
      return .post(
        cid: cid,
        id: "m\(posted)",
        sender: random.oneIn(8) ? "" : random.pick(users),
        created: 0,
        isSilent: false,
        requestsAcknowledgement: !random.oneIn(3)
      )
    case 12..<14: return .delete(cid: cid, id: name)
    case 14..<16:
      // The ghost stays a member, so that there is something to see.
      let user = random.pick(users.filter { $0 != ghost })
      return .change(
        cid: cid,
        add: random.oneIn(3) ? [] : [MemberSpec(user: user)],
        remove: random.oneIn(2) ? [] : [user]
      )
    case 16..<19:
      let settings: [Settings] = [
        ["receipt_max_members": random.pick(["null", "0", "1", "2"])],
        ["mark_unread": random.pick(["private", "public"])],
        ["status_rule": random.pick(["any", "all", "2", "50%"])],
        ["counts_visible_to": random.pick(["members", "sender"])],
        ["read_acks_receipts": isHiddenByChannel ? "never" : random.pick(["direct", "always", "never"])],
        ["read_events": isHiddenByChannel ? "false" : random.pick(["true", "true", "false"])],
        ["delivery_events": random.pick(["true", "true", "false"])],
      ]
      return .put(cid: cid, settings: random.pick(settings), members: [])
    case 19..<21:
      let other = random.pick(users.filter { $0 != ghost })
      return .patchUser(other, showsRead: random.oneIn(2), showsDelivered: random.oneIn(2), revoked: nil)
    case 21..<45: return .read(cid: cid, user: user, message: message, epoch: nil)
    case 45..<65: return .delivered(cid: cid, user: user, message: message)
    case 65..<85:
      return .acknowledge(
        cid: cid,
        user: user,
        messages: [name, "m\(max(1, posted - 1))"],
        note: random.oneIn(2) ? "a note of \(user)" : ""
      )
    default: return .unread(cid: cid, user: user, message: name, epoch: nil)
    }
  }

  /// A reply, or a mark in a thread. There are few threads, so that each has several replies.
  private mutating func commandInThread(_ user: String) -> Command {
    let parent = "m\(random.oneIn(8) ? posted : 1 + random.below(2))"
    let message = random.oneIn(3) ? "" : "r\(max(1, replied - random.below(6)))"
    // A reply's id alone identifies its thread.
    let isNamed = message.isEmpty || random.oneIn(2)
    let mark: Command
    switch random.below(10) {
    case 0..<2:
      replied += 1
      let sender = random.pick(users)
      let reply = Command.post(cid: cid, id: "r\(replied)", sender: sender, created: 0, isSilent: false)
      return .inThread(parent, reply)
    case 2..<6: mark = .read(cid: cid, user: user, message: message, epoch: nil)
    case 6..<8: mark = .delivered(cid: cid, user: user, message: message)
    default: mark = .unread(cid: cid, user: user, message: message, epoch: nil)
    }
    return isNamed ? .inThread(parent, mark) : mark
  }

  // MARK: Queries

  /// Compare some answers after each step, and now and then all.
  private mutating func compare() {
    let others = users.filter { $0 != ghost }
    let isWhole = random.oneIn(30)
    let viewers = [Viewer.server, .member(random.pick(others)), .serverFor(random.pick(others))]
    for viewer in isWhole ? viewers : [random.pick(viewers)] {
      compareRows(viewer, limit: 1 + random.below(6))
      for number in max(0, posted - 10)...posted where isWhole || random.oneIn(4) {
        compareMessage("m\(number)", viewer)
      }
      for number in max(1, replied - 5)..<(replied + 1) where isWhole || random.oneIn(4) {
        compareMessage("r\(number)", viewer, " of replies")
      }
    }
    compareResume(since: clock - random.below(4_000))
    let (cid, other) = (cid, random.pick(others))
    compare("totals", "what \(other) has not read") { shard in shard.unread(cid, other) }
  }

  /// Compare the ordered events that other users receive on resuming, without those for the ghost's own devices.
  private mutating func compareResume(since: Int) {
    let (cid, ghost) = (cid, ghost)
    compare("a resume", "what has changed since \(since)") { shard -> [String]? in
      guard let slot = shard.slot(cid) else { return nil }
      var left = Int.max
      let since = Timestamp(milliseconds: Int64(since))
      let events = shard.state.events(
        in: slot,
        since: since,
        limit: .max,
        statusesMax: .max,
        remaining: &left
      )
      // Events of one time are in row order, which is not secret.
      return events?.compactMap { shard.text(of: $0, in: slot, besides: ghost) }.sorted()
    }
  }

  private mutating func compareRows(_ viewer: Viewer, limit: Int) {
    let (cid, ghost) = (cid, ghost)
    compare("read state", "read state for \(viewer), limit \(limit)") { shard in
      shard.readState(cid, viewer, limit: limit).map { pages in
        pages.map { page in
          page.map { row in
            // A server may see these fields of them: the chat backend needs them.
            var row = row
            if row.user == ghost { row.own = nil }
            return row
          }
        }
      }
    }
  }

  /// - Parameter kind: a suffix for the names of the kinds of answers.
  private mutating func compareMessage(_ id: String, _ viewer: Viewer, _ kind: String = "") {
    let (cid, users) = (cid, users)
    let limit = 1 + random.below(3)
    compare("status" + kind, "status of \(id) for \(viewer)") { shard in
      var status = shard.status(cid, id, viewer)
      if case .status(var view) = status {
        view.receipt = ""
        status = .status(view)
      }
      return status
    }
    compare("receipt" + kind, "receipt of \(id) for \(viewer)") { shard in
      if case .status(let status) = shard.status(cid, id, viewer) { status.receipt } else { "" }
    }
    for list in ListName.allCases {
      for order in OrderName.allCases {
        compare(list.rawValue + kind, "\(list) of \(id) by \(order) for \(viewer), limit \(limit)") { shard in
          var cursors: [String?] = []
          let pages = shard.pages { cursor in
            cursors.append(cursor)
            return shard.list(cid, id, viewer, list, order, limit: limit, cursor: cursor)
          }
          return ListAnswer(pages: pages, cursors: cursors)
        }
      }
    }
    compare("members" + kind, "members of \(id) for \(viewer)") { shard in
      shard.memberStatuses(cid, id, viewer, users + ["nobody"])
    }
  }

  private struct ListAnswer: Equatable {
    var pages: Result<[[EntryView]], NamedRefusal>
    /// In the order in which they were returned.
    var cursors: [String?]
  }

  private mutating func compare<Answer: Equatable>(
    _ kind: String,
    _ name: String,
    _ ask: (TestShard) -> Answer
  ) {
    let (a, b) = (ask(withActivity), ask(withoutActivity))
    if a != b { differ(kind, "\(name): \(a), without hidden activity \(b)") }
  }

  private mutating func differ(_ kind: String, _ text: String) {
    if differences[kind] == nil { differences[kind] = text }
  }
}

extension Command {
  /// The command itself, whether it applies to the channel or to one of its threads.
  fileprivate var inRoom: Command { if case .inThread(_, let command) = self { command } else { self } }
}

extension TestShard {
  /// An event as all users but one see it; nil where they do not see it.
  fileprivate func text(of event: ChannelEvent, in slot: ChannelSlot, besides user: String) -> String? {
    func place(_ thread: SequenceNumber) -> ChannelSlot { self.place(ofThread: thread, in: slot) }
    switch event {
    case .row(let row):
      guard row.isForOthers else { return nil }
      let place = place(row.thread)
      let shown = state.view(place, state.shownRow(place, row.row, withOwnDetails: false))
      let kinds = "\(row.showsRead) \(row.showsDelivered) \(row.showsRow)"
      return "row in \(row.thread): \(kinds) \(shown) at \(row.at)"
    case .messageNew(let thread, let sequence, let moves):
      let message = state[place(thread)].messages.text(sequence)
      return "new \(message) in \(thread): \(moves.contains(.readShown)) \(moves.contains(.deliveredShown))"
    case .acknowledgement(let sequence, let row, let time):
      return text(ofReceipt: sequence, by: row, at: time, in: slot)
    case .status(let thread, let run, let time):
      let sender = run.sender == .nobody ? "nobody" : state[place(thread)].users.text(run.sender)
      return "status in \(thread): \(run.status) of \(run.from) to \(run.to) by \(sender) at \(time)"
    default: return "\(event)"
    }
  }
}
