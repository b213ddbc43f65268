public import Foundation

/// A user's Tidemark: marks with throttling and an offline queue, live read states, unread counts and ticks.
///
/// It sends marks, keeps the rows of open places up to date, and works offline. The tutorial *A first screen* shows it
/// in an app.
public actor Tidemark {
  /// Times that tests shorten.
  struct Timing: Sendable {
    /// Until a request without an answer fails.
    var request = Duration.seconds(30)
    /// Until a silent event stream is given up; the server sends something at least every 15 s.
    var silence = Duration.seconds(45)
  }

  /// The user's id.
  public nonisolated let user: String
  /// Totals over all channels; nil before the first are known.
  public internal(set) var totals: Totals?

  let requests: Requests
  let store: any Store
  /// Time between two reads of a place, and between two queries of what has changed.
  let interval: Duration
  let random: @Sendable () -> Double
  private let timing: Timing
  nonisolated let hub = ChangeHub()

  /// Places that are loaded or being loaded.
  var entries: [Place: PlaceEntry] = [:]
  /// Places that the app has opened, with whether it wants all rows.
  var wanted: [Place: Bool] = [:]
  /// Places that have to be queried, with what.
  var stale: [PlaceEntry] = []
  var staleTimer: Task<Void, Never>?
  var isRefreshing = false
  /// Whether totals and settings have to be queried.
  var needsBasics = true
  var backoff: Backoff
  /// Places that were marked unread, and not opened again since.
  var unreadByHand: Set<Place> = []
  /// What was unread when a place was opened, or marked unread since; nil inside: its own row is not known yet.
  var openedUnread: [Place: UnreadWhenOpened?] = [:]
  /// Epochs that own marks have made.
  var ownEpochs: [Place: Int] = [:]
  var automaticReads: [AutomaticRead] = []
  /// Whether the user shows deliveries; nil: it is not known yet.
  var showsDeliveries: Bool?

  var outbox: Outbox
  /// Ends when the marks that were made so far are in the store.
  var added: Task<Void, Never>?
  var sender = Sender.idle

  private var stream: EventStream?
  var streamTask: Task<Void, Never>?
  var isClosed = false
  private var startResult: Result<Void, any Error>?
  private var startWaiters: [Int: CheckedContinuation<Void, any Error>] = [:]
  private var nextWaiter = 0

  /// Create a client, which does nothing before ``start()``. Marks may be made at once.
  ///
  /// - Parameters:
  ///   - url: Address of the gateway, or of the load balancer before it, with `https`.
  ///   - user: The user's id.
  ///   - store: Keeps marks that the server has not answered, such as a ``FileStore``.
  ///   - transport: Carries requests; by default ``URLSessionTransport``.
  ///   - interval: Time between two reads of a place.
  ///   - random: Returns numbers from 0 to 1, for pauses.
  ///   - tokenProvider: Returns a token of the user, from your backend. It is called at the start, and once more when
  ///     the server refuses the token. It has to end soon after its task is cancelled.
  public init(
    url: URL,
    user: String,
    store: any Store,
    transport: (any Transport)? = nil,
    interval: Duration = .seconds(1),
    random: @escaping @Sendable () -> Double = { .random(in: 0..<1) },
    tokenProvider: @escaping @Sendable () async throws -> String
  ) {
    self.init(
      user: user,
      store: store,
      transport: transport ?? URLSessionTransport(url: url),
      interval: interval,
      timing: Timing(),
      random: random,
      tokenProvider: tokenProvider
    )
  }

  init(
    user: String,
    store: any Store,
    transport: any Transport,
    interval: Duration,
    timing: Timing,
    random: @escaping @Sendable () -> Double,
    tokenProvider: @escaping @Sendable () async throws -> String
  ) {
    self.user = user
    self.store = store
    self.interval = interval
    self.timing = timing
    self.random = random
    backoff = Backoff(random: random)
    outbox = Outbox(interval: interval, random: random)
    requests = Requests(transport: transport, limit: timing.request, tokenProvider: tokenProvider)
  }

  deinit {
    streamTask?.cancel()
    staleTimer?.cancel()
    if case .waiting(let task) = sender { task.cancel() }
    requests.transport.close()
    hub.finish()
  }

  /// Changes from now on. Each call makes a sequence of its own, for one reader.
  public nonisolated var changes: Changes { hub.subscribe() }

  func changed(_ entry: PlaceEntry) { hub.emit(.place(entry.state.place)) }

  // MARK: Lifecycle

  /// Begin to follow events and to send marks. Return when the stream is open and totals and settings are known, or the
  /// client is closed. Lost connections are tried again; a second call waits for the same.
  ///
  /// - Throws: ``TidemarkError``, if the server refuses the user for good, such as one in more than 10,000 channels;
  ///   `CancellationError`, after which the client still connects.
  public func start() async throws {
    if streamTask == nil, !isClosed { connect() }
    if isClosed { return }
    if let startResult { return try startResult.get() }
    nextWaiter += 1
    let id = nextWaiter
    try await withTaskCancellationHandler {
      try await withCheckedThrowingContinuation { (continuation: CheckedContinuation<Void, any Error>) in
        if Task.isCancelled {
          continuation.resume(throwing: CancellationError())
        } else {
          startWaiters[id] = continuation
        }
      }
    } onCancel: {
      Task { await self.cancelStart(id) }
    }
  }

  private func cancelStart(_ id: Int) {
    startWaiters.removeValue(forKey: id)?.resume(throwing: CancellationError())
  }

  func finishStart(_ result: Result<Void, any Error>) {
    guard startResult == nil else { return }
    startResult = result
    for waiter in startWaiters.values { waiter.resume(with: result) }
    startWaiters = [:]
  }

  private func connect() {
    let stream = EventStream(
      requests: requests,
      silence: timing.silence,
      random: random,
      callbacks: EventStream.Callbacks(
        opened: { [weak self] isResumed in await self?.opened(isResumed: isResumed) },
        event: { [weak self] event in await self?.apply(event) },
        lost: { [weak self] error in await self?.lost(error) ?? false }
      )
    )
    self.stream = stream
    streamTask = Task { await stream.run() }
    flush()
  }

  /// Connect and send now, not after the present pause, which is up to 30 s. Call it when the network is back, such as
  /// when `NWPathMonitor` says so, and when the app comes to the foreground.
  public func reconnect() async {
    await stream?.hurry()
    outbox.backoff.reset()
    flush()
  }

  private func opened(isResumed: Bool) {
    guard !isClosed else { return }
    hub.emit(.online)
    needsBasics = true
    if !isResumed { reloadAll() }
    flush()
    refreshSoon()
  }

  /// - Returns: Whether to connect again.
  private func lost(_ error: TidemarkError) -> Bool {
    guard !isClosed else { return false }
    hub.emit(.offline(error))
    if !error.isTemporary { finishStart(.failure(error)) }
    return error.isTemporary
  }

  /// Stop for good: follow no events, send no marks, end ``changes``. Marks that are not answered stay in the store.
  public func close() async {
    isClosed = true
    streamTask?.cancel()
    staleTimer?.cancel()
    for read in automaticReads { read.stop() }
    automaticReads = []
    let sending = sender.stop()
    await added?.value
    await requests.close()
    await sending?.value
    finishStart(.success(()))
    hub.finish()
  }

  /// Number of marks that the server has not answered yet.
  public var pending: Int { outbox.pending }
}

/// A place that is loaded or being loaded.
final class PlaceEntry {
  /// Events that wait for a query, at the most.
  static let waitingMax = 1_000

  var state: ReadState
  /// What has to be queried.
  var staleQuery: Query = []
  /// Number of queries of the rows that are under way, and the events that came meanwhile.
  var queries = 0
  var waiting: [Event] = []
  /// Whether more events came than are kept.
  var hasLostEvents = false
  /// Number of queries of statuses that are under way.
  var statusQueries = 0

  init(_ place: Place, user: String) { state = ReadState(place: place, user: user) }
}
