internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Exports of channels and of users' settings (Proto/frames.md, 0x64 to 0x66).
///
/// A channel is encoded whole, in one turn, so that all its records are of one moment. What does not fit into one reply
/// is kept until it is read, within ``snapshotBytesMax``.
final class ChannelExports: ShardPart {
  private struct Snapshot {
    let cid: [UInt8]
    let parts: [ByteBuffer]
    let byteCount: Int
    let lane: ReplyLane
    /// In the loop's elapsed time.
    var readAt: Int64
  }

  private var snapshots: [UInt64: Snapshot] = [:]
  private var lastSnapshot: UInt64 = 0
  private var byteCount = 0

  /// Approximate size of a part.
  private static let partBytes = 128 << 10
  /// Size of all snapshots of a shard at which no further one begins.
  static let snapshotBytesMax = 256 << 20
  /// After this time without a read a snapshot is dropped.
  private static let idleMilliseconds: Int64 = 300_000

  override func close(_ lane: ReplyLane) { removeAll { $0.lane === lane } }

  override func stop() { removeAll { _ in true } }

  func tick() {
    guard !snapshots.isEmpty else { return }
    let now = shard.loop.elapsedMilliseconds
    removeAll { now - $0.readAt >= Self.idleMilliseconds }
  }

  private func removeAll(where isGone: (Snapshot) -> Bool) {
    for (id, snapshot) in snapshots where isGone(snapshot) {
      snapshots[id] = nil
      byteCount -= snapshot.byteCount
    }
  }

  // MARK: A channel

  /// Answer with a part of a snapshot; nil: the request begins an export.
  func storedPart(_ request: borrowing Request) throws(WireError) -> Outcome? {
    var reader = request.fields
    let cid = try reader.string()
    let fields = try ExportChannelRequest(&reader)
    guard fields.snapshot > 0 else { return nil }
    guard let snapshot = snapshots[fields.snapshot], snapshot.cid.span.bytes.equals(cid),
      let part = Int(exactly: fields.part), part < snapshot.parts.count
    else { return .refused(.outcomeUnknown, "the export of this channel is no longer kept; begin it again") }
    snapshots[fields.snapshot]?.readAt = shard.loop.elapsedMilliseconds
    let outcome = shard.reply(request, .now) { buffer in
      buffer.writeVarint(fields.snapshot)
      buffer.writeVarint(snapshot.parts.count)
      buffer.writeImmutableBuffer(snapshot.parts[part])
    }
    if part == snapshot.parts.count - 1 {
      snapshots[fields.snapshot] = nil
      byteCount -= snapshot.byteCount
    }
    return outcome
  }

  /// Begin the export of a channel: answer with its first part.
  func exportChannel(_ request: inout Request, _ slot: ChannelSlot) throws(WireError) -> Outcome {
    let fields = try ExportChannelRequest(&request.fields)
    guard fields.part == 0, fields.user.isEmpty || ShardEngine.isValid(fields.user, Identifier.isUser) else {
      return .refused(.invalidField, "part: 0 without a snapshot; user: empty, or \(Identifier.userRange)")
    }
    guard byteCount < Self.snapshotBytesMax else {
      return .refused(.busy, retryAfterMilliseconds: 1_000, "too much of other exports is not read yet")
    }
    if let range = shard.state.storedSegments(of: slot, besides: request.segments) {
      return shard.steps.wait(&request, slot, for: [range])
    }
    let parts = parts(of: slot, for: fields.user, request.segments)
    var snapshot: UInt64 = 0
    if parts.count > 1 {
      // Higher than before a restart.
      lastSnapshot = max(lastSnapshot + 1, UInt64(max(0, shard.advanceTime().milliseconds)) << 8)
      snapshot = lastSnapshot
      let size = parts.reduce(0) { $0 + $1.readableBytes }
      byteCount += size
      snapshots[snapshot] = Snapshot(
        cid: shard.state[slot].cid,
        parts: parts,
        byteCount: size,
        lane: request.lane,
        readAt: shard.loop.elapsedMilliseconds
      )
    }
    return shard.reply(request, shard.replyTiming(slot)) { buffer in
      buffer.writeVarint(snapshot)
      buffer.writeVarint(parts.count)
      buffer.writeImmutableBuffer(parts[0])
    }
  }

  /// Encode a channel in the order in which an import takes its records.
  ///
  /// - Parameter user: empty: everything; else only this user's messages, rows and acknowledgements.
  private func parts(of slot: ChannelSlot, for user: String, _ segments: borrowing ReadSegments) -> [ByteBuffer] {
    var writer = ExportParts(partBytes: Self.partBytes)
    if user.isEmpty {
      let channel = TransferredChannel(created: shard.state[slot].created, options: shard.state[slot].ownOptions)
      writer.add(channel, to: .channels)
    }
    let slots = [slot] + shard.state.threadSlots(of: slot)
    for slot in slots {
      for number in 0..<shard.state[slot].messages.newest.rawValue {
        let message = shard.state.exported(SequenceNumber(number + 1), in: slot)
        if user.isEmpty || message.sender.isExactly(user) { writer.add(message, to: .messages) }
      }
    }
    for slot in slots {
      var steps = shard.state.exportedSteps(of: 0, in: slot, segments)
      for position in 0..<UInt32(shard.state[slot].rows.rowCount) {
        if position > 0, position % PageID.rowsPerPage == 0 {
          steps = shard.state.exportedSteps(of: position / PageID.rowsPerPage, in: slot, segments)
        }
        guard let member = shard.state.exported(MemberOrdinal(position), in: slot, steps),
          user.isEmpty || member.user.isExactly(user)
        else { continue }
        writer.add(member, to: .members)
      }
    }
    for sequence in shard.state.acknowledgedMessages(in: slot) {
      for record in shard.state.exportedAcknowledgements(of: sequence, in: slot)
      where user.isEmpty || record.user.isExactly(user) {
        writer.add(record, to: .acknowledgements)
      }
    }
    return writer.finish()
  }

  // MARK: Lists

  /// List the cids of the shard's channels by their numbers. The name of a channel that is not in memory is read first.
  ///
  /// - Parameter name: the name that the request has waited for.
  func listStoredChannels(_ request: inout Request, _ name: LookedUpName? = nil) throws(WireError) -> Outcome {
    let fields = try ListStoredRequest(&request.fields)
    guard (1...ListStoredRequest.limitMax).contains(Int(clamping: fields.limit)) else { return Self.refusedLimit }
    var list = StoredChannelList(number: fields.after)
    if case .storedChannels(let known)? = request.attempt?.progress { list = known }
    if let name {
      if case .named(let cid) = name { list.add(cid) }
      list.number += 1
    }
    var examined = 0
    let end = shard.state.nextChannel.rawValue - 1
    while list.number < end, list.channels.count < Int(fields.limit) {
      guard examined < Self.numbersPerReply || list.channels.isEmpty else { break }
      examined += 1
      let number = ChannelNumber(list.number + 1)
      if let slot = shard.state.slot(numbered: number) {
        if !shard.state[slot].isBeingDeleted { list.add(shard.state[slot].cid) }
      } else if let head = shard.tail.head(of: number) {
        list.add(Array(head.cid.utf8))
      } else {
        return shard.loads.wait(request, for: .head(number), progress: .storedChannels(list))
      }
      list.number += 1
    }
    let next = list.number < end ? list.number : nil
    return shard.reply(request, shard.replyTiming(shard.log.last)) { buffer in
      buffer.writeVarint(list.channels.count)
      for cid in list.channels { buffer.writeField(cid.span.bytes) }
      buffer.writeOptional(next)
    }
  }

  /// Numbers that one reply looks at.
  private static let numbersPerReply = 4_096

  /// List users' settings by their numbers; every shard has them.
  func listUsers(_ request: inout Request) throws(WireError) -> Outcome {
    let fields = try ListStoredRequest(&request.fields)
    guard (1...ListStoredRequest.limitMax).contains(Int(clamping: fields.limit)) else { return Self.refusedLimit }
    let count = UInt64(shard.state.settings.count)
    var users: [UserSettings] = []
    var number = fields.after
    while number < count, users.count < Int(fields.limit) {
      let user = UInt32(number)
      number += 1
      guard !shard.state.settings.isNameless(user) else { continue }
      let settings = shard.state.settings[user]
      if !settings.isErasing { users.append(settings) }
    }
    let next = number < count ? number : nil
    return shard.reply(request, shard.replyTiming(shard.dirty.usersLast)) { buffer in
      buffer.writeVarint(users.count)
      for settings in users { buffer.writeUserSettings(settings) }
      buffer.writeOptional(next)
    }
  }

  private static var refusedLimit: Outcome {
    .refused(.invalidField, "limit: 1 to \(ListStoredRequest.limitMax)")
  }
}

/// The progress of list_stored_channels.
struct StoredChannelList {
  /// The number of the last channel that was looked at.
  var number: UInt64
  var channels: [[UInt8]] = []

  init(number: UInt64) { self.number = number }

  /// Add a channel, unless the name is that of a user's index.
  mutating func add(_ cid: [UInt8]) {
    if !IndexName.isIndex(cid), channels.last != cid { channels.append(cid) }
  }
}

/// The parts of a channel's export, in order: each has a list of every kind of record.
private struct ExportParts {
  enum Section: Int, CaseIterable { case channels, messages, members, acknowledgements }

  private struct List {
    var count = 0
    var bytes = ByteBuffer()
  }

  private let partBytes: Int
  private var lists = [List](repeating: List(), count: Section.allCases.count)
  private var heldBytes = 0
  private var parts: [ByteBuffer] = []

  init(partBytes: Int) { self.partBytes = partBytes }

  mutating func add(_ record: some TransferRecord, to section: Section) {
    let before = lists[section.rawValue].bytes.readableBytes
    record.write(into: &lists[section.rawValue].bytes)
    lists[section.rawValue].count += 1
    heldBytes += lists[section.rawValue].bytes.readableBytes - before
    if heldBytes >= partBytes { endPart() }
  }

  private mutating func endPart() {
    var part = ByteBuffer()
    for list in lists {
      part.writeVarint(list.count)
      part.writeImmutableBuffer(list.bytes)
    }
    parts.append(part)
    lists = [List](repeating: List(), count: Section.allCases.count)
    heldBytes = 0
  }

  /// Return the parts, at least one.
  mutating func finish() -> [ByteBuffer] {
    if heldBytes > 0 || parts.isEmpty { endPart() }
    return parts
  }
}
