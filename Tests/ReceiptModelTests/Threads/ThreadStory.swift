import Testing

@testable import NaiveReceiptModel
@testable import ReceiptModel

/// Stories of threads (R15): the rows of ``Story`` that concern one channel, and rows on its threads. Only the real
/// shard performs them.
///
/// | row | answers |
/// | --- | --- |
/// | `clock`, `options`, `join`, `leave`, `swap`, `post`, `delete`, `recover`, `evict` | as in ``Story`` |
/// | `hide bob [reads]`, `show bob [deliveries]` | read and delivery receipts of a user, or one of them |
/// | `reply r1 to m1 by alice [silent] [receipt]` | `created` or `known`, `seq`, `refusal` |
/// | `read bob in m1 [r2] [epoch 1]`, `delivered …`, `unread …` | `moved` or `same`, and the own row |
/// | `read bob r2` | the same, by a reply's id alone |
/// | `row bob in m1`, `shown bob in m1` | the own row, or as others see it; `none` |
/// | `status r1 [as bob]` | as in ``Story``; of several messages the last one's, counted together |
/// | `list readers r1 [as bob]`, `list unread r1` | users with times: `bob@2000`, `bob~2000` where it is not exact; `nobody` |
/// | `member bob of r1 [as zoe]` | `sent`, `delivered` or `read`, or the refusal |
/// | `flag bob` | flags the whole channel unread, as in ``Story`` |
/// | `total bob` | `messages`, `threads`, `flagged` |
struct ThreadStory {
  let shard = TestShard()
  private var clock = 1000
  private let cid = "team:room"

  init() {
    shard.checksEverything = true
    _ = shard.perform(.put(cid: cid, settings: [:], members: []), clock: clock)
    shard.seal()
  }

  private struct Answer {
    var word: String
    var facts: [String: String] = [:]
    var isRefusal = false
  }

  private struct Fault: Error { var text: String }

  /// Run one row; return the failure, or nil.
  mutating func run(_ row: String) -> String? {
    let halves = storyRow(row)
    guard let command = halves.first, !command.isEmpty else { return "an empty row" }
    do {
      let answer = try self.answer(unrolled(command)[...])
      shard.seal()
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
    if answer.facts.isEmpty {
      let text = expected.joined(separator: " ")
      if text != answer.word { throw Fault(text: "answered \(answer.word)") }
      return
    }
    var expected = expected[...]
    if expected.count % 2 == 1, expected.removeFirst() != answer.word {
      throw Fault(text: "answered \(answer.word) \(answer.facts)")
    }
    while let name = expected.popFirst(), let value = expected.popFirst() {
      guard let actual = answer.facts[name] else { throw Fault(text: "there is no fact '\(name)'") }
      if actual != value { throw Fault(text: "\(name) is \(actual): \(answer.word) \(answer.facts)") }
    }
  }

  private mutating func answer(_ words: ArraySlice<String>) throws -> Answer {
    var words = words
    let verb = words.removeFirst()
    switch verb {
    case "clock":
      clock = Int(words.first!)!
      return Answer(word: "")
    case "recover":
      shard.crash()
      return Answer(word: "")
    case "evict":
      shard.evictAndLoad(shard.state[shard.slot(cid)!].number)
      return Answer(word: "")
    case "options":
      let settings = Dictionary(
        uniqueKeysWithValues: words.map { word in
          let parts = word.split(separator: "=").map(String.init)
          return (parts[0], parts[1])
        }
      )
      return outcome(perform(.put(cid: cid, settings: settings, members: [])))
    case "join":
      return outcome(perform(.change(cid: cid, add: words.map { MemberSpec(user: $0) }, remove: [])))
    case "leave": return outcome(perform(.change(cid: cid, add: [], remove: Array(words))))
    case "swap":
      return outcome(
        perform(.change(cid: cid, add: words.map { MemberSpec(user: $0) }, remove: Array(words)))
      )
    case "hide", "show":
      let shows = verb == "show"
      let kind = words.dropFirst().first
      return outcome(
        perform(
          .patchUser(
            words.first!,
            showsRead: kind == "deliveries" ? nil : shows,
            showsDelivered: kind == "reads" ? nil : shows,
            revoked: nil
          )
        )
      )
    case "post":
      let sender = Self.take("by", from: &words)!
      return each(words) {
        perform(.post(cid: cid, id: $0, sender: sender == "-" ? "" : sender, created: 0, isSilent: false))
      }
    case "delete": return each(words) { perform(.delete(cid: cid, id: $0)) }
    case "reply": return reply(&words)
    case "read", "delivered", "unread": return mark(verb, &words)
    default: return try query(verb, &words)
    }
  }

  private func perform(_ command: Command) -> Outcome { shard.perform(command, clock: clock) }

  private func reply(_ words: inout ArraySlice<String>) -> Answer {
    let sender = Self.take("by", from: &words)!
    let parent = Self.take("to", from: &words)!
    let isSilent = Self.drop("silent", from: &words)
    let requestsAcknowledgement = Self.drop("receipt", from: &words)
    return each(words) { id in
      shard.reply(
        cid,
        to: parent,
        id,
        by: sender == "-" ? "" : sender,
        isSilent: isSilent,
        requestsAcknowledgement: requestsAcknowledgement,
        clock: clock
      )
    }
  }

  private func mark(_ verb: String, _ words: inout ArraySlice<String>) -> Answer {
    let epoch = Self.take("epoch", from: &words).map { Int($0)! }
    let parent = Self.take("in", from: &words)
    let message = words.count > 1 ? words.removeLast() : ""
    return each(words) { user in
      shard.mark(verb, cid, user, under: parent, message, epoch: epoch, clock: clock)
    }
  }

  /// In a long run everything is checked only after the last command.
  private func each(_ words: ArraySlice<String>, _ perform: (String) -> Outcome) -> Answer {
    shard.checksEverything = words.count < 20
    defer { shard.checksEverything = true }
    var last = Answer(word: "")
    for word in words { last = outcome(perform(word)) }
    shard.checkAll()
    return last
  }

  private func query(_ verb: String, _ words: inout ArraySlice<String>) throws -> Answer {
    let viewer = Self.take("as", from: &words).map { Viewer.member($0) } ?? .server
    switch verb {
    case "row":
      let parent = Self.take("in", from: &words)!
      guard let row = shard.threadRow(cid, words.first!, under: parent) else { return Answer(word: "none") }
      return rowAnswer("row", row)
    case "shown":
      let (parent, user) = (Array(Self.take("in", from: &words)!.utf8), Array(words.first!.utf8))
      let slot = shard.slot(cid)!
      guard let member = try? shard.state.member(user.span.bytes, in: slot),
        let thread = try shard.state.thread(of: parent.span.bytes, in: slot, for: member),
        let row = shard.state[thread].row(of: user.span.bytes)
      else { return Answer(word: "none") }
      return rowAnswer(
        "shown",
        shard.view(thread, shard.state.shownRow(thread, row, withOwnDetails: false))
      )
    case "status":
      guard case .status(let status) = shard.statuses(cid, Array(words), viewer).last! else {
        guard case .refused(let name) = shard.statuses(cid, Array(words), viewer).last! else {
          throw Fault(text: "no answer")
        }
        return Answer(word: name)
      }
      return Answer(
        word: status.word,
        facts: [
          "seq": "\(status.sequence)", "readers": "\(status.readCount)",
          "received": "\(status.deliveredCount)", "unread": "\(status.unreadCount)",
          "members": "\(status.memberCount)", "receipt": status.receipt,
        ]
      )
    case "list":
      let list: ListName = ["readers": .readers, "delivered": .delivered, "unread": .unread][
        words.removeFirst()
      ]!
      switch shard.replyList(cid, words.first!, viewer, list) {
      case .failure(let refusal): return Answer(word: refusal.name)
      case .success(let entries):
        let words = entries.map { entry in
          entry.at == 0 ? entry.user : "\(entry.user)\(entry.isExact ? "@" : "~")\(entry.at)"
        }
        return Answer(word: words.isEmpty ? "nobody" : words.joined(separator: " "))
      }
    case "member":
      let message = Self.take("of", from: &words)!
      switch shard.replyStatus(cid, message, viewer, of: words.first!) {
      case .refused(let name): return Answer(word: name, isRefusal: true)
      case .status(let status): return Answer(word: status.word)
      }
    case "flag": return outcome(perform(.unread(cid: cid, user: words.first!, message: "", epoch: nil)))
    case "total":
      guard let unread = shard.unread(cid, words.first!) else { return Answer(word: "not_a_member") }
      return Answer(
        word: "total",
        facts: [
          "messages": "\(unread.messages)", "threads": "\(unread.threads)", "flagged": "\(unread.isFlagged)",
        ]
      )
    default: throw Fault(text: "no such verb: \(verb)")
    }
  }

  private func outcome(_ outcome: Outcome) -> Answer {
    let moved = shard.lastEffectCount > 0 ? "moved" : "same"
    switch outcome {
    case .refused(let name): return Answer(word: name, isRefusal: true)
    case .row(let row): return rowAnswer(moved, row)
    case .message(let sequence, let isNew, let refusal):
      return Answer(
        word: isNew ? "created" : "known",
        facts: ["seq": "\(sequence)", "refusal": refusal.isEmpty ? "-" : refusal]
      )
    case .delivery(let isMoved, let sentAt, let deliveredAt):
      let facts = ["sent": "\(sentAt)", "delivered": "\(deliveredAt)"]
      return Answer(word: isMoved ? "moved" : "same", facts: facts)
    case .ticket(let number): return Answer(word: "\(number)")
    case .position(let sequence): return Answer(word: moved, facts: ["seq": "\(sequence)"])
    case .channel(_, let members, let newest):
      return Answer(word: moved, facts: ["members": "\(members)", "newest": "\(newest)"])
    case .user, .member, .type, .acknowledged, .done, .marked: return Answer(word: moved)
    }
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
    }
    return Answer(word: word, facts: facts)
  }

  private static func take(_ name: String, from words: inout ArraySlice<String>) -> String? {
    guard let place = words.firstIndex(of: name), place + 1 < words.endIndex else { return nil }
    let value = words[place + 1]
    words.removeSubrange(place...(place + 1))
    return value
  }

  private static func drop(_ name: String, from words: inout ArraySlice<String>) -> Bool {
    guard let place = words.firstIndex(of: name) else { return false }
    words.remove(at: place)
    return true
  }
}

/// Run a story of threads; the first failing row is reported at its own line.
func threadStory(_ table: String, sourceLocation: SourceLocation = #_sourceLocation) {
  var story = ThreadStory()
  tell(table, sourceLocation) { story.run($0) }
}
