import Testing

@testable import LocalStack

@Suite struct TerminalTests {
  @Test(
    arguments: [
      (true, [:], true), (false, [:], false), (true, ["TERM": "dumb"], false),
      (true, ["NO_COLOR": "1"], false),
      (true, ["NO_COLOR": ""], true), (false, ["FORCE_COLOR": "1"], true),
      (true, ["FORCE_COLOR": "0"], false),
      (false, ["FORCE_COLOR": "1", "NO_COLOR": "1"], false),
    ] as [(Bool, [String: String], Bool)]
  )
  func colorDependsOnTerminalAndEnvironment(isTerminal: Bool, environment: [String: String], expected: Bool) {
    #expect(Terminal.usesColor(isTerminal: isTerminal, environment: environment) == expected)
  }
}
