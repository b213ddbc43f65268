internal import BasicContainers

/// A channel's threads (R15): each is a ``ChannelState`` of its own, with rows and messages, under its parent message.
/// Threads are never removed while the channel is loaded, so a thread's place is stable.
package struct ThreadTable: ~Copyable, Sendable {
  /// Maximum number of threads in a channel.
  package static let threadsMax = 65_536

  private var states = UniqueArray<ChannelState>()
  /// From a parent's sequence number to its thread's place.
  private var places = HashIndex()
  /// From a reply's id to its thread's place; the thread stores the id itself.
  private var replies = HashIndex()
  /// By the hash of a user's id: the places of threads in which the user has a row. Users with equal hashes share an
  /// entry.
  private var placesOf: [UInt64: [UInt32]] = [:]
  /// Number of places in ``placesOf``.
  private var participantCount = 0
  /// Whether any reply ever mentioned somebody.
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
    return states.capacity * MemoryLayout<ChannelState>.stride + stateBytes + places.byteCount
      + replies.byteCount + placesOf.capacity * 64 + participantCount * MemoryLayout<UInt32>.stride
  }

  /// A thread by its place, from 0.
  package subscript(place: Int) -> ChannelState {
    _read { yield states[place] }
    _modify { yield &states[place] }
  }

  /// A thread's address in memory, valid until the table is changed; see ``ChannelDirectory/address(of:)``.
  func address(of place: Int) -> UnsafePointer<ChannelState> {
    precondition(place < states.count, "no such thread")
    return states.span.withUnsafeBufferPointer { $0.baseAddress.unsafelyUnwrapped } + place
  }

  mutating func mutableAddress(of place: Int) -> UnsafeMutablePointer<ChannelState> {
    precondition(place < states.count, "no such thread")
    var span = states.mutableSpan
    return span.withUnsafeMutableBufferPointer { $0.baseAddress.unsafelyUnwrapped } + place
  }

  // MARK: Looking up

  /// The place of the thread under a message.
  package func place(of parent: SequenceNumber) -> Int? {
    places.find(Self.hash(parent)) { states[Int($0)].parent == parent }.map { Int($0) }
  }

  /// The place of the thread that contains a reply, also a deleted one.
  func place(ofReply id: RawSpan) -> Int? {
    if isEmpty { return nil }
    return replies.find(StableHash.hash(id)) { states[Int($0)].messages.find(id) != nil }.map { Int($0) }
  }

  /// The places of the threads in which this user has a row.
  func places(of user: RawSpan) -> [Int] {
    guard let found = placesOf[StableHash.hash(user)] else { return [] }
    return found.map { Int($0) }.filter { states[$0].row(of: user) != nil }
  }

  /// Fibonacci hashing: parents may be consecutive.
  private static func hash(_ parent: SequenceNumber) -> UInt64 {
    UInt64(parent.rawValue) &* 0x9E37_79B9_7F4A_7C15
  }

  // MARK: Assignment

  /// Adds a thread.
  ///
  /// - Returns: its place.
  mutating func insert(_ thread: consuming ChannelState) -> Int {
    let place = states.count
    places.insert(Self.hash(thread.parent), UInt32(place))
    stateBytes += thread.heapByteCount
    states.append(thread)
    return place
  }

  /// Assigns an effect to one of the threads, and indexes the thread's participants and replies.
  mutating func assign(_ effect: ChannelEffect, at place: Int) {
    let row = participant(touchedBy: effect, at: place)
    let before = row.flatMap { participant($0, at: place) }
    let newest = states[place].messages.newest
    stateBytes -= states[place].heapByteCount
    states[place].assign(effect)
    stateBytes += states[place].heapByteCount
    if case .messageAssigned(_, let record) = effect, record.mentions != .nobody { hasMentions = true }
    if states[place].messages.newest > newest {
      let hash = states[place].messages.withID(states[place].messages.newest) { StableHash.hash($0) }
      replies.insert(hash, UInt32(place))
      newestReplyAt = max(newestReplyAt, states[place].messages.newestRegisteredAt)
    }
    guard let row else { return }
    let after = participant(row, at: place)
    guard before != after else { return }
    if let before { leave(before, place) }
    if let after {
      placesOf[after, default: []].append(UInt32(place))
      participantCount += 1
    }
  }

  /// The row that an effect assigns to a user or takes from them. An erased user loses their id with the first effect
  /// of the erasure. That may concern one of their messages, or a row that they left before.
  private func participant(touchedBy effect: ChannelEffect, at place: Int) -> MemberOrdinal? {
    switch effect {
    case .rowAssigned(let row, _), .rowLeft(let row, _): return row
    case .rowErased(let row, _):
      return states[place].rows.row(of: states[place].rows.user(row)) ?? row
    case .senderErased(let sequence):
      return states[place].rows.row(of: states[place].messages.sender(sequence))
    default: return nil
    }
  }

  /// The hash of the id of a row's user; nil if the row does not exist or was left, or its user was erased.
  private func participant(_ row: MemberOrdinal, at place: Int) -> UInt64? {
    guard Int(row.rawValue) < states[place].rows.rowCount, states[place].rows.isActive(row) else {
      return nil
    }
    let user = states[place].rows.user(row)
    return states[place].users.isErased(user) ? nil : StableHash.hash(states[place].users.id(user))
  }

  private mutating func leave(_ user: UInt64, _ place: Int) {
    guard let found = placesOf[user]?.firstIndex(of: UInt32(place)) else { return }
    placesOf[user]?.remove(at: found)
    participantCount -= 1
    if placesOf[user]?.isEmpty == true { placesOf[user] = nil }
  }
}

#if DEBUG
  extension ThreadTable {
    /// Compares everything with a recount.
    ///
    /// - Parameter newest: the channel's newest message.
    func checkInvariants(newest: SequenceNumber) -> String? {
      var bytes = 0
      var participants = 0
      for place in 0..<count {
        let parent = states[place].parent
        let name = "thread of \(parent.rawValue)"
        if parent == .zero || parent > newest { return "\(name): there is no such message" }
        if self.place(of: parent) != place { return "\(name): not found by its parent" }
        if let fault = states[place].checkInvariants() { return "\(name): \(fault)" }
        bytes += states[place].heapByteCount
        for number in 0..<states[place].messages.newest.rawValue {
          let found = states[place].messages.withID(SequenceNumber(number + 1)) { self.place(ofReply: $0) }
          if found != place { return "\(name): reply \(number + 1) is not found by its id" }
        }
        for position in 0..<states[place].rows.rowCount {
          let row = MemberOrdinal(UInt32(position))
          guard states[place].rows.isActive(row) else { continue }
          participants += 1
          let user = states[place].users.id(states[place].rows.user(row))
          if !places(of: user).contains(place) { return "\(name), row \(position): not found by its user" }
        }
      }
      if bytes != stateBytes { return "threads occupy \(bytes) bytes, \(stateBytes) are counted" }
      return participants == participantCount
        ? nil : "\(participants) rows in threads, \(participantCount) are counted"
    }
  }
#endif
