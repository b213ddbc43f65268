import Testing

@testable import Worker

@Suite struct PartitionStateTests {
  private static func letter(_ number: Int, cursor: (Int) -> String = { "c\($0)" }) -> DeadLetter {
    DeadLetter(
      from: cursor(number),
      to: cursor(number + 1),
      count: 3,
      firstErrorAt: Int64(number) * 1_000,
      lastErrorAt: Int64(number) * 1_000 + 5_000,
      error: "500"
    )
  }

  private static let attempt = PartitionState.Attempt(
    from: "a",
    end: "b",
    count: 7,
    attempts: 3,
    firstAt: 1_001,
    nextAt: 2_002
  )

  @Test func statesSurviveTheirText() throws {
    let state = PartitionState(attempt: Self.attempt, deadLetters: [Self.letter(1), Self.letter(2)])
    #expect(PartitionState(state.text) == state)
    #expect(PartitionState(nil) == PartitionState() && PartitionState("") == PartitionState())
  }

  @Test(arguments: ["x", "{}", #"{"v":2,"d":[]}"#, #"{"v":1}"#])
  func unknownStatesAreNotRead(_ text: String) {
    #expect(PartitionState(text) == nil)
  }

  @Test func changesKeepTheStoredDeadLetters() {
    let stored = PartitionState(attempt: Self.attempt, deadLetters: [Self.letter(1)])
    let changed = stored.applying(.init(attempt: nil, deadLetter: Self.letter(2)))
    #expect(changed == PartitionState(attempt: nil, deadLetters: [Self.letter(1), Self.letter(2)]))
    // The same dead letter again, after a commit whose answer was lost.
    #expect(changed.applying(.init(attempt: nil, deadLetter: Self.letter(2))).deadLetters.count == 2)
  }

  @Test func oldestRangesAreMergedWhenFull() throws {
    var state = PartitionState()
    for number in 0..<150 { state = state.applying(.init(attempt: nil, deadLetter: Self.letter(number))) }
    #expect(state.deadLetters.count == PartitionState.deadLettersMax)
    let first = try #require(state.deadLetters.first)
    #expect(first.from == "c0" && first.to == "c51" && first.count == 153)
    #expect(first.firstErrorAt == 0 && first.lastErrorAt == 55_000)
    #expect(state.deadLetters.last == Self.letter(149))
    #expect(state.deadLetters.reduce(0) { $0 + $1.count } == 450)
  }

  @Test func longCursorsStayWithinTheGatewaysLimit() {
    var state = PartitionState(attempt: Self.attempt)
    let cursor = { (number: Int) in String(repeating: "x", count: 200) + "\(number)" }
    for number in 0..<120 {
      state = state.applying(.init(attempt: Self.attempt, deadLetter: Self.letter(number, cursor: cursor)))
    }
    #expect(state.text.utf8.count <= PartitionState.byteCountMax)
    #expect(state.deadLetters.count > 20 && state.deadLetters.reduce(0) { $0 + $1.count } == 360)
  }

  @Test func attemptIsDeadOnceItsRangeIsStored() {
    var letter = Self.letter(1)
    #expect(!PartitionState(attempt: Self.attempt, deadLetters: [letter]).isAttemptDead)
    letter.to = Self.attempt.end
    #expect(PartitionState(attempt: Self.attempt, deadLetters: [letter]).isAttemptDead)
    #expect(!PartitionState(attempt: nil, deadLetters: [letter]).isAttemptDead)
  }
}
