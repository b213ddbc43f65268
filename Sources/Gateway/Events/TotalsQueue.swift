internal import DequeModule
internal import ReceiptModel

/// Whose `notification.totals` are counted, and when. A pure state machine: each user at most once in
/// ``intervalMilliseconds``, at most so many at a time, in the order in which something may have changed for them.
struct TotalsQueue {
  /// A user who has streams that ask for them.
  private struct User {
    var streams: [EventHub.Ref] = []
    /// Something may have changed them since they were counted.
    var isDirty = false
    var isCounting = false
    /// Among `due`.
    var isDue = false
    /// Among `resting`: they were counted less than the interval ago.
    var isResting = false

    var isOver: Bool { streams.isEmpty && !isCounting && !isDue && !isResting }
  }

  /// API.md, "Events".
  static let intervalMilliseconds: Int64 = 1_000

  private var users: [ExactText: User] = [:]
  private var due = Deque<ExactText>()
  /// With until when, in that order.
  private var resting = Deque<(user: ExactText, until: Int64)>()
  /// Users whose totals are being counted.
  private(set) var countingCount = 0

  init() {}

  /// Users who are known.
  var userCount: Int { users.count }

  func streams(of user: String) -> [EventHub.Ref] { users[ExactText(user)]?.streams ?? [] }

  mutating func add(_ stream: EventHub.Ref, of user: String) {
    users[ExactText(user), default: User()].streams.append(stream)
  }

  mutating func remove(_ stream: EventHub.Ref, of user: String) {
    let user = ExactText(user)
    users[user]?.streams.removeAll { $0 == stream }
    forgetIfOver(user)
  }

  /// Something may have changed them. Nothing, where no stream asks for them.
  mutating func changed(_ user: String) {
    let user = ExactText(user)
    guard let known = users[user], !known.streams.isEmpty else { return }
    users[user]?.isDirty = true
    queue(user)
  }

  /// Takes the next user whose totals are to be counted; the end of that is told to ``counted(_:isDone:)``.
  ///
  /// - Parameter now: milliseconds since 1970.
  mutating func next(at now: Int64) -> String? {
    while let first = resting.first, first.until <= now {
      resting.removeFirst()
      users[first.user]?.isResting = false
      queue(first.user)
      forgetIfOver(first.user)
    }
    while let user = due.popFirst() {
      users[user]?.isDue = false
      guard let known = users[user], !known.streams.isEmpty else {
        forgetIfOver(user)
        continue
      }
      users[user]?.isDirty = false
      users[user]?.isCounting = true
      users[user]?.isResting = true
      countingCount += 1
      resting.append((user, now + Self.intervalMilliseconds))
      return user.text
    }
    return nil
  }

  /// They were counted, or could not be: then they are counted again, after the interval.
  mutating func counted(_ user: String, isDone: Bool) {
    let user = ExactText(user)
    guard users[user]?.isCounting == true else { return }
    countingCount -= 1
    users[user]?.isCounting = false
    if !isDone { users[user]?.isDirty = true }
    queue(user)
    forgetIfOver(user)
  }

  private mutating func queue(_ user: ExactText) {
    guard let known = users[user], known.isDirty, !known.isCounting, !known.isDue, !known.isResting else {
      return
    }
    users[user]?.isDue = true
    due.append(user)
  }

  private mutating func forgetIfOver(_ user: ExactText) {
    if users[user]?.isOver == true { users[user] = nil }
  }
}
