internal import LocalStack

/// The conversation as the store tells it: asked anew after every step, drawn where it changed, and compared with what
/// the step should have done.
final class Conversation {
  struct Message {
    var id: String
    var sender: String
    var text: String
    var seq: Int
  }

  let client: DemoClient
  let people: [String]
  private(set) var messages: [Message] = []
  /// What was compared so far.
  private(set) var checks = Checks()

  private let ink: Ink
  private let textWidth: Int
  private let pause: Duration
  private var drawn: [String: MessageView] = [:]

  init(client: DemoClient, people: [String], ink: Ink, textWidth: Int, pause: Duration) {
    self.client = client
    self.people = people
    self.ink = ink
    self.textWidth = textWidth
    self.pause = pause
  }

  // MARK: Telling

  /// Says what happens next.
  func tell(_ text: String) async throws {
    if pause > .zero { try await Task.sleep(for: pause) }
    Terminal.print("\(ink.grey("•")) \(text)")
  }

  /// Says something about the last step.
  func note(_ text: String) {
    Terminal.print("    \(text)")
  }

  /// Registers a message as its sender's chat backend would.
  func write(_ text: String, by sender: String) async throws {
    let id = "\(sender)-\(messages.count + 1)"
    let seq = try await client.register(id, sender: sender)
    messages.append(Message(id: id, sender: sender, text: text, seq: seq))
    expect("the sequence number of “\(text)”", messages.count, seq)
  }

  /// Asks for every message's state and draws those whose ticks or names changed.
  func draw() async throws {
    let views = try await views()
    for (message, view) in zip(messages, views) where drawn[message.id] != view {
      Terminal.print(ink.line(view, textWidth: textWidth, nameWidth: people.map(\.count).max() ?? 0))
      drawn[message.id] = view
    }
  }

  /// Draws every message, changed or not.
  func drawAll() async throws {
    drawn = [:]
    try await draw()
  }

  // MARK: Checking

  /// Compares; a mismatch is shown at once and remembered.
  func expect<Value: Equatable>(_ what: String, _ expected: Value, _ actual: Value) {
    if let mismatch = checks.expect(what, expected, actual) {
      Terminal.print("    \(ink.red("✗ " + mismatch))")
    }
  }

  /// Compares the words of the ticks of all messages, in order.
  func expectTicks(_ expected: String...) async throws {
    for (message, (expected, view)) in zip(messages, zip(expected, try await views())) {
      expect("the ticks of “\(message.text)”", expected, view.words)
    }
    expect("the number of messages", expected.count, messages.count)
  }

  /// Compares a person's own unread count.
  func expectUnread(_ expected: Int, of person: String) async throws {
    let row = try await client.readState(seenBy: person).first { $0.user.id == person }
    expect("the unread count of \(person)", expected, row?.unread_messages ?? -1)
  }

  /// What the sender of each message sees of it.
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
        // The counts of a status and the names of the read state come by different ways and have to agree (R1).
        expect("the readers of “\(message.text)”", readBy.count, status.read_count)
        expect(
          "the recipients of “\(message.text)”",
          readBy.count + deliveredTo.count,
          status.delivered_count
        )
        expect(
          "the others of “\(message.text)”",
          people.count - 1,
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
