import StoreEngine
import Testing

@testable import StoreServer

/// The check of a received snapshot against the shared log.
@Suite struct SnapshotVerificationTests {
  private typealias Action = SnapshotVerification.Action

  private struct Case: Sendable {
    var name: String
    /// Outcomes of reads; nil: no answer in time.
    var outcomes: [ReadOutcome?]
    /// The actions after each outcome.
    var actions: [SnapshotVerification.Action]
  }

  private static let before = LogCursor(position: RecordPosition(4), epoch: OwnerEpoch(2), hash: RecordHash(44))
  private static let last = before.record(.batches, epoch: OwnerEpoch(2), payload: [1])
  private static let cursor = LogCursor(after: last)
  private static let next = cursor.record(.batches, epoch: OwnerEpoch(2), payload: [2])
  /// Records of another history.
  private static let otherLast = before.record(.batches, epoch: OwnerEpoch(2), payload: [9])
  private static let otherNext = LogCursor(after: otherLast).record(.batches, epoch: OwnerEpoch(2), payload: [2])

  private static let nextIsFirst = ReadOutcome.trimmed(first: RecordPosition(6))
  private static let readNext = Action.read(from: RecordPosition(6), afterPause: false)
  private static let retry = Action.read(from: RecordPosition(5), afterPause: false)
  private static let retryLater = Action.read(from: RecordPosition(5), afterPause: true)
  private static let noAnswer = Action.reject(reason: "the shared log does not answer")

  private static func records(_ records: GroupRecord...) -> ReadOutcome { .records(records, reachesEnd: false) }

  private static let cases = [
    Case(name: "the log has the last record", outcomes: [records(last)], actions: [.accept]),
    Case(
      name: "the log has another record there",
      outcomes: [records(otherLast)],
      actions: [.reject(reason: "its last record 5 is not that of the shared log")]
    ),
    Case(
      name: "the log ends before the record",
      outcomes: [records()],
      actions: [.reject(reason: "its last record 5 is not that of the shared log")]
    ),
    Case(
      name: "the log begins with the record that follows",
      outcomes: [nextIsFirst, records(next)],
      actions: [readNext, .accept]
    ),
    Case(
      name: "the log begins with a record that does not follow",
      outcomes: [nextIsFirst, records(otherNext)],
      actions: [readNext, .reject(reason: "record 6 of the shared log does not follow it")]
    ),
    Case(
      name: "the log begins later",
      outcomes: [.trimmed(first: RecordPosition(7))],
      actions: [.reject(reason: "it ends at record 5, the log begins at 7")]
    ),
    Case(
      name: "the log is trimmed further between the reads",
      outcomes: [nextIsFirst, .trimmed(first: RecordPosition(7)), .trimmed(first: RecordPosition(7))],
      actions: [readNext, retry, .reject(reason: "it ends at record 5, the log begins at 7")]
    ),
    Case(
      name: "the log answers again",
      outcomes: [nil, .failed, nextIsFirst, nil, nextIsFirst, records(), records(last)],
      actions: [retryLater, retryLater, readNext, retry, readNext, retry, .accept]
    ),
    Case(
      name: "the log never answers",
      outcomes: Array(repeating: nil, count: 12),
      actions: Array(repeating: retryLater, count: 11) + [noAnswer]
    ),
    Case(
      name: "the log answers only the first of two reads",
      outcomes: Array(repeating: [nextIsFirst, .failed], count: 12).flatMap { $0 },
      actions: Array(repeating: [readNext, retry], count: 11).flatMap { $0 } + [readNext, noAnswer]
    ),
  ]

  @Test func eachReadOutcomeLeadsToItsAction() {
    for row in Self.cases {
      var verification = SnapshotVerification(of: Self.cursor)
      #expect(verification.first == .read(from: RecordPosition(5), afterPause: false), "\(row.name)")
      var actions: [Action] = []
      for outcome in row.outcomes { actions.append(verification.handle(outcome)) }
      #expect(actions == row.actions, "\(row.name)")
    }
  }
}
