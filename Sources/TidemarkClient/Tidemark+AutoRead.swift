/// A check that reads what is on the screen.
final class AutomaticRead {
  let policy: @Sendable () async -> Shown?
  /// What was read last, so that it is read once.
  var last: Shown?
  var timer: Task<Void, Never>?
  /// Whether the policy is being asked, and whether to ask again after it.
  var isAsking = false
  var isAgain = false

  init(policy: @escaping @Sendable () async -> Shown?) { self.policy = policy }

  deinit { timer?.cancel() }

  func stop() { timer?.cancel() }
}

/// Stops automatic reads. They continue without it until the client is closed.
public struct AutoRead: Sendable {
  let stopRead: @Sendable () async -> Void

  /// Read nothing more by itself.
  public func stop() async { await stopRead() }
}

extension Tidemark {
  /// Read what is on the screen. The policy is asked each second, and when a message arrives. A place that was marked
  /// unread, on this device or another, is not read before it is opened again.
  ///
  /// - Parameter policy: Returns the newest message on the screen; nil where none should be read, such as on an older
  ///   page, or while the app is in the background.
  @discardableResult
  public func autoRead(_ policy: @escaping @Sendable () async -> Shown?) -> AutoRead {
    let read = AutomaticRead(policy: policy)
    let id = ObjectIdentifier(read)
    guard !isClosed else { return AutoRead {} }
    automaticReads.append(read)
    let interval = interval
    read.timer = Task { [weak self] in
      while !Task.isCancelled {
        await self?.check(id)
        try? await Task.sleep(for: interval)
      }
    }
    return AutoRead { [weak self] in await self?.stop(id) }
  }

  private func stop(_ id: ObjectIdentifier) {
    automaticReads.removeAll { read in
      guard ObjectIdentifier(read) == id else { return false }
      read.stop()
      return true
    }
  }

  /// Ask all policies.
  func readAutomatically() {
    for read in automaticReads {
      let id = ObjectIdentifier(read)
      Task { await check(id) }
    }
  }

  private func check(_ id: ObjectIdentifier) async {
    guard let read = automaticReads.first(where: { ObjectIdentifier($0) == id }) else { return }
    read.isAgain = true
    guard !read.isAsking else { return }
    read.isAsking = true
    defer { read.isAsking = false }
    while read.isAgain, !isClosed {
      read.isAgain = false
      let shown = await read.policy()
      guard automaticReads.contains(where: { $0 === read }), let shown else { continue }
      readShown(shown, read)
    }
  }

  private func readShown(_ shown: Shown, _ read: AutomaticRead) {
    if unreadByHand.contains(shown.place) {
      read.last = nil
      return
    }
    let state = entries[shown.place]?.state
    if let own = state?.own, let seq = state?.seq(of: shown.messageID), own.hasRead(seq),
      own.markedUnread != true, own.unreadMessages ?? 0 == 0
    {
      return
    }
    guard shown != read.last else { return }
    read.last = shown
    makeRead(shown.place, shown.messageID)
  }
}
