internal import HeapModule
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Push jobs (Proto/frames.md, 0x67 to 0x69): durable until a worker has finished them. Claims are kept in memory only.
/// After a restart, workers have 5 s to renew theirs before jobs are given out again.
final class ShardPushJobs: ShardPart {
  /// Maximum time for which a job is claimed, in milliseconds.
  private static let claimMillisecondsMax: UInt64 = 600_000
  /// Maximum number of jobs of one claim or update.
  private static let jobsMax = 1_000
  /// Maximum size of the jobs of one reply, in bytes: a frame has at most 1 MiB.
  private static let replyBytesMax: UInt64 = 512 << 10
  /// After a start, the time that workers have to renew their claims, in milliseconds.
  private static let renewalMilliseconds: Int64 = 5_000
  /// Expired jobs that are removed in one turn.
  private static let expiredPerTurn = 64
  private static let retryMilliseconds: UInt32 = 1_000

  /// When a job may be claimed.
  private struct Entry: Comparable {
    var availableAt: Timestamp
    var createdAt: Timestamp
    var number: UInt32
    var key: UInt64
    /// Number of the last claim; 0: none since the shard began to serve.
    var claim: UInt64 = 0

    static func < (a: Entry, b: Entry) -> Bool {
      (a.availableAt, a.createdAt, a.number) < (b.availableAt, b.createdAt, b.number)
    }
  }

  /// By job number; a job that is missing was there when the shard began to serve.
  private var entries: [UInt32: Entry] = [:]
  /// ``entries`` by availability, next one first; may contain stale ones.
  private var order = Heap<Entry>()
  /// Whether the jobs that were there at the start have entries.
  private var hasEntries = false
  /// Number of the newest claim. It starts at the shard's time, so that claims of before a restart are lower.
  private var lastClaim: UInt64 = 0
  /// When the next job expires; `none`: not known yet; nil: never.
  private var nextExpiry: Timestamp? = Timestamp.none

  private var jobs: PushJobTable { shard.state.pushJobs }

  override func stop() {
    entries = [:]
    order = Heap()
    hasEntries = false
    nextExpiry = Timestamp.none
  }

  /// Remove the jobs that have expired.
  func tick() {
    guard let expiry = nextExpiry, expiry <= shard.state.time, !shard.isBatchFull else { return }
    var effects: [Effect] = []
    nextExpiry = jobs.decideExpire(at: shard.state.time, limit: Self.expiredPerTurn, into: &effects)
    if !effects.isEmpty { shard.applyEffects(effects, to: nil) }
  }

  // MARK: Requests

  func put(_ request: inout Request, _ slot: ChannelSlot) throws(WireError) -> Outcome {
    let fields = try PutPushJobRequest(&request.fields)
    if let fault = Self.fault(fields) { return .refused(.invalidField, fault) }
    let target = shard.targetSlot(of: fields.message.span.bytes, in: slot)
    guard let sequence = shard.state.find(fields.message.span.bytes, in: target, hiddenThrough: .zero) else {
      return shard.refused(.messageNotFound, slot)
    }
    guard !shard.state.isDeleted(sequence, in: target) else { return shard.refused(.messageDeleted, slot) }
    let time = shard.advanceTime()
    let members = fields.users.filter { (try? shard.state.member($0.id.span.bytes, in: slot)) != nil }
    guard !members.isEmpty else { return shard.refused(.notAMember, slot) }
    let users = members.filter { !shard.state.settings.isErasing($0.id.span.bytes) }
    guard !users.isEmpty else { return shard.refused(.userErased, slot) }
    let job = PushJob(
      key: fields.key,
      createdAt: time,
      expiresAt: Timestamp(milliseconds: time.milliseconds + Int64(fields.milliseconds)),
      content: fields.content,
      users: users
    )
    if !request.isDuplicate {
      guard jobs.hasRoom(for: job) else { return Self.refusedFull }
      jobs.decideAdd(job, into: &request.effects)
    }
    shard.applyCommand(slot, request)
    if !request.isDuplicate, let number = jobs.number(of: job.key) {
      schedule(number, job, at: time)
      nextExpiry = min(nextExpiry ?? job.expiresAt, job.expiresAt)
    }
    let timing = shard.replyTiming(max(shard.lastEffect(slot), shard.dirty.pushJobsLast))
    return shard.reply(request, timing) { PutPushJobReply(accepted: UInt64(users.count)).write(into: &$0) }
  }

  /// Give jobs to a worker. They are durable, also when the store is restarted before the worker finishes them.
  func claim(_ request: inout Request) throws(WireError) -> Outcome {
    let fields = try ClaimPushJobsRequest(&request.fields)
    if let fault = Self.fault(milliseconds: fields.milliseconds) { return .refused(.invalidField, fault) }
    guard (1...UInt64(Self.jobsMax)).contains(fields.limit) else {
      return .refused(.invalidField, "limit: 1 to \(Self.jobsMax)")
    }
    let time = shard.advanceTime()
    addEntries(at: time)
    let until = Timestamp(milliseconds: time.milliseconds + Int64(fields.milliseconds))
    lastClaim = max(lastClaim + 1, UInt64(max(0, time.milliseconds)))
    let byteCountMax = min(fields.byteCountMax, Self.replyBytesMax)
    var answer = PushJobsReply(jobs: [], hasMore: false)
    var byteCount = 0
    while let next = order.min, next.availableAt <= time {
      guard entries[next.number] == next, let job = jobs[next.number], job.key == next.key, job.expiresAt > time else {
        order.removeMin()
        continue
      }
      byteCount += job.byteCount
      let isFull = answer.jobs.count == Int(fields.limit) || UInt64(byteCount) > byteCountMax
      guard answer.jobs.isEmpty || !isFull else {
        answer.hasMore = true
        break
      }
      order.removeMin()
      schedule(next.number, job, at: until, claim: lastClaim)
      answer.jobs.append((lastClaim, job))
    }
    return shard.reply(request, shard.replyTiming(shard.dirty.pushJobsLast)) { answer.write(into: &$0) }
  }

  /// Remove jobs that are done, or renew or end the claims of a worker.
  func update(_ request: inout Request) throws(WireError) -> Outcome {
    try shard.begin(&request)
    let fields = try UpdatePushJobsRequest(&request.fields)
    guard fields.jobs.count <= Self.jobsMax else { return .refused(.invalidField, "jobs: at most \(Self.jobsMax)") }
    if !fields.isDone, fields.milliseconds > 0, let fault = Self.fault(milliseconds: fields.milliseconds) {
      return .refused(.invalidField, fault)
    }
    let time = shard.advanceTime()
    let until = Timestamp(milliseconds: time.milliseconds + Int64(fields.milliseconds))
    var answer = UpdatePushJobsReply(unknown: [])
    for named in fields.jobs {
      guard let number = jobs.number(of: named.key), let job = jobs[number],
        fields.isDone || mayRenew(number, named)
      else {
        answer.unknown.append(named)
        continue
      }
      if fields.isDone {
        jobs.decideRemove(named.key, into: &request.effects)
      } else {
        schedule(number, job, at: until, claim: fields.milliseconds == 0 ? 0 : named.claim)
      }
    }
    shard.applyCommand(nil, request)
    return shard.reply(request, shard.replyTiming(shard.dirty.pushJobsLast)) { answer.write(into: &$0) }
  }

  // MARK: Claims

  /// Return whether nobody else has claimed a job since the caller did.
  private func mayRenew(_ number: UInt32, _ named: UpdatePushJobsRequest.Job) -> Bool {
    guard let entry = entries[number], entry.key == named.key else { return true }
    return entry.claim == 0 || entry.claim == named.claim
  }

  private func schedule(_ number: UInt32, _ job: PushJob, at time: Timestamp, claim: UInt64 = 0) {
    let entry = Entry(availableAt: time, createdAt: job.createdAt, number: number, key: job.key, claim: claim)
    entries[number] = entry
    order.insert(entry)
    guard order.count > 2 * entries.count + 64 else { return }
    order = Heap(entries.values)
  }

  /// Schedule the jobs that were there when the shard began to serve, except those whose claims were renewed since.
  private func addEntries(at time: Timestamp) {
    guard !hasEntries else { return }
    hasEntries = true
    let available = Timestamp(milliseconds: time.milliseconds + Self.renewalMilliseconds)
    jobs.forEach { number, job in
      if entries[number]?.key != job.key { schedule(number, job, at: available) }
    }
  }

  // MARK: Checks

  private static func fault(milliseconds: UInt64) -> String? {
    (1...claimMillisecondsMax).contains(milliseconds) ? nil : "milliseconds: 1 to \(claimMillisecondsMax)"
  }

  private static func fault(_ fields: PutPushJobRequest) -> String? {
    guard (1...UInt64(PushJobTable.lifetimeMax)).contains(fields.milliseconds) else {
      return "milliseconds: 1 to \(PushJobTable.lifetimeMax)"
    }
    guard (1...PushJobTable.usersMax).contains(fields.users.count) else {
      return "users: 1 to \(PushJobTable.usersMax)"
    }
    return fields.users.allSatisfy { Identifier.isUser($0.id.span.bytes) } ? nil : "\(Identifier.userRange)"
  }

  private static var refusedFull: Outcome {
    .refused(
      .busy,
      retryAfterMilliseconds: retryMilliseconds,
      "push jobs that wait in a shard: at most \(PushJobTable.byteCountMax >> 20) MiB"
    )
  }
}
