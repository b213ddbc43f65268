import TidemarkClient

@MainActor final class ChannelScreen {
  /// The newest message on the screen; nil: none should be read.
  var newestShown: String?

  private let tidemark: Tidemark
  private let cid: CID
  private let ticks: Ticks

  init(_ tidemark: Tidemark, cid: CID, redraw: @escaping @MainActor (Set<String>) -> Void) {
    self.tidemark = tidemark
    self.cid = cid
    ticks = Ticks(tidemark, cid: cid)
    ticks.onChange = redraw
  }

  func show(_ messages: [Message]) async throws {
    try await ticks.show(messages)
  }

  func checkmarks(of messageID: String) -> Int {
    ticks.ticks[messageID]?.checkmarks ?? 0
  }

  func readWhileShown() async -> AutoRead {
    await tidemark.autoRead { [weak self, cid] in
      await self?.newestShown.map { Shown(cid: cid, messageID: $0) }
    }
  }

  func markUnread(from messageID: String) async {
    await tidemark.markUnread(cid, messageID: messageID)
  }
}
