package import ReceiptModel
package import ReceiptWire

/// Limits and intervals of a loop's shards.
package struct StoreLoopConfiguration: Sendable {
  /// Age of its first effect at which a page is written, at the latest one commit later.
  package var pageWriteAgeMilliseconds: Int64 = 5_000
  /// Amount of log of the shard since that effect at which the page is written, if it comes earlier.
  package var pageWriteLogBytes: UInt64 = 16 << 20
  /// Bytes of pages that one commit may write: the slice of a turn that page writes may take.
  package var pageWriteSliceBytes = 256 << 10
  /// Minimum number of batches that a log trim between ticks must remove: each one leaves a mark on storage.
  package var trimBatchesMin: UInt64 = 4_096
  /// Time after which an idle session is forgotten.
  package var sessionLifetimeMilliseconds: Int64 = 600_000
  /// Maximum number of channel loads in flight, per shard.
  package var loadsMax = 1_024
  /// Maximum number of requests that wait for one channel.
  package var waitingPerLoadMax = 1_024
  /// Maximum number of tail channels loaded at once, per shard, so that the log can be trimmed.
  package var tailLoadsMax = 8
  /// Bytes that this loop's channels and users' settings may occupy in memory. A larger channel still stays in memory
  /// while it is the one that its shard uses.
  package var residentBytesMax = Int.max
  /// Channels that eviction examines in one turn.
  package var evictionScanMax = 256
  /// Rows that all long queries together scan in one turn: some 200 µs. A query that needs no more than `shortRows`
  /// always gets them.
  package var sliceRows = 65_536
  package var shortRows = 8_192
  /// Maximum number of sliced queries, per shard; further ones are `busy`.
  package var slicedQueriesMax = 64
  /// Maximum number of erasures that wait for the erasure ledger, per shard; further ones are `busy`.
  package var erasuresMax = 64
  /// Maximum number of step reads in flight, per shard; each serves one query.
  package var stepReadsMax = 256
  /// Steps that the waiting queries of a shard may keep in total, 24 bytes each; further queries are `busy`.
  package var keptStepsMax = 4 * ReadSegments.stepsMax
  /// Row pages whose steps are read at once, per shard, to be rewritten as fewer segments.
  package var stepTrimsMax = 2
  /// Requests for unread counts that may wait for channels on storage, per shard; further ones are `busy`.
  package var unreadRequestsMax = 64
  /// Channels that one such request loads at once, if it cannot peek at them.
  package var unreadLoadsMax = 8
  /// Retry delay for a channel of the log's tail that could not be read.
  package var tailRetryMilliseconds: Int64 = 10_000
  /// Membership changes that one shard may have in flight to another one.
  package var changesInFlightMax = 4_096
  /// Users' indexes that are read ahead at once, per shard, for the next changes.
  package var indexLoadsMax = 64
  /// Effects that all erasures of users together add in one turn; an erasure that needs no more than `shortEffects`
  /// always gets them. Sliced work adds nothing to a batch of this size.
  package var sliceEffects = 4_096
  package var shortEffects = 256
  /// Outgoing changes of one shard up to which a rebuild or a channel deletion queues more; the rest is for members who
  /// join.
  package var changesPendingMax = Outbox.pendingMax / 2
  /// Changes that are applied to indexes between two slices, and queued or scanned by a rebuild or a deletion: some 500
  /// µs.
  package var changesPerTurn = 1_024
  /// Members that requests name, users whose unread messages they count, and their channel loads, between two slices:
  /// some 500 µs. Further requests wait.
  package var entriesPerTurn = 1_024
  /// Maximum number of requests that wait like this, per shard; further ones are `busy`.
  package var postponedMax = 256
  /// Bytes of effects that may wait behind a commit before slices wait for its end: requests that arrive meanwhile
  /// wait for the whole open batch.
  package var nextCommitBytesMax = 512 << 10
  /// Time after which unconfirmed changes are resent, and the retry delay for an index that could not be read.
  package var changesRetryMilliseconds: Int64 = 1_000
  /// Minimum interval between log entries of confirmed changes.
  package var changesLoggedMilliseconds: Int64 = 1_000
  /// Maximum time that a reply waits for its membership changes to reach the index; 0: it does not wait.
  package var indexWaitMilliseconds: Int64 = 1_000
  /// Time after which a reply that must not leave earlier becomes `busy`.
  package var indexWaitStrictMilliseconds: Int64 = 4_000
  /// Maximum number of replies that wait like this, per shard; further ones leave without waiting.
  package var indexWaitersMax = 4_096
  /// Channel size above which rows and statuses are batched, once per interval (Proto/frames.md, "Events").
  package var eventIntervalMembers = 256
  package var eventIntervalMilliseconds: Int64 = 1_000
  /// Channels and users that one connection may watch.
  package var subscriptionsMax = 1 << 20
  /// Unwritten bytes of a connection above which its events are dropped; the next frame reports the loss.
  package var unwrittenBytesMax = 8 << 20
  /// Unwritten bytes of a connection on this loop above which its queries are `busy`: replies to a gateway that does
  /// not read must not fill the memory. Replies that other loops have not delivered yet are not counted.
  package var unwrittenReplyBytesMax = 64 << 20
  /// Subscriptions that ask for changes, and announcements of rows, in progress per shard; further ones are `busy`.
  package var scanRequestsMax = 256
  /// Timeout of a subscription that asks for changes; it is `busy` then, because the gateway has stopped waiting.
  package var scanMilliseconds: Int64 = 10_000
  /// Messages of one channel whose statuses may have changed and that one such subscription reports; beyond them the
  /// gateway must fetch everything.
  package var scanStatusesMax = 1 << 17
  /// Channels that one such subscription loads at once.
  package var scanLoadsMax = 8
  /// Bytes of followed batches that may wait for local storage, and of their effects for channels that are being
  /// loaded, before a follower asks for no more.
  package var followWaitingBytesMax = 16 << 20
  /// How long the feed is kept; nil: it is off (R21).
  package var feedRetention: FeedRetention?
  /// Readers of the feed that may wait, per shard; further ones are `busy`.
  package var feedReadersMax = 1_024

  package init() {}
}

/// I/O that a store loop requests. Each request is made on the loop, and its result comes back on the loop later.
package protocol StoreLoopDriver: AnyObject {
  /// Make this commit durable, then call ``StoreLoop/committed(_:)``.
  func commit(_ commit: LoopCommit)
  /// Read this channel, then call ``StoreLoop/loaded(_:as:_:)``.
  func load(_ request: LoadRequest, as reference: ChannelReference)
  /// Read these steps, then call ``StoreLoop/stepsRead(_:_:)``.
  func readSteps(_ request: StepRequest)
  /// Read this part of the feed, then call ``StoreLoop/feedRead(_:_:)``.
  func readFeed(_ request: FeedReadRequest)
  /// Trim the feed, then call ``StoreLoop/feedTrimmed(_:_:)``.
  func trimFeed(_ request: FeedTrimRequest)
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
  /// Note a decision of the loop's scheduling, just before the loop carries it out. A store does nothing here. A model
  /// in a test performs each request when the loop does, and the loop's budget decides when that is.
  func noteDecision(_ decision: SchedulingDecision)
  /// Report that something on storage cannot be read. The loop keeps running.
  func reportError(_ error: StorageError)
  /// Handle a failed commit. The loop has dropped everything and takes no more requests: close the connections and make
  /// a new loop from storage.
  func loopHalted(_ error: StorageError)
}

extension StoreLoopDriver {
  package func readFeed(_ request: FeedReadRequest) { preconditionFailure("the feed is off") }
  package func trimFeed(_ request: FeedTrimRequest) { preconditionFailure("the feed is off") }
  package var keepsErasureLedger: Bool { false }
  package func recordErasure(_ request: ErasureRequest) {}
  package func noteDecision(_ decision: SchedulingDecision) {}
}

/// A decision that depends on the loop's budget. A model that checks every reply follows these. A request that is
/// performed on arrival causes none.
package enum SchedulingDecision {
  /// A request waits for a later slice, in which it is performed as a whole.
  case postpone(FrameHeader, ReplyLane)
  /// A query is sliced: it continues in another slice.
  case slice(FrameHeader, ReplyLane)
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
