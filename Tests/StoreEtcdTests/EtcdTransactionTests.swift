import NIOCore
import ReceiptWire
import StoreEngine
import Testing

@testable import StoreEtcd

/// Calls of the log as transactions, and outcomes of responses. EtcdServerTests runs the same against real servers.
@Suite struct EtcdTransactionTests {
  private static let transactions = EtcdTransactions(cluster: "c")
  private static let group = GroupID(10)
  private static let owner = GroupOwner(node: NodeID(1), epoch: OwnerEpoch(3), fence: OwnerFence(40))
  private static let other = GroupOwner(node: NodeID(2), epoch: OwnerEpoch(4), fence: OwnerFence(50))

  private static func record(_ position: UInt64, _ kind: GroupRecord.Kind = .alive) -> GroupRecord {
    GroupRecord(
      position: RecordPosition(position),
      epoch: OwnerEpoch(3),
      previous: RecordHash(7),
      kind: kind
    )
  }

  private static func found(_ owner: GroupOwner) -> EtcdOperationResponse {
    let value = EtcdOwnerValue(node: owner.node, epoch: owner.epoch, claimedAt: RecordPosition(1))
    return found(value: Array(value.encoded().readableBytesView), modRevision: owner.fence.rawValue)
  }

  private static func found(_ record: GroupRecord) -> EtcdOperationResponse {
    let key = transactions.keys.record(group, record.position)
    return found(key: key, value: Array(record.encoded().readableBytesView), modRevision: 1)
  }

  private static func found(
    key: [UInt8] = [],
    value: [UInt8],
    modRevision: UInt64 = 1
  ) -> EtcdOperationResponse {
    var stored = EtcdKeyValue()
    stored.key = key
    stored.value = value
    stored.modRevision = modRevision
    var range = EtcdRangeResponse()
    range.values = [stored]
    range.count = 1
    return .range(range)
  }

  private static let nothing = EtcdOperationResponse.range(EtcdRangeResponse())

  private static func counted(_ count: UInt64) -> EtcdOperationResponse {
    var range = EtcdRangeResponse()
    range.count = count
    return .range(range)
  }

  private static func response(
    succeeded: Bool,
    _ responses: [EtcdOperationResponse],
    revision: UInt64 = 60
  ) -> EtcdTransactionResponse {
    var response = EtcdTransactionResponse()
    response.succeeded = succeeded
    response.responses = responses
    response.revision = revision
    return response
  }

  private static func text(_ bytes: [UInt8]) -> String { String(decoding: bytes, as: UTF8.self) }

  // MARK: Keys

  @Test func keysHaveDocumentedText() {
    let keys = Self.transactions.keys
    #expect(Self.text(keys.owner(GroupID(10))) == "/tm/c/own/0a")
    #expect(Self.text(keys.trim(GroupID(255))) == "/tm/c/trim/ff")
    #expect(
      Self.text(keys.record(GroupID(0), RecordPosition(0x0123_4567_89AB_CDEF)))
        == "/tm/c/log/00/0123456789abcdef"
    )
    #expect(Self.text(keys.recordsEnd(GroupID(0))) == "/tm/c/log/000")
  }

  @Test func ownersAndPositionsHaveDocumentedBytes() throws {
    let owner = EtcdOwnerValue(node: NodeID(300), epoch: OwnerEpoch(1), claimedAt: RecordPosition(128))
    let bytes = Array(owner.encoded().readableBytesView)
    #expect(Hex.text(bytes) == "0101ac028001")
    #expect(try EtcdOwnerValue(bytes) == owner)
    for bad in [[], [2, 1, 1, 1], [1, 1, 0, 1], [1, 1, 1], bytes + [0], [1, 1, 0xFF, 0xFF, 0x7F, 1]]
      as [[UInt8]]
    {
      #expect(throws: EtcdWireError.badValue(.owner)) { try EtcdOwnerValue(bad) }
    }
    let trim = EtcdPositionValue(RecordPosition(258))
    #expect(Hex.text(trim.encoded().readableBytesView) == "010000000000000102")
    #expect(try EtcdPositionValue(Array(trim.encoded().readableBytesView)) == trim)
    for bad in [[], [1], [2, 0, 0, 0, 0, 0, 0, 0, 1], [1, 0, 0, 0, 0, 0, 0, 0, 0, 1]] as [[UInt8]] {
      #expect(throws: EtcdWireError.badValue(.position)) { try EtcdPositionValue(bad) }
    }
  }

  @Test func reportsHaveDocumentedBytes() throws {
    var report = MemberReport(position: RecordPosition(258), .joining)
    report.key = RecordKeyNumber(200)
    report.purged = RecordPosition(3)
    let joining = EtcdReportValue(report)
    #expect(Hex.text(joining.encoded().readableBytesView) == "028202c80103")
    #expect(try EtcdReportValue(Array(joining.encoded().readableBytesView)) == joining)
    let synced = EtcdReportValue(MemberReport(position: RecordPosition(1)))
    #expect(Hex.text(synced.encoded().readableBytesView) == "01010000")
    let ineligible = EtcdReportValue(MemberReport(position: RecordPosition(2), .ineligible))
    #expect(Hex.text(ineligible.encoded().readableBytesView) == "03020000")
    #expect(try EtcdReportValue(Array(ineligible.encoded().readableBytesView)) == ineligible)
    for bad in [[], [1], [4, 1, 0, 0], [2, 1, 0], [2, 1, 0, 0, 0]] as [[UInt8]] {
      #expect(throws: EtcdWireError.badValue(.position)) { try EtcdReportValue(bad) }
    }
  }

  // MARK: Append and claim

  @Test func appendHasTheThreeConditionsOfEachGroup() {
    let append = GroupAppend(group: Self.group, record: Self.record(5), fence: Self.owner.fence)
    let transaction = Self.transactions.append([append])
    let keys = Self.transactions.keys
    #expect(
      transaction.compares == [
        EtcdCompare(key: keys.owner(Self.group), condition: .modRevision(equals: 40)),
        EtcdCompare(key: keys.record(Self.group, RecordPosition(5)), condition: .createRevision(equals: 0)),
        EtcdCompare(key: keys.record(Self.group, RecordPosition(4)), condition: .exists),
      ]
    )
    let first = GroupClaim(group: Self.group, record: Self.record(1, .claim(by: NodeID(1))), seen: .none)
    #expect(Self.transactions.claim(first).compares.count == 2)
    #expect(Self.transactions.claim(first).success.count == 3)
    let later = GroupClaim(group: Self.group, record: Self.record(2, .claim(by: NodeID(1))), seen: .none)
    #expect(Self.transactions.claim(later).compares.count == 3)
    #expect(Self.transactions.claim(later).success.count == 2)
  }

  @Test func transactionsOfAllGroupsFitIntoEtcdsLimit() {
    let groups = (0..<GroupWriter.groupsMax).map { GroupID(UInt8($0)) }
    let appends = groups.map { GroupAppend(group: $0, record: Self.record(2), fence: Self.owner.fence) }
    let append = Self.transactions.append(appends)
    let read = groups.prefix(EtcdTransactions.groupsPerRead)
    let ends = Self.transactions.ends(of: Array(read), known: read.map { _ in RecordPosition(1) })
    for transaction in [append, ends] {
      for count in [transaction.compares.count, transaction.success.count, transaction.failure.count] {
        #expect(count <= EtcdTransaction.operationsMax)
      }
    }
  }

  /// What the transaction found under the owner's key and at the position, and the outcome.
  @Test(
    arguments: [
      (found(owner), found(record(5)), .committed(owner)), (found(owner), nothing, .unclear),
      (found(owner), found(record(5, .release(to: NodeID(2)))), .fenced(owner)),
      (found(other), found(record(5)), .fenced(other)), (found(other), nothing, .fenced(other)),
      (nothing, nothing, .fenced(.none)),
    ] as [(EtcdOperationResponse, EtcdOperationResponse, AppendOutcome)]
  )
  func failedAppendsHaveOutcomes(
    owner: EtcdOperationResponse,
    stored: EtcdOperationResponse,
    outcome: AppendOutcome
  ) throws {
    let append = GroupAppend(group: Self.group, record: Self.record(5), fence: Self.owner.fence)
    let response = Self.response(succeeded: false, [owner, stored])
    #expect(try Self.transactions.outcomes(of: [append], response) == [outcome])
  }

  @Test func succeededCallsHaveOutcomes() throws {
    let append = GroupAppend(group: Self.group, record: Self.record(5), fence: Self.owner.fence)
    let appended = Self.response(succeeded: true, [.put, Self.found(Self.owner)])
    #expect(try Self.transactions.outcomes(of: [append], appended) == [.committed(Self.owner)])
    let claim = GroupClaim(group: Self.group, record: Self.record(5, .claim(by: NodeID(9))), seen: .none)
    let claimed = Self.response(succeeded: true, [.put, .put], revision: 77)
    let owner = GroupOwner(node: NodeID(9), epoch: OwnerEpoch(3), fence: OwnerFence(77))
    #expect(try Self.transactions.outcome(of: claim, claimed) == .committed(owner))
    // A response without a revision has no fence, and one without the puts is another transaction's.
    for other in [
      Self.response(succeeded: true, [.put, .put], revision: 0), Self.response(succeeded: true, [.put]),
      Self.response(succeeded: true, []),
    ] {
      #expect(throws: EtcdWireError.unexpectedResponse) { try Self.transactions.outcome(of: claim, other) }
    }
  }

  /// What a failed claim by node 1 in epoch 3 found.
  @Test(
    arguments: [
      (found(owner), found(record(5, .claim(by: NodeID(1)))), .committed(owner)),
      (found(owner), nothing, .fenced(owner)), (found(owner), found(record(5)), .fenced(owner)),
      (found(other), found(record(5, .claim(by: NodeID(1)))), .fenced(other)),
      (nothing, nothing, .fenced(.none)),
    ] as [(EtcdOperationResponse, EtcdOperationResponse, AppendOutcome)]
  )
  func failedClaimsHaveOutcomes(
    owner: EtcdOperationResponse,
    stored: EtcdOperationResponse,
    outcome: AppendOutcome
  ) throws {
    let claim = GroupClaim(group: Self.group, record: Self.record(5, .claim(by: NodeID(1))), seen: .none)
    let response = Self.response(succeeded: false, [owner, stored])
    #expect(try Self.transactions.outcome(of: claim, response) == outcome)
  }

  @Test func responsesWithOtherOperationsAreRefused() {
    let append = GroupAppend(group: Self.group, record: Self.record(5), fence: Self.owner.fence)
    let claim = GroupClaim(group: Self.group, record: Self.record(5, .claim(by: NodeID(1))), seen: .none)
    for responses in [[], [.put], [.put, .put], [Self.nothing], [Self.nothing, .put]]
      as [[EtcdOperationResponse]]
    {
      let response = Self.response(succeeded: false, responses)
      #expect(throws: EtcdWireError.unexpectedResponse) {
        try Self.transactions.outcomes(of: [append], response)
      }
      #expect(throws: EtcdWireError.unexpectedResponse) { try Self.transactions.outcome(of: claim, response) }
      #expect(throws: EtcdWireError.unexpectedResponse) {
        try Self.transactions.page(of: Self.group, from: RecordPosition(1), response)
      }
      #expect(throws: EtcdWireError.unexpectedResponse) {
        try Self.transactions.ends(of: [Self.group], known: [RecordPosition(1)], response)
      }
    }
  }

  // MARK: Ends and reads

  /// The known position, the first one, the number of records from the known one on, and the last position.
  @Test(
    arguments: [
      (1, nil, 0, 1, 0), (1, 1, 9, 1, 9), (4, 1, 6, 1, 9), (9, 1, 1, 1, 9), (4, 7, 3, 7, 9), (9, 7, 1, 7, 9),
    ] as [(UInt64, UInt64?, UInt64, UInt64, UInt64)]
  )
  func endsFollowFromTrimAndCount(known: UInt64, trim: UInt64?, count: UInt64, first: UInt64, last: UInt64) throws {
    let value = trim.map { EtcdPositionValue(RecordPosition($0)).encoded() }
    let configuration = EtcdConfigurationValue(
      ClusterConfiguration(shardCount: 4, groupCount: 2, initialNodeCount: 3, level: ClusterLevel(7))
    )
    let response = Self.response(
      succeeded: true,
      [
        Self.found(Self.owner), value.map { Self.found(value: Array($0.readableBytesView)) } ?? Self.nothing,
        Self.counted(count), Self.nothing, Self.found(value: Array(configuration.encoded().readableBytesView)),
      ]
    )
    var end = GroupEnd(owner: Self.owner, first: RecordPosition(first), last: RecordPosition(last))
    end.level = ClusterLevel(7)
    #expect(try Self.transactions.ends(of: [Self.group], known: [RecordPosition(known)], response) == [end])
  }

  @Test func pagesAreCheckedAgainstTheirKeys() throws {
    let keys = Self.transactions.keys
    func page(_ records: [(key: UInt64, record: GroupRecord)], from position: UInt64) throws(EtcdWireError)
      -> Int
    {
      var range = EtcdRangeResponse()
      for (key, record) in records {
        var value = EtcdKeyValue()
        value.key = keys.record(Self.group, RecordPosition(key))
        value.value = Array(record.encoded().readableBytesView)
        range.values.append(value)
      }
      let response = Self.response(succeeded: true, [Self.nothing, .range(range)])
      guard
        case .records(let records, hasMore: false) = try Self.transactions.page(
          of: Self.group,
          from: RecordPosition(position),
          response
        )
      else { return -1 }
      return records.count
    }
    #expect(try page([(3, Self.record(3)), (4, Self.record(4))], from: 3) == 2)
    #expect(try page([], from: 3) == 0)
    // A gap, a record under another key, and one before the position.
    #expect(throws: EtcdWireError.badValue(.record)) {
      try page([(3, Self.record(3)), (5, Self.record(5))], from: 3)
    }
    #expect(throws: EtcdWireError.badValue(.record)) { try page([(3, Self.record(4))], from: 3) }
    #expect(throws: EtcdWireError.badValue(.record)) { try page([(4, Self.record(4))], from: 3) }
  }

  @Test func recordsThatDoNotParseAreNamed() {
    var value = EtcdKeyValue()
    value.key = Self.transactions.keys.record(Self.group, RecordPosition(3))
    value.value = [0]
    #expect(throws: EtcdWireError.badRecord(.badValue(.format))) {
      try Self.transactions.record(value, of: Self.group)
    }
  }
}
