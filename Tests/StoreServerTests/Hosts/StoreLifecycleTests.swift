import Testing

@testable import StoreServer

/// The effects of a loop's halt while a store starts, serves, reloads and stops.
@Suite struct StoreLifecycleTests {
  private enum Step: CustomStringConvertible {
    case begin
    case started(Bool)
    case halted(UInt64, StoreLifecycle.OnHalt)
    case stop

    var description: String {
      switch self {
      case .begin: "begin"
      case .started(let isServing): "started: \(isServing)"
      case .halted(let generation, let action): "halt of \(generation): \(action)"
      case .stop: "stop"
      }
    }
  }

  private static let rows: [[Step]] = [
    // A halt while the loops serve.
    [.begin, .started(true), .halted(1, .reportAndReload), .halted(1, .ignore), .begin, .started(true)],
    // Loops that halt before all are made.
    [.begin, .halted(1, .report), .started(false), .begin, .started(true), .halted(2, .reportAndReload)],
    // Late halts of loops that were replaced.
    [.begin, .started(true), .halted(1, .reportAndReload), .begin, .halted(1, .ignore), .started(true)],
    [.begin, .halted(1, .report), .begin, .started(true), .halted(1, .ignore), .halted(2, .reportAndReload)],
    // A store that stops reloads nothing.
    [.begin, .started(true), .stop, .halted(1, .report), .halted(1, .ignore)],
    [.begin, .stop, .halted(1, .report), .started(false)],
  ]

  @Test(arguments: rows)
  private func haltsAreAnsweredByTheStoresState(_ steps: [Step]) {
    var lifecycle = StoreLifecycle()
    var generation: UInt64 = 0
    for step in steps {
      switch step {
      case .begin:
        generation += 1
        #expect(lifecycle.begin() == generation)
      case .started(let isServing): #expect(lifecycle.started() == isServing, "\(step)")
      case .halted(let generation, let action):
        #expect(lifecycle.halted(generation: generation) == action, "\(step)")
      case .stop: lifecycle.stop()
      }
    }
  }
}
