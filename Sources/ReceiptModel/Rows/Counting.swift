/// Counts of the members who have a message, over the columns of a read vector (R1, R6 to R8, R10, R19).
///
/// All counts cover the members who joined before a message and are still there. Left rows have all positions at 0, and
/// sequence numbers start at 1. So only member counts must check whether a row is left.
extension ReadVector {
  /// A message's counts, as everybody may see them.
  struct Counts: Hashable {
    /// Expected members, including hidden ones.
    var members: UInt32 = 0
    /// Members shown to have read it.
    var read: UInt32 = 0
    /// Members shown to have read it or to have had it delivered.
    var delivered: UInt32 = 0
    /// Expected members who hide reads, or deliveries (R7): the status does not wait for them.
    var hidingRead: UInt32 = 0
    var hidingDelivered: UInt32 = 0
    /// Those of ``delivered`` who do not hide deliveries.
    var deliveredNotHiding: UInt32 = 0

    /// Return the message's status under the rule (R19).
    func status(_ rule: StatusRule) -> MessageStatus {
      if read >= rule.needed(of: members - hidingRead) { return .read }
      return deliveredNotHiding >= rule.needed(of: members - hidingDelivered) ? .delivered : .sent
    }
  }

  /// A row's relation to a message, as others see it.
  private struct Standing {
    var hidesRead: Bool
    var hidesDelivered: Bool
    var hasRead: Bool
    /// The member has read it or has had it delivered.
    var hasReceived: Bool
  }

  private func standing(_ row: MemberOrdinal, _ sequence: SequenceNumber, _ options: ChannelTypeOptions) -> Standing {
    let hidesRead = self.hidesRead(row)
    let hidesDelivered = self.hidesDelivered(row)
    let hasReached = options.readEvents && !hidesRead && read[row] >= sequence
    let hasRead = hasReached && (options.markUnread != .public || ownPosition(row) >= sequence)
    let hasReceived = options.deliveryEvents && !hidesDelivered && delivered[row] >= sequence
    return Standing(
      hidesRead: hidesRead,
      hidesDelivered: hidesDelivered,
      hasRead: hasRead,
      // Mark-unread does not undo a delivery (R4).
      hasReceived: hasReached || hasReceived
    )
  }

  /// Return whether the row's member counts for a message: a current member who joined before it (R6) or, in a thread,
  /// has visibly read it (R15). Does not check for the sender.
  func isExpected(_ row: MemberOrdinal, _ sequence: SequenceNumber, _ options: ChannelTypeOptions) -> Bool {
    Int(row.rawValue) < rowCount && isActive(row) && !isUnseen(row, options)
      && counts(row, sequence, through: countedThrough(row, options))
  }

  /// Return whether a visible member counts for a message.
  ///
  /// - Parameter end: how far the member has read, in a thread.
  func counts(_ row: MemberOrdinal, _ sequence: SequenceNumber, through end: UInt32) -> Bool {
    if joined(row) < sequence { return true }
    return isOfThread && end >= sequence.rawValue && bounds.countedAfter(row) < sequence
  }

  /// Remove the sender from a message's counts (R1).
  func exclude(
    _ sender: MemberOrdinal,
    _ sequence: SequenceNumber,
    _ options: ChannelTypeOptions,
    from counts: inout Counts
  ) {
    guard isExpected(sender, sequence, options) else { return }
    let standing = standing(sender, sequence, options)
    counts.members -= 1
    if standing.hidesRead { counts.hidingRead -= 1 }
    if standing.hidesDelivered { counts.hidingDelivered -= 1 }
    if standing.hasRead { counts.read -= 1 }
    guard standing.hasReceived else { return }
    counts.delivered -= 1
    if !standing.hidesDelivered { counts.deliveredNotHiding -= 1 }
  }

  /// Count a row that has acknowledged a message as a reader (R9), unless its position does so already.
  func acknowledged(
    _ row: MemberOrdinal,
    _ sequence: SequenceNumber,
    _ options: ChannelTypeOptions,
    in counts: inout Counts
  ) {
    guard options.readEvents, isExpected(row, sequence, options) else { return }
    let standing = standing(row, sequence, options)
    guard !standing.hidesRead, !standing.hasRead else { return }
    counts.read += 1
    guard !standing.hasReceived else { return }
    counts.delivered += 1
    if !standing.hidesDelivered { counts.deliveredNotHiding += 1 }
  }

  // MARK: One message

  /// Return the counts of one message, including its sender: one pass over the rows that joined before it.
  func counts(_ sequence: SequenceNumber, _ options: ChannelTypeOptions) -> Counts {
    if isOfThread { return countsInThread(sequence, options) }
    let prefix = joinedBefore(sequence)
    let pass = Pass(sequence, options)
    let hides = flags.hidesAny
    var counts = read.withPositions { read in
      delivered.withPositions { delivered in
        markers.withMarkers { markers in
          flags.withFlags { flags in
            let read = UnsafeBufferPointer(rebasing: read[..<prefix])
            switch (pass.showsOwn, hides) {
            case (false, false): return pass.shown(read, delivered)
            case (true, false): return pass.shownOwn(read, markers, delivered)
            case (false, true): return pass.hidden(read, delivered, flags)
            case (true, true): return pass.hiddenOwn(read, markers, delivered, flags)
            }
          }
        }
      }
    }
    counts.members = UInt32(prefix)
    if activeCount < rowCount { counts.members -= flags.count(RowFlags.left, inFirst: prefix) }
    guard hides else { return counts }
    let isAll = prefix == rowCount
    counts.hidingRead = isAll ? UInt32(flags.hidingReadCount) : flags.count(RowFlags.hidesRead, inFirst: prefix)
    counts.hidingDelivered =
      isAll ? UInt32(flags.hidingDeliveredCount) : flags.count(RowFlags.hidesDelivered, inFirst: prefix)
    return counts
  }

  /// Return the counts of one message in a thread, row by row: some rows are unseen, and later rows may have read the
  /// message.
  private func countsInThread(_ sequence: SequenceNumber, _ options: ChannelTypeOptions) -> Counts {
    var counts = Counts()
    for position in 0..<rowCount {
      let row = MemberOrdinal(UInt32(position))
      guard isExpected(row, sequence, options) else { continue }
      let standing = standing(row, sequence, options)
      counts.members += 1
      if standing.hidesRead { counts.hidingRead += 1 }
      if standing.hidesDelivered { counts.hidingDelivered += 1 }
      if standing.hasRead { counts.read += 1 }
      guard standing.hasReceived else { continue }
      counts.delivered += 1
      if !standing.hidesDelivered { counts.deliveredNotHiding += 1 }
    }
    return counts
  }

  /// The loops over columns. Each has no branches and reads only the columns it needs, so that the compiler vectorizes
  /// it. Testing the options within the loop was measured to take five times as long.
  private struct Pass {
    let showsOwn: Bool
    /// The lowest position that counts. No position reaches the largest number (``MessageTable/hasRoom``), so a kind
    /// that is switched off counts nowhere.
    private let readMin: UInt32
    private let deliveredMin: UInt32

    init(_ sequence: SequenceNumber, _ options: ChannelTypeOptions) {
      showsOwn = options.markUnread == .public
      readMin = options.readEvents ? sequence.rawValue : .max
      deliveredMin = options.deliveryEvents ? sequence.rawValue : .max
    }

    private func isReached(_ position: UInt32, _ least: UInt32) -> UInt32 { position >= least ? 1 : 0 }

    func shown(_ read: UnsafeBufferPointer<UInt32>, _ delivered: UnsafeBufferPointer<UInt32>) -> Counts {
      var readers: UInt32 = 0
      var receivers: UInt32 = 0
      for row in read.indices {
        let hasRead = isReached(read[row], readMin)
        readers &+= hasRead
        receivers &+= hasRead | isReached(delivered[row], deliveredMin)
      }
      return Counts(read: readers, delivered: receivers, deliveredNotHiding: receivers)
    }

    /// Count the rows in a block with own positions. A row without a marker has the maximum there, above every message.
    /// A reached watermark counts as delivered, whatever the marker (R4).
    func shownOwn(
      _ read: UnsafeBufferPointer<UInt32>,
      _ markers: UnsafeBufferPointer<UInt32>,
      _ delivered: UnsafeBufferPointer<UInt32>
    ) -> Counts {
      var readers: UInt32 = 0
      var receivers: UInt32 = 0
      for row in read.indices {
        let hasReached = isReached(read[row], readMin)
        readers &+= hasReached & isReached(markers[row], readMin)
        receivers &+= hasReached | isReached(delivered[row], deliveredMin)
      }
      return Counts(read: readers, delivered: receivers, deliveredNotHiding: receivers)
    }

    /// Count the rows in a block with the kinds that rows hide, as bits.
    func hidden(
      _ read: UnsafeBufferPointer<UInt32>,
      _ delivered: UnsafeBufferPointer<UInt32>,
      _ flags: UnsafeBufferPointer<UInt8>
    ) -> Counts {
      var readers: UInt32 = 0
      var receivers: UInt32 = 0
      var notHiding: UInt32 = 0
      for row in read.indices {
        let showsRead = ~(UInt32(flags[row]) >> RowFlags.hidesReadBit) & 1
        let showsDelivered = ~(UInt32(flags[row]) >> RowFlags.hidesDeliveredBit) & 1
        let hasRead = isReached(read[row], readMin) & showsRead
        let hasReceived = hasRead | isReached(delivered[row], deliveredMin) & showsDelivered
        readers &+= hasRead
        receivers &+= hasReceived
        notHiding &+= hasReceived & showsDelivered
      }
      return Counts(read: readers, delivered: receivers, deliveredNotHiding: notHiding)
    }

    func hiddenOwn(
      _ read: UnsafeBufferPointer<UInt32>,
      _ markers: UnsafeBufferPointer<UInt32>,
      _ delivered: UnsafeBufferPointer<UInt32>,
      _ flags: UnsafeBufferPointer<UInt8>
    ) -> Counts {
      var readers: UInt32 = 0
      var receivers: UInt32 = 0
      var notHiding: UInt32 = 0
      for row in read.indices {
        let showsRead = ~(UInt32(flags[row]) >> RowFlags.hidesReadBit) & 1
        let showsDelivered = ~(UInt32(flags[row]) >> RowFlags.hidesDeliveredBit) & 1
        let hasReached = isReached(read[row], readMin) & showsRead
        let hasReceived = hasReached | isReached(delivered[row], deliveredMin) & showsDelivered
        readers &+= hasReached & isReached(markers[row], readMin)
        receivers &+= hasReceived
        notHiding &+= hasReceived & showsDelivered
      }
      return Counts(read: readers, delivered: receivers, deliveredNotHiding: notHiding)
    }
  }

  // MARK: Several messages

  /// Compute the counts of several messages, including their senders, in one pass over the rows.
  ///
  /// A row that joined after `a` of the messages and whose position has reached `b` of them has those from `a` up to
  /// `b`. Rows are in join order, so `a` only rises: at message `i` all rows that joined before it have begun, and
  /// those whose `b` is at most `i` have ended. So each row is one entry in a table of ends, and a sum over that table
  /// gives every message's count.
  ///
  /// - Parameters:
  ///   - targets: sequence numbers, rising; duplicates are allowed.
  ///   - counts: as many as `targets`, initialized.
  func counts(
    _ targets: UnsafeBufferPointer<UInt32>,
    _ options: ChannelTypeOptions,
    into counts: UnsafeMutableBufferPointer<Counts>
  ) {
    guard let first = targets.first, let last = targets.last else { return }
    guard !isOfThread else {
      for index in targets.indices { counts[index] = countsInThread(SequenceNumber(targets[index]), options) }
      return
    }
    let span = Int(last - first)
    guard span <= RankTable.spanMax else {
      return count(targets, RankSearch(targets), options, into: counts)
    }
    withUnsafeTemporaryAllocation(of: UInt8.self, capacity: span + 2) { table in
      count(targets, RankTable(targets, table), options, into: counts)
    }
  }

  private func count<Ranking: PositionRanking>(
    _ targets: UnsafeBufferPointer<UInt32>,
    _ ranking: Ranking,
    _ options: ChannelTypeOptions,
    into counts: UnsafeMutableBufferPointer<Counts>
  ) {
    let showsOwn = options.markUnread == .public
    let readMask: UInt32 = options.readEvents ? .max : 0
    let deliveredMask: UInt32 = options.deliveryEvents ? .max : 0
    let hides = flags.hidesAny
    // One more than there are messages, for the rows that have reached all of them.
    withUnsafeTemporaryAllocation(of: UInt32.self, capacity: 3 * (targets.count + 1)) { ends in
      ends.initialize(repeating: 0)
      let readEnds = ends.extracting(0..<(targets.count + 1))
      let deliveredEnds = ends.extracting((targets.count + 1)..<(2 * (targets.count + 1)))
      let notHidingEnds = ends.extracting((2 * (targets.count + 1))...)
      var left: UInt32 = 0
      var hidingRead: UInt32 = 0
      var hidingDelivered: UInt32 = 0
      var start = 0
      read.withPositions { read in
        delivered.withPositions { delivered in
          markers.withMarkers { markers in
            flags.withFlags { flags in
              for target in targets.indices {
                let end = joinedBefore(SequenceNumber(targets[target]))
                for row in start..<end {
                  let flag = UInt32(flags[row])
                  let hidesRead = (flag >> RowFlags.hidesReadBit) & 1
                  let hidesDelivered = (flag >> RowFlags.hidesDeliveredBit) & 1
                  // Hidden or disabled positions are masked to 0: branches here would be mispredicted about half the
                  // time.
                  let reached = read[row] & readMask & (hidesRead &- 1)
                  let shown = showsOwn ? min(reached, markers[row]) : reached
                  // Mark-unread does not undo a delivery (R4).
                  let received = max(reached, delivered[row] & deliveredMask & (hidesDelivered &- 1))
                  let readEnd = max(target, ranking.rank(shown))
                  let deliveredEnd = max(readEnd, ranking.rank(received))
                  readEnds[readEnd] &+= 1
                  deliveredEnds[deliveredEnd] &+= 1
                  left &+= flag & UInt32(RowFlags.left)
                  guard hides else { continue }
                  notHidingEnds[hidesDelivered == 0 ? deliveredEnd : target] &+= 1
                  hidingRead &+= hidesRead
                  hidingDelivered &+= hidesDelivered
                }
                start = max(start, end)
                counts[target].members = UInt32(start) - left
                counts[target].hidingRead = hidingRead
                counts[target].hidingDelivered = hidingDelivered
              }
            }
          }
        }
      }
      var (readEnded, deliveredEnded, notHidingEnded) = (UInt32(0), UInt32(0), UInt32(0))
      for target in targets.indices {
        readEnded += readEnds[target]
        deliveredEnded += deliveredEnds[target]
        notHidingEnded += notHidingEnds[target]
        let begun = UInt32(joinedBefore(SequenceNumber(targets[target])))
        counts[target].read = begun - readEnded
        counts[target].delivered = begun - deliveredEnded
        counts[target].deliveredNotHiding = hides ? begun - notHidingEnded : begun - deliveredEnded
      }
    }
  }
}

/// The number of rising sequence numbers that a position has reached.
private protocol PositionRanking {
  func rank(_ position: UInt32) -> Int
}

/// Ranks by a table of all positions from the first to the last target; the messages of one screen are close together.
private struct RankTable: PositionRanking {
  /// Maximum span of the table in positions, so that it stays in the nearest CPU caches.
  static let spanMax = 1 << 16

  private let before: UInt32
  private let last: UInt32
  private let table: UnsafeMutableBufferPointer<UInt8>

  /// - Parameters:
  ///   - targets: at least one, at most 255.
  ///   - table: two more than the span of `targets`.
  init(_ targets: UnsafeBufferPointer<UInt32>, _ table: UnsafeMutableBufferPointer<UInt8>) {
    before = targets[0] - 1
    last = UInt32(table.count - 1)
    self.table = table
    table.initialize(repeating: 0)
    var next = 0
    for index in table.indices {
      while next < targets.count, Int(targets[next] - before) <= index { next += 1 }
      table[index] = UInt8(next)
    }
  }

  @inline(__always)
  func rank(_ position: UInt32) -> Int {
    Int(table[Int(min(max(position, before) &- before, last))])
  }
}

/// Ranks by binary search, for any span.
private struct RankSearch: PositionRanking {
  private let targets: UnsafeBufferPointer<UInt32>

  init(_ targets: UnsafeBufferPointer<UInt32>) { self.targets = targets }

  @inline(__always)
  func rank(_ position: UInt32) -> Int {
    var low = 0
    var count = targets.count
    while count > 0 {
      let half = count / 2
      let isReached = targets[low + half] <= position
      low = isReached ? low + half + 1 : low
      count = isReached ? count - half - 1 : half
    }
    return low
  }
}
