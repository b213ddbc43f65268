/// Times and limits of the cluster's protocol (C4). They are constants: all nodes of a cluster must use the same ones,
/// so no flag changes them. Tests do.
///
/// The lease and the wait belong together. An owner answers queries until ``leaseMilliseconds`` after it first sent the
/// last acknowledged record. A candidate claims ``waitMilliseconds`` after it received that record, which is later. So
/// no query is answered under two owners, unless one clock runs a third faster than the other: 2.0 / 1.5.
package struct ClusterLimits: Hashable, Sendable {
  // MARK: Lease and take-over

  /// How long an owner may answer queries, from the first sending of its last acknowledged record.
  package var leaseMilliseconds: Int64 = 1_500
  /// How long a candidate receives no new record before it claims. Longer than the lease by a third.
  package var waitMilliseconds: Int64 = 2_000
  /// Additional wait for each rank, so that candidates do not claim together.
  package var rankMilliseconds: Int64 = 300
  /// After this time without an append an owner appends an `alive` record. A third of the lease: two may be late.
  package var aliveMilliseconds: Int64 = 500

  // MARK: Requests to the log

  /// Interval of the probes of the log.
  package var probeMilliseconds: Int64 = 500
  /// A probe that takes longer counts as failed: the log may be electing a leader, and no owner can append.
  package var probeAnswerMilliseconds: Int64 = 300
  /// A record or a read without an answer for this time is sent again.
  package var resendMilliseconds: Int64 = 400
  /// Pause before a record is sent again after an unclear answer.
  package var unclearPauseMilliseconds: Int64 = 50

  // MARK: Records

  /// Maximum size of a record's payload, at most ``GroupRecord/payloadBytesMax``. A larger commit is several records.
  package var payloadBytesMax = GroupRecord.payloadBytesMax

  // MARK: Trims and moves

  /// Smallest number of records that a trim removes.
  package var trimRecordsMin: UInt64 = 256
  /// Largest number of records that a trim removes: the log does nothing else meanwhile.
  package var trimRecordsMax: UInt64 = 10_000
  /// Payload bytes appended since the last trim that justify a smaller trim.
  package var trimBytesMin = 4 << 20
  /// A member whose position stands still for this time no longer holds trims, if more than ``awayBytesMin`` wait for
  /// it and ``membersMin`` others have synced what is trimmed. It needs a snapshot when it is back.
  package var awayMilliseconds: Int64 = 60_000
  /// Bytes of records that a member may lack, however long it is away: their payloads, and ``recordBytes`` for each.
  package var awayBytesMin = 256 << 20
  /// What a record takes in the log besides its payload, with its key.
  package var recordBytes = 256
  /// A member that installs a snapshot holds trims for this time, and as long as no more than ``joiningBytesMax`` wait.
  package var joiningMilliseconds: Int64 = 600_000
  package var joiningBytesMax = 1 << 30
  /// Smallest number of members that have synced a record before it is trimmed, if the group has as many.
  package var membersMin = 2
  /// An owner releases a group only to a member that has what was appended until this time ago, and whose reports come
  /// without longer pauses.
  package var followLagMilliseconds: Int64 = 3_000
  /// How long the preferred owner has followed in that way before a group moves to it.
  package var steadyMilliseconds: Int64 = 10_000

  // MARK: Record keys and purges

  /// How often an owner makes a key.
  package var keyMilliseconds: Int64 = 3_600_000
  /// How long a new key waits for all members, while there is another one. Later ``membersMin`` suffice.
  package var keySpreadMilliseconds: Int64 = 3_000
  /// Pause before a member asks a new owner for its key, and before a new owner asks whether the members have it.
  package var keyFetchMilliseconds: Int64 = 200
  /// How long an owner waits for the members before it appends a purge record again.
  package var purgeMilliseconds: Int64 = 30_000

  // MARK: Levels

  /// The levels that the node supports.
  package var levels = ClusterLevel.supported

  // MARK: Constants of one node

  /// How long replies wait for an expired lease before queries are refused.
  package static let replyWaitMilliseconds: Int64 = 1_000
  /// Maximum number of records of one read.
  package static let recordsPerRead = 256

  package init() {}

  /// Limits of a cluster with so many groups: what all of them keep for absent members has to fit etcd's quota
  /// (docs/contribute/cluster-design.md, "Ownership"). All nodes have the same number of groups.
  package init(groupCount: Int) {
    awayBytesMin = max(Self.awayBytesLeast, awayBytesMin / groupCount)
    joiningBytesMax = max(Self.joiningBytesLeast, joiningBytesMax / groupCount)
  }

  private static let awayBytesLeast = 16 << 20
  private static let joiningBytesLeast = 64 << 20
}
