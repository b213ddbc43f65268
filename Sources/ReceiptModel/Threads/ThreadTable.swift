internal import BasicContainers

/// A channel's threads (R15): each is a ``ChannelState`` of its own, with rows and messages, under its parent message.
/// Threads are never removed while the channel is loaded, so a thread's index is stable.
package struct ThreadTable: ~Copyable, Sendable {
  /// Maximum number of threads in a channel.
  package static let threadsMax = 65_536

  private var states = UniqueArray<ChannelState>()
  /// From a parent's sequence number to its thread's index.
  private var byParent = HashIndex()
  /// From a reply's id to its thread's index; the thread stores the id itself.
  private var replies = HashIndex()
  /// By the hash of a user's id: the indices of threads in which the user has a row. Users with equal hashes share an
  /// entry.
  private var byUser: [UInt64: [UInt32]] = [:]
  /// Number of indices in ``byUser``.
  private var participantCount = 0
  /// Whether any reply ever mentioned a user.
  private(set) var hasMentions = false
  /// Heap bytes of the threads, without their slots.
  private var stateBytes = 0
  /// When the newest reply of all threads was registered; none: no reply.
  private(set) var newestReplyAt = Timestamp.none

  package init() {}

  /// Whether the channel has no threads.
  package var isEmpty: Bool { states.isEmpty }
  package var count: Int { states.count }
  /// Whether another thread can be created.
  var hasRoom: Bool { count < Self.threadsMax }

  /// Size in bytes.
  var byteCount: Int {
    if states.capacity == 0 { return 0 }
    // A dictionary entry is its key, an array with its header, and their share of empty slots.
    return states.capacity * MemoryLayout<ChannelState>.stride + stateBytes + byParent.byteCount
      + replies.byteCount + byUser.capacity * 64 + participantCount * MemoryLayout<UInt32>.stride
  }

  /// A thread by its index, from 0.
  package subscript(index: Int) -> ChannelState {
    _read { yield states[index] }
    _modify { yield &states[index] }
  }

  /// Return a thread's address in memory, valid until the table is changed; see ``ChannelDirectory/address(of:)``.
  func address(of index: Int) -> UnsafePointer<ChannelState> {
    precondition(index < states.count, "no such thread")
    return states.span.withUnsafeBufferPointer { $0.baseAddress.unsafelyUnwrapped } + index
  }

  mutating func mutableAddress(of index: Int) -> UnsafeMutablePointer<ChannelState> {
    precondition(index < states.count, "no such thread")
    var span = states.mutableSpan
    return span.withUnsafeMutableBufferPointer { $0.baseAddress.unsafelyUnwrapped } + index
  }

  // MARK: Looking up

  /// Return the index of the thread under a message.
  package func index(of parent: SequenceNumber) -> Int? {
    byParent.find(Self.hash(parent)) { states[Int($0)].parent == parent }.map { Int($0) }
  }

  /// Return the index of the thread that contains a reply, also a deleted one.
  func index(ofReply id: RawSpan) -> Int? {
    if isEmpty { return nil }
    return replies.find(StableHash.hash(id)) { states[Int($0)].messages.find(id) != nil }.map { Int($0) }
  }

  /// Return the indices of the threads in which this user has a row, in the order of their parents. The order of
  /// indices differs between a channel that was loaded and one that was not, and effects must not depend on that.
  func indices(of user: RawSpan) -> [Int] {
    guard let found = byUser[StableHash.hash(user)] else { return [] }
    return found.map { Int($0) }.filter { states[$0].row(of: user) != nil }
      .sorted { states[$0].parent < states[$1].parent }
  }

  /// Return the Fibonacci hash: parents may be consecutive.
  private static func hash(_ parent: SequenceNumber) -> UInt64 {
    UInt64(parent.rawValue) &* 0x9E37_79B9_7F4A_7C15
  }

  // MARK: Assignment

  /// Add a thread.
  ///
  /// - Returns: its index.
  mutating func insert(_ thread: consuming ChannelState) -> Int {
    let index = states.count
    byParent.insert(Self.hash(thread.parent), UInt32(index))
    stateBytes += thread.heapByteCount
    states.append(thread)
    return index
  }

  /// Assign an effect to one of the threads, and index the thread's participants and replies.
  mutating func assign(_ effect: ChannelEffect, at index: Int) {
    let row = participant(changedBy: effect, at: index)
    let before = row.flatMap { participant($0, at: index) }
    let newest = states[index].messages.newest
    stateBytes -= states[index].heapByteCount
    states[index].assign(effect)
    stateBytes += states[index].heapByteCount
    if case .messageAssigned(_, let record) = effect, record.mentions != .nobody { hasMentions = true }
    if case .mentionsAssigned(_, let rows, _) = effect, !rows.isEmpty { hasMentions = true }
    if states[index].messages.newest > newest {
      let hash = states[index].messages.withID(states[index].messages.newest) { StableHash.hash($0) }
      replies.insert(hash, UInt32(index))
      newestReplyAt = max(newestReplyAt, states[index].messages.newestRegisteredAt)
    }
    guard let row else { return }
    let after = participant(row, at: index)
    guard before != after else { return }
    if let before { leave(before, index) }
    if let after {
      byUser[after, default: []].append(UInt32(index))
      participantCount += 1
    }
  }

  /// Return the row that an effect assigns to a user or takes from them. An erased user loses their id with the first
  /// effect of the erasure. That may concern one of their messages, or a row that they left before.
  private func participant(changedBy effect: ChannelEffect, at index: Int) -> MemberOrdinal? {
    switch effect {
    case .rowAssigned(let row, _), .rowLeft(let row, _): return row
    case .rowErased(let row, _):
      return states[index].rows.row(of: states[index].rows.user(row)) ?? row
    case .senderErased(let sequence):
      return states[index].rows.row(of: states[index].messages.sender(sequence))
    default:
      assert(!effect.traits.contains(.changesParticipants))
      return nil
    }
  }

  /// Return the hash of the id of a row's user; nil if the row does not exist or was left, or its user was erased.
  private func participant(_ row: MemberOrdinal, at index: Int) -> UInt64? {
    guard Int(row.rawValue) < states[index].rows.rowCount, states[index].rows.isActive(row) else {
      return nil
    }
    let user = states[index].rows.user(row)
    return states[index].users.isErased(user) ? nil : StableHash.hash(states[index].users.id(user))
  }

  private mutating func leave(_ user: UInt64, _ index: Int) {
    guard let found = byUser[user]?.firstIndex(of: UInt32(index)) else { return }
    byUser[user]?.remove(at: found)
    participantCount -= 1
    if byUser[user]?.isEmpty == true { byUser[user] = nil }
  }
}

#if DEBUG
  extension ThreadTable {
    /// Compare everything with a recount.
    ///
    /// - Parameter newest: the channel's newest message.
    func checkInvariants(newest: SequenceNumber) -> String? {
      var bytes = 0
      var participants = 0
      for index in 0..<count {
        let parent = states[index].parent
        let name = "thread of \(parent.rawValue)"
        if parent == .zero || parent > newest { return "\(name): there is no such message" }
        if self.index(of: parent) != index { return "\(name): not found by its parent" }
        if let fault = states[index].checkInvariants() { return "\(name): \(fault)" }
        bytes += states[index].heapByteCount
        for number in 0..<states[index].messages.newest.rawValue {
          let found = states[index].messages.withID(SequenceNumber(number + 1)) { self.index(ofReply: $0) }
          if found != index { return "\(name): reply \(number + 1) is not found by its id" }
        }
        for position in 0..<states[index].rows.rowCount {
          let row = MemberOrdinal(UInt32(position))
          guard states[index].rows.isActive(row) else { continue }
          participants += 1
          let user = states[index].users.id(states[index].rows.user(row))
          if !indices(of: user).contains(index) { return "\(name), row \(position): not found by its user" }
        }
      }
      if bytes != stateBytes { return "threads occupy \(bytes) bytes, \(stateBytes) are counted" }
      return participants == participantCount ? nil : "\(participants) rows in threads, \(participantCount) are counted"
    }
  }
#endif
