import StoreTestSupport
import Testing

@testable import StoreEngine

/// A node's events and actions for one group, row by row (docs/contribute/cluster-design.md, "Ownership").
@Suite("Ownership stories")
struct OwnershipStoryTests {
  private typealias S = OwnershipStory

  static let stories = followingStories + claimingStories + owningStories + releasingStories + levelStories

  @Test("a trim removes a limited number of records")
  func trimsAreBounded() {
    let last = RecordPosition(100_000)
    var progress = Ownership.MemberProgress(ownedSince: S.time(0))
    let members = (1...3).map { NodeID($0) }
    let report = MemberReport(position: last)
    for id in members { progress.reported(report, by: id, last: last, ClusterLimits(), at: S.time(1)) }
    var bounds: [UInt64] = []
    var first = RecordPosition(1)
    while let before = progress.trimIfDue(members, first...last, ClusterLimits(), at: S.time(2)) {
      bounds.append(before.rawValue)
      #expect(progress.trimIfDue(members, first...last, ClusterLimits(), at: S.time(2)) == nil, "one at a time")
      first = before
    }
    #expect(bounds == stride(from: 10_001, through: 90_001, by: 10_000) + [100_000])
  }

  @Test("ownership follows its story", arguments: stories)
  func ownershipFollowsItsStory(story: OwnershipStory) { story.check() }

  private static let followingStories = [
    S(
      "a follower applies records once and in order, and reads again after a gap",
      S.following,
      {
        let more = S.records(after: S.end, [(.batches, 1), (.alive, 1), (.alive, 1), (.alive, 1)])
        return [
          .init(100, .recordsFollowed([more[0]]), "apply 4 batches [7]"),
          .init(110, .recordsFollowed([S.log[2], more[0]]), "-"),
          .init(120, .recordsFollowed([more[2]]), "read 5"),
          .init(130, .recordsFollowed([more[3]]), "-"),
          .init(140, .recordsRead([more[1]], from: RecordPosition(5), reachesEnd: false), "apply 5 alive, read 6"),
          .init(
            150,
            .recordsRead([more[2], more[3]], from: RecordPosition(6), reachesEnd: true),
            "apply 6 alive, apply 7 alive, follow 8"
          ),
        ]
      }()
    ),
    S(
      "a read without an answer is sent again",
      [
        .init(0, S.probe(owner: S.owner(2, epoch: 1), last: 3), "read 1"),
        .init(399, .timerFired, "-"),
        .init(400, .timerFired, "read 1"),
        .init(400, input: .deadline, "800"),
      ]
    ),
    S(
      "a watch that ends, or that misses what a probe saw, is replaced",
      S.following,
      [
        .init(100, .followEnded, "read 4"),
        .init(110, .recordsRead([], from: RecordPosition(4), reachesEnd: true), "follow 4"),
        .init(500, S.probe(owner: S.owner(2, epoch: 1), last: 5), "-"),
        .init(1_000, S.probe(owner: S.owner(2, epoch: 1), last: 6), "read 4"),
      ]
    ),
    S(
      "a member whose next record is trimmed needs a snapshot, and never claims",
      [
        .init(0, S.probe(owner: S.owner(2, epoch: 1), last: 9), "read 1"),
        .init(10, .readTrimmed(first: RecordPosition(9)), "fetch snapshot, log begins at 9"),
        .init(10, input: .deadline, "never"),
      ]
    ),
    S(
      "a member with another history needs a snapshot",
      S.following,
      [
        .init(
          100,
          .recordsFollowed(S.records(after: LogCursor(after: S.log[1]), [(.batches, 1), (.alive, 1)])),
          "fetch snapshot, diverged at 4"
        )
      ]
    ),
    S(
      "a node reports nothing until the log has its last record",
      stored: S.end,
      [
        .init(0, S.probe(owner: S.owner(2, epoch: 1), last: 3), "read 3"), .init(5, input: .report, "reports nothing"),
        .init(10, .recordsRead([S.log[2]], from: RecordPosition(3), reachesEnd: true), "follow 4"),
        .init(10, input: .report, "reports"),
      ]
    ),
    S(
      "a node whose last record is trimmed compares the next one",
      stored: S.end,
      [
        .init(0, S.probe(owner: S.owner(2, epoch: 1), last: 4), "read 3"),
        .init(10, .readTrimmed(first: RecordPosition(4)), "read 4"), .init(10, input: .report, "reports nothing"),
        // It has asked for its last record once more.
        .init(510, .timerFired, "read 3"),
        .init(
          520,
          .recordsRead(S.records(after: S.end, [(.alive, 1)]), from: RecordPosition(4), reachesEnd: true),
          "apply 4 alive, follow 5"
        ),
        .init(520, input: .report, "reports"),
      ]
    ),
    S(
      "a node with another last record needs a snapshot, and never reports",
      stored: LogCursor(after: S.records(after: LogCursor(after: S.log[1]), [(.batches, 1)])[0]),
      [
        .init(0, S.probe(owner: S.owner(2, epoch: 1), last: 3), "read 3"),
        .init(10, .recordsRead([S.log[2]], from: RecordPosition(3), reachesEnd: true), "fetch snapshot, diverged at 3"),
        .init(10, input: .report, "reports nothing"), .init(10, input: .deadline, "never"),
      ]
    ),
    S(
      "a node that is ahead of the log's end needs a snapshot, and never reports",
      stored: LogCursor(after: S.records(after: S.end, [(.batches, 1)])[0]),
      [
        .init(0, S.probe(owner: S.owner(2, epoch: 1), last: 3), "read 4"),
        .init(10, .recordsRead([], from: RecordPosition(4), reachesEnd: true), "fetch snapshot, diverged at 4"),
        .init(10, input: .report, "reports nothing"),
      ]
    ),
  ]

  private static let claimingStories = [
    S(
      "the first member claims after 2.0 s of silence",
      S.following,
      [
        .init(0, input: .deadline, "2000"),
        .init(1_999, .timerFired, "-"),
        .init(2_000, .timerFired, "send 4 claim by 1 as attempt 1"),
        .init(2_050, S.committed(1), "committed 4, promote to epoch 2"),
      ]
    ),
    S("each rank waits 0.3 s longer", node: 3, S.following, [.init(0, input: .deadline, "2600")]),
    S(
      "a record and a failed probe start the silence anew",
      S.following,
      [
        .init(900, .recordsFollowed(S.records(after: S.end, [(.alive, 1)])), "apply 4 alive"),
        .init(900, input: .deadline, "2900"),
        .init(1_300, .logUnresponsive, "-"),
        .init(1_300, input: .deadline, "3300"),
      ]
    ),
    S(
      "a node does not claim before a probe has seen the owner whose records it applied",
      S.following,
      [
        .init(
          900,
          .recordsFollowed(S.records(after: S.end, [(.claim(by: NodeID(3)), 2)])),
          "apply 4 claim by 3"
        ),
        .init(900, input: .deadline, "never"),
        .init(1_000, S.probe(owner: S.owner(3, epoch: 2), last: 4), "-"),
        .init(1_000, input: .deadline, "2900"),
      ]
    ),
    S(
      "an unclear claim is sent again unchanged; any of its answers decides",
      S.following,
      [
        .init(2_000, .timerFired, "send 4 claim by 1 as attempt 1"),
        .init(2_010, S.unclear(1), "-"),
        .init(2_010, input: .deadline, "2060"),
        .init(2_060, .timerFired, "send 4 claim by 1 as attempt 2"),
        .init(2_460, .timerFired, "send 4 claim by 1 as attempt 3"),
        .init(2_470, S.unclear(2), "-"),
        .init(2_470, input: .deadline, "2860"),
        .init(2_500, S.committed(1), "committed 4, promote to epoch 2"),
        // The lease counts from the first sending.
        .init(3_499, input: .lease, "answers"),
        .init(3_500, input: .lease, "answers nothing"),
      ]
    ),
    S(
      "a lost claim: the node reads on, and its silence starts anew",
      S.following,
      [
        .init(2_000, .timerFired, "send 4 claim by 1 as attempt 1"),
        .init(2_050, S.fenced(1, by: S.owner(3, epoch: 2)), "read 4"),
        .init(
          2_060,
          .recordsRead(
            S.records(after: S.end, [(.claim(by: NodeID(3)), 2)]),
            from: RecordPosition(4),
            reachesEnd: true
          ),
          "apply 4 claim by 3, follow 5"
        ),
        .init(2_060, input: .deadline, "4060"),
      ]
    ),
    S(
      "another record at the claim's position shows that the claim is lost",
      S.following,
      [
        .init(2_000, .timerFired, "send 4 claim by 1 as attempt 1"),
        .init(2_010, .recordsFollowed(S.records(after: S.end, [(.alive, 1)])), "apply 4 alive, read 4"),
        // A late answer changes nothing.
        .init(2_020, S.fenced(1, by: S.owner(2, epoch: 1)), "-"),
      ]
    ),
  ]

  private static let owningStories = [
    S(
      "an idle owner appends alive records, each of which extends the lease",
      S.owning,
      [
        .init(2_050, input: .deadline, "2500"),
        .init(2_500, .timerFired, "send 5 alive as attempt 2"),
        .init(2_600, S.committed(2), "committed 5"),
        .init(2_600, input: .deadline, "3000"),
        .init(3_999, input: .lease, "answers"),
        .init(4_000, input: .lease, "answers nothing"),
      ]
    ),
    S(
      "one record is undecided at a time, and is sent again unchanged",
      S.owning,
      [
        .init(2_100, .commitRequested(.init(payload: [1])), "send 5 batches [1] as attempt 2"),
        .init(2_500, .timerFired, "send 5 batches [1] as attempt 3"),
        .init(2_510, S.unclear(3), "-"),
        .init(2_560, .timerFired, "send 5 batches [1] as attempt 4"),
        .init(2_570, S.committed(2), "committed 5"),
        .init(2_580, S.committed(4), "-"),
        .init(2_590, .commitRequested(.init(payload: [2])), "send 6 batches [2] as attempt 5"),
        .init(3_599, input: .lease, "answers"),
        .init(3_600, input: .lease, "answers nothing"),
      ]
    ),
    S(
      "a commit waits for an alive record in flight",
      S.owning,
      [
        .init(2_500, .timerFired, "send 5 alive as attempt 2"),
        .init(2_510, .commitRequested(.init(payload: [1])), "-"),
        .init(2_520, S.committed(2), "committed 5, send 6 batches [1] as attempt 3"),
        .init(2_530, S.committed(3), "committed 6"),
      ]
    ),
    S(
      "a stopped owner answers nothing when it resumes, and a failed compare deposes it",
      S.owning,
      [
        .init(9_000, input: .lease, "answers nothing"),
        .init(9_000, .timerFired, "send 5 alive as attempt 2"),
        .init(9_010, S.fenced(2, by: S.owner(2, epoch: 3)), "step down, deposed"),
        .init(9_020, .recordsFollowed(S.records(after: S.end, [(.alive, 1)])), "-"),
        .init(9_030, .loopReset(S.claimed), "read 4"),
      ]
    ),
    S(
      "a claim in the watch deposes an owner",
      S.owning,
      [.init(2_100, .recordsFollowed(S.records(after: S.end, [(.claim(by: NodeID(3)), 3)])), "step down, deposed")]
    ),
    S(
      "a claim that a probe has seen deposes an owner",
      S.owning,
      [
        .init(2_100, S.probe(owner: S.owner(1, epoch: 2), last: 4), "-"),
        .init(2_200, S.probe(owner: S.owner(3, epoch: 3), last: 5), "step down, deposed"),
      ]
    ),
    S(
      "an owner trims what every member has synced, and keeps the last record",
      S.owning,
      [
        .init(2_100, S.synced(1, 4), "-"),
        .init(2_110, S.synced(2, 4), "-"),
        .init(2_120, S.synced(3, 2), "-"),
        .init(2_130, S.synced(3, 3), "trim before 4"),
        .init(2_140, S.synced(3, 4), "-"),
        .init(2_150, S.synced(2, 2), "-"),
      ]
    ),
    S(
      "a member that is away for long, while much waits, no longer holds the trim",
      S.owning,
      [
        .init(2_100, S.synced(3, 2), "-"),
        .init(2_110, S.synced(2, 4), "-"),
        .init(2_120, .commitRequested(.init(payload: [1, 2, 3, 4])), "send 5 batches [1, 2, 3, 4] as attempt 2"),
        .init(2_130, S.committed(2), "committed 5"),
        .init(2_140, S.synced(1, 5), "-"),
        // Three seconds are not over.
        .init(5_050, S.synced(2, 5), "-"),
        .init(5_100, S.synced(3, 2), "trim before 5"),
        // It is back, and installs a snapshot.
        .init(5_200, S.joining(3, 5), "-"),
        .init(5_210, .commitRequested(.init(payload: [5])), "send 6 batches [5] as attempt 3"),
        .init(5_220, S.committed(3), "committed 6"),
        .init(5_230, S.synced(1, 6), "-"),
        .init(8_000, S.synced(2, 6), "-"),
      ]
    ),
    S(
      "a member that is away for long on a quiet log no longer holds the trim",
      recordBytes: 1,
      S.owning,
      [
        .init(2_100, S.synced(3, 2), "-"),
        .init(2_110, S.synced(2, 4), "-"),
        .init(2_120, S.synced(1, 4), "-"),
        .init(2_600, .timerFired, "send 5 alive as attempt 2"),
        .init(2_610, S.committed(2), "committed 5"),
        // It lacks three records.
        .init(5_200, S.synced(2, 5), "-"),
        .init(5_210, .timerFired, "send 6 alive as attempt 3"),
        .init(5_220, S.committed(3), "committed 6"),
        .init(5_230, S.synced(1, 6), "trim before 6"),
      ]
    ),
    S(
      "a member that has not reported to this owner lacks all records of the log",
      recordBytes: 1,
      S.owning,
      [
        .init(2_100, S.synced(1, 4), "-"),
        .init(2_110, S.synced(2, 4), "-"),
        // Three seconds after the claim.
        .init(5_500, S.synced(2, 5), "trim before 4"),
      ]
    ),
    S(
      "two members have synced what is trimmed, however long the others are away",
      S.owning,
      [
        .init(2_100, S.synced(1, 4), "-"),
        .init(2_110, .commitRequested(.init(payload: [1, 2, 3, 4])), "send 5 batches [1, 2, 3, 4] as attempt 2"),
        .init(2_120, S.committed(2), "committed 5"),
        .init(90_000, S.synced(1, 5), "-"),
        .init(90_010, S.joining(2, 5), "-"),
        .init(90_020, S.synced(2, 5), "trim before 5"),
      ]
    ),
  ]

  private static let releasingStories = [
    S(
      "a group moves to its preferred owner, once that has followed for 10 s without a pause",
      S.owning,
      [
        .init(2_100, S.probe(owner: S.owner(1, epoch: 2), last: 4, set: ([3, 1, 2], 7)), "-"),
        // The first report may be old.
        .init(3_000, S.synced(3, 4), "-"),
        .init(4_000, S.synced(3, 5), "-"),
        .init(6_500, S.synced(3, 6), "-"),
        .init(9_000, S.synced(3, 7), "-"),
        .init(12_500, S.synced(3, 8), "-"),
        .init(15_000, S.synced(3, 9), "-"),
        .init(17_500, S.synced(3, 10), "-"),
        .init(20_000, S.synced(3, 11), "-"),
        .init(22_400, S.synced(3, 12), "-"),
        .init(22_450, .commitRequested(.init(payload: [1])), "send 5 batches [1] as attempt 2"),
        .init(22_500, S.probe(owner: S.owner(1, epoch: 2), last: 4), "-"),
        .init(22_500, input: .lease, "answers nothing"),
        .init(22_550, S.committed(2), "committed 5, yield, send 6 release to 3 as attempt 3"),
        .init(22_950, .timerFired, "send 6 release to 3 as attempt 4"),
        .init(22_960, S.committed(4), "committed 6, step down, released to 3"),
        .init(22_970, .loopReset(S.released), "read 6"),
      ]
    ),
    S(
      "a group stays where the preferred owner lags, joins or leaves",
      S.owning,
      [
        .init(2_100, S.probe(owner: S.owner(1, epoch: 2), last: 4, set: ([3, 1, 2], 7)), "-"),
        .init(3_000, S.synced(3, 1), "-"),
        .init(4_000, S.synced(3, 2), "-"),
        .init(13_000, S.ineligible(3, 4), "-"),
        .init(13_900, S.joining(3, 5), "-"),
        .init(14_000, S.synced(3, 3), "-"),
        .init(14_100, S.probe(owner: S.owner(1, epoch: 2), last: 4), "-"),
      ]
    ),
    S(
      "an owner that leaves releases its groups to the first member that follows",
      S.owning,
      [
        .init(2_100, S.synced(2, 4), "-"),
        .init(2_200, S.synced(3, 3), "-"),
        .init(2_300, S.synced(3, 4), "-"),
        .init(2_400, .handOverRequested, "yield, send 5 release to 3 as attempt 2"),
        .init(2_400, input: .lease, "answers nothing"),
        .init(2_500, S.committed(2), "committed 5, step down, released to 3"),
      ]
    ),
    S(
      "a node that has just become the owner waits for its members' reports before it stops",
      S.owning,
      [
        .init(2_100, input: .handOver, "does not wait"),
        .init(2_100, .handOverRequested, "-"),
        .init(4_999, input: .handOver, "waits"),
        .init(5_000, input: .handOver, "does not wait"),
      ]
    ),
    S(
      "a node that leaves claims nothing",
      S.following,
      [.init(100, .handOverRequested, "-"), .init(100, input: .deadline, "never")]
    ),
    S(
      "a node that refuses commands claims after all others, also what is released to it",
      S.following,
      [
        .init(100, .refusalChanged(true), "-"),
        // Ranks 1 and 2 claim at 2,300 and 2,600.
        .init(100, input: .deadline, "2900"),
        .init(
          900,
          .recordsFollowed(S.records(after: S.end, [(.release(to: NodeID(1)), 1)])),
          "apply 4 release to 1"
        ),
        .init(900, input: .deadline, "3800"),
        .init(1_000, .refusalChanged(false), "-"),
        .init(1_000, input: .deadline, "900"),
      ]
    ),
    S(
      "an owner that refuses commands releases its groups to a member that follows, or keeps them",
      S.owning,
      [
        .init(2_060, .refusalChanged(true), "-"),
        .init(2_070, S.ineligible(2, 4), "-"),
        .init(2_080, S.ineligible(2, 4), "-"),
        .init(2_090, S.probe(owner: S.owner(1, epoch: 2), last: 4), "-"),
        .init(2_100, S.synced(3, 3), "-"),
        .init(2_110, S.synced(3, 4), "yield, send 5 release to 3 as attempt 2"),
      ]
    ),
    S(
      "an owner that takes commands again keeps its groups",
      S.owning,
      [
        .init(2_060, .refusalChanged(true), "-"),
        .init(2_070, .refusalChanged(false), "-"),
        .init(2_100, S.synced(2, 3), "-"),
        .init(2_110, S.synced(2, 4), "-"),
      ]
    ),
    S(
      "an owner outside the set releases its groups, then removes its data",
      S.owning,
      [
        .init(2_100, S.synced(3, 3), "-"),
        .init(2_300, S.synced(3, 4), "-"),
        .init(
          2_400,
          S.probe(owner: S.owner(1, epoch: 2), last: 4, set: ([2, 3], 7)),
          "yield, send 5 release to 3 as attempt 2"
        ),
        // An older answer.
        .init(2_450, S.probe(owner: S.owner(1, epoch: 2), last: 4, set: ([1, 2, 3], 6)), "-"),
        .init(2_500, S.committed(2), "committed 5, step down, released to 3"),
        .init(2_510, .loopReset(S.claimed), "read 4"),
        // It may have the only copy until another node has claimed the group.
        .init(2_600, S.probe(owner: S.owner(1, epoch: 2), last: 5, set: ([2, 3], 7)), "-"),
        .init(3_000, S.probe(owner: S.owner(3, epoch: 3), last: 6, set: ([2, 3], 7)), "-"),
        .init(3_000, input: .deadline, "never"),
        // The data stays until a member has it.
        .init(3_100, S.synced(1, 4), "-"),
        .init(3_100, S.synced(2, 0), "-"),
        .init(3_100, S.joining(3, 6), "-"),
        .init(4_100, S.synced(3, 6), "remove data"),
      ]
    ),
    S(
      "a node outside the set reads nothing until it is a member",
      node: 4,
      [
        .init(0, S.probe(owner: S.owner(2, epoch: 1), last: 3), "-"),
        .init(0, input: .deadline, "never"),
        .init(500, S.probe(owner: S.owner(2, epoch: 1), last: 3, set: ([1, 2, 4], 7)), "read 1"),
      ]
    ),
    S(
      "a refused release deposes the owner too",
      S.owning,
      [
        .init(2_100, S.synced(3, 3), "-"),
        .init(2_110, S.synced(3, 4), "-"),
        .init(2_120, .handOverRequested, "yield, send 5 release to 3 as attempt 2"),
        .init(2_130, S.fenced(2, by: S.owner(2, epoch: 3)), "step down, deposed"),
      ]
    ),
    S(
      "the member that a group is released to claims at once",
      S.following,
      [
        .init(
          900,
          .recordsFollowed(S.records(after: S.end, [(.release(to: NodeID(1)), 1)])),
          "apply 4 release to 1"
        ),
        .init(900, input: .deadline, "900"),
        .init(900, .timerFired, "send 5 claim by 1 as attempt 1"),
      ]
    ),
    S(
      "a release gives no right to claim at once after another claim",
      S.following,
      {
        let more = S.records(after: S.end, [(.release(to: NodeID(1)), 1), (.claim(by: NodeID(3)), 2)])
        return [
          .init(900, .recordsFollowed(more), "apply 4 release to 1, apply 5 claim by 3"),
          .init(950, S.probe(owner: S.owner(3, epoch: 2), last: 5), "-"),
          .init(950, input: .deadline, "2900"),
        ]
      }()
    ),
    S(
      "every other member waits",
      S.following,
      [
        .init(
          900,
          .recordsFollowed(S.records(after: S.end, [(.release(to: NodeID(3)), 1)])),
          "apply 4 release to 3"
        ),
        .init(900, input: .deadline, "2900"),
      ]
    ),
  ]

  /// A record that only programs of level 3 read.
  private static func newer(after cursor: LogCursor) -> GroupRecord {
    cursor.record(.unknown, epoch: OwnerEpoch(1), level: ClusterLevel(3), payload: [9])
  }

  private static let levelStories = [
    S(
      "an owner writes the level that the cluster has, and never falls back",
      levelMax: 3,
      S.owning,
      [
        .init(2_510, .timerFired, "send 5 alive as attempt 2"),
        .init(2_520, S.committed(2), "committed 5"),
        .init(2_600, S.probe(owner: S.owner(1, epoch: 2), last: 5, level: 3), "-"),
        .init(3_010, .timerFired, "send 6 alive of level 3 as attempt 3"),
        .init(3_020, S.committed(3), "committed 6"),
        // An older answer.
        .init(3_100, S.probe(owner: S.owner(1, epoch: 2), last: 5, level: 2), "-"),
        .init(3_510, .timerFired, "send 7 alive of level 3 as attempt 4"),
      ]
    ),
    S(
      "a candidate writes the level that it has read",
      levelMax: 3,
      S.following,
      [
        .init(
          100,
          .recordsFollowed([S.end.record(.alive, epoch: OwnerEpoch(1), level: ClusterLevel(3))]),
          "apply 4 alive of level 3"
        ),
        .init(2_100, .timerFired, "send 5 claim by 1 of level 3 as attempt 1"),
      ]
    ),
    S(
      "a member does not follow a level that it does not support, and claims nothing",
      S.following,
      [
        .init(100, .recordsFollowed([newer(after: S.end)]), "level 3 unsupported"),
        .init(100, input: .deadline, "never"),
        .init(200, S.probe(owner: S.owner(2, epoch: 1), last: 4, level: 3), "-"),
        .init(300, .readTrimmed(first: RecordPosition(5)), "-"),
      ]
    ),
    S(
      "a node that supports less than the cluster's level owns groups until another one can",
      S.owning,
      [
        .init(2_100, S.probe(owner: S.owner(1, epoch: 2), last: 4, level: 3), "level 3 unsupported"),
        .init(2_510, .timerFired, "send 5 alive as attempt 2"),
        .init(2_520, S.committed(2), "committed 5"),
        .init(2_600, S.probe(owner: S.owner(3, epoch: 3), last: 6, level: 3), "step down, deposed"),
        .init(2_610, .loopReset(S.end), "read 3"),
        .init(2_620, .recordsRead([newer(after: S.end)], from: RecordPosition(4), reachesEnd: true), "-"),
        .init(2_620, input: .deadline, "never"),
      ]
    ),
  ]
}

/// When a node probes the log, and when the log itself is silent.
@Suite("Log probe")
struct LogProbeTests {
  private static func at(_ milliseconds: Int64) -> BootTime { OwnershipStory.time(milliseconds) }

  @Test("answered probes follow each other")
  func answeredProbesFollowEachOther() {
    var probe = LogProbe(limits: ClusterLimits(), now: Self.at(0))
    #expect(probe.timerFired(at: Self.at(0)) == [.probe(1)])
    #expect(probe.answered(1, at: Self.at(20)) == [])
    #expect(probe.deadline == Self.at(500))
    #expect(probe.timerFired(at: Self.at(499)) == [])
    #expect(probe.timerFired(at: Self.at(500)) == [.probe(2)])
  }

  @Test("a late probe restarts the silence once")
  func lateProbeRestartsSilenceOnce() {
    var probe = LogProbe(limits: ClusterLimits(), now: Self.at(0))
    #expect(probe.timerFired(at: Self.at(0)) == [.probe(1)])
    #expect(probe.deadline == Self.at(300))
    #expect(probe.timerFired(at: Self.at(300)) == [.restartSilence])
    #expect(probe.answered(1, at: Self.at(350)) == [])
    #expect(probe.timerFired(at: Self.at(500)) == [.probe(2)])
  }

  @Test("a failed probe restarts the silence")
  func failedProbeRestartsSilence() {
    var probe = LogProbe(limits: ClusterLimits(), now: Self.at(0))
    #expect(probe.timerFired(at: Self.at(0)) == [.probe(1)])
    #expect(probe.failed(1, at: Self.at(5)) == [.restartSilence])
    #expect(probe.failed(1, at: Self.at(6)) == [])
    #expect(probe.deadline == Self.at(500))
  }

  @Test("a resumed node takes its old probe for a late one")
  func resumedNodeTakesItsOldProbeForLate() {
    var probe = LogProbe(limits: ClusterLimits(), now: Self.at(0))
    #expect(probe.timerFired(at: Self.at(0)) == [.probe(1)])
    #expect(probe.answered(1, at: Self.at(4_000)) == [.restartSilence])
    #expect(probe.timerFired(at: Self.at(4_000)) == [.probe(2)])
    #expect(probe.timerFired(at: Self.at(9_000)) == [.restartSilence, .probe(3)])
  }
}

/// What the groups of a cluster keep for absent members.
@Suite("Cluster limits")
struct ClusterLimitsTests {
  @Test("all groups together keep little more than one alone")
  func groupsShareWhatIsKeptForAbsentMembers() {
    #expect(ClusterLimits(groupCount: 1) == ClusterLimits())
    let limits = ClusterLimits(groupCount: 4)
    #expect(limits.awayBytesMin == 64 << 20 && limits.joiningBytesMax == 256 << 20)
    // A group of many still keeps enough for a restart, and for a short transfer.
    let least = ClusterLimits(groupCount: 64)
    #expect(least.awayBytesMin == 16 << 20 && least.joiningBytesMax == 64 << 20)
  }
}

/// The members of a group that nobody has changed.
@Suite("Initial sets")
struct InitialSetTests {
  @Test("each node is the preferred owner of another group")
  func ranksRotateWithGroup() {
    let nodes = [1, 2, 3].map { NodeID($0) }
    let ranks = (0..<4).map { GroupSet.initial(of: GroupID($0), nodes: nodes).members.map(\.rawValue) }
    #expect(ranks == [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 2, 3]])
  }
}
