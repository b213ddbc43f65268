package import ReceiptModel
package import ReceiptWire

/// I/O that a store loop requests. Each request is made on the loop, and its result comes back on the loop later.
package protocol StoreLoopDriver: AnyObject {
  /// Make this group durable, then call ``StoreLoop/committed(_:)``.
  func commit(_ group: CommitGroup)
  /// Read this channel, then call ``StoreLoop/loaded(_:as:_:)``.
  func load(_ request: LoadRequest, as reference: ChannelReference)
  /// Read these steps, then call ``StoreLoop/stepsRead(_:_:)``.
  func readSteps(_ request: StepRequest)
  /// Run ``StorageEngine/purge()``, then call ``StoreLoop/purged(_:)``.
  func purge()
  /// Whether a ledger records users before they are erased.
  var keepsErasureLedger: Bool { get }
  /// Record this user in the ledger durably, then call ``StoreLoop/erasureRecorded(_:fault:)``.
  func recordErasure(_ request: ErasureRequest)
  /// Pass these to ``StoreLoop/receive(_:)`` of the loops that own the target shards, in this order per shard. Loss is
  /// allowed.
  func deliver(_ deliveries: [MembershipDelivery])
  /// Pass these to ``StoreLoop/confirmed(_:)`` of the loops that own the target shards. Loss is allowed.
  func confirm(_ confirmations: [MembershipConfirmation])
  /// Perform this on a thread that may block, then call ``StoreLoop/peeked(_:_:)``.
  func peek(_ request: StorageReadRequest)
  /// Call ``StoreLoop/slice()`` soon, but only after everything that has come in meanwhile was passed in. The slice
  /// resumes work that is too much for one turn.
  func sliceLater()
  /// Note a step whose moment depends on the loop's budget, just before it is taken. Only tests do something here.
  func willTake(_ step: BudgetedStep)
  /// Report that something on storage cannot be read. The loop keeps running.
  func report(_ error: StorageError)
  /// Handle a failed commit. The loop has dropped everything and takes no more requests: close the connections and make
  /// a new loop from storage.
  func loopHalted(_ error: StorageError)
}

extension StoreLoopDriver {
  package var keepsErasureLedger: Bool { false }
  package func recordErasure(_ request: ErasureRequest) {}
  package func willTake(_ step: BudgetedStep) {}
}

/// A step whose moment depends on the loop's budget. A model that checks every reply follows these; no request that is
/// performed on arrival makes one.
package enum BudgetedStep {
  /// A request waits for a later slice, in which it is performed as a whole.
  case postpone(FrameHeader, ReplyLane)
  /// A request continues in another slice.
  case suspend(FrameHeader, ReplyLane)
  /// A request that waited is performed, or continues.
  case resume(FrameHeader, ReplyLane)
  /// The result of a load is installed, or refuses the requests that wait for it.
  case install(LoadRequest, ChannelReference, isReadable: Bool)
}

/// A request to record a user in the erasure ledger before the user is erased (R16).
package struct ErasureRequest: Hashable, Sendable {
  package var shard: ShardID
  package var requestID: UInt32
  package var user: [UInt8]
}
