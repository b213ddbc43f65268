internal import NIOCore

// Requests of etcd's API (etcdserverpb/rpc.proto of version 3.4), as far as the shared log makes them.

/// A call of the API.
enum EtcdMethod {
  case transaction
  case compact
  case watch
  case status
  case grantLease
  case keepLeaseAlive
  case revokeLease

  var path: String {
    switch self {
    case .transaction: "/etcdserverpb.KV/Txn"
    case .compact: "/etcdserverpb.KV/Compact"
    case .watch: "/etcdserverpb.Watch/Watch"
    case .status: "/etcdserverpb.Maintenance/Status"
    case .grantLease: "/etcdserverpb.Lease/LeaseGrant"
    // Its requests are a stream. A stream of one is answered like a unary call.
    case .keepLeaseAlive: "/etcdserverpb.Lease/LeaseKeepAlive"
    case .revokeLease: "/etcdserverpb.Lease/LeaseRevoke"
    }
  }
}

/// `RangeRequest`: one key, or the keys from `first` up to `end`, in ascending order.
struct EtcdRange: Hashable {
  var first: [UInt8]
  /// The first key behind the range; empty: one key.
  var end: [UInt8] = []
  /// Maximum number of keys; 0: no limit.
  var limit: UInt64 = 0
  var countOnly = false

  func write(to buffer: inout ByteBuffer) {
    buffer.writeProtobuf(1, first)
    if !end.isEmpty { buffer.writeProtobuf(2, end) }
    if limit > 0 { buffer.writeProtobuf(3, limit) }
    buffer.writeProtobuf(9, countOnly)
  }
}

/// `Compare`: a condition of a transaction.
struct EtcdCompare: Hashable {
  enum Condition: Hashable {
    /// The key's create revision is this; 0: the key does not exist.
    case createRevision(equals: UInt64)
    /// The key exists.
    case exists
    /// The key's mod revision is this; 0: the key does not exist.
    case modRevision(equals: UInt64)
    /// The key exists, and its value comes before this one in the order of bytes.
    case value(lessThan: [UInt8])
  }

  var key: [UInt8]
  var condition: Condition

  private enum Result {
    static let equal: UInt64 = 0
    static let greater: UInt64 = 1
    static let less: UInt64 = 2
  }

  private enum Target {
    static let create: UInt64 = 1
    static let mod: UInt64 = 2
    static let value: UInt64 = 3
  }

  func write(to buffer: inout ByteBuffer) {
    switch condition {
    case .createRevision(let revision):
      writeHead(Result.equal, Target.create, to: &buffer)
      buffer.writeProtobuf(5, revision)
    case .exists:
      writeHead(Result.greater, Target.create, to: &buffer)
      buffer.writeProtobuf(5, 0)
    case .modRevision(let revision):
      writeHead(Result.equal, Target.mod, to: &buffer)
      buffer.writeProtobuf(6, revision)
    case .value(let value):
      writeHead(Result.less, Target.value, to: &buffer)
      buffer.writeProtobuf(7, value)
    }
  }

  private func writeHead(_ result: UInt64, _ target: UInt64, to buffer: inout ByteBuffer) {
    if result != Result.equal { buffer.writeProtobuf(1, result) }
    buffer.writeProtobuf(2, target)
    buffer.writeProtobuf(3, key)
  }
}

/// `RequestOp`: an operation of a transaction.
enum EtcdOperation: Hashable {
  case range(EtcdRange)
  /// With a lease the key is deleted when that expires; 0: no lease.
  case put(key: [UInt8], value: ByteBuffer, lease: UInt64 = 0)
  case deleteRange(first: [UInt8], end: [UInt8])

  func write(to buffer: inout ByteBuffer) {
    switch self {
    case .range(let range): buffer.writeProtobuf(1) { range.write(to: &$0) }
    case .put(let key, let value, let lease):
      buffer.writeProtobuf(2) { buffer in
        buffer.writeProtobuf(1, key)
        buffer.writeProtobuf(2, value)
        if lease != 0 { buffer.writeProtobuf(3, lease) }
      }
    case .deleteRange(let first, let end):
      buffer.writeProtobuf(3) { buffer in
        buffer.writeProtobuf(1, first)
        buffer.writeProtobuf(2, end)
      }
    }
  }
}

/// `TxnRequest`: operations that are applied in one step if all conditions hold, and others if not.
///
/// One that only reads is linearizable, as etcd treats it like a range.
struct EtcdTransaction: Hashable {
  /// etcd's default limit on the compares, and on the operations of each branch.
  static let operationsMax = 128

  var compares: [EtcdCompare] = []
  var success: [EtcdOperation] = []
  var failure: [EtcdOperation] = []

  func write(to buffer: inout ByteBuffer) {
    for compare in compares { buffer.writeProtobuf(1) { compare.write(to: &$0) } }
    for operation in success { buffer.writeProtobuf(2) { operation.write(to: &$0) } }
    for operation in failure { buffer.writeProtobuf(3) { operation.write(to: &$0) } }
  }
}

/// `LeaseGrantRequest`: a lease whose number the server chooses.
struct EtcdLeaseGrant: Hashable {
  var seconds: UInt64

  func write(to buffer: inout ByteBuffer) { buffer.writeProtobuf(1, seconds) }
}

/// `LeaseKeepAliveRequest`, and `LeaseRevokeRequest`, which deletes the lease's keys.
struct EtcdLeaseNumber: Hashable {
  var lease: UInt64

  func write(to buffer: inout ByteBuffer) { buffer.writeProtobuf(1, lease) }
}

/// `CompactionRequest`: removes the history before a revision.
struct EtcdCompaction: Hashable {
  var revision: UInt64

  func write(to buffer: inout ByteBuffer) { buffer.writeProtobuf(1, revision) }
}

/// `WatchRequest` with a `WatchCreateRequest`: the puts to a range of keys from a revision on.
struct EtcdWatch: Hashable {
  var first: [UInt8]
  var end: [UInt8]
  var startRevision: UInt64

  /// `WatchCreateRequest.NODELETE`.
  private static let noDelete: UInt64 = 1

  func write(to buffer: inout ByteBuffer) {
    buffer.writeProtobuf(1) { buffer in
      buffer.writeProtobuf(1, first)
      buffer.writeProtobuf(2, end)
      buffer.writeProtobuf(3, startRevision)
      buffer.writeProtobuf(5, Self.noDelete)
      // Without fragments a response has up to 1,000 revisions, whatever their size.
      buffer.writeProtobuf(8, true)
    }
  }
}
