import TestSupport
import Testing

@testable import NaiveReceiptModel
@testable import ReceiptModel

/// Events are complete: a picture built from events alone agrees with every query. For `TIDEMARK_SEED` and the other
/// variables see ``RandomHistoryTests``.
@Suite("Random watched histories", .computing)
struct EventHistoryTests {
  static let seeds = TestRun.seeds(8, long: 140)
  static let steps = TestRun.number("TIDEMARK_STEPS") ?? 600

  private func expect(_ seed: UInt64, _ delivery: EventHistory.Delivery) {
    TestRun.printSeed(seed, steps: Self.steps, of: "watched history, \(delivery)")
    var history = EventHistory(seed: seed, delivery)
    do throws(HistoryFault) {
      try history.run(steps: Self.steps)
    } catch {
      Issue.record("\(error)")
    }
  }

  @Test("live events give the same picture as queries", arguments: seeds)
  func liveEventsGiveSamePictureAsQueries(seed: UInt64) { expect(seed, .live) }

  @Test("resuming after gaps gives the same picture as queries", arguments: seeds)
  func resumingAfterGapsGivesSamePictureAsQueries(seed: UInt64) { expect(seed, .resuming) }

  /// One kind of event or field to leave out.
  struct Omission: CustomTestStringConvertible, Sendable {
    var testDescription: String
    var drops: @Sendable (ChannelEvent) -> ChannelEvent?

    init(_ name: String) {
      testDescription = name
      drops = { $0.name == name ? nil : $0 }
    }

    init(_ name: String, _ change: @escaping @Sendable (inout ChannelEvent.RowEvent) -> Void) {
      testDescription = name
      drops = { event in
        guard case .row(var row) = event else { return event }
        change(&row)
        return .row(row)
      }
    }

    static let all = [
      Omission("messageNew"), Omission("messageDeleted"), Omission("truncated"), Omission("updated"),
      Omission("memberAdded"),
      Omission("memberRemoved"), Omission("status"), Omission("acknowledgement"), Omission("row"),
      Omission("own reads") { $0.isRead = false }, Omission("own unreads") { $0.isUnread = false },
      Omission("shown reads") { $0.showsRead = false },
      Omission("shown deliveries") { $0.showsDelivered = false },
      Omission("rows that fall") { $0.showsRow = false },
    ]
  }

  @Test("control: the comparison notices every omission", arguments: Omission.all)
  func comparisonNoticesEveryOmission(omission: Omission) {
    func isNoticed(_ delivery: EventHistory.Delivery) -> Bool {
      (UInt64(1)...7)
        .contains { seed in
          var history = EventHistory(seed: seed, delivery)
          history.drops = omission.drops
          do throws(HistoryFault) {
            try history.run(steps: 600)
            return false
          } catch {
            return true
          }
        }
    }
    #expect(isNoticed(.live))
    #expect(isNoticed(.resuming))
  }

  @Test("a resume after a gap is seldom refused")
  func resumeAfterGapIsSeldomRefused() throws {
    var tally: [String: Int] = [:]
    for seed in UInt64(1)...7 {
      var history = EventHistory(seed: seed, .resuming)
      try history.run(steps: 600)
      tally.merge(history.tally) { $0 + $1 }
    }
    #expect(tally["row", default: 0] > 20 * tally["refused", default: 0])
  }
}

/// One watched random history. After each group of commands it compares the picture that events have built of every
/// channel with the answers to queries.
struct EventHistory {
  /// How watchers receive changes.
  enum Delivery {
    /// As live events.
    case live
    /// By resuming after gaps, from the changes since a time.
    case resuming
  }

  let seed: UInt64
  let delivery: Delivery
  /// Drops events, to check that the comparison notices.
  var drops: (ChannelEvent) -> ChannelEvent? = { $0 }
  private let harness: ShardHarness
  private var model = NaiveModel()
  private var generator: CommandGenerator
  private var random: SplitMix64
  private var step = 0
  private var pictures: [String: EventDerivedView] = [:]
  private var completeThrough: Timestamp = .none
  /// The number of events of each kind, and of refused resumes.
  private(set) var tally: [String: Int] = [:]

  init(seed: UInt64, _ delivery: Delivery) {
    self.seed = seed
    self.delivery = delivery
    generator = CommandGenerator(seed: seed)
    harness = ShardHarness(shards: generator.shape.shards)
    if delivery == .live { for shard in harness.shards { shard.watch() } }
    random = SplitMix64(seed: seed &* 0x2545_F491_4F6C_DD1D &+ 1)
  }

  mutating func run(steps: Int) throws(HistoryFault) {
    while step < steps {
      var group: [Command] = []
      for _ in 0..<(random.oneIn(3) ? 1 : 1 + random.below(delivery == .live ? 8 : 40)) {
        step += 1
        let command = generator.next(model)
        let clock = generator.tick()
        _ = harness.perform(command, clock: clock)
        _ = harness.takeDroppedTimes()
        _ = model.perform(command, clock: clock)
        group.append(command)
        if delivery == .resuming {
          for name in harness.runMaintenance(&random).keys { tally[name, default: 0] += 1 }
        }
      }
      for cid in generator.cids {
        if let text = comparePicture(cid) {
          throw HistoryFault(
            seed: seed,
            step: step,
            text: "\(delivery), \(cid), after \(group): \(text)"
          )
        }
      }
      completeThrough = harness.shards[0].state.time
      if let text = harness.faults.first { throw HistoryFault(seed: seed, step: step, text: text) }
    }
  }

  /// Apply a channel's events to its picture, and compare the picture with the queries.
  private mutating func comparePicture(_ cid: String) -> String? {
    let shard = harness.shard(of: cid)
    guard let slot = shard.slot(cid) else {
      pictures[cid] = nil
      return nil
    }
    if pictures[cid]?.number != shard.state[slot].number {
      pictures[cid] = EventDerivedView(shard.state, slot, resumes: delivery == .resuming)
    }
    var events: [ChannelEvent]?
    switch delivery {
    case .live: events = shard.takeEvents(slot)
    case .resuming:
      var left = Int.max
      events = shard.state.events(
        in: slot,
        since: completeThrough,
        limit: .max,
        statusesMax: .max,
        remaining: &left
      )
      if events == nil {
        tally["refused", default: 0] += 1
        pictures[cid] = EventDerivedView(asking: &shard.state, slot)
      }
    }
    for event in events ?? [] {
      guard let event = drops(event) else { continue }
      tally[event.name, default: 0] += 1
      pictures[cid]!.apply(event, shard.state, slot)
    }
    return pictures[cid]!.fault(&shard.state, slot)
  }
}

extension ChannelEvent {
  /// The case's name, for tallies.
  var name: String { "\(self)".prefix { $0 != "(" }.description }
}
