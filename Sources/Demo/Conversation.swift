internal import CommandOutput

/// The conversation as its senders see it. After every step it is redrawn where it changed, and compared with the
/// expected result. One sender follows a live stream; for the others the state is queried.
final class Conversation {
  struct Message {
    var id: String
    var sender: String
    var text: String
    var seq: Int
  }

  let client: DemoClient
  /// People who have a token.
  let people: [String]
  /// All members of the channel.
  let members: [String]
  private(set) var messages: [Message] = []
  /// Comparisons so far.
  private(set) var checks = Checks()

  private let live: LiveTickStream
  private let style: TextStyle
  private let textWidth: Int
  private let pause: Duration
  private var drawn: [String: MessageView] = [:]

  init(
    client: DemoClient,
    live: LiveTickStream,
    people: [String],
    members: [String],
    style: TextStyle,
    textWidth: Int,
    pause: Duration
  ) {
    self.client = client
    self.live = live
    self.people = people
    self.members = members
    self.style = style
    self.textWidth = textWidth
    self.pause = pause
  }

  // MARK: Narration

  /// Print what happens next.
  func narrate(_ text: String) async throws {
    if pause > .zero { try await Task.sleep(for: pause) }
    Terminal.print("\(style.grey("•")) \(text)")
  }

  /// Print a remark on the last step.
  func printLine(_ text: String) {
    Terminal.print("    \(text)")
  }

  /// Register a message as its sender's chat backend would.
  func write(_ text: String, by sender: String) async throws {
    let id = "\(sender)-\(messages.count + 1)"
    let seq = try await client.register(id, sender: sender)
    messages.append(Message(id: id, sender: sender, text: text, seq: seq))
    expect("the sequence number of “\(text)”", messages.count, seq)
  }

  /// Draw the messages whose ticks or names have changed, and compare all messages with what their senders should see.
  /// Changes that the stream delivers are awaited first.
  ///
  /// - Parameters:
  ///   - all: draw all messages, changed or not.
  ///   - expected: the expected words for each message, in order.
  func show(all: Bool = false, _ expected: String...) async throws {
    expect("the number of messages", expected.count, messages.count)
    let pairs = Array(zip(messages, expected))
    try await live.wait { liveState in
      pairs.allSatisfy { message, words in
        message.sender != liveState.sender || liveState.view(message.id)?.words == words
      }
    }
    let liveState = live.liveState
    for ((message, words), asked) in zip(pairs, try await views()) {
      var view = asked
      if message.sender == liveState.sender {
        view = messageView(message, liveState)
        // Two sources of the same state: the events received, and the query.
        expect("what \(message.sender)'s stream and a query say of “\(message.text)”", asked.words, view.words)
      }
      if all || drawn[message.id] != view {
        Terminal.print(style.line(view, textWidth: textWidth, nameWidth: people.map(\.count).max() ?? 0))
        drawn[message.id] = view
      }
      expect("the ticks of “\(message.text)”", words, view.words)
    }
  }

  private func messageView(_ message: Message, _ liveState: LiveMessageState) -> MessageView {
    var view =
      liveState.view(message.id)
      ?? MessageView(sender: message.sender, text: "", status: .sent, deliveredTo: [], readBy: [])
    view.text = message.text
    return view
  }

  // MARK: Comparing

  /// Compare two values; a mismatch is printed at once and recorded.
  func expect<Value: Equatable>(_ what: String, _ expected: Value, _ actual: Value) {
    if let mismatch = checks.expect(what, expected, actual) {
      Terminal.print("    \(style.red("✗ " + mismatch))")
    }
  }

  /// Compare a person's own unread count.
  func expectUnread(_ expected: Int, of person: String) async throws {
    let row = try await client.readState(seenBy: person).first { $0.user.id == person }
    expect("the unread count of \(person)", expected, row?.unread_messages ?? -1)
  }

  /// Query each message as its sender sees it.
  func views() async throws -> [MessageView] {
    var views: [String: MessageView] = [:]
    for sender in people {
      let own = messages.filter { $0.sender == sender }
      guard !own.isEmpty else { continue }
      let rows = try await client.readState(seenBy: sender).filter { $0.user.id != sender }
      let statuses = try await client.statuses(of: own.map(\.id), seenBy: sender)
      for (message, status) in zip(own, statuses) {
        let readBy = rows.filter { $0.last_read_seq >= message.seq }.map(\.user.id).sorted()
        let deliveredTo = rows.filter { $0.last_delivered_seq >= message.seq }.map(\.user.id)
          .filter { !readBy.contains($0) }.sorted()
        // The counts of a status and the names of the read state come from different queries and must agree (R1).
        expect("the readers of “\(message.text)”", readBy.count, status.read_count)
        expect(
          "the recipients of “\(message.text)”",
          readBy.count + deliveredTo.count,
          status.delivered_count
        )
        expect(
          "the others of “\(message.text)”",
          members.count - 1,
          status.read_count + status.unread_count
        )
        views[message.id] = MessageView(
          sender: sender,
          text: message.text,
          status: status.status,
          deliveredTo: deliveredTo,
          readBy: readBy
        )
      }
    }
    return messages.compactMap { views[$0.id] }
  }
}

/// Counter of the demo's comparisons, with the mismatches.
struct Checks {
  private(set) var count = 0
  /// Descriptions of the failed comparisons.
  private(set) var mismatches: [String] = []

  /// Compare two values.
  ///
  /// - Returns: a description of the mismatch, or nil.
  mutating func expect<Value: Equatable>(_ what: String, _ expected: Value, _ actual: Value) -> String? {
    count += 1
    guard expected != actual else { return nil }
    let text = "\(what): expected \(expected), actual \(actual)"
    mismatches.append(text)
    return text
  }
}
