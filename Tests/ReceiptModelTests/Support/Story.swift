import Testing

@testable import NaiveReceiptModel
@testable import ReceiptModel

/// Readable table tests. Each row is a command or a query, then `->` and the expected answer. The
/// real shard and the naive model both perform every row, and must agree on the whole answer.
///
/// A row's answer is a word, then facts: pairs of a name and a value. A row lists only the facts that matter to it.
///
/// | row | answers |
/// | --- | --- |
/// | `clock 5000` | sets the clock, in milliseconds; it starts at 1000 and does not advance by itself |
/// | `channel dm:x [history=hidden …]` | creates or updates a channel; the following rows use it |
/// | `join alice bob [as admin]`, `leave bob`, `swap bob` | `members`; swap removes and adds in one command |
/// | `post m1 by alice [leaving] [silent] [created 77] [mentioning bob,carol]` | `created` or `known`, `seq`; sender `-`: the system |
/// | `delete m1` | `seq` |
/// | `read bob [m1] [epoch 2]`, `delivered bob [m1]`, `unread bob m1 [epoch 2]`, `row bob` | `moved` or `same`, and the own row |
/// | `push bob m1 [acked 900]` | `moved` or `same`; `sent`, `delivered` |
/// | `ticket bob m1`, `redeem 0 [acked 900]` | the ticket's number; as `push` |
/// | `hide bob`, `show bob` | hides or shows the user's receipts |
/// | `erase bob`, `end` | `done` or `nothing` |
/// | `shown bob` | the row as others see it: without `unread`, `first`, `epoch` |
/// | `status m1` | `sent`, `delivered` or `read`; `readers`, `received`, `unread`, `members`, `created` |
/// | `types mark_unread=public …`, `options read_events=false …` | patches the channel's type, the channel |
/// | `page [server] [as bob] limit 2`, `more` | the row's users, `+` where there is a next page |
/// | `role bob` | the role, or `-` |
/// | `flag bob [epoch 2]` | flags the whole channel unread; as `read` |
/// | `mute bob`, `unmute bob` | `muted`, `role` |
/// | `totals bob` | `messages`, `channels`, `threads` over all channels; `muted` and `flagged` of this one |
/// | `recover`, `evict` | recovers from pages and log, as after a crash; evicts and loads the channel |
///
/// An own row's facts: `seq` and `last` (number and id of the last read message), `at`, `delivered` and `dat` (last
/// delivered and when), `unread`, `first` (first unread message's id or `-`), `epoch`, `marker` (its number or `-`).
/// `m1…m300` is a run of names.
struct Story {
  private let shard = TestShard()
  private var model = NaiveModel()
  private var clock = 1000
  private var cid = "team:room"
  private var pageQuery: (viewer: Viewer, limit: Int, cursor: UInt32?)?

  init() {
    shard.checksEverything = true
    _ = perform(.put(cid: cid, settings: [:], members: []))
  }

  /// A row's answer.
  private struct Answer {
    var word: String
    var facts: [String: String] = [:]
    var isRefusal = false
  }

  /// A failure of a row, as text.
  private struct Fault: Error {
    var text: String
  }

  // MARK: Rows

  /// Run one row; return the failure, or nil. A row without an expectation fails if its command is refused.
  mutating func run(_ row: String) -> String? {
    let halves = storyRow(row)
    guard let command = halves.first, !command.isEmpty else { return "an empty row" }
    guard !command.contains(">") else { return "an arrow that is not written ->" }
    do {
      let answer = try self.answer(command)
      for fault in shard.faults { throw Fault(text: fault) }
      if halves.count == 2 {
        try compare(answer, halves[1])
      } else if answer.isRefusal {
        throw Fault(text: "refused: \(answer.word)")
      }
      return nil
    } catch {
      return (error as? Fault)?.text ?? "\(error)"
    }
  }

  private func compare(_ answer: Answer, _ expected: [String]) throws {
    guard !expected.isEmpty || answer.facts.isEmpty else { throw Fault(text: "an arrow without an expectation") }
    if answer.facts.isEmpty {
      let text = expected.joined(separator: " ")
      if text != answer.word { throw Fault(text: "answered \(answer.word)") }
      return
    }
    var expected = expected[...]
    if expected.count % 2 == 1 {
      let word = expected.removeFirst()
      if word != answer.word { throw Fault(text: "answered \(answer.word) \(answer.facts)") }
    }
    while let name = expected.popFirst(), let value = expected.popFirst() {
      guard let actual = answer.facts[name] else { throw Fault(text: "there is no fact '\(name)'") }
      if actual != value { throw Fault(text: "\(name) is \(actual): \(answer.word) \(answer.facts)") }
    }
  }

  private mutating func answer(_ words: [String]) throws -> Answer {
    var words = unrolled(words)[...]
    let verb = words.removeFirst()
    switch verb {
    case "clock":
      clock = Int(words[1])!
      return Answer(word: "")
    case "channel":
      cid = words.removeFirst()
      return try outcome(.put(cid: cid, settings: Self.settings(words), members: []))
    case "options": return try outcome(.put(cid: cid, settings: Self.settings(words), members: []))
    case "types":
      let name = String(cid.prefix { $0 != ":" })
      return try outcome(.patchType(name: name, settings: Self.settings(words)))
    case "join":
      let role = Self.take("as", from: &words) ?? ""
      return try outcome(.change(cid: cid, add: words.map { MemberSpec(user: $0, role: role) }, remove: []))
    case "leave": return try outcome(.change(cid: cid, add: [], remove: Array(words)))
    case "swap":
      return try outcome(.change(cid: cid, add: words.map { MemberSpec(user: $0) }, remove: Array(words)))
    case "recover":
      shard.seal()
      shard.crash()
      return Answer(word: "")
    case "mute", "unmute":
      return try outcome(
        .member(cid: cid, user: words[1], role: "", isMuted: verb == "mute", joins: false)
      )
    case "flag":
      let epoch = Self.take("epoch", from: &words).map { Int($0)! }
      return try outcome(.unread(cid: cid, user: words[1], message: "", epoch: epoch))
    case "totals":
      let unread = shard.unread(cid, words[1])!
      try agree(unread, model.unread(cid, words[1])!)
      let counts = model.totals(words[1])
      return Answer(
        word: "totals",
        facts: [
          "messages": "\(counts.messages)", "channels": "\(counts.channels)", "threads": "\(counts.threads)",
          "mentions": "\(counts.mentions)", "muted": "\(unread.isMuted)", "flagged": "\(unread.isFlagged)",
        ]
      )
    case "evict":
      shard.evictAndLoad(shard.state[shard.slot(cid)!].number)
      return Answer(word: "")
    case "hide", "show":
      return try outcome(.patchUser(words[1], showsRead: nil, showsDelivered: verb == "show", revoked: nil))
    case "erase": return try outcome(.eraseMember(cid: cid, user: words[1]))
    case "end": return try outcome(.deleteChannel(cid: cid))
    case "push", "ticket", "redeem":
      let acked = Self.take("acked", from: &words).map { Int($0)! } ?? 0
      if verb == "redeem" { return try outcome(.redeem(cid: cid, ticket: Int(words[1])!, acked: acked)) }
      let (user, message) = (words[1], words[2])
      if verb == "ticket" { return try outcome(.ticket(cid: cid, user: user, message: message)) }
      return try outcome(.push(cid: cid, user: user, message: message, acked: acked))
    case "post", "delete", "read", "delivered", "unread": return try mark(verb, &words)
    default: return try query(verb, &words)
    }
  }

  private mutating func mark(_ verb: String, _ words: inout ArraySlice<String>) throws -> Answer {
    let epoch = Self.take("epoch", from: &words).map { Int($0)! }
    switch verb {
    case "post":
      let sender = Self.take("by", from: &words)!
      let created = Self.take("created", from: &words).map { Int($0)! } ?? 0
      let mentions = Self.take("mentioning", from: &words)?.split(separator: ",").map(String.init) ?? []
      let isSilent = words.last == "silent"
      if isSilent { words.removeLast() }
      let leaves = words.last == "leaving"
      if leaves { words.removeLast() }
      return try each(words) {
        .post(
          cid: $0,
          id: $1,
          sender: sender == "-" ? "" : sender,
          created: created,
          isSilent: isSilent,
          movesPosition: !leaves,
          mentions: mentions
        )
      }
    case "delete": return try each(words) { .delete(cid: $0, id: $1) }
    default:
      // The last word is a message unless it is the only one: all users of a run mark the same message.
      let message = words.count > 1 ? words.removeLast() : ""
      return try each(words) { cid, user in
        switch verb {
        case "read": .read(cid: cid, user: user, message: message, epoch: epoch)
        case "delivered": .delivered(cid: cid, user: user, message: message)
        default: .unread(cid: cid, user: user, message: message, epoch: epoch)
        }
      }
    }
  }

  private mutating func each(
    _ words: ArraySlice<String>,
    _ make: (String, String) -> Command
  ) throws -> Answer {
    // In a long run everything is checked only after the last command: a full check after each would be slow.
    shard.checksEverything = words.count < 20
    defer { shard.checksEverything = true }
    var last = Answer(word: "")
    for word in words { last = try outcome(make(cid, word)) }
    shard.checkAll()
    return last
  }

  private mutating func query(_ verb: String, _ words: inout ArraySlice<String>) throws -> Answer {
    switch verb {
    case "row":
      guard let row = shard.ownRow(cid, words[1]) else { throw Fault(text: "no such member") }
      try agree(row, model.answers(cid).ownRow(words[1]))
      return rowAnswer("row", row)
    case "shown":
      let user = words[1]
      let slot = shard.slot(cid)!
      guard let row = try? shard.state.member(Array(user.utf8).span.bytes, in: slot) else {
        throw Fault(text: "no such member")
      }
      let answer = shard.state.shownRow(slot, row, withOwnDetails: false)
      let shown = shard.view(slot, answer)
      try agree(shown, model.answers(cid).shownRow(user, hasOwn: false))
      return rowAnswer("shown", shown)
    case "status":
      let status = shard.status(cid, words[1])
      try agree(status, model.answers(cid).status(words[1]))
      return Self.statusAnswer(status)
    case "role":
      let user = Array(words[1].utf8)
      let slot = shard.slot(cid)!
      let row = try shard.state.member(user.span.bytes, in: slot)
      return Answer(word: shard.state[slot].rows.role(row) ?? "-")
    case "page", "more": return try page(verb, &words)
    default: throw Fault(text: "no such verb: \(verb)")
    }
  }

  private mutating func page(_ verb: String, _ words: inout ArraySlice<String>) throws -> Answer {
    if verb == "page" {
      let limit = Int(Self.take("limit", from: &words)!)!
      let user = Self.take("as", from: &words)
      let isServer = words.first == "server"
      let viewer: Viewer =
        switch (isServer, user) {
        case (true, let user?): .serverFor(user)
        case (true, nil): .server
        case (false, let user?): .member(user)
        case (false, nil): throw Fault(text: "a page without a viewer")
        }
      pageQuery = (viewer, limit, nil)
    }
    guard let query = pageQuery else { throw Fault(text: "there are no more pages") }
    pageQuery = nil
    switch shard.page(cid, query.viewer, limit: query.limit, cursor: query.cursor) {
    case .failure(let refusal): return Answer(word: refusal.name)
    case .success(let (rows, next)):
      if let next { pageQuery = (query.viewer, query.limit, next) }
      let users = rows.map(\.user) + (next == nil ? [] : ["+"])
      return Answer(word: users.joined(separator: " "))
    }
  }

  // MARK: Answers

  private mutating func outcome(_ command: Command) throws -> Answer {
    let (real, expected) = perform(command)
    if real != expected { throw Fault(text: "the model says \(expected), the shard \(real)") }
    let moved = shard.lastEffectCount > 0 ? "moved" : "same"
    switch real {
    case .refused(let name): return Answer(word: name, isRefusal: true)
    case .row(let row): return rowAnswer(moved, row)
    case .message(let sequence, let isNew, let refusal):
      return Answer(
        word: isNew ? "created" : "known",
        facts: ["seq": "\(sequence)", "refusal": refusal.isEmpty ? "-" : refusal]
      )
    case .acknowledged(let codes): return Answer(word: codes.joined(separator: " "))
    case .user(let user):
      return Answer(
        word: moved,
        facts: [
          "version": "\(user.version)", "hides_read": "\(user.hidesRead)",
          "hides_delivered": "\(user.hidesDelivered)", "read_since": "\(user.readShownSince)",
          "delivered_since": "\(user.deliveredShownSince)", "revoked": "\(user.revokedBefore)",
        ]
      )
    case .delivery(let isMoved, let sentAt, let deliveredAt):
      let facts = ["sent": "\(sentAt)", "delivered": "\(deliveredAt)"]
      return Answer(word: isMoved ? "moved" : "same", facts: facts)
    case .ticket(let number): return Answer(word: "\(number)")
    case .position(let sequence): return Answer(word: moved, facts: ["seq": "\(sequence)"])
    case .channel(let isNew, let members, let newest):
      return Answer(
        word: isNew ? "created" : moved,
        facts: ["members": "\(members)", "newest": "\(newest)"]
      )
    case .type(let version, let settings):
      return Answer(word: moved, facts: settings.merging(["version": "\(version)"]) { $1 })
    case .member(let role, _, let isMuted, let isNew):
      return Answer(word: isNew ? "created" : moved, facts: ["role": role, "muted": "\(isMuted)"])
    case .done(let isDone): return Answer(word: isDone ? "done" : "nothing")
    case .marked(let cids): return Answer(word: cids.joined(separator: " "))
    }
  }

  private mutating func perform(_ command: Command) -> (real: Outcome, expected: Outcome) {
    let result = (shard.perform(command, clock: clock), model.perform(command, clock: clock))
    shard.seal()
    return result
  }

  private func agree<Value: Equatable>(_ real: Value, _ expected: Value?) throws {
    if real != expected { throw Fault(text: "the model says \(expected as Any), the shard \(real)") }
  }

  private func rowAnswer(_ word: String, _ row: RowView) -> Answer {
    var facts = [
      "seq": "\(row.lastRead)", "last": row.lastReadID.isEmpty ? "-" : row.lastReadID,
      "at": "\(row.lastReadAt)", "delivered": "\(row.lastDelivered)", "dat": "\(row.lastDeliveredAt)",
    ]
    if let own = row.own {
      facts["unread"] = "\(own.unread)"
      facts["first"] = own.firstUnreadID.isEmpty ? "-" : own.firstUnreadID
      facts["epoch"] = "\(own.epoch)"
      facts["flagged"] = "\(own.isFlagged)"
      facts["mentions"] = "\(own.mentions)"
      let slot = shard.slot(cid)!
      let user = Array(row.user.utf8)
      let marker = (try? shard.state.member(user.span.bytes, in: slot)).flatMap {
        shard.state[slot].rows.marker($0)
      }
      facts["marker"] = marker.map { "\($0.rawValue)" } ?? "-"
    }
    return Answer(word: word, facts: facts)
  }

  private static func statusAnswer(_ result: StatusResult) -> Answer {
    switch result {
    case .refused(let name): return Answer(word: name, isRefusal: true)
    case .status(let status):
      return Answer(
        word: status.word,
        facts: [
          "seq": "\(status.sequence)", "readers": "\(status.readCount)",
          "received": "\(status.deliveredCount)", "unread": "\(status.unreadCount)",
          "members": "\(status.memberCount)", "created": "\(status.createdAt)",
          "read_events": "\(status.readEvents)", "delivery_events": "\(status.deliveryEvents)",
        ]
      )
    }
  }

  // MARK: Words

  /// Take a named value out of a row's words.
  private static func take(_ name: String, from words: inout ArraySlice<String>) -> String? {
    guard let place = words.firstIndex(of: name), place + 1 < words.endIndex else { return nil }
    let value = words[place + 1]
    words.removeSubrange(place...(place + 1))
    return value
  }

  private static func settings(_ words: ArraySlice<String>) -> Settings {
    Dictionary(
      uniqueKeysWithValues: words.map { word in
        let parts = word.split(separator: "=").map(String.init)
        return (parts[0], parts[1])
      }
    )
  }
}

/// `m1…m3` is `m1 m2 m3`.
func unrolled(_ words: [String]) -> [String] {
  words.flatMap { word -> [String] in
    let ends = word.split(separator: "…")
    guard ends.count == 2 else { return [word] }
    let name = ends[0].prefix { !$0.isNumber }
    let numbers = ends.map { Int($0.dropFirst(name.count))! }
    return (numbers[0]...numbers[1]).map { "\(name)\($0)" }
  }
}

/// Run a story; the first failing row is reported at its own line.
func story(_ table: String, sourceLocation: SourceLocation = #_sourceLocation) {
  var story = Story()
  tell(table, sourceLocation) { story.run($0) }
}

/// Run a story's rows one after the other, up to the first failure.
///
/// - Parameter run: returns the failure of a row, or nil.
func tell(_ table: String, _ sourceLocation: SourceLocation, _ run: (String) -> String?) {
  for (number, row) in table.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
    let row = row.trimmingPrefix { $0 == " " }
    if row.isEmpty || row.hasPrefix("#") { continue }
    guard let fault = run(String(row)) else { continue }
    var location = sourceLocation
    location.line += number + 1
    Issue.record("\(row): \(fault)", sourceLocation: location)
    return
  }
}

/// Return the words of a story's row, and those of its expectation if it has an arrow. An expectation may be empty.
func storyRow(_ row: String) -> [[String]] {
  row.split(separator: "->", maxSplits: 1, omittingEmptySubsequences: false)
    .map { $0.split(separator: " ").map(String.init) }
}

/// The interpreter itself: it must be able to fail.
@Suite("The story interpreter")
struct StoryTests {
  @Test(
    "control: wrong expectations are found",
    arguments: [
      "post m3 by alice -> known seq 3", "post m3 by alice -> created seq 4", "row bob -> unread 3",
      "row bob -> first m2", "row zoe -> unread 0", "read bob m1 -> same", "read bob m1 -> moved unread 2",
      "read bob m9 -> moved", "status m1 -> read", "status m1 -> sent members 3", "status m9 -> sent",
      "page as bob limit 1 -> bob", "page as bob limit 2 -> bob alice +", "more -> bob", "role bob -> admin",
      "shown bob -> unread 2", "row bob -> nonsense 1", "nonsense", "join carol -> same members 3",
    ]
  )
  func wrongExpectationsAreFound(row: String) {
    var story = Story()
    for row in ["join alice bob -> moved members 2", "post m1 m2 by alice -> created seq 2"] {
      #expect(story.run(row) == nil)
    }
    #expect(story.run(row) != nil)
  }
}
