import ReceiptModel
import Testing

@testable import Gateway

/// The replication of one value: which step follows which answer.
@Suite struct ValueReplicationTests {
  /// A response, and the step that follows it; nil: other answers are still missing.
  private typealias Row = (answer: Answer, step: ValueReplication.Step?)

  private enum Answer {
    case assigned(Bool)
    case announced(Bool)
    case markedReplicated(Bool)
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
    starts first: ValueReplication.Step,
    _ rows: [Row],
    at location: SourceLocation = #_sourceLocation
  ) {
    var replication = ValueReplication(value, shardCount: shards, isAnnounced: isAnnounced)
    #expect(replication.start() == first, sourceLocation: location)
    for (index, row) in rows.enumerated() {
      let step =
        switch row.answer {
        case .assigned(let isDone): replication.assigned(isDone: isDone)
        case .announced(let isDone): replication.announced(isDone: isDone)
        case .markedReplicated(let isDone): replication.markedReplicated(isDone: isDone)
        }
      #expect(step == row.step, "row \(index)", sourceLocation: location)
    }
  }

  @Test func typeIsAssignedToOtherShardsThenMarkedReplicated() {
    expect(
      type(),
      shards: 3,
      starts: .assign,
      [
        (.assigned(true), nil), (.assigned(true), .markReplicated),
        (.markedReplicated(true), .end(.replicated)),
      ]
    )
  }

  @Test func userChangeIsAnnouncedBeforeMarkedReplicated() {
    expect(
      user(),
      shards: 2,
      starts: .assign,
      [
        (.assigned(true), .announce), (.announced(true), .markReplicated),
        (.markedReplicated(true), .end(.replicated)),
      ]
    )
    expect(user(), shards: 2, isAnnounced: false, starts: .assign, [(.assigned(true), .markReplicated)])
  }

  @Test func oneShardNeedsNoAssignment() {
    expect(type(), shards: 1, starts: .markReplicated, [(.markedReplicated(true), .end(.replicated))])
    expect(user(), shards: 1, starts: .announce, [(.announced(true), .markReplicated)])
  }

  @Test func valueThatWasNeverSetEndsAtOnce() {
    expect(user(version: 0), shards: 3, starts: .end(.replicated), [])
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

  @Test func failedMarkReplicatedLeavesCompleteValue() {
    expect(
      type(),
      shards: 2,
      starts: .assign,
      [(.assigned(true), .markReplicated), (.markedReplicated(false), .end(.unreplicated))]
    )
  }
}
