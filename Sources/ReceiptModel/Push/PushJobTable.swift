/// A push of one message to the devices of some users, which waits for a worker. Tidemark stores devices only here, and
/// only until a worker has finished the job.
package struct PushJob: Hashable, Sendable {
  /// A user and what the worker sends their devices to.
  package struct User: Hashable, Sendable {
    package var id: [UInt8]
    /// JSON, which the store does not read.
    package var devices: [UInt8]

    package init(id: [UInt8], devices: [UInt8]) {
      self.id = id
      self.devices = devices
    }
  }

  /// The random number by which callers name the job.
  package var key: UInt64
  package var createdAt: Timestamp
  /// The job is removed after this time, finished or not.
  package var expiresAt: Timestamp
  /// The message and what the push says: JSON, which the store does not read.
  package var content: [UInt8]
  package var users: [User]

  package init(key: UInt64, createdAt: Timestamp, expiresAt: Timestamp, content: [UInt8], users: [User]) {
    self.key = key
    self.createdAt = createdAt
    self.expiresAt = expiresAt
    self.content = content
    self.users = users
  }

  /// Size in bytes, with what each user and the job take beside their bytes.
  package var byteCount: Int { users.reduce(content.count + 128) { $0 + $1.id.count + $1.devices.count + 80 } }
}

/// An effect on the push jobs of a shard.
package enum PushJobEffect: Hashable, Sendable {
  indirect case assigned(UInt32, PushJob)
  case removed(UInt32)

  /// The number of the job: that of its page.
  package var number: UInt32 {
    switch self {
    case .assigned(let number, _), .removed(let number): number
    }
  }

  /// Return the effect with its times clamped.
  func clamped(by repair: TimeRepair) -> PushJobEffect {
    guard case .assigned(let number, var job) = self else { return self }
    // The job keeps its lifetime.
    let lifetime = job.expiresAt.milliseconds - job.createdAt.milliseconds
    job.createdAt = repair.clamped(job.createdAt)
    job.expiresAt = Timestamp(milliseconds: job.createdAt.milliseconds + lifetime)
    return .assigned(number, job)
  }
}

/// The push jobs of a shard that no worker has finished. Each is a page; numbers of removed jobs are used again.
package struct PushJobTable: Sendable {
  /// Maximum size of the jobs of a shard, in bytes.
  package static let byteCountMax = 16 << 20
  /// Maximum number of jobs, by their size.
  package static let countMax: UInt32 = 1 << 20
  /// Maximum number of users of a job.
  package static let usersMax = 1_000
  /// Maximum lifetime of a job, in milliseconds: 28 days, as long as tickets last.
  package static let lifetimeMax: Int64 = 2_419_200_000

  private var jobs: [PushJob?] = []
  private var numbers: [UInt64: UInt32] = [:]
  /// Numbers of removed jobs, the next one to use last.
  private var free: [UInt32] = []
  /// Size of the jobs in bytes.
  package private(set) var byteCount = 0

  init() {}

  package var count: Int { numbers.count }

  package subscript(number: UInt32) -> PushJob? { number < jobs.count ? jobs[Int(number)] : nil }

  /// Return the number of a job.
  package func number(of key: UInt64) -> UInt32? { numbers[key] }

  /// Call `body` with each job and its number.
  package func forEach(_ body: (UInt32, PushJob) -> Void) {
    for (number, job) in jobs.enumerated() {
      if let job { body(UInt32(number), job) }
    }
  }

  /// Return the effects that reproduce a page.
  func effects(of page: UInt32) -> [Effect] { self[page].map { [.shard(.pushJob(.assigned(page, $0)))] } ?? [] }

  // MARK: Deciding

  /// Whether there is room for another job of this size.
  package func hasRoom(for job: PushJob) -> Bool { byteCount + job.byteCount <= Self.byteCountMax }

  /// Add a job, unless there is one with its key.
  package func decideAdd(_ job: PushJob, into effects: inout [Effect]) {
    guard numbers[job.key] == nil else { return }
    effects.append(.shard(.pushJob(.assigned(free.last ?? UInt32(jobs.count), job))))
  }

  /// Remove a job that was finished; do nothing if there is none.
  package func decideRemove(_ key: UInt64, into effects: inout [Effect]) {
    if let number = numbers[key] { effects.append(.shard(.pushJob(.removed(number)))) }
  }

  /// Remove the jobs that have expired, at most `limit`.
  ///
  /// - Returns: the time at which the next job expires, or now if there are more; nil: never.
  package func decideExpire(at time: Timestamp, limit: Int, into effects: inout [Effect]) -> Timestamp? {
    var next: Timestamp?
    var count = 0
    for (number, job) in jobs.enumerated() {
      guard let job else { continue }
      if job.expiresAt <= time, count < limit {
        effects.append(.shard(.pushJob(.removed(UInt32(number)))))
        count += 1
      } else {
        next = min(next ?? job.expiresAt, job.expiresAt)
      }
    }
    return next
  }

  /// Remove a user who is being erased from all jobs (R16).
  package func decideErase(_ user: [UInt8], into effects: inout [Effect]) {
    for (number, job) in jobs.enumerated() {
      guard var job, job.users.contains(where: { $0.id == user }) else { continue }
      job.users.removeAll { $0.id == user }
      let number = UInt32(number)
      effects.append(.shard(.pushJob(job.users.isEmpty ? .removed(number) : .assigned(number, job))))
    }
  }

  // MARK: Assignment

  mutating func assign(_ effect: PushJobEffect) {
    switch effect {
    case .assigned(let number, let job): assign(number, job)
    case .removed(let number): remove(number)
    }
  }

  private mutating func assign(_ number: UInt32, _ job: PushJob) {
    remove(number)
    while jobs.count <= number {
      free.append(UInt32(jobs.count))
      jobs.append(nil)
    }
    // The number of a new job is the last one, except while a shard is recovered.
    if let position = free.lastIndex(of: number) { free.remove(at: position) }
    jobs[Int(number)] = job
    numbers[job.key] = number
    byteCount += job.byteCount
  }

  private mutating func remove(_ number: UInt32) {
    guard let job = self[number] else { return }
    jobs[Int(number)] = nil
    numbers[job.key] = nil
    byteCount -= job.byteCount
    free.append(number)
  }
}
