import ReceiptModel
import ReceiptWire
import Testing

@testable import Gateway

/// The part of an event that a member who joined under hidden history receives (R6).
@Suite struct HistoryLimitTests {
  private let joinedAt = Timestamp(milliseconds: 5_000)

  private func limit(_ hidden: HistoryLimit.Hidden, joined: UInt32 = 0) -> HistoryLimit {
    HistoryLimit(from: joinedAt, through: joinedAt, hidden: hidden, joined: SequenceNumber(joined))
  }

  private func row(_ read: UInt32, _ delivered: UInt32, shown: RowEventFields.Shown) -> EventFields {
    let row = RowEventRow(
      user: "bob",
      lastRead: Timestamp(milliseconds: 9_000),
      lastReadMessage: "m\(read)",
      lastReadSequence: SequenceNumber(read),
      lastDelivered: Timestamp(milliseconds: 9_000),
      lastDeliveredMessage: "m\(delivered)",
      lastDeliveredSequence: SequenceNumber(delivered)
    )
    return .row(
      RowEventFields(thread: "", own: [], shown: shown, at: joinedAt, ownRow: row, shownRow: row)
    )
  }

  private func visiblePart(_ event: EventFields, _ limit: HistoryLimit) -> (
    event: EventFields, forms: EventForm.Forms
  )? {
    event.limited(by: limit, event.forms(for: .user(isSubject: false)), joinedAt: joinedAt)
  }

  @Test func rowEventHasOnlyPositionsAfterJoin() throws {
    let both: RowEventFields.Shown = [.read, .delivered]
    #expect(visiblePart(row(3, 4, shown: both), limit([.position, .delivered])) == nil)
    let delivered = try #require(visiblePart(row(3, 7, shown: both), limit(.position)))
    #expect(delivered.forms == EventForm.Forms(.delivered))
    #expect(visiblePart(row(7, 7, shown: both), limit(.event)) == nil)
  }

  @Test func hiddenPositionIsShownAsJoin() throws {
    let left = try #require(visiblePart(row(3, 7, shown: .row), limit(.position, joined: 5)))
    guard case .row(let event) = left.event, let shown = event.shownRow else {
      Issue.record("no row")
      return
    }
    #expect(left.forms == EventForm.Forms(.rowShown))
    #expect(shown.lastReadSequence == SequenceNumber(5) && shown.lastReadMessage.isEmpty)
    #expect(shown.lastRead == joinedAt)
    #expect(shown.lastDeliveredSequence == SequenceNumber(7) && shown.lastDeliveredMessage == "m7")
    // If every part is hidden, there is no event. The row's own member still receives it.
    let hidden = limit([.position, .delivered, .row], joined: 9)
    #expect(visiblePart(row(3, 7, shown: .row), hidden) == nil)
    let own = row(3, 7, shown: .row)
    #expect(own.limited(by: hidden, own.forms(for: .user(isSubject: true)), joinedAt: joinedAt) != nil)
  }

  @Test func messagesBeforeJoinAreOmitted() {
    let message = MessageEventFields(
      thread: "",
      sequence: SequenceNumber(3),
      message: "m3",
      sender: "bob",
      registered: Timestamp(milliseconds: 1),
      created: Timestamp(milliseconds: 1),
      flags: []
    )
    for event in [
      EventFields.messageNew(message), .truncated(through: SequenceNumber(3), at: joinedAt),
      .messageDeleted(thread: "", SequenceNumber(3), message: "m3", at: joinedAt),
    ] { #expect(visiblePart(event, limit(.position)) == nil) }
    let member = MemberEventFields(
      user: "erin",
      role: "",
      at: joinedAt,
      memberCount: 3,
      readSequence: SequenceNumber(4),
      readMessage: "m4"
    )
    guard
      case .memberAdded(let added)? = visiblePart(.memberAdded(member), limit(.position, joined: 5))?.event
    else {
      Issue.record("no member.added event")
      return
    }
    #expect(added.readMessage.isEmpty && added.readSequence == SequenceNumber(5))
  }
}
