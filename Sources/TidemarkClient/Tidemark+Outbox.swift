import Foundation

/// Who sends marks, and when.
enum Sender {
  /// Becomes waiting or sending.
  case idle
  /// Sends after a pause. Becomes sending or stopped.
  case waiting(Task<Void, Never>)
  /// Becomes idle, waiting or stopped. `isAgain`: marks were made meanwhile.
  case sending(Task<Void, Never>, isAgain: Bool)
  /// The client is closed.
  case stopped

  /// Stop sending.
  ///
  /// - Returns: A task that is ending.
  mutating func stop() -> Task<Void, Never>? {
    defer { self = .stopped }
    switch self {
    case .idle, .stopped: return nil
    case .waiting(let task), .sending(let task, _):
      task.cancel()
      return task
    }
  }
}

/// When marks are sent again.
private enum NextSend {
  /// When a mark is due.
  case due(Duration)
  /// After a failure.
  case retry(Duration)
  /// With the next mark.
  case idle
}

private struct OwnRowAnswer: Decodable {
  var read: MemberRow
}

private struct MarkBody: Encodable {
  var messageID: String?
  var timestamp: Date?
  var thread: String?
  var epoch: Int?

  enum CodingKeys: String, CodingKey {
    case messageID = "message_id"
    case timestamp = "message_timestamp"
    case thread = "thread_id"
    case epoch = "unread_epoch"
  }
}

private struct DeliveredBody: Encodable {
  struct Entry: Encodable {
    var cid: CID?
    var id: String?
    var parentID: String?

    enum CodingKeys: String, CodingKey {
      case cid, id
      case parentID = "parent_id"
    }
  }

  var latest: [Entry]

  enum CodingKeys: String, CodingKey {
    case latest = "latest_delivered_messages"
  }
}

private struct ReadAllBody: Encodable {
  var all = true
  var threads: Bool?
}

private struct AcknowledgeBody: Encodable {
  var messageIDs: [String]
  var note: String?

  enum CodingKeys: String, CodingKey {
    case messageIDs = "message_ids"
    case note
  }
}

/// What a request with many entries answers.
struct EntryResults: Decodable {
  struct Result: Decodable {
    var ok: Bool
    var code: String?
  }

  var results: [Result]
}

private struct AcknowledgeAnswer: Decodable {
  struct Failure: Decodable {
    var messageID: String
    var code: String

    enum CodingKeys: String, CodingKey {
      case messageID = "message_id"
      case code
    }
  }

  var errors: [Failure]
}

/// An answer of which nothing is needed.
private struct Ignored: Decodable {
  init(from _: any Decoder) {}
}

extension Tidemark {
  /// Add a mark, and send it as soon as it may be.
  ///
  /// - Returns: A task that ends when the mark is in the store.
  func add(_ mark: Mark) -> Task<Void, Never> {
    let now = Date()
    var mark = mark
    mark.at = now.milliseconds
    guard outbox.pending < Outbox.marksMax else {
      refused(mark, TidemarkError(status: 0, code: "queue_full"))
      return Task {}
    }
    let key = store.sharing.makeKey(now: now, random: random())
    outbox.beginAdding(key)
    let (earlier, store, sent) = (added, store, mark)
    let adding = Task {
      await earlier?.value
      do {
        try await store.put(key, JSON.encode(sent))
        outbox.endAdding(key, isStored: true)
      } catch {
        outbox.endAdding(key, isStored: false)
        refused(sent, TidemarkError(status: 0, code: "store_failed", detail: String(describing: error)))
      }
    }
    added = adding
    flush()
    return adding
  }

  /// Send what is due, now or after a pause.
  func flush(after pause: Duration = .zero) {
    guard streamTask != nil else { return }
    switch sender {
    case .stopped: return
    case .sending(let task, _):
      sender = .sending(task, isAgain: true)
      return
    case .waiting(let task): task.cancel()
    case .idle: break
    }
    guard pause > .zero else {
      sender = .sending(Task { await send() }, isAgain: false)
      return
    }
    sender = .waiting(
      Task { [weak self] in
        try? await Task.sleep(for: pause)
        if !Task.isCancelled { await self?.flush() }
      }
    )
  }

  /// Send until nothing is due.
  private func send() async {
    let next = await sendAll()
    guard case .sending(_, let isAgain) = sender else { return }
    sender = .idle
    switch next {
    case .retry(let pause): flush(after: pause)
    case .due(let pause): flush(after: isAgain ? .zero : max(pause, .milliseconds(1)))
    case .idle: if isAgain { flush() }
    }
  }

  private func sendAll() async -> NextSend {
    while !isClosed {
      await added?.value
      do {
        try await store.sharing.beginTurn()
        defer { store.sharing.endTurn() }
        if let next = try await sendNext() { return next }
      } catch {
        // The store fails: try again later.
        return .retry(outbox.backoff.next())
      }
    }
    return .idle
  }

  /// Make one request.
  ///
  /// - Returns: When to continue; nil: at once.
  private func sendNext() async throws -> NextSend? {
    let marks = try await compactedMarks()
    let step = outbox.next(marks, mayDeliver: showsDeliveries != nil, now: .now, wallClock: Date())
    guard !isClosed, case .send(let batch) = step else {
      if case .wait(let pause) = step { return .due(pause) }
      return .idle
    }
    var failed: [FailedMark]
    do {
      failed = try await perform(batch)
    } catch {
      failed = batch.map { FailedMark(key: $0.key, mark: $0.mark, error: .from(error)) }
    }
    outbox.sent(batch, now: .now)
    let again = failed.filter { outbox.isRetried($0) }
    for stored in batch where !again.contains(where: { $0.key == stored.key }) {
      try await store.delete(stored.key)
      outbox.remove(stored.key)
    }
    for failure in failed where !again.contains(where: { $0.key == failure.key }) {
      refused(failure.mark, failure.error)
    }
    if let first = again.first { return .retry(outbox.backoff.next(least: first.error.retryAfter)) }
    outbox.backoff.reset()
    return nil
  }

  /// All marks of the store, without those that another one makes needless.
  private func compactedMarks() async throws -> [StoredMark] {
    let known = outbox.keys
    var marks: [StoredMark] = []
    for (key, value) in try await store.all() {
      if let mark = try? JSON.decode(Mark.self, from: value) {
        marks.append(StoredMark(key: key, mark: mark))
      } else {
        // A damaged file, or a kind of another version.
        try await store.delete(key)
      }
    }
    let (kept, needless) = Outbox.compact(marks) { mark in
      mark.seq ?? mark.place.flatMap { entries[$0]?.state.seq(of: mark.id) }
    }
    for key in needless { try await store.delete(key) }
    outbox.replaceKeys(known, by: kept)
    return kept
  }

  func refused(_ mark: Mark, _ error: TidemarkError) {
    if let entry = mark.place.flatMap({ entries[$0] }) { need(.ownRow, of: entry) }
    hub.emit(
      .refused(
        Refusal(
          kind: mark.kind,
          cid: mark.cid,
          thread: mark.thread,
          messageID: mark.id,
          messageIDs: mark.ids,
          timestamp: mark.timestamp,
          error: error
        )
      )
    )
  }

  // MARK: Requests of marks

  /// Send marks in one request.
  ///
  /// - Returns: Those that were refused, or have to be sent again.
  private func perform(_ batch: [StoredMark]) async throws -> [FailedMark] {
    guard let stored = batch.first else { return [] }
    let mark = stored.mark
    switch mark.kind {
    case .read:
      let body = MarkBody(messageID: mark.id, thread: mark.thread, epoch: mark.epoch)
      applyOwn(try await requests.json("POST", Path.channel(mark.cid ?? "") + "/read", body), of: mark)
      return []
    case .unread:
      try await performUnread(stored)
      return []
    case .delivered: return try await performDelivered(batch)
    case .readAll:
      let body = ReadAllBody(threads: mark.threads == true ? true : nil)
      _ = try await requests.json("POST", "/v1/channels/read", body) as Ignored
      return []
    case .acknowledge: return try await performAcknowledge(stored)
    }
  }

  private func performUnread(_ stored: StoredMark) async throws {
    let mark = stored.mark
    let body = MarkBody(messageID: mark.id, timestamp: mark.timestamp, thread: mark.thread, epoch: mark.epoch)
    let answer: OwnRowAnswer = try await requests.json("POST", Path.channel(mark.cid ?? "") + "/unread", body)
    applyOwn(answer, of: mark)
    guard let place = mark.place, let epoch = answer.read.row.unreadEpoch else { return }
    ownEpochs[place] = epoch
    // Reads that were made after it know of it, also those that were made while it was sent.
    await added?.value
    for (key, value) in try await store.all() where key > stored.key {
      guard var later = try? JSON.decode(Mark.self, from: value) else { continue }
      guard later.kind == .read, later.place == place else { continue }
      later.epoch = epoch
      try await store.put(key, JSON.encode(later))
    }
  }

  private func performDelivered(_ batch: [StoredMark]) async throws -> [FailedMark] {
    guard showsDeliveries == true else { return [] }
    let body = DeliveredBody(latest: batch.map { .init(cid: $0.mark.cid, id: $0.mark.id, parentID: $0.mark.thread) })
    let answer: EntryResults = try await requests.json("POST", "/v1/channels/delivered", body)
    return zip(batch, answer.results).filter { !$1.ok }.map { stored, result in
      FailedMark(key: stored.key, mark: stored.mark, error: .ofEntry(result.code ?? "internal_error"))
    }
  }

  private func performAcknowledge(_ stored: StoredMark) async throws -> [FailedMark] {
    let mark = stored.mark
    let body = AcknowledgeBody(messageIDs: mark.ids ?? [], note: mark.note)
    let answer: AcknowledgeAnswer = try await requests.json("POST", Path.channel(mark.cid ?? "") + "/receipts", body)
    var rest = mark
    rest.ids = []
    var again: TidemarkError?
    for failure in answer.errors {
      let error = TidemarkError.ofEntry(failure.code)
      if error.isTemporary {
        again = again ?? error
        rest.ids?.append(failure.messageID)
      } else {
        var one = mark
        one.ids = [failure.messageID]
        refused(one, error)
      }
    }
    guard let again else { return [] }
    // The others are answered.
    try await store.put(stored.key, JSON.encode(rest))
    return [FailedMark(key: stored.key, mark: rest, error: again)]
  }

  private func applyOwn(_ answer: OwnRowAnswer, of mark: Mark) {
    guard let entry = mark.place.flatMap({ entries[$0] }) else { return }
    entry.state.apply([answer.read.user: answer.read.row], isAll: false, now: .now)
    // Messages that came meanwhile may be in the counts or not.
    need(.ownRow, of: entry)
    changed(entry)
  }
}
