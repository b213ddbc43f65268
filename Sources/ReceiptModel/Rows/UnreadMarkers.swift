/// What members have marked unread themselves (R4), a row per member: the unread marker, the epoch that rises with each
/// mark-unread, and the flag of the whole channel.
struct UnreadMarkers: ~Copyable, Sendable {
  /// No marker is set. The maximum makes the own position `min(read, marker)` without a branch.
  private static let noMarker = UInt32.max

  private var markers: [UInt32] = []
  private var epochs: [UInt32] = []
  /// When the marker was last set, moved or cleared. Only as long as the highest row that ever had one; most channels
  /// have none.
  private var markedAt: [Int64] = []
  /// Rows that were ever flagged unread as a whole.
  private var flags: [UInt32: Flag] = [:]

  private struct Flag: Sendable {
    var isSet: Bool
    /// When the flag was last set or cleared.
    var at: Timestamp
  }

  /// Return the own position: where the member's own unread count starts (docs/contribute/architecture.md).
  ///
  /// - Parameter read: the row's read watermark.
  @inline(__always)
  func ownPosition(_ row: MemberOrdinal, read: SequenceNumber) -> SequenceNumber {
    SequenceNumber(min(read.rawValue, markers[Int(row.rawValue)]))
  }

  func marker(_ row: MemberOrdinal) -> SequenceNumber? {
    let marker = markers[Int(row.rawValue)]
    return marker == Self.noMarker ? nil : SequenceNumber(marker)
  }

  /// Return when the marker was last set, moved or cleared; none: never.
  func markedAt(_ row: MemberOrdinal) -> Timestamp {
    let position = Int(row.rawValue)
    return position < markedAt.count ? Timestamp(milliseconds: markedAt[position]) : .none
  }

  func epoch(_ row: MemberOrdinal) -> UInt32 { epochs[Int(row.rawValue)] }

  /// Return the epoch that the next mark-unread sets. After four billion changes by one member, a stale device is
  /// indistinguishable from a current one.
  func raisedEpoch(_ row: MemberOrdinal) -> UInt32 {
    let epoch = epoch(row)
    return epoch == .max ? .max : epoch + 1
  }

  /// Return whether a read or unread carries an older epoch than the row's: its device has not seen the latest choice.
  func isStale(_ epoch: UInt32?, _ row: MemberOrdinal) -> Bool { epoch.map { $0 < self.epoch(row) } ?? false }

  /// Return whether the member has flagged the channel unread as a whole. Every mark asks this; most channels have no
  /// flags.
  @inline(__always)
  func isFlagged(_ row: MemberOrdinal) -> Bool { !flags.isEmpty && flags[row.rawValue]?.isSet ?? false }

  /// Return when the flag was last set or cleared; none: never.
  func flaggedAt(_ row: MemberOrdinal) -> Timestamp { flags[row.rawValue]?.at ?? .none }

  /// Call `body` with the markers of all rows, for a pass over them; the maximum stands for no marker.
  @inline(__always)
  func withMarkers<Result>(_ body: (UnsafeBufferPointer<UInt32>) -> Result) -> Result {
    markers.withUnsafeBufferPointer(body)
  }

  // MARK: Assignment

  /// Append a row without a marker.
  mutating func append() {
    markers.append(Self.noMarker)
    epochs.append(0)
  }

  mutating func assign(_ row: MemberOrdinal, _ marker: SequenceNumber?, epoch: UInt32, at time: Timestamp) {
    let position = Int(row.rawValue)
    markers[position] = marker?.rawValue ?? Self.noMarker
    epochs[position] = epoch
    if position >= markedAt.count {
      if time == .none { return }
      markedAt.append(contentsOf: repeatElement(0, count: position + 1 - markedAt.count))
    }
    markedAt[position] = time.milliseconds
  }

  mutating func assignFlag(_ row: MemberOrdinal, isSet: Bool, epoch: UInt32, at time: Timestamp) {
    epochs[Int(row.rawValue)] = epoch
    flags[row.rawValue] = time == .none ? nil : Flag(isSet: isSet, at: time)
  }

  /// Clear the row of a member who leaves.
  mutating func clear(_ row: MemberOrdinal) {
    assign(row, nil, epoch: 0, at: .none)
    flags[row.rawValue] = nil
  }

  /// Size in bytes.
  var byteCount: Int {
    heapBytes(markers) + heapBytes(epochs) + heapBytes(markedAt) + flags.capacity * 32
  }

  #if DEBUG
    /// Check that the columns have a value for each row.
    func checkColumns(rowCount: Int) -> String? {
      markers.count == rowCount && epochs.count == rowCount ? nil : "unread markers: columns of different lengths"
    }

    /// Check the row of a current member.
    ///
    /// - Parameter read: the row's read watermark.
    func check(_ row: MemberOrdinal, read: SequenceNumber) -> String? {
      if let marker = marker(row) {
        if marker >= read { return "row \(row.rawValue): marker not below the watermark" }
        if epoch(row) == 0 { return "row \(row.rawValue): a marker without an epoch" }
      }
      return isFlagged(row) && epoch(row) == 0 ? "row \(row.rawValue): a flag without an epoch" : nil
    }

    /// Return whether nothing is left of a row that was left.
    func isClear(_ row: MemberOrdinal) -> Bool {
      marker(row) == nil && epoch(row) == 0 && markedAt(row) == .none && flaggedAt(row) == .none
    }
  #endif
}
