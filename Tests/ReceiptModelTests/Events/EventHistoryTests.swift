import TestSupport
import Testing

@testable import ReceiptModel

/// Events are complete: a picture built from events alone agrees with every query. For `TIDEMARK_SEED` and the other
/// variables see ``RandomHistoryTests``.
@Suite("Random watched histories", .computing)
struct EventHistoryTests {
  static let seeds = TestRun.seeds(28, long: 140)
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
      Omission("memberRemoved"), Omission("status"), Omission("receipt"), Omission("row"),
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
