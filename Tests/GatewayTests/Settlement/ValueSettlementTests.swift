import ReceiptModel
import Testing

@testable import Gateway

/// The settlement of one value: which action follows which answer.
@Suite struct ValueSettlementTests {
  /// A response, and the action that follows it; nil: other answers are still missing.
  private typealias Row = (answer: Answer, action: ValueSettlement.Action?)

  private enum Answer {
    case assigned(Bool)
    case announced(Bool)
    case settled(Bool)
  }

  private func type(version: UInt64 = 1) -> SharedValue {
    .channelType(ChannelTypeRecord(name: "team", version: version))
  }

  private func user(version: UInt64 = 1) -> SharedValue {
    .user(UserSettings(user: "alice", version: version))
  }

  private func expect(
    _ value: SharedValue,
    shards: Int,
    isAnnounced: Bool = true,
    starts first: ValueSettlement.Action,
    _ rows: [Row],
    at location: SourceLocation = #_sourceLocation
  ) {
    var settlement = ValueSettlement(value, shardCount: shards, isAnnounced: isAnnounced)
    #expect(settlement.start() == first, sourceLocation: location)
    for (index, row) in rows.enumerated() {
      let action =
        switch row.answer {
        case .assigned(let isDone): settlement.assigned(isDone: isDone)
        case .announced(let isDone): settlement.announced(isDone: isDone)
        case .settled(let isDone): settlement.settled(isDone: isDone)
        }
      #expect(action == row.action, "row \(index)", sourceLocation: location)
    }
  }

  @Test func typeIsAssignedToOtherShardsThenSettled() {
    expect(
      type(),
      shards: 3,
      starts: .assign,
      [
        (.assigned(true), nil), (.assigned(true), .settle),
        (.settled(true), .end(.settled)),
      ]
    )
  }

  @Test func userChangeIsAnnouncedBeforeSettled() {
    expect(
      user(),
      shards: 2,
      starts: .assign,
      [
        (.assigned(true), .announce), (.announced(true), .settle),
        (.settled(true), .end(.settled)),
      ]
    )
    expect(user(), shards: 2, isAnnounced: false, starts: .assign, [(.assigned(true), .settle)])
  }

  @Test func oneShardNeedsNoAssignment() {
    expect(type(), shards: 1, starts: .settle, [(.settled(true), .end(.settled))])
    expect(user(), shards: 1, starts: .announce, [(.announced(true), .settle)])
  }

  @Test func valueThatWasNeverSetEndsAtOnce() {
    expect(user(version: 0), shards: 3, starts: .end(.settled), [])
  }

  @Test func failedAssignmentEndsAfterAllAnswers() {
    expect(
      type(),
      shards: 4,
      starts: .assign,
      [(.assigned(true), nil), (.assigned(false), nil), (.assigned(true), .end(.incomplete))]
    )
  }

  @Test func failedAnnouncementIsIncomplete() {
    expect(
      user(),
      shards: 2,
      starts: .assign,
      [(.assigned(true), .announce), (.announced(false), .end(.incomplete))]
    )
  }

  @Test func failedSettleLeavesCompleteValue() {
    expect(
      type(),
      shards: 2,
      starts: .assign,
      [(.assigned(true), .settle), (.settled(false), .end(.unsettled))]
    )
  }
}
