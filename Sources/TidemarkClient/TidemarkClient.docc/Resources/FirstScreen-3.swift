import TidemarkClient

@MainActor final class ChannelScreen {
  private let ticks: Ticks

  init(_ tidemark: Tidemark, cid: CID, redraw: @escaping @MainActor (Set<String>) -> Void) {
    ticks = Ticks(tidemark, cid: cid)
    ticks.onChange = redraw
  }

  func show(_ messages: [Message]) async throws {
    try await ticks.show(messages)
  }

  func checkmarks(of messageID: String) -> Int {
    ticks.ticks[messageID]?.checkmarks ?? 0
  }
}
