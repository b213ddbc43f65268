import ReceiptModel

/// The sizes and times that a loop's shards work with.
package struct StoreLoopConfiguration: Sendable {
  /// A page is written this long after its first effect, at the latest a commit later.
  package var checkpointAgeMilliseconds: Int64 = 5_000
  /// Or when a shard has logged this much since.
  package var checkpointLogBytes: UInt64 = 16 << 20
  /// Pages written with one commit, in bytes: the slice that a checkpoint may take of a turn.
  package var checkpointSliceBytes = 256 << 10
  /// Between ticks a shard's log is cut only when this many batches can go: a cut leaves a mark behind on storage.
  package var cutBatchesMin: UInt64 = 4_096
  /// Sessions are forgotten this long after they were last heard of.
  package var sessionLifetimeMilliseconds: Int64 = 600_000
  /// Channels that may be loading at once, per shard.
  package var loadsMax = 1_024
  /// Requests that may wait for one channel.
  package var waitingPerLoadMax = 1_024
  /// Channels of the log's tail that are loaded at once, per shard, to get the log cut.
  package var tailLoadsMax = 8
  /// Bytes that the channels of this loop, and users' settings, may occupy in memory. A channel that is larger is in
  /// memory all the same while it is the one that its shard uses.
  package var residentBytesMax = Int.max
  /// Channels that are looked at in one turn to find some that can leave memory.
  package var evictionLooksMax = 256
  /// Rows that long queries look at in one turn, all of them together: some 200 µs. One that needs no more than
  /// `shortRows` has them in any case.
  package var sliceRows = 65_536
  package var shortRows = 8_192
  /// Queries that may go on in slices, per shard; one more is `busy`.
  package var slicedQueriesMax = 64
  /// Reads of steps that may be under way, per shard: for one query each.
  package var stepReadsMax = 256
  /// Steps that the queries of a shard may hold together while they wait for more, 24 bytes each; one more is `busy`.
  package var heldStepsMax = 4 * ReadSegments.stepsMax
  /// Row pages whose steps are read at once, per shard, to be written as fewer segments.
  package var stepTrimsMax = 2
  /// Requests for unread counts that may wait for channels on storage, per shard; one more is `busy`.
  package var unreadRequestsMax = 64
  /// Channels that one of them has loaded at once, where it cannot be peeked at.
  package var unreadLoadsMax = 8
  /// A channel of the log's tail that could not be read is tried again this long after.
  package var tailRetryMilliseconds: Int64 = 10_000
  /// Changes of memberships that one shard may have under way to another one.
  package var changesUnderWayMax = 4_096
  /// Users' indexes that are read at once, per shard, for the changes that come next.
  package var indexLoadsMax = 64
  /// Effects by which users are erased in one turn, all of them together; one that needs no more than `shortEffects`
  /// has them in any case. What is done in slices adds nothing to a batch of so many.
  package var sliceEffects = 4_096
  package var shortEffects = 256
  /// Changes that may be on their way from one shard where a rebuild or the deletion of a channel queues more; the rest
  /// is for those who join.
  package var changesPendingMax = Outbox.pendingMax / 2
  /// Changes that are taken into indexes between two slices, and queued or looked at by a rebuild or a deletion: some
  /// 500 µs.
  package var changesPerTurn = 1_024
  /// Members that requests name, users whose unread messages they count, and what is read in for them, between two
  /// slices: some 500 µs. What comes behind that many waits.
  package var entriesPerTurn = 1_024
  /// Requests that may wait so, per shard; one more is `busy`.
  package var postponedMax = 256
  /// Bytes of effects that may gather behind a commit before slices wait for its end: whatever comes meanwhile waits
  /// for all that gathers.
  package var gatheredBytesMax = 512 << 10
  /// Changes that are not acknowledged this long after they were sent are sent again; an index that could not be read
  /// is read again.
  package var changesRetryMilliseconds: Int64 = 1_000
  /// How often it is logged what was acknowledged, at most.
  package var changesLoggedMilliseconds: Int64 = 1_000
  /// A reply waits at most so long for its changes of memberships to be in the index; 0: it does not wait.
  package var heldMilliseconds: Int64 = 1_000
  /// A reply that may not leave before them is `busy` after so long.
  package var heldStrictlyMilliseconds: Int64 = 4_000
  /// Replies that may wait so, per shard; one more does not.
  package var heldMax = 4_096
  /// In channels with more members than this, rows and statuses are told once per interval (Proto/frames.md, "Events").
  package var eventIntervalMembers = 256
  package var eventIntervalMilliseconds: Int64 = 1_000
  /// Channels and users that one connection may watch.
  package var subscriptionsMax = 1 << 20
  /// Bytes of a connection that are not in its socket yet; beyond them it is told of no events, and that it has lost
  /// some.
  package var unwrittenBytesMax = 8 << 20
  /// Subscriptions that ask for what has changed, and announcements of rows, that may be under way, per shard; one more
  /// is `busy`.
  package var walkRequestsMax = 256
  /// A subscription that asks for what has changed is `busy` when it is not answered after this long: nobody waits for
  /// it any more.
  package var walkMilliseconds: Int64 = 10_000
  /// Messages of one channel whose statuses may have changed, for one of them to tell it; beyond them whoever asks has
  /// to ask for everything.
  package var walkStatusesMax = 1 << 17
  /// Channels that one of them has read at once.
  package var walkLoadsMax = 8

  package init() {}
}
