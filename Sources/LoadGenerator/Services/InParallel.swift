internal import LocalStack

/// Run `body` for 0 to `count`−1, `atOnce` at a time, roughly in order.
///
/// - Parameter progress: receives the progress with each hundredth, as in "1,000 of 5,000 channels made".
func inParallel(
  _ count: Int,
  atOnce: Int,
  progress: (note: ProgressHandler, what: String)? = nil,
  _ body: @escaping @Sendable (Int) async throws -> Void
) async throws {
  try await withThrowingTaskGroup(of: Void.self) { tasks in
    for first in 0..<min(atOnce, count) {
      tasks.addTask {
        for position in stride(from: first, to: count, by: atOnce) {
          if let progress, position % max(1, count / 100) == 0 {
            progress.note("\(Figures.count(position)) of \(Figures.count(count)) \(progress.what)")
          }
          try await body(position)
        }
      }
    }
    try await tasks.waitForAll()
  }
}
