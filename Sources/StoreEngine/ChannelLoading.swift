import DequeModule
import NIOCore
package import ReceiptModel
import ReceiptWire

/// A channel that is being read from storage, and the requests that wait for it. They hold up no other channel.
struct ChannelLoad {
  /// A request that waits, with its bytes.
  struct Waiting {
    var header: FrameHeader
    var payload: ByteBuffer
    var lane: ReplyLane
  }

  var waiting: [Waiting] = []
}

/// What to read from storage, asked of whoever drives the loop.
package struct LoadRequest: Hashable, Sendable {
  package var shard: ShardID
  package var channel: ChannelReference
}

/// The effects of the log's tail whose channels are not in memory: indexed at recovery, applied as their channels load.
struct LogTail {
  private var effects: [ChannelNumber: [(index: LogIndex, effect: Effect)]] = [:]
  /// Channels created in the tail are not found on storage by their cid yet.
  private var numbers: [[UInt8]: ChannelNumber] = [:]
  private var order: Deque<ChannelNumber> = []

  var isEmpty: Bool { effects.isEmpty }
  var count: Int { effects.count }

  mutating func append(_ effect: Effect, at index: LogIndex) {
    guard let channel = effect.channel else { return }
    if effects[channel] == nil { order.append(channel) }
    effects[channel, default: []].append((index, effect))
    if case .channelAssigned(_, let cid, _, _) = effect { numbers[Array(cid.utf8)] = channel }
  }

  func number(of cid: [UInt8]) -> ChannelNumber? { numbers[cid] }

  /// The next channel that should be loaded so that its pages can be written and the log cut.
  mutating func next() -> ChannelNumber? {
    while let channel = order.popFirst() {
      if effects[channel] != nil { return channel }
    }
    return nil
  }

  mutating func take(_ channel: ChannelNumber, cid: [UInt8]) -> [(index: LogIndex, effect: Effect)] {
    numbers[cid] = nil
    return effects.removeValue(forKey: channel) ?? []
  }

  /// The cid and head of a channel that was created in the tail.
  func head(of channel: ChannelNumber) -> (cid: String, created: Timestamp, own: OptionPatch)? {
    for (_, effect) in effects[channel] ?? [] {
      if case .channelAssigned(_, let cid, let created, let own) = effect { return (cid, created, own) }
    }
    return nil
  }
}

extension ShardEngine {
  /// Lets a request wait for its channel, and asks for the channel if nobody has yet.
  func wait(_ header: FrameHeader, _ payload: RawSpan, cid: RawSpan, lane: ReplyLane) throws(WireError) {
    let reference = ChannelReference.cid(cid.withUnsafeBytes { Array($0) })
    if loads[reference] == nil {
      guard loads.count < configuration.loadsMax else {
        refuse(header, .busy, retryAfterMilliseconds: 100, "too many channels are being loaded", lane)
        return
      }
      loads[reference] = ChannelLoad()
      loop.load(LoadRequest(shard: state.id, channel: storageReference(reference)), as: reference)
    }
    guard loads[reference]!.waiting.count < configuration.waitingPerLoadMax else {
      refuse(header, .busy, retryAfterMilliseconds: 100, "too many requests wait for this channel", lane)
      return
    }
    if header.kind.isCommand {
      var reader = FieldReader(payload)
      _ = try reader.string()
      let counter = try reader.varint()
      let session = sessionPosition(lane)
      if !sessions.covers(counter, at: session) { sessions.waits(counter, at: session) }
    }
    var bytes = ByteBuffer()
    bytes.writeRaw(payload)
    loads[reference]!.waiting.append(ChannelLoad.Waiting(header: header, payload: bytes, lane: lane))
  }

  /// A channel that was created in the log's tail is on storage, if at all, under its number only.
  private func storageReference(_ reference: ChannelReference) -> ChannelReference {
    if case .cid(let cid) = reference, let number = tail.number(of: cid) { return .number(number) }
    return reference
  }

  /// Asks for channels of the log's tail that nobody has asked for, so that the log can be cut.
  func drainTail(inFlightMax: Int) {
    while loads.count < inFlightMax, let number = tail.next() {
      loads[.number(number)] = ChannelLoad()
      loop.load(LoadRequest(shard: state.id, channel: .number(number)), as: .number(number))
    }
  }

  /// Takes a channel in from what was read, then carries out what waited for it.
  func loaded(_ reference: ChannelReference, _ result: Result<StoredChannel?, StorageError>) {
    guard let load = loads.removeValue(forKey: reference) else { return }
    var failure: StorageError?
    do throws(StorageError) {
      switch result {
      case .success(let stored): try install(stored, reference)
      case .failure(let error): throw error
      }
    } catch {
      failure = error
      loop.reports(error)
    }
    for waiting in load.waiting {
      if failure != nil {
        refuse(
          waiting.header,
          .unavailable,
          retryAfterMilliseconds: 1000,
          "the channel cannot be read",
          waiting.lane
        )
        continue
      }
      do {
        try perform(waiting.header, waiting.payload.readableBytesSpan, waiting.lane)
      } catch {
        waiting.lane.fail(error)
      }
    }
  }

  private func install(_ stored: StoredChannel?, _ reference: ChannelReference) throws(StorageError) {
    var number: ChannelNumber
    if let stored {
      number = stored.number
    } else {
      switch reference {
      case .number(let asked): number = asked
      case .cid(let cid):
        guard let created = tail.number(of: cid) else { return }
        number = created
      }
    }
    let place = "shard \(state.id.rawValue), channel \(number.rawValue)"
    var pages: [(page: PageID, content: Page)] = []
    for (page, bytes) in stored?.pages ?? [] {
      pages.append((page, try Self.page(bytes, "\(place), page \(page)")))
    }
    var head = tail.head(of: number)
    if case .channelAssigned(_, let cid, let created, let own)? = pages.first?.content.effects.first {
      head = (cid, created, own)
    }
    guard let head else {
      // Nothing on storage and nothing in the tail: somebody else has taken it in already.
      if stored == nil { return }
      throw .corrupt("\(place): the head page is missing")
    }
    let cid = Array(head.cid.utf8)
    guard state.slot(of: cid.span.bytes) == nil else { return }
    let slot = state.insert(number, cid: head.cid, created: head.created, own: head.own)
    dirty.insert(slot)
    assign(pages, tail.take(number, cid: cid), to: slot)
  }

  /// Page by page: its effects, then those of the tail that are addressed to it and newer. Pages do not depend on each other, but a segment has to be
  /// whole before the next one begins.
  private func assign(
    _ pages: [(page: PageID, content: Page)],
    _ tail: [(index: LogIndex, effect: Effect)],
    to slot: ChannelSlot
  ) {
    var newer: [PageID: [(index: LogIndex, effect: Effect)]] = [:]
    for item in tail { newer[item.effect.page, default: []].append(item) }
    var contents: [PageID: Page] = [:]
    for (page, content) in pages { contents[page] = content }
    let order = Set(contents.keys).union(newer.keys).sorted { $0.sortKey < $1.sortKey }
    for page in order {
      let content = contents[page]
      for effect in content?.effects ?? [] { state.assign(effect, to: slot) }
      for (index, effect) in newer[page] ?? [] where index > content?.index ?? .zero {
        state.assign(effect, to: slot)
        dirty.touch(slot, page, at: index, time: .none, loggedBytes: 0, isRecovered: true)
      }
    }
  }
}

extension PageID {
  /// Head, rows, segments, each in rising order: the order of the keys on storage, and of assignment.
  package var sortKey: UInt64 {
    switch self {
    case .head: 0
    case .rows(let number): 1 << 32 | UInt64(number)
    case .segment(let number): 2 << 32 | UInt64(number)
    case .types: 3 << 32
    case .shardHead: 4 << 32
    }
  }

  /// The page of a key made with ``sortKey``.
  package init?(sortKey: UInt64) {
    let number = UInt32(truncatingIfNeeded: sortKey)
    switch sortKey >> 32 {
    case 0 where number == 0: self = .head
    case 1: self = .rows(number)
    case 2: self = .segment(number)
    case 3 where number == 0: self = .types
    case 4 where number == 0: self = .shardHead
    default: return nil
    }
  }
}
