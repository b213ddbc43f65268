package import StoreEngine
internal import TestSupport
internal import Testing

/// An owner that appends as `Ownership` does: an unclear record is sent again, unchanged, until it is decided.
package struct TestOwner {
  private let log: AsyncGroupLog
  package let group: GroupID
  private let node: NodeID
  /// The last record.
  package private(set) var cursor: LogCursor
  package private(set) var owner = GroupOwner.none

  package init(_ log: AsyncGroupLog, group: UInt8, node: UInt16, after cursor: LogCursor = .start) {
    self.log = log
    self.group = GroupID(group)
    self.node = NodeID(node)
    self.cursor = cursor
  }

  /// Claim the group from an owner.
  package mutating func claim(from seen: GroupOwner = .none) async throws {
    let record = cursor.record(.claim(by: node), epoch: seen.epoch.next)
    let claim = GroupClaim(group: group, record: record, seen: seen.fence)
    owner = try await decide(record) { [log] in try await log.claim(claim) }
  }

  /// Append a record with this payload.
  @discardableResult
  package mutating func append(_ payload: [UInt8]) async throws -> GroupRecord {
    let append = next(payload)
    _ = try await decide(append.record) { [log] in try await log.append([append])[0] }
    return append.record
  }

  /// The append that would follow, without making it.
  package func next(_ payload: [UInt8]) -> GroupAppend {
    let record = cursor.record(.batches, epoch: owner.epoch, payload: payload)
    return GroupAppend(group: group, record: record, fence: owner.fence)
  }

  /// Take a record as appended.
  package mutating func committed(_ record: GroupRecord) { cursor = LogCursor(after: record) }

  private mutating func decide(
    _ record: GroupRecord,
    _ attempt: () async throws -> AppendOutcome
  ) async throws -> GroupOwner {
    var owner: GroupOwner?
    try await eventually("record \(record.position.rawValue) is decided") {
      switch try await attempt() {
      case .committed(let committed): owner = committed
      case .fenced(let other): throw Unexpected("record \(record.position.rawValue) is fenced by \(other)")
      case .unclear: break
      }
      return owner != nil
    }
    cursor = LogCursor(after: record)
    return try #require(owner)
  }
}
