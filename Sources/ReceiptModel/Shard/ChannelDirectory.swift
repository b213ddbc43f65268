internal import BasicContainers

/// The channels and users' channel indexes that a shard has in memory: their slots, how they are found, and their size.
struct ChannelDirectory: ~Copyable, Sendable {
  /// Channel slots; a free slot holds ``ChannelState/vacant()``.
  private var channels = UniqueArray<ChannelState>()
  private var freeSlots: [UInt32] = []
  /// Channels by cid.
  private var names = HashIndex()
  /// Users' channel indexes, stored like channels, by user. Kept out of ``names``, so that no request for a channel
  /// finds one.
  private var indexes = HashIndex()
  /// Channels by number, for tickets; without users' indexes.
  private var numbers = HashIndex()
  /// Users' indexes by number; kept only while another store's log is followed, whose effects name numbers.
  private var indexNumbers = HashIndex()
  private var keepsIndexNumbers = false
  /// Size of the channels and indexes, in bytes.
  private(set) var residentBytes = 0
  private let passing = PassedByAddress()

  /// Number of channels and indexes.
  var loadedCount: Int { names.count + indexes.count }

  /// Number of slots, including free ones.
  var slotCount: Int { channels.count }

  /// Return whether this slot holds a channel.
  func isLoaded(_ slot: ChannelSlot) -> Bool { self[slot].number != ChannelState.vacantNumber }

  /// A loaded channel, or one of its threads.
  subscript(slot: ChannelSlot) -> ChannelState {
    @inline(__always)
    unsafeAddress { address(of: slot) }
    @inline(__always)
    unsafeMutableAddress { mutableAddress(of: slot) }
  }

  /// Return the address of a loaded channel, or of one of its threads; valid until the directory is changed. By
  /// address, like the arrays under it: a yielding accessor with two branches allocates memory for each access, which
  /// doubled the instructions of a mark.
  @inline(__always)
  func address(of slot: ChannelSlot) -> UnsafePointer<ChannelState> {
    precondition(Int(slot.rawValue) < channels.count, "no such slot")
    let channel = channels.span.withUnsafeBufferPointer { $0.baseAddress.unsafelyUnwrapped } + Int(slot.rawValue)
    return slot.thread == 0 ? channel : channel.pointee.threads.address(of: Int(slot.thread) - 1)
  }

  @inline(__always)
  mutating func mutableAddress(of slot: ChannelSlot) -> UnsafeMutablePointer<ChannelState> {
    precondition(Int(slot.rawValue) < channels.count, "no such slot")
    var span = channels.mutableSpan
    let channel = span.withUnsafeMutableBufferPointer { $0.baseAddress.unsafelyUnwrapped } + Int(slot.rawValue)
    return slot.thread == 0 ? channel : channel.pointee.threads.mutableAddress(of: Int(slot.thread) - 1)
  }

  // MARK: Looking up

  /// Return the slot of a loaded channel, by its cid.
  @inline(__always)
  func slot(of cid: RawSpan) -> ChannelSlot? {
    names.find(StableHash.hash(cid)) { slot in channels[Int(slot)].hasCID(cid) }.map(ChannelSlot.init)
  }

  /// Return the slot of a user's channel index, if loaded.
  func index(of user: RawSpan) -> ChannelSlot? {
    indexes.find(StableHash.hash(user)) { slot in
      channels[Int(slot)].withIndexOwner { $0.equals(user) }
    }
    .map { ChannelSlot($0) }
  }

  /// Return the slot of a loaded channel, by its number.
  func slot(numbered number: ChannelNumber) -> ChannelSlot? {
    numbers.find(Self.hash(number)) { channels[Int($0)].number == number }.map { ChannelSlot($0) }
  }

  /// Return the slot of the loaded channel or index with this number. Requires ``keepIndexNumbers(_:)``.
  func loadedSlot(numbered number: ChannelNumber) -> ChannelSlot? {
    if let slot = slot(numbered: number) { return slot }
    return indexNumbers.find(Self.hash(number)) { channels[Int($0)].number == number }.map { ChannelSlot($0) }
  }

  /// Keep the numbers of the indexes that are loaded from here on, or forget all of them.
  mutating func keepIndexNumbers(_ isWanted: Bool) {
    keepsIndexNumbers = isWanted
    if !isWanted { indexNumbers = HashIndex() }
  }

  /// Return the slot of the channel or the user's index with this name.
  func slot(named name: [UInt8]) -> ChannelSlot? {
    IndexName.isIndex(name)
      ? index(of: name.span.bytes.extracting(droppingFirst: IndexName.userOffset(name))) : slot(of: name.span.bytes)
  }

  /// Spread consecutive channel numbers over all bits.
  private static func hash(_ number: ChannelNumber) -> UInt64 { number.rawValue &* 0x9E37_79B9_7F4A_7C15 }

  // MARK: Assignment

  /// Take a channel or a user's index in.
  mutating func insert(_ channel: consuming ChannelState) -> ChannelSlot {
    residentBytes += channel.byteCount
    let slot: UInt32
    if let free = freeSlots.popLast() {
      slot = free
      channels[Int(slot)] = channel
    } else {
      slot = UInt32(channels.count)
      channels.append(channel)
    }
    if channels[Int(slot)].isIndex {
      indexes.insert(channels[Int(slot)].withIndexOwner { StableHash.hash($0) }, slot)
      if keepsIndexNumbers { indexNumbers.insert(Self.hash(channels[Int(slot)].number), slot) }
    } else {
      names.insert(StableHash.hash(channels[Int(slot)].cid.span.bytes), slot)
      numbers.insert(Self.hash(channels[Int(slot)].number), slot)
    }
    return ChannelSlot(slot)
  }

  /// Free a channel's slot.
  mutating func remove(_ slot: ChannelSlot) {
    if self[slot].isIndex {
      indexes.remove(self[slot].withIndexOwner { StableHash.hash($0) }, slot.rawValue)
      if keepsIndexNumbers { indexNumbers.remove(Self.hash(self[slot].number), slot.rawValue) }
    } else {
      names.remove(StableHash.hash(self[slot].cid.span.bytes), slot.rawValue)
      numbers.remove(Self.hash(self[slot].number), slot.rawValue)
    }
    residentBytes -= self[slot].byteCount
    channels[Int(slot.rawValue)] = .vacant()
    freeSlots.append(slot.rawValue)
  }

  /// Assign an effect of a mark to a channel: it appends a few bytes to its page's tail of steps, which may grow.
  @inline(__always)
  mutating func assignMark(_ effect: ChannelEffect, to slot: ChannelSlot) {
    let before = channels[Int(slot.rawValue)].steps.byteCount
    channels[Int(slot.rawValue)].assign(effect)
    residentBytes += channels[Int(slot.rawValue)].steps.byteCount - before
  }

  /// Assign an effect that may change the channel's size.
  mutating func assign(_ effect: ChannelEffect, to slot: ChannelSlot) {
    residentBytes -= channels[Int(slot.rawValue)].byteCount
    channels[Int(slot.rawValue)].assign(effect)
    residentBytes += channels[Int(slot.rawValue)].byteCount
  }

  /// Drop a step segment's bytes from memory, once they are on storage.
  mutating func dropSegment(_ slot: ChannelSlot, _ rowPage: UInt32, _ segment: UInt32) {
    let before = self[slot].steps.byteCount
    self[slot].steps.drop(rowPage, segment)
    residentBytes += self[slot].steps.byteCount - before
  }
}

#if DEBUG
  extension ChannelDirectory {
    /// Check that each channel is found by its name and number, and the counts.
    func checkInvariants() -> String? {
      var (loaded, bytes) = (0, 0)
      for position in 0..<channels.count {
        let slot = ChannelSlot(UInt32(position))
        guard isLoaded(slot) else { continue }
        loaded += 1
        bytes += self[slot].byteCount
        let cid = String(decoding: self[slot].cid, as: UTF8.self)
        if self.slot(named: self[slot].cid) != slot { return "\(cid): the directory has another slot for it" }
        if !self[slot].isIndex, self.slot(numbered: self[slot].number) != slot {
          return "\(cid): the directory has another slot for its number"
        }
      }
      if bytes != residentBytes { return "\(bytes) bytes are in use, but residentBytes is \(residentBytes)" }
      return loaded == loadedCount && loaded + freeSlots.count == slotCount
        ? nil : "\(loaded) channels in memory, \(loadedCount) in the directory"
    }
  }
#endif

/// The slot of a loaded channel, or of one of its threads, in its shard's memory. Valid until the channel is evicted.
package struct ChannelSlot: Hashable, Sendable {
  /// The channel's slot number. Data kept beside a channel's state, for all its threads together, is keyed by it.
  package var rawValue: UInt32
  /// 0: the channel itself; else 1 + the index of a thread in it (R15).
  package let thread: UInt32

  package init(_ rawValue: UInt32) {
    self.rawValue = rawValue
    thread = 0
  }

  private init(_ rawValue: UInt32, thread: UInt32) {
    self.rawValue = rawValue
    self.thread = thread
  }

  package var isThread: Bool { thread > 0 }
  /// The slot of the channel itself.
  package var channel: ChannelSlot { ChannelSlot(rawValue) }
  /// Return the slot of one of this channel's threads.
  package func thread(_ index: Int) -> ChannelSlot { ChannelSlot(rawValue, thread: UInt32(index) + 1) }
}
