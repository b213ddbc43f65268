/// What is drawn beside an own message.
public struct Tick: Hashable, Sendable {
  /// The status, for a text or an accessibility label.
  public var status: DeliveryStatus
  /// Users who have read the message, in order of their ids.
  public var readers: [String]
  /// Users who have it delivered, and have not read it.
  public var deliveredNotRead: [String]

  /// Number of check marks: 0, 1 or 2.
  public var checkmarks: Int {
    switch status {
    case .pending, .failed: 0
    case .sent: 1
    case .delivered, .read: 2
    }
  }

  /// Whether the check marks are in the colour of *read*.
  public var isHighlighted: Bool { status == .read }

  init(_ state: ReadState?, _ message: Message) {
    status = state?.deliveryStatus(of: message) ?? ReadState.localStatus(of: message) ?? .sent
    readers = state?.readers(of: message) ?? []
    deliveredNotRead = state?.deliveredNotRead(of: message) ?? []
  }
}

/// The ticks of one screen, without a UI framework: the user's own messages of a place that are on it.
///
/// It opens the place, follows its changes, and tells which messages to draw again.
@MainActor public final class Ticks {
  /// Ticks by message id.
  public private(set) var ticks: [String: Tick] = [:]
  /// Number of unread messages of the place; nil: it is not known.
  public private(set) var unreadCount: Int?
  /// Called with the ids of messages whose ticks have changed, and with none if only the count has.
  public var onChange: (@MainActor (Set<String>) -> Void)?

  private let tidemark: Tidemark
  private let place: Place
  private var messages: [Message] = []
  private var following: Task<Void, Never>?
  /// Whether the rows are being asked for, and whether to ask again after it.
  private var isUpdating = false
  private var isAgain = false

  /// Follow a channel, or the thread of the message whose id is `thread`.
  public init(_ tidemark: Tidemark, cid: CID, thread: String? = nil) {
    self.tidemark = tidemark
    let place = Place(cid: cid, thread: thread)
    self.place = place
    let changes = tidemark.changes
    following = Task { [weak self] in
      for await change in changes where change == .place(place) { await self?.update() }
    }
  }

  deinit { following?.cancel() }

  /// Show messages of the place from now on, the user's own ones with ticks. Offline, and for messages that are not
  /// registered yet, ticks are those that are known.
  ///
  /// - Throws: ``TidemarkError``, if the server refuses it, such as with `channel_not_found`.
  public func show(_ messages: [Message]) async throws {
    self.messages = messages.filter { $0.id != nil && $0.user == tidemark.user && $0.place == place }
    let shown = Set(self.messages.compactMap(\.id))
    ticks = ticks.filter { shown.contains($0.key) }
    await update()
    let registered = messages.compactMap { message in
      message.id.flatMap { id in message.seq.map { RegisteredMessage(id: id, seq: $0, user: message.user) } }
    }
    try await tidemark.show(place.cid, registered, thread: place.thread)
    await update()
  }

  /// Follow no changes any more.
  public func stop() { following?.cancel() }

  private func update() async {
    isAgain = true
    guard !isUpdating else { return }
    isUpdating = true
    defer { isUpdating = false }
    while isAgain {
      isAgain = false
      apply(await tidemark.readState(place.cid, thread: place.thread))
    }
  }

  private func apply(_ state: ReadState?) {
    var changed: Set<String> = []
    for message in messages {
      guard let id = message.id else { continue }
      let tick = Tick(state, message)
      if ticks.updateValue(tick, forKey: id) != tick { changed.insert(id) }
    }
    let hasCountChanged = unreadCount != state?.unreadCount
    unreadCount = state?.unreadCount
    if hasCountChanged || !changed.isEmpty { onChange?(changed) }
  }
}
