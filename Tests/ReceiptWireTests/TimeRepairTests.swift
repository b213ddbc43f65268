import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

/// The repairs of `tidemark repair-clock` to every effect in Proto/vectors/log.json.
struct TimeRepairTests {
  /// Repaired with a limit in 1970, no effect has a later time. New effects are covered, because each has a vector.
  @Test func repairedTimesAreWithinTheLimit() throws {
    var repair = TimeRepair(limit: Timestamp(milliseconds: 1))
    for vector in Vectors.log.effects {
      let effect = LogVectorTests.effect(vector)
      guard Self.isRead(effect) else { continue }
      let repaired = try repair.repaired(effect)
      for time in Self.times(in: repaired) {
        #expect(time <= 1 || Self.mayBeInFuture(repaired), "\(vector.name)")
      }
      // The repaired effect can be encoded, and a second repair changes nothing.
      var buffer = ByteBuffer()
      buffer.writeEffect(repaired)
      var reader = FieldReader(buffer.readableBytesSpan)
      #expect(try reader.effect() == repaired, "\(vector.name)")
      let count = repair.counts
      #expect(try repair.repaired(repaired) == repaired && repair.counts == count, "\(vector.name)")
    }
    let session = repair.repaired(SessionRecord(session: SessionID(high: 1, low: 2), lastWritten: Self.late))
    #expect(session.lastWritten.milliseconds == 1)
    #expect(repair.repairedBatchTime(Self.late).milliseconds == 1)
    repair.count(.erasures)
    let steps = StepBytes.bytes([
      Step(row: 0, kind: .read, sequence: SequenceNumber(1), time: Self.late, number: 1)
    ])
    let tail = StepTailRecord(ends: [Self.late], tail: steps)
    let assigned = try repair.repaired(.channel(ChannelNumber(1), .stepTailAssigned(rowPage: 0, tail)))
    #expect(Self.times(in: assigned).allSatisfy { $0 == 1 })
    #expect(Set(repair.counts.keys) == Set(TimeRepair.Kind.allCases))
  }

  /// With the limit in the year 9999 nothing changes.
  @Test func timesWithinTheLimitAreKept() throws {
    var repair = TimeRepair(limit: Timestamp(milliseconds: 253_402_300_799_999))
    for vector in Vectors.log.effects {
      let effect = LogVectorTests.effect(vector)
      guard Self.isRead(effect), Self.times(in: effect).allSatisfy({ $0 <= repair.limit.milliseconds }) else {
        continue
      }
      #expect(try repair.repaired(effect) == effect, "\(vector.name)")
    }
    #expect(!repair.hasChanged)
  }

  @Test func relativeTimesAreKept() throws {
    let limit = Timestamp(milliseconds: 1_000)
    func at(_ milliseconds: Int64) -> Timestamp { Timestamp(milliseconds: milliseconds) }
    var repair = TimeRepair(limit: limit)
    // An acknowledgement request keeps its lifetime. An acknowledgement request from before the limit keeps its end,
    // which may be in the future.
    for (registered, expires, expected) in [(5_000, 5_600, 1_600), (900, 5_600, 5_600), (5_000, 0, 0)]
      as [(Int64, Int64, Int64)]
    {
      let record = MessageRecord(
        id: "m",
        sender: "a",
        flags: .requestsAcknowledgement,
        registeredAt: at(registered),
        acknowledgementExpiresAt: at(expires)
      )
      let effect = Effect.channel(ChannelNumber(1), .messageAssigned(SequenceNumber(1), record))
      guard case .channel(_, .messageAssigned(_, let repaired)) = try repair.repaired(effect) else {
        continue
      }
      #expect(repaired.acknowledgementExpiresAt == at(expected) && repaired.registeredAt <= limit)
    }
    // The time of a push ack before the limit is kept, and a later one is removed.
    let (channel, row, sequence) = (ChannelNumber(1), MemberOrdinal(0), SequenceNumber(1))
    #expect(
      try repair.repaired(
        .channel(channel, .deliveredByPushAck(row, to: sequence, at: at(5_000), ackedAt: at(900)))
      )
        == .channel(channel, .deliveredByPushAck(row, to: sequence, at: limit, ackedAt: at(900)))
    )
    #expect(
      try repair.repaired(
        .channel(channel, .deliveredByPushAck(row, to: sequence, at: at(5_000), ackedAt: at(4_000)))
      )
        == .channel(channel, .deliveredMoved(row, to: sequence, at: limit))
    )
    let steps = [
      Step(row: 0, kind: .read, sequence: SequenceNumber(1), time: at(900), number: 1),
      Step(row: 1, kind: .delivered, sequence: SequenceNumber(2), time: at(5_000), acked: at(950), number: 1),
      Step(
        row: 1,
        kind: .delivered,
        sequence: SequenceNumber(3),
        time: at(6_000),
        acked: at(5_500),
        number: 2
      ),
    ]
    let sealed = Effect.channel(channel, .stepsSealed(rowPage: 0, segment: 0, bytes: StepBytes.bytes(steps)))
    guard case .channel(_, .stepsSealed(_, _, let bytes)) = try repair.repaired(sealed) else { return }
    let repaired = try #require(StepBytes.steps(bytes))
    #expect(repaired.map(\.time.milliseconds) == [900, 1_000, 1_000])
    #expect(repaired.map(\.acked.milliseconds) == [0, 950, 0])
    #expect(repaired.map(\.sequence) == steps.map(\.sequence))
    // A webhook is remembered for the longest possible time from now.
    let noted = try repair.repaired(.shard(.webhookNoted(7, until: Self.late)))
    #expect(noted == .shard(.webhookNoted(7, until: at(1_000 + WebhookTable.lifetimeMax))))
    // A worker keeps its partitions for the longest possible time from now.
    let worker = FeedWorker(name: "w", partitionCount: 4, until: Self.late, partitions: [0, 3])
    let leased = try repair.repaired(.shard(.consumer(.workersAssigned(name: "c", [worker]))))
    let until = at(1_000 + FeedLeases.millisecondsMax)
    let kept = FeedWorker(name: "w", partitionCount: 4, until: until, partitions: [0, 3])
    #expect(leased == .shard(.consumer(.workersAssigned(name: "c", [kept]))))
    // The feed is off since a time that is not in the future; zero still means that it is on.
    for (since, expected) in [(Self.late, limit), (at(900), at(900)), (.none, .none)] as [(Timestamp, Timestamp)] {
      let switched = try repair.repaired(.shard(.consumer(.switched(offSince: since))))
      #expect(switched == .shard(.consumer(.switched(offSince: expected))))
    }
    #expect(throws: TimeRepair.Damage.self) {
      try repair.repaired(.channel(channel, .stepsSealed(rowPage: 0, segment: 0, bytes: [0xFF])))
    }
  }

  private static let late = Timestamp(milliseconds: 9_214_646_400_000)

  /// Some times may be in the future: an acknowledgement request's end, and the end of a remembered webhook, a
  /// revocation, a worker's lease or a push job.
  private static func mayBeInFuture(_ effect: Effect) -> Bool {
    switch effect {
    case .shard(.webhookNoted), .shard(.tokenRevoked), .shard(.consumer(.workersAssigned)), .shard(.timerAssigned),
      .shard(.pushJob):
      true
    case .channel(_, .messageAssigned(_, let record)):
      record.registeredAt <= Timestamp(milliseconds: 1)
        && record.createdAt <= Timestamp(milliseconds: 1)
    case .channel(let number, .inThread(_, let effect)): mayBeInFuture(.channel(number, effect))
    default: false
    }
  }

  /// Some vectors contain bytes that are no valid steps.
  private static func isRead(_ effect: Effect) -> Bool {
    switch effect {
    case .channel(_, .stepsSealed(_, _, let bytes)): StepBytes.areWhole(bytes)
    case .channel(_, .stepTailAssigned(_, let record)): StepBytes.areWhole(record.tail)
    case .channel(let number, .inThread(_, let effect)): isRead(.channel(number, effect))
    default: true
    }
  }

  /// Every time in an effect, nested ones and those of steps included.
  private static func times(in effect: Effect) -> [Int64] {
    var found = "\(effect)".matches(of: /Timestamp\(milliseconds: (\d+)\)/).compactMap { Int64($0.1) }
    switch effect {
    case .channel(_, .stepsSealed(_, _, let bytes)):
      found += (StepBytes.steps(bytes) ?? []).map(\.time.milliseconds)
    case .channel(_, .stepTailAssigned(_, let record)):
      found += (StepBytes.steps(record.tail) ?? []).map(\.time.milliseconds)
    case .channel(let number, .inThread(_, let effect)): found += times(in: .channel(number, effect))
    default: break
    }
    return found
  }
}
