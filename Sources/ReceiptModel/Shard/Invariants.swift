extension ChannelState {
  /// Check the invariants after a newly decided effect was assigned. Not for use while pages and log are read back: a
  /// row may then name a message whose segment is not loaded yet. Does nothing in release builds.
  @inline(__always)
  package func assertInvariants(changedBy effect: ChannelEffect) {
    #if DEBUG
      if let fault = checkInvariants(changedBy: effect) {
        preconditionFailure("\(String(decoding: cid, as: UTF8.self)), after \(effect): \(fault)")
      }
    #endif
  }
}

#if DEBUG
  /// The invariants that hold between commands. Each check returns a description of the first
  /// violation, or nil.
  ///
  /// They do not hold while a channel loads page by page: a row may name a message whose segment is not loaded yet.
  extension ShardState {
    /// Check the whole memory of this shard, channel by channel. Slow: looks up every message by its id.
    package func checkInvariants() -> String? {
      if let fault = directory.checkInvariants() { return fault }
      for position in 0..<slotCount {
        let slot = ChannelSlot(UInt32(position))
        guard isLoaded(slot) else { continue }
        let cid = String(decoding: self[slot].cid, as: UTF8.self)
        if self[slot].number >= nextChannel { return "\(cid): its number was not assigned yet" }
        if self[slot].isIndex {
          if !IndexName.isIndex(self[slot].cid) { return "\(cid): a channel without a type" }
        } else {
          let type = types[self[slot].type].name
          if type != String(decoding: self[slot].cid.prefix { $0 != UInt8(ascii: ":") }, as: UTF8.self) {
            return "\(cid): its type is \(type)"
          }
        }
        if let fault = self[slot].checkInvariants() ?? checkHidden(slot) ?? checkThreads(slot) {
          return "\(cid): \(fault)"
        }
      }
      return settings.checkInvariants() ?? outbox.checkInvariants()
    }

    /// Check that the rows of an up-to-date channel hide what their users hide (R7).
    func checkHidden(_ slot: ChannelSlot) -> String? {
      guard self[slot].settingsSeen == settings.changeCount else {
        return self[slot].settingsSeen < settings.changeCount
          ? nil : "its settings change count is ahead of the shard's"
      }
      for position in 0..<self[slot].rows.rowCount {
        let row = MemberOrdinal(UInt32(position))
        guard self[slot].rows.isActive(row) else { continue }
        let number = withUser(slot, row) { settings.find($0) }
        let hides = number.map { settings.hides($0) } ?? (read: false, delivered: false)
        if self[slot].rows.hidesRead(row) != hides.read || self[slot].rows.hidesDelivered(row) != hides.delivered {
          return "row \(position): does not hide what its user hides"
        }
      }
      return nil
    }
  }

  extension ChannelState {
    /// Check the whole channel.
    package func checkInvariants() -> String? {
      if steps.byteCount != steps.countBytes() { return "steps: byteCount differs from the recount" }
      return rows.checkColumns() ?? checkRows() ?? messages.checkInvariants() ?? acknowledgementTable.checkInvariants()
        ?? checkAcknowledgements() ?? checkRemoved() ?? memberships.checkInvariants()
    }

    /// Check that messages and acknowledgement requests agree, and that each acknowledgement was allowed.
    private func checkAcknowledgements() -> String? {
      var requested = 0
      for number in 0..<messages.newest.rawValue {
        let sequence = SequenceNumber(number + 1)
        guard messages.flags(sequence).contains(.requestsAcknowledgement) else { continue }
        requested += 1
        if !acknowledgementTable.isRequested(sequence) {
          return "message \(sequence.rawValue): its acknowledgement request is missing"
        }
        var fault: String?
        acknowledgementTable.forEachAcknowledged(sequence) { row in
          fault = fault ?? checkAcknowledged(sequence, row)
        }
        if let fault { return fault }
      }
      return requested == acknowledgementTable.count
        ? nil : "\(requested) messages request acknowledgement, \(acknowledgementTable.count) are kept"
    }

    private func checkAcknowledged(_ sequence: SequenceNumber, _ row: MemberOrdinal) -> String? {
      guard acknowledgementTable.isRequested(sequence), acknowledgementTable.hasAcknowledged(sequence, row) else {
        return "message \(sequence.rawValue): acknowledged without an acknowledgement request"
      }
      guard Int(row.rawValue) < rows.rowCount, rows.joined(row) < sequence else {
        return "message \(sequence.rawValue): acknowledged by row \(row.rawValue), which joined after it"
      }
      // The system's messages and erased users' rows and messages have no user.
      return rows.user(row) == messages.sender(sequence) && rows.user(row) != .nobody
        ? "message \(sequence.rawValue): acknowledged by its sender" : nil
    }

    /// Check only what an effect changed: a few comparisons, cheap enough after every assignment of a running shard.
    package func checkInvariants(changedBy effect: ChannelEffect) -> String? {
      switch effect {
      case .acknowledged(let sequence, let acknowledgement): return checkAcknowledged(sequence, acknowledgement.row)
      case .acknowledgementForgotten(let sequence, let row):
        let record = acknowledgementTable.record(sequence, row)
        return record?.at == Timestamp.none
          ? nil : "message \(sequence.rawValue): row \(row.rawValue) its record was not dropped"
      case .inThread(let parent, let effect): return checkThread(parent, changedBy: effect)
      case .membershipAssigned(let position, let membership):
        return memberships.position(of: membership.cid) == position
          ? nil : "membership \(position): not found by its cid"
      case .membershipRemoved(let position):
        return position < memberships.positionCount && memberships.isOccupied(position)
          ? "membership \(position): is still there" : nil
      default: return check(effect.target)
      }
    }

    private func check(_ target: ChannelEffect.Target) -> String? {
      switch target {
      case .row(let row): checkRow(row)
      case .message(let sequence): messages.checkMessage(sequence)
      case .head, .stepState, .stepSegment, .acknowledgement, .membership: nil
      }
    }

    private func checkRows() -> String? {
      var seen: Set<UserNumber> = []
      var active = 0
      for position in 0..<rows.rowCount {
        let row = MemberOrdinal(UInt32(position))
        if let fault = checkRow(row) { return fault }
        guard rows.isActive(row) else { continue }
        active += 1
        if !seen.insert(rows.user(row)).inserted { return "row \(position): a member has two rows" }
      }
      return active == rows.activeCount ? nil : "\(active) rows are active, \(rows.activeCount) are counted"
    }

    private func checkRow(_ row: MemberOrdinal) -> String? {
      let position = Int(row.rawValue)
      let newest = messages.newest
      let (read, delivered) = (rows.read[row], rows.delivered[row])
      let (readAt, deliveredAt) = (rows.read.time(row), rows.delivered.time(row))
      if rows.joined(row) > newest { return "row \(position): joined after the newest message" }
      if let fault = rows.roster.checkOrder(row) { return fault }
      guard rows.isActive(row) else {
        let isClear =
          read == .zero && delivered == .zero && deliveredAt == .none && rows.markers.isClear(row)
          && rows.ackedAt(row) == .none && !rows.isMuted(row)
        if rows.hidesRead(row) || rows.hidesDelivered(row) { return "row \(position): left, but hides" }
        return isClear && rows.role(row) == nil ? nil : "row \(position): left, but not cleared"
      }
      if rows.user(row) == .nobody { return "row \(position): nobody's" }
      if rows.row(of: rows.user(row)) != row { return "row \(position): not found by its user" }
      if rows.acknowledgedThrough(row) > newest {
        return "row \(position): has acknowledged past the newest message"
      }
      if read > newest { return "row \(position): has read past the newest message" }
      if delivered > newest { return "row \(position): has received past the newest message" }
      if let fault = rows.markers.check(row, read: read) { return fault }
      if isThread, rows.isMuted(row) || rows.flaggedAt(row) != .none {
        return "row \(position): muted or flagged, which only channel rows can be"
      }
      for time in [readAt, deliveredAt]
      // A member who was in a thread unseen may have read there before their visible join.
      where time != .none && time < rows.joinedAt(row) && !isThread {
        return "row \(position): moved before it joined"
      }
      // An unmoved row is at the position of the join (R6).
      let start = isThread || rows.hidesHistory(row) ? .zero : rows.joined(row)
      if read < start { return "row \(position): read watermark below where it joined" }
      // Until version 1.1, joining a thread marked it read.
      let isOld = isThread && read == rows.joined(row)
      if readAt == .none, read != start, !isOld {
        return "row \(position): read without a time"
      }
      if deliveredAt == .none, delivered != .zero {
        return "row \(position): delivered without a time"
      }
      if rows.ackedAt(row) > deliveredAt {
        return "row \(position): acked time is after the delivered time"
      }
      return nil
    }
  }
#endif
