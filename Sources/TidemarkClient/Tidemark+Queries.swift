import Foundation

/// A page of rows.
private struct RowsPage: Decodable {
  var read: [MemberRow]
  var next: String?
}

/// A row as the API has it: with its member.
struct MemberRow: Decodable {
  private enum CodingKeys: CodingKey {
    case user
  }

  var user: String
  var row: Row

  init(from decoder: any Decoder) throws {
    user = try decoder.container(keyedBy: CodingKeys.self).decode(Event.User.self, forKey: .user).id
    row = try Row(from: decoder)
  }
}

private struct ChannelsAnswer: Decodable {
  struct Channel: Decodable {
    var read: [MemberRow]?
    var code: String?
  }

  var states: [Channel]
}

private struct StatusesAnswer: Decodable {
  struct Status: Decodable {
    var seq: Int?
    var status: String?
    var readEvents: Bool?
    var deliveryEvents: Bool?

    private enum CodingKeys: String, CodingKey {
      case seq, status
      case readEvents = "read_events"
      case deliveryEvents = "delivery_events"
    }
  }

  var statuses: [Status]
}

private struct Switch: Codable {
  var enabled: Bool
}

private struct PrivacySettings: Codable {
  var readReceipts: Switch?
  var deliveryReceipts: Switch?

  enum CodingKeys: String, CodingKey {
    case readReceipts = "read_receipts"
    case deliveryReceipts = "delivery_receipts"
  }
}

private struct SettingsBody: Codable {
  var privacySettings: PrivacySettings?

  enum CodingKeys: String, CodingKey {
    case privacySettings = "privacy_settings"
  }
}

/// Settings as one route answers them, and as the other does.
private struct SettingsAnswer: Decodable {
  enum CodingKeys: CodingKey {
    case user
  }

  var settings: PrivacySettings?

  init(from decoder: any Decoder) throws {
    let nested = try decoder.container(keyedBy: CodingKeys.self).decodeIfPresent(SettingsBody.self, forKey: .user)
    settings = try (nested ?? SettingsBody(from: decoder)).privacySettings
  }
}

extension Tidemark {
  /// Channels, or messages, in one query.
  private static let batchMax = 100

  // MARK: What the app opens

  /// Load a place, and keep it up to date from now on. The person looks at it, so automatic reads continue after a
  /// mark-unread. Offline it returns, and loads the place later.
  ///
  /// - Throws: ``TidemarkError``, if the server refuses it, such as with `channel_not_found`.
  public func open(_ cid: CID, thread: String? = nil) async throws {
    let place = Place(cid: cid, thread: thread)
    unreadByHand.remove(place)
    openedUnread[place] = .some(nil)
    _ = try await ensure(place)
    _ = unreadWhenOpened(cid, thread: thread)
  }

  /// Load the own row and up to 99 other members' rows of many channels. Offline it returns, and loads them later.
  ///
  /// - Throws: ``TidemarkError``, if the server refuses a request. Channels that it does not know are left out.
  public func openAll(_ cids: [CID]) async throws {
    let places = cids.map { Place(cid: $0) }
    for place in places where wanted[place] == nil { wanted[place] = false }
    for first in stride(from: 0, to: places.count, by: Self.batchMax) {
      let some = places[first..<min(first + Self.batchMax, places.count)].map(entry)
      do {
        try await loadFirst(some)
      } catch let error as TidemarkError where error.isTemporary {
        for entry in some { need(.allRows, of: entry) }
      }
    }
  }

  /// Forget a place that is not on the screen.
  public func forget(_ cid: CID, thread: String? = nil) {
    let place = Place(cid: cid, thread: thread)
    wanted[place] = nil
    entries[place] = nil
    openedUnread[place] = nil
  }

  /// Tell of messages that are on the screen. The statuses of own ones are then the server's. Opens the place if need
  /// be; offline it returns, and loads the statuses later.
  ///
  /// - Throws: ``TidemarkError``, if the server refuses it.
  public func show(_ cid: CID, _ messages: [RegisteredMessage], thread: String? = nil) async throws {
    let entry = try await ensure(Place(cid: cid, thread: thread))
    for message in messages {
      entry.state.know(message)
      // Events tell the statuses of the numbers that are here.
      if message.user == user { entry.state.follow(message.seq) }
    }
    do {
      try await loadStatuses(entry)
    } catch let error as TidemarkError where error.isTemporary {
      need(.allRows, of: entry)
    }
  }

  private func ensure(_ place: Place) async throws -> PlaceEntry {
    wanted[place] = true
    let entry = entry(place)
    guard !entry.state.isComplete else { return entry }
    do {
      try await load(entry)
    } catch let error as TidemarkError {
      missed(entry, error)
      guard error.isTemporary else { throw error }
    }
    return entry
  }

  /// The entry of a place, made if need be.
  func entry(_ place: Place) -> PlaceEntry {
    if let entry = entries[place] { return entry }
    let entry = PlaceEntry(place, user: user)
    entries[place] = entry
    return entry
  }

  // MARK: Queries

  /// Perform a query of rows. Events that come meanwhile are applied after it.
  private func querying(_ queried: [PlaceEntry], _ query: () async throws -> Void) async rethrows {
    for entry in queried { entry.queries += 1 }
    defer {
      for entry in queried {
        entry.queries -= 1
        guard entry.queries == 0 else { continue }
        let events = entry.waiting
        entry.waiting = []
        for event in events { apply(event, to: entry) }
        if entry.hasLostEvents { need(.allRows, of: entry) }
        entry.hasLostEvents = false
        changed(entry)
      }
      readAutomatically()
    }
    try await query()
  }

  private func page(_ place: Place, _ query: String) async throws -> RowsPage {
    let thread = place.thread.map { "&thread_id=" + Path.encode($0) } ?? ""
    return try await requests.json("GET", "\(Path.channel(place.cid))/read-state?\(query)\(thread)")
  }

  private static func byUser(_ rows: [MemberRow]) -> [String: Row] {
    Dictionary(rows.map { ($0.user, $0.row) }) { _, newer in newer }
  }

  /// Load all rows, then the statuses of own messages.
  func load(_ entry: PlaceEntry) async throws {
    try await querying([entry]) {
      var rows: [String: Row] = [:]
      var cursor: String?
      repeat {
        let page = try await page(entry.state.place, cursor.map { "cursor=" + Path.encode($0) } ?? "limit=100")
        rows.merge(Self.byUser(page.read)) { _, newer in newer }
        cursor = page.next
      } while cursor != nil
      entry.state.apply(rows, isAll: true, now: .now)
    }
    try await loadStatuses(entry)
  }

  /// Load the own row, which is on the first page.
  func loadOwn(_ entry: PlaceEntry) async throws {
    try await querying([entry]) {
      let rows = Self.byUser(try await page(entry.state.place, "limit=1").read)
      entry.state.apply(rows.filter { $0.key == user }, isAll: false, now: .now)
    }
  }

  /// Load the first rows of channels.
  func loadFirst(_ queried: [PlaceEntry]) async throws {
    try await querying(queried) {
      let answer: ChannelsAnswer = try await requests.json(
        "POST",
        "/v1/read-state",
        ["cids": queried.map(\.state.place.cid)]
      )
      for (entry, channel) in zip(queried, answer.states) {
        if let rows = channel.read {
          entry.state.apply(Self.byUser(rows), isAll: false, now: .now)
        } else {
          missed(entry, .ofEntry(channel.code ?? "internal_error"))
        }
      }
    }
  }

  private func loadStatuses(_ entry: PlaceEntry) async throws {
    let ids = entry.state.ownMessageIDs
    guard !ids.isEmpty else { return }
    if entry.statusQueries == 0 { entry.state.beginStatuses() }
    entry.statusQueries += 1
    defer { entry.statusQueries -= 1 }
    for first in stride(from: 0, to: ids.count, by: Self.batchMax) {
      let answer: StatusesAnswer = try await requests.json(
        "POST",
        Path.channel(entry.state.place.cid) + "/receipts/query",
        ["message_ids": Array(ids[first..<min(first + Self.batchMax, ids.count)])]
      )
      for status in answer.statuses {
        guard let seq = status.seq, let told = status.status.flatMap(DeliveryStatus.init) else { continue }
        entry.state.receiptsShown = ReceiptsShown(
          read: status.readEvents ?? true,
          delivered: status.deliveryEvents ?? true
        )
        entry.state.apply(told, of: seq)
      }
    }
    changed(entry)
  }

  /// One page of a message's members with their times, from the server.
  ///
  /// - Parameters:
  ///   - cid: The message's channel.
  ///   - messageID: The message.
  ///   - list: Which of its members.
  ///   - cursor: ``MemberPage/next`` of the page before; nil: the first page.
  ///   - limit: Number of members on the page, 1 to 100.
  ///   - order: By time only in channels of up to 1,000 members.
  /// - Throws: ``TidemarkError``, also offline.
  public func listMembers(
    _ cid: CID,
    messageID: String,
    _ list: MemberList,
    cursor: String? = nil,
    limit: Int? = nil,
    order: MemberOrder? = nil
  ) async throws -> MemberPage {
    let query = [("cursor", cursor), ("limit", limit.map { "\($0)" }), ("order", order?.rawValue)]
      .compactMap { name, value in value.map { "\(name)=\(Path.encode($0))" } }.joined(separator: "&")
    let path = "\(Path.channel(cid))/messages/\(Path.encode(messageID))/\(list.rawValue)"
    return try await requests.json("GET", query.isEmpty ? path : "\(path)?\(query)")
  }

  /// Load totals and settings, which other devices may change too.
  func loadBasics() async throws {
    let path = Path.user(user)
    apply(try await requests.json("GET", path) as SettingsAnswer)
    apply(try await requests.json("GET", path + "/unread?limit=1") as Totals)
    finishStart(.success(()))
    flush()
  }

  private func apply(_ answer: SettingsAnswer) {
    showsDeliveries = answer.settings?.deliveryReceipts?.enabled != false
  }

  func apply(_ totals: Totals) {
    self.totals = totals
    hub.emit(.totals(totals))
  }

  /// Show or hide the user's own receipts. What is left out stays as it is.
  ///
  /// - Throws: ``TidemarkError``, also offline: settings are not queued.
  public func setReceipts(read: Bool? = nil, delivered: Bool? = nil) async throws {
    let settings = PrivacySettings(
      readReceipts: read.map(Switch.init),
      deliveryReceipts: delivered.map(Switch.init)
    )
    apply(try await requests.json("PUT", Path.user(user), SettingsBody(privacySettings: settings)) as SettingsAnswer)
  }

  /// A place could not be loaded: it is dropped if there is no such channel, else it is loaded later.
  private func missed(_ entry: PlaceEntry, _ error: TidemarkError) {
    guard error.status == 404 else { return need(.allRows, of: entry) }
    if entries[entry.state.place] === entry { entries[entry.state.place] = nil }
    changed(entry)
  }

  // MARK: What has to be queried, at most once in `interval`

  func need(_ query: Query, of entry: PlaceEntry) {
    guard !query.isEmpty else { return }
    if entry.staleQuery.isEmpty { stale.append(entry) }
    entry.staleQuery.formUnion(query)
    refreshSoon(after: interval)
  }

  func reloadAll() {
    for (place, isAll) in wanted {
      let entry = entry(place)
      if entry.staleQuery.isEmpty { stale.append(entry) }
      entry.staleQuery = isAll ? .allRows : .ownRow
    }
    refreshSoon()
  }

  func refreshSoon(after pause: Duration = .zero) {
    if isRefreshing || isClosed || streamTask == nil { return }
    if staleTimer != nil, pause > .zero { return }
    staleTimer?.cancel()
    staleTimer = Task { [weak self] in
      if pause > .zero { try? await Task.sleep(for: pause) }
      if !Task.isCancelled { await self?.refresh() }
    }
  }

  private func refresh() async {
    guard !isRefreshing, !isClosed else { return }
    staleTimer = nil
    isRefreshing = true
    let now = stale.map { (entry: $0, query: $0.staleQuery) }.filter { entries[$0.entry.state.place] === $0.entry }
    for entry in stale { entry.staleQuery = [] }
    stale = []
    var failure: TidemarkError?
    if needsBasics { await attemptBasics(&failure) }
    for (entry, query) in now where wanted[entry.state.place] == true {
      await attempt([entry], &failure) {
        query.contains(.allRows) ? try await load(entry) : try await loadOwn(entry)
      }
    }
    let others = now.map(\.entry).filter { wanted[$0.state.place] != true }
    for first in stride(from: 0, to: others.count, by: Self.batchMax) {
      let some = Array(others[first..<min(first + Self.batchMax, others.count)])
      await attempt(some, &failure) { try await loadFirst(some) }
    }
    isRefreshing = false
    if let failure { return refreshSoon(after: backoff.next(least: failure.retryAfter)) }
    backoff.reset()
    if !stale.isEmpty || needsBasics { refreshSoon(after: interval) }
  }

  private func attemptBasics(_ failure: inout TidemarkError?) async {
    // The stream may be opened anew meanwhile, which asks for them once more.
    needsBasics = false
    do {
      try await loadBasics()
    } catch {
      let error = TidemarkError.from(error)
      if error.isTemporary {
        needsBasics = true
        failure = error
      } else {
        // The token is another user's, for example: waiting does not help.
        finishStart(.failure(error))
      }
    }
  }

  /// Query places. After a failure that may pass, they and all others are queried later.
  private func attempt(
    _ queried: [PlaceEntry],
    _ failure: inout TidemarkError?,
    _ query: () async throws -> Void
  ) async {
    var again = failure != nil
    if !again {
      do {
        try await query()
      } catch {
        let error = TidemarkError.from(error)
        if error.status == 404, let entry = queried.first, queried.count == 1 { return missed(entry, error) }
        again = error.isTemporary
        if again { failure = error }
      }
    }
    guard again else { return }
    for entry in queried {
      if entry.staleQuery.isEmpty { stale.append(entry) }
      entry.staleQuery = .allRows
    }
  }
}
