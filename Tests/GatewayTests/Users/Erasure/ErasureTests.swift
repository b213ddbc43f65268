import ReceiptModel
import Testing

@testable import Gateway

/// ``ErasureMachine`` without a store: the event on the left, the resulting actions on the right.
@Suite struct ErasureTests {
  private static let alice = Array("alice".utf8)

  private static func settings(_ version: UInt64 = 3) -> UserSettings {
    UserSettings(user: "alice", version: version, isErasing: true)
  }

  private static func text(_ actions: [ErasureMachine.Action], _ erasure: ErasureMachine) -> String {
    actions.map { action in
      switch action {
      case .begin: "begin"
      case .assign: "assign"
      case .check: "check"
      case .list(let cursor): "list\(cursor.map { " \($0)" } ?? "")"
      case .erase(let number): "erase \(number)"
      case .forget: "forget"
      case .purge(let shard): "purge \(shard.rawValue) round \(erasure.round(shard))"
      case .wait: "wait"
      }
    }.joined(separator: ", ")
  }

  private func play(_ erasure: inout ErasureMachine, _ rows: [(String, String)]) {
    for (event, expected) in rows {
      let words = event.split(separator: " ").map(String.init)
      let actions: [ErasureMachine.Action]
      switch words[0] {
      case "start": actions = erasure.start()
      case "begun": actions = erasure.begun(Self.settings())
      case "assigned": actions = erasure.assigned()
      case "checked": actions = erasure.checked(version: 3, isErasing: words[1] == "erasing")
      case "marked-again": actions = erasure.checked(version: 7, isErasing: true)
      case "listed":
        let count = Int(words[1])!
        let cids = (0..<count).map { Array("messaging:\($0)".utf8) }
        actions = erasure.listed(cids, next: words.count > 2 ? UInt64(words[2]) : nil)
      case "erased": actions = erasure.erased(Int(words[1])!, .erased)
      case "gone": actions = erasure.erased(Int(words[1])!, .wasGone)
      case "refused": actions = erasure.erased(Int(words[1])!, .failed)
      case "forgot": actions = erasure.forgot(isErasing: words.count > 1)
      case "purged": actions = erasure.purged(ShardID(UInt16(words[1])!), .done)
      case "awaits": actions = erasure.purged(ShardID(UInt16(words[1])!), .awaits(UInt64(words[2])!))
      case "unpurged": actions = erasure.purged(ShardID(UInt16(words[1])!), .failed)
      case "waited": actions = erasure.waited()
      case "fail": actions = erasure.failed()
      default: preconditionFailure("\(event) is no event")
      }
      #expect(Self.text(actions, erasure) == expected, "\(event)")
    }
  }

  @Test func erasureRunsAllStepsInOrder() {
    var erasure = ErasureMachine(user: Self.alice, shardCount: 2)
    play(
      &erasure,
      [
        ("start", "begin"), ("begun", "assign"), ("assigned", "check"), ("checked erasing", "list"),
        ("listed 2 5", "erase 0, erase 1"),
        ("erased 0", ""), ("erased 1", "list 5"), ("listed 1", "erase 2"), ("gone 2", "check"),
        // Listing repeats until a list is empty.
        ("checked erasing", "list"), ("listed 1", "erase 0"), ("gone 0", "wait"), ("waited", "check"),
        ("checked erasing", "list"), ("listed 0", "forget"), ("forgot", "forget"),
        ("forgot", "purge 0 round 0, purge 1 round 0"), ("awaits 1 5", ""), ("purged 0", "wait"),
        ("waited", "purge 1 round 5"), ("purged 1", ""),
      ]
    )
    #expect(erasure.isDone == true && erasure.forgottenVersion == 4)
  }

  @Test func unfinishedErasureResumes() {
    var erasure = ErasureMachine(user: Self.alice, settings: Self.settings(), shardCount: 2)
    #expect(!erasure.settings.user.isEmpty)
    play(&erasure, [("start", "assign"), ("assigned", "check"), ("checked erasing", "list")])
    #expect(!erasure.isBeginning && erasure.forgottenVersion == 4)
  }

  @Test func erasureFinishedByOtherGatewayIsAccepted() {
    var erasure = ErasureMachine(user: Self.alice, settings: Self.settings(), shardCount: 1)
    play(&erasure, [("start", "check"), ("checked done", "purge 0 round 0"), ("purged 0", "")])
    #expect(erasure.isDone == true)
    // Another gateway has begun a new erasure meanwhile.
    erasure = ErasureMachine(user: Self.alice, settings: Self.settings(), shardCount: 1)
    play(
      &erasure,
      [
        ("start", "check"), ("marked-again", "list"), ("listed 0", "forget"), ("forgot erasing", "check"),
        ("checked erasing", "list"), ("listed 0", "forget"), ("forgot", "purge 0 round 0"),
      ]
    )
  }

  @Test func purgeRepeatsWithRoundFromShard() {
    var erasure = ErasureMachine(user: Self.alice, settings: Self.settings(), shardCount: 2)
    play(
      &erasure,
      [
        ("start", "assign"), ("assigned", "check"),
        ("checked done", "purge 0 round 0, purge 1 round 0"), ("awaits 0 300", ""), ("unpurged 1", "wait"),
        // A failed request is repeated with the same round.
        ("waited", "purge 1 round 0, purge 0 round 300"), ("unpurged 0", ""), ("awaits 1 2", "wait"),
        // A restarted store returns an earlier round.
        ("waited", "purge 1 round 2, purge 0 round 300"), ("awaits 0 1", ""), ("purged 1", "wait"),
        ("waited", "purge 0 round 1"), ("purged 0", ""),
      ]
    )
    #expect(erasure.isDone == true)
  }

  @Test func failureEndsErasure() {
    let ways: [[(String, String)]] = [
      [("start", "begin"), ("fail", "")], [("start", "begin"), ("begun", "assign"), ("fail", "")],
      [
        ("start", "begin"), ("begun", "assign"), ("assigned", "check"), ("checked erasing", "list"),
        ("fail", ""), ("listed 3", ""), ("erased 0", ""),
      ],
      [
        ("start", "begin"), ("begun", "assign"), ("assigned", "check"), ("checked erasing", "list"),
        ("listed 0 9", "list 9"), ("listed 0 9", ""),
      ],
    ]
    for rows in ways {
      var erasure = ErasureMachine(user: Self.alice, shardCount: 2)
      play(&erasure, rows)
      #expect(erasure.isDone == false)
      play(&erasure, [("waited", ""), ("assigned", ""), ("forgot", ""), ("purged 0", ""), ("fail", "")])
      #expect(erasure.isDone == false)
    }
  }

  @Test func failedChannelIsRetriedUpToLimit() {
    for (found, stallsMax) in [
      (nil, ErasureMachine.stallsMax), (Self.settings(), ErasureMachine.stallsMaxInBackground),
    ] {
      expectRetriesUpToLimit(found, stallsMax)
    }
  }

  private func expectRetriesUpToLimit(_ found: UserSettings?, _ stallsMax: Int) {
    var erasure = ErasureMachine(user: Self.alice, settings: found, shardCount: 1)
    if found == nil { play(&erasure, [("start", "begin"), ("begun", "check")]) }
    if found != nil { play(&erasure, [("start", "check")]) }
    for stall in 0...stallsMax {
      play(
        &erasure,
        [
          ("checked erasing", "list"), ("listed 1", "erase 0"),
          ("refused 0", stall < stallsMax ? "wait" : ""),
        ]
      )
      if stall < stallsMax { play(&erasure, [("waited", "check")]) }
    }
    #expect(erasure.isDone == false)
  }

  @Test func concurrentChannelErasuresAreLimited() {
    var erasure = ErasureMachine(user: Self.alice, settings: Self.settings(), shardCount: 1)
    _ = erasure.start()
    _ = erasure.checked(version: 3, isErasing: true)
    let cids = (0..<200).map { Array("messaging:\($0)".utf8) }
    #expect(erasure.listed(cids, next: 900).count == ErasureMachine.erasesMax)
    for number in 0..<136 { #expect(erasure.erased(number, .erased).count == 1) }
    for number in 136..<199 { #expect(erasure.erased(number, .erased) == []) }
    #expect(erasure.erased(199, .erased) == [.list(cursor: 900)])
  }
}
