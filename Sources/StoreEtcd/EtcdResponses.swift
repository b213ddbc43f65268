// Responses of etcd's API (etcdserverpb/rpc.proto and mvccpb/kv.proto of version 3.4). Fields that the shared log does
// not need are skipped, as are fields of later versions.

/// `KeyValue`.
struct EtcdKeyValue: Hashable {
  var key: [UInt8] = []
  var createRevision: UInt64 = 0
  var modRevision: UInt64 = 0
  var value: [UInt8] = []

  init() {}

  init(_ bytes: Span<UInt8>) throws(EtcdWireError) {
    var reader = ProtobufReader(bytes)
    while let field = try reader.next() {
      switch field.number {
      case 1: key = try reader.copy(field)
      case 2: createRevision = try reader.integer(field)
      case 3: modRevision = try reader.integer(field)
      case 5: value = try reader.copy(field)
      default: try reader.skip(field)
      }
    }
  }
}

/// `RangeResponse`.
struct EtcdRangeResponse: Hashable {
  var values: [EtcdKeyValue] = []
  /// The limit has left out keys.
  var hasMore = false
  /// Number of keys in the range, whatever the limit.
  var count: UInt64 = 0

  init() {}

  init(_ bytes: Span<UInt8>) throws(EtcdWireError) {
    var reader = ProtobufReader(bytes)
    while let field = try reader.next() {
      switch field.number {
      case 2:
        guard values.count < ProtobufReader.elementsMax else { throw .tooManyElements(field: 2) }
        values.append(try EtcdKeyValue(try reader.content(field)))
      case 3: hasMore = try reader.integer(field) != 0
      case 4: count = try reader.integer(field)
      default: try reader.skip(field)
      }
    }
  }
}

/// `ResponseOp`.
enum EtcdOperationResponse: Hashable {
  case range(EtcdRangeResponse)
  case put
  case deleteRange

  init(_ bytes: Span<UInt8>) throws(EtcdWireError) {
    var reader = ProtobufReader(bytes)
    var response: EtcdOperationResponse?
    while let field = try reader.next() {
      let content = try reader.content(field)
      switch field.number {
      case 1: response = .range(try EtcdRangeResponse(content))
      case 2: response = .put
      case 3: response = .deleteRange
      default: throw .unexpectedResponse
      }
    }
    guard let response else { throw .unexpectedResponse }
    self = response
  }
}

/// `TxnResponse`.
struct EtcdTransactionResponse: Hashable {
  /// The store's revision when the transaction was applied: for one with a put, the revision of what it put.
  var revision: UInt64 = 0
  /// Whether all conditions held.
  var succeeded = false
  var responses: [EtcdOperationResponse] = []

  init() {}

  init(_ bytes: Span<UInt8>) throws(EtcdWireError) {
    var reader = ProtobufReader(bytes)
    while let field = try reader.next() {
      switch field.number {
      case 1: revision = try Self.revision(header: try reader.content(field))
      case 2: succeeded = try reader.integer(field) != 0
      case 3:
        guard responses.count < ProtobufReader.elementsMax else { throw .tooManyElements(field: 3) }
        responses.append(try EtcdOperationResponse(try reader.content(field)))
      default: try reader.skip(field)
      }
    }
  }

  /// Return the revision of a `ResponseHeader`.
  private static func revision(header: Span<UInt8>) throws(EtcdWireError) -> UInt64 {
    var reader = ProtobufReader(header)
    var revision: UInt64 = 0
    while let field = try reader.next() {
      if field.number == 3 { revision = try reader.integer(field) } else { try reader.skip(field) }
    }
    return revision
  }
}

/// `LeaseGrantResponse` and `LeaseKeepAliveResponse`.
struct EtcdLeaseResponse: Hashable {
  var lease: UInt64 = 0
  /// Time until the lease expires; 0: it has.
  var seconds: UInt64 = 0

  init(_ bytes: Span<UInt8>) throws(EtcdWireError) {
    var reader = ProtobufReader(bytes)
    while let field = try reader.next() {
      switch field.number {
      case 2: lease = try reader.integer(field)
      case 3: seconds = try reader.integer(field)
      default: try reader.skip(field)
      }
    }
    guard lease != 0 else { throw .unexpectedResponse }
  }
}

/// `StatusResponse`, of the server that is asked.
struct EtcdStatusResponse: Hashable {
  /// The server's id.
  var member: UInt64 = 0
  /// The Raft leader's id; 0: there is none.
  var leader: UInt64 = 0
  /// Size of the server's database file.
  var databaseBytes: UInt64 = 0

  init(member: UInt64, leader: UInt64) {
    self.member = member
    self.leader = leader
  }

  init(_ bytes: Span<UInt8>) throws(EtcdWireError) {
    var reader = ProtobufReader(bytes)
    while let field = try reader.next() {
      switch field.number {
      case 1: member = try Self.member(header: try reader.content(field))
      case 3: databaseBytes = try reader.integer(field)
      case 4: leader = try reader.integer(field)
      default: try reader.skip(field)
      }
    }
    guard member != 0 else { throw .unexpectedResponse }
  }

  /// Return the server's id in a `ResponseHeader`.
  private static func member(header: Span<UInt8>) throws(EtcdWireError) -> UInt64 {
    var reader = ProtobufReader(header)
    var member: UInt64 = 0
    while let field = try reader.next() {
      if field.number == 2 { member = try reader.integer(field) } else { try reader.skip(field) }
    }
    return member
  }
}

/// `WatchResponse`.
struct EtcdWatchResponse: Hashable {
  var isCreated = false
  /// The watch has ended: its position is compacted, or the server has no leader.
  var isCanceled = false
  /// The first revision that can be watched, if the watch was cancelled because its own is compacted.
  var compactRevision: UInt64 = 0
  /// Values that were put, in the order of their revisions.
  var puts: [EtcdKeyValue] = []

  /// `Event.PUT`.
  private static let put: UInt64 = 0

  init() {}

  init(_ bytes: Span<UInt8>) throws(EtcdWireError) {
    var reader = ProtobufReader(bytes)
    while let field = try reader.next() {
      switch field.number {
      case 3: isCreated = try reader.integer(field) != 0
      case 4: isCanceled = try reader.integer(field) != 0
      case 5: compactRevision = try reader.integer(field)
      case 11:
        guard puts.count < ProtobufReader.elementsMax else { throw .tooManyElements(field: 11) }
        if let value = try Self.put(event: try reader.content(field)) { puts.append(value) }
      default: try reader.skip(field)
      }
    }
  }

  /// Return the value of an `Event`; nil for a deletion.
  private static func put(event: Span<UInt8>) throws(EtcdWireError) -> EtcdKeyValue? {
    var reader = ProtobufReader(event)
    var type = Self.put
    var value = EtcdKeyValue()
    while let field = try reader.next() {
      switch field.number {
      case 1: type = try reader.integer(field)
      case 2: value = try EtcdKeyValue(try reader.content(field))
      default: try reader.skip(field)
      }
    }
    return type == Self.put ? value : nil
  }
}
