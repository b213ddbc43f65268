package import NIOCore
package import ReceiptModel

// Push jobs (Proto/frames.md, 0x67 to 0x69). Only the form of fields is checked here; the store checks their ranges.

extension RequestSpec {
  private static let users = "users:[user devices:string]"

  /// The layouts of the requests in this file.
  static let pushJobRequests: [RequestSpec] = [
    RequestSpec(
      .putPushJob,
      "put_push_job",
      "cid counter message key:varint milliseconds content:string \(users)",
      reply: "accepted"
    ),
    RequestSpec(
      .claimPushJobs,
      "claim_push_jobs",
      "milliseconds limit bytes",
      reply: "jobs:[key:varint claim created expires_at content:string \(users)] more:byte"
    ),
    RequestSpec(
      .updatePushJobs,
      "update_push_jobs",
      "counter done:byte milliseconds jobs:[key:varint claim]",
      reply: "unknown:[key:varint claim]"
    ),
  ]
}

/// The fields of put_push_job.
package struct PutPushJobRequest: Sendable {
  package var message: [UInt8]
  package var key: UInt64
  /// Lifetime.
  package var milliseconds: UInt64
  package var content: [UInt8]
  package var users: [PushJob.User]

  package init(message: [UInt8], key: UInt64, milliseconds: UInt64, content: [UInt8], users: [PushJob.User]) {
    self.message = message
    self.key = key
    self.milliseconds = milliseconds
    self.content = content
    self.users = users
  }

  package init(_ reader: inout FieldReader) throws(WireError) {
    message = try reader.byteArray()
    key = try reader.varint()
    milliseconds = try reader.varint()
    content = try reader.byteArray()
    users = try reader.pushUsers()
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeField(message.span.bytes)
    buffer.writeVarint(key)
    buffer.writeVarint(milliseconds)
    buffer.writeField(content.span.bytes)
    buffer.writePushUsers(users)
  }
}

/// The reply to put_push_job.
package struct PutPushJobReply: Sendable {
  /// Users of the job. Those who are no members, or are being erased, are left out.
  package var accepted: UInt64

  package init(accepted: UInt64) { self.accepted = accepted }

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    accepted = try reader.varint()
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) { buffer.writeVarint(accepted) }
}

/// The fields of claim_push_jobs.
package struct ClaimPushJobsRequest: Sendable {
  /// For how long nobody else gets the jobs.
  package var milliseconds: UInt64
  package var limit: UInt64
  /// Maximum size of the jobs; the first one may be larger.
  package var byteCountMax: UInt64

  package init(milliseconds: UInt64, limit: UInt64, byteCountMax: UInt64) {
    self.milliseconds = milliseconds
    self.limit = limit
    self.byteCountMax = byteCountMax
  }

  package init(_ reader: inout FieldReader) throws(WireError) {
    milliseconds = try reader.varint()
    limit = try reader.varint()
    byteCountMax = try reader.varint()
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeVarint(milliseconds)
    buffer.writeVarint(limit)
    buffer.writeVarint(byteCountMax)
  }
}

/// The reply to claim_push_jobs.
package struct PushJobsReply: Sendable {
  /// The jobs, each with the number of this claim.
  package var jobs: [(claim: UInt64, job: PushJob)]
  /// Whether the shard has more jobs to give.
  package var hasMore: Bool

  package init(jobs: [(claim: UInt64, job: PushJob)], hasMore: Bool) {
    self.jobs = jobs
    self.hasMore = hasMore
  }

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    jobs = []
    for _ in 0..<(try reader.count(elementBytesMin: 6)) {
      let key = try reader.varint()
      let claim = try reader.varint()
      jobs.append((claim, try reader.pushJob(key: key)))
    }
    hasMore = try reader.flag()
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeVarint(jobs.count)
    for (claim, job) in jobs {
      buffer.writeVarint(job.key)
      buffer.writeVarint(claim)
      buffer.writePushJobFields(job)
    }
    buffer.writeByte(hasMore ? 1 : 0)
  }
}

/// The fields of update_push_jobs, after the counter.
package struct UpdatePushJobsRequest: Sendable {
  /// Whether the jobs are done, and removed.
  package var isDone: Bool
  /// For how long nobody else gets jobs that are not done; 0: the caller gives them back.
  package var milliseconds: UInt64
  package var jobs: [Job]

  /// A job, and the number of the caller's claim; 0: none.
  package struct Job: Hashable, Sendable {
    package var key: UInt64
    package var claim: UInt64

    package init(key: UInt64, claim: UInt64) {
      self.key = key
      self.claim = claim
    }
  }

  package init(isDone: Bool, milliseconds: UInt64, jobs: [Job]) {
    self.isDone = isDone
    self.milliseconds = milliseconds
    self.jobs = jobs
  }

  package init(_ reader: inout FieldReader) throws(WireError) {
    isDone = try reader.flag()
    milliseconds = try reader.varint()
    jobs = try reader.namedJobs()
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeByte(isDone ? 1 : 0)
    buffer.writeVarint(milliseconds)
    buffer.writeNamedJobs(jobs)
  }
}

/// The reply to update_push_jobs.
package struct UpdatePushJobsReply: Sendable {
  /// The jobs that the shard does not have (they were done before, have expired, or their users were erased), and those
  /// that somebody else has claimed since.
  package var unknown: [UpdatePushJobsRequest.Job]

  package init(unknown: [UpdatePushJobsRequest.Job]) { self.unknown = unknown }

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    unknown = try reader.namedJobs()
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) { buffer.writeNamedJobs(unknown) }
}

// MARK: Fields

extension FieldReader {
  /// Read what `writePushJob` writes.
  @_lifetime(self: copy self)
  mutating func pushJob() throws(WireError) -> PushJob { try pushJob(key: try varint()) }

  @_lifetime(self: copy self)
  fileprivate mutating func pushJob(key: UInt64) throws(WireError) -> PushJob {
    let createdAt = try time()
    let expiresAt = try time()
    let content = try byteArray()
    return PushJob(key: key, createdAt: createdAt, expiresAt: expiresAt, content: content, users: try pushUsers())
  }

  /// Read the number of a job's page.
  @_lifetime(self: copy self)
  mutating func pushJobNumber() throws(WireError) -> UInt32 {
    let number = try varint32()
    guard number < PushJobTable.countMax else { throw .badValue(.effect) }
    return number
  }

  @_lifetime(self: copy self)
  fileprivate mutating func pushUsers() throws(WireError) -> [PushJob.User] {
    var users: [PushJob.User] = []
    for _ in 0..<(try count(elementBytesMin: 2)) {
      let id = try byteArray()
      users.append(PushJob.User(id: id, devices: try byteArray()))
    }
    return users
  }

  @_lifetime(self: copy self)
  fileprivate mutating func namedJobs() throws(WireError) -> [UpdatePushJobsRequest.Job] {
    var jobs: [UpdatePushJobsRequest.Job] = []
    for _ in 0..<(try count(elementBytesMin: 2)) {
      let key = try varint()
      jobs.append(UpdatePushJobsRequest.Job(key: key, claim: try varint()))
    }
    return jobs
  }
}

extension ByteBuffer {
  mutating func writePushJob(_ job: PushJob) {
    writeVarint(job.key)
    writePushJobFields(job)
  }

  /// Write what follows the key of a job.
  fileprivate mutating func writePushJobFields(_ job: PushJob) {
    writeTime(job.createdAt)
    writeTime(job.expiresAt)
    writeField(job.content.span.bytes)
    writePushUsers(job.users)
  }

  fileprivate mutating func writePushUsers(_ users: [PushJob.User]) {
    writeVarint(users.count)
    for user in users {
      writeField(user.id.span.bytes)
      writeField(user.devices.span.bytes)
    }
  }

  fileprivate mutating func writeNamedJobs(_ jobs: [UpdatePushJobsRequest.Job]) {
    writeVarint(jobs.count)
    for job in jobs {
      writeVarint(job.key)
      writeVarint(job.claim)
    }
  }
}
