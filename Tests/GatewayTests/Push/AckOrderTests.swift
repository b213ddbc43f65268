import NIOCore
import TestSupport
import Testing

@testable import Gateway

/// ``AckOrder`` as stories: the event on the left, the answers that are ready after it on the right.
@Suite struct AckOrderTests {
  struct Story: CustomTestStringConvertible {
    var testDescription: String
    var limits = AckOrder.Limits(entries: 100, bytes: 1_000)
    var rows: [(event: String, outcome: String)]

    init(_ name: String, entries: Int = 100, bytes: Int = 1_000, _ rows: [(String, String)]) {
      testDescription = name
      limits = AckOrder.Limits(entries: entries, bytes: bytes)
      self.rows = rows
    }
  }

  static let stories = [
    Story(
      "answers in order",
      [
        ("begin", ""), ("begin", ""), ("begin", ""), ("finish 0 a", "a"), ("finish 1 b", "ab"),
        ("take", "ab"),
        ("finish 2 c", "c"),
      ]
    ),
    Story(
      "early answers wait for their turn",
      [
        ("begin", ""), ("begin", ""), ("begin", ""), ("begin", ""), ("finish 2 c", ""), ("finish 1 b", ""),
        ("finish 0 a", "abc"), ("begin", "abc"), ("finish 4 e", "abc"), ("take", "abc"), ("finish 3 d", "de"),
      ]
    ),
    Story(
      "a full order has room again when half of its entries are done",
      entries: 4,
      [
        ("begin", ""), ("begin", ""), ("begin", ""), ("room", "yes"), ("begin", ""), ("room", "no"),
        ("finish 0 a", "a"), ("room", "no"), ("finish 1 b", "ab"), ("room", "yes"), ("begin", "ab"),
        ("room", "yes"), ("begin", "ab"), ("room", "no"),
      ]
    ),
    Story(
      "untaken answers limit the entries",
      bytes: 8,
      [
        ("begin", ""), ("begin", ""), ("finish 0 aaaa", "aaaa"), ("room", "yes"),
        ("finish 1 bbbb", "aaaabbbb"),
        ("room", "no"), ("take", "aaaabbbb"), ("room", "yes"),
      ]
    ),
    Story(
      "answers that wait for an earlier one limit the entries",
      bytes: 8,
      [
        ("begin", ""), ("begin", ""), ("begin", ""), ("finish 2 ccccc", ""), ("room", "yes"),
        ("finish 1 bbbbb", ""), ("room", "no"), ("finish 0 a", "abbbbbccccc"), ("room", "no"),
        ("take", "abbbbbccccc"), ("room", "yes"),
      ]
    ),
    Story(
      "an answer may be empty",
      [
        ("begin", ""), ("begin", ""), ("finish 1 ", ""), ("waiting", "2"), ("finish 0 ", ""),
        ("waiting", "0"),
      ]
    ),
  ]

  @Test(arguments: stories)
  func outcomesFollowTheStory(_ story: Story) {
    var order = AckOrder(limits: story.limits)
    for (line, row) in story.rows.enumerated() {
      #expect(
        Self.play(row.event, &order) == row.outcome,
        "\(story.testDescription), row \(line + 1): \(row.event)"
      )
    }
  }

  private static func play(_ event: String, _ order: inout AckOrder) -> String {
    let words = event.split(separator: " ", omittingEmptySubsequences: false).map(String.init)
    switch words[0] {
    case "begin": order.begin()
    case "finish": order.finish(UInt32(words[1])!) { $0.writeString(words[2]) }
    case "room": return order.hasRoom() ? "yes" : "no"
    case "waiting": return "\(order.waiting)"
    case "take":
      defer { order.clearOrderedResults() }
      return String(buffer: order.orderedResults)
    default: return "unknown event: \(event)"
    }
    return String(buffer: order.orderedResults)
  }

  /// Answers finished in random order leave in order, with the labels of their entries. Held bytes stay bounded.
  @Test(arguments: TestRun.seeds(20, long: 400))
  func randomAnswersLeaveInOrder(_ seed: UInt64) {
    var generator = SplitMix64(printing: seed, of: "answers to acks in random order")
    let answerBytesMax = 400
    let limits = AckOrder.Limits(entries: generator.number(in: 1...300), bytes: 20_000)
    var order = AckOrder(limits: limits)
    var open: [UInt32] = []
    var taken = ""
    var expected = ""
    var begun: UInt32 = 0
    func answer(_ entry: UInt32) -> String {
      "\(entry):" + String(repeating: "x", count: Int(entry * 7 % 390)) + ";"
    }
    while begun < 3_000 || !open.isEmpty {
      if begun < 3_000, generator.oneIn(2), order.hasRoom() {
        #expect(order.nextEntry == begun)
        var labels = AckLabels()
        labels.provider = UInt8(begun % 30)
        order.begin(labels)
        open.append(begun)
        expected += answer(begun)
        begun += 1
      } else if !open.isEmpty {
        let entry = open.remove(at: generator.below(open.count))
        #expect(order.labels(entry).provider == UInt8(entry % 30))
        order.finish(entry) { $0.writeString(answer(entry)) }
      }
      if generator.oneIn(10) || order.waiting == 0 {
        taken += String(buffer: order.orderedResults)
        order.clearOrderedResults()
      }
      #expect(
        order.waiting <= limits.entries && order.heldBytes <= limits.bytes + limits.entries * answerBytesMax
      )
    }
    taken += String(buffer: order.orderedResults)
    #expect(order.waiting == 0 && taken == expected, "seed \(seed)")
  }
}
