@testable import ReceiptModel

/// One channel's steps as in a store, with storage for segments, beside a plain list of all moves.
final class StepHarness {
  private(set) var state = ShardState(id: ShardID(0))
  private(set) var slot: ChannelSlot
  private let number = ChannelNumber(1)
  private(set) var disk: [UInt64: [UInt8]] = [:]
  /// All effects so far.
  private(set) var log: [Effect] = []
  private(set) var time: Int64 = 1_000
  private(set) var newest: UInt32 = 0
  private(set) var trims = 0
  /// The number of segments that the last query read from storage, and of its read requests.
  private(set) var lastRead = 0
  private(set) var lastRounds = 0

  struct Move {
    var sequence: UInt32
    var time: Int64
    var isHidden: Bool
  }
  /// By watermark: row and kind.
  private(set) var moves: [UInt64: [Move]] = [:]
  private var registered: [Int64] = [0]

  init(rows: Int, kept: UInt16 = 64) {
    slot = state.insert(number, cid: "team:a", created: Timestamp(milliseconds: 1), own: OptionPatch())
    state.assign(.countersAssigned(nextChannel: ChannelNumber(2), time: Timestamp(milliseconds: 1)))
    log.append(
      .channel(
        number,
        .channelAssigned(cid: "team:a", created: Timestamp(milliseconds: 1), own: OptionPatch())
      )
    )
    for row in 0..<rows { join(row, "u\(row)") }
    keep(kept)
  }

  private func join(_ row: Int, _ user: String) {
    let record = RowRecord(
      user: user,
      joined: SequenceNumber(newest),
      joinedAt: Timestamp(milliseconds: 1),
      read: SequenceNumber(newest)
    )
    assign(.channel(number, .rowAssigned(MemberOrdinal(UInt32(row)), record)))
  }

  private func assign(_ effect: Effect) {
    log.append(effect)
    state.assign(effect, to: slot)
  }

  func keep(_ steps: UInt16) {
    var own = OptionPatch()
    own.keptSteps = steps
    assign(.channel(number, .channelAssigned(cid: "team:a", created: Timestamp(milliseconds: 1), own: own)))
  }

  var kept: UInt16 { state.options(slot).keptSteps }

  func pass(_ milliseconds: Int64) { time += milliseconds }

  // MARK: Commands

  /// Register a message by the system.
  func post() {
    newest += 1
    registered.append(time)
    let record = MessageRecord(
      id: "m\(newest)",
      sender: "",
      flags: [],
      registeredAt: Timestamp(milliseconds: time)
    )
    assign(.channel(number, .messageAssigned(SequenceNumber(newest), record)))
  }

  static func key(_ kind: StepKind, _ row: Int) -> UInt64 { UInt64(row) << 1 | UInt64(kind.rawValue) }

  /// Move a watermark, as a mark does.
  func move(_ kind: StepKind, _ row: Int, to sequence: UInt32, isHidden: Bool = false) {
    let ordinal = MemberOrdinal(UInt32(row))
    var effects: [Effect] = []
    let reached = SequenceNumber(sequence)
    state.decideSealTail(slot, ordinal, kind, to: reached, into: &effects)
    let position = moves[Self.key(kind, row)]?.last?.sequence ?? 0
    if sequence > position {
      let at = Timestamp(milliseconds: time)
      effects.append(
        kind == .read
          ? .channel(number, .readMoved(ordinal, to: reached, at: at, isHidden: isHidden))
          : .channel(number, .deliveredMoved(ordinal, to: reached, at: at, isHidden: isHidden))
      )
      moves[Self.key(kind, row), default: []].append(
        Move(sequence: sequence, time: time, isHidden: isHidden)
      )
    } else {
      precondition(effects.isEmpty, "what does not move seals nothing")
    }
    for effect in effects { assign(effect) }
  }

  // MARK: Storage

  func segments(_ rowPage: UInt32 = 0) -> Range<UInt32> { state[slot].steps.segments(rowPage) }

  static func key(_ rowPage: UInt32, _ segment: UInt32) -> UInt64 { UInt64(rowPage) << 32 | UInt64(segment) }

  /// Write the sealed segments and drop their bytes from memory.
  func write(_ rowPage: UInt32 = 0) {
    for segment in segments(rowPage) {
      guard let bytes = state[slot].steps.segment(rowPage, segment) else { continue }
      disk[Self.key(rowPage, segment)] = bytes
      state.dropSegment(slot, rowPage, segment)
    }
  }

  func trim(_ rowPage: UInt32 = 0, ifWanted: Bool = true) {
    guard !ifWanted || state.needsTrim(slot, rowPage) else { return }
    let range = segments(rowPage)
    let bytes = range.map { state[slot].steps.segment(rowPage, $0) ?? disk[Self.key(rowPage, $0)]! }
    var effects: [Effect] = []
    precondition(state.decideTrim(slot, rowPage, range, bytes, into: &effects), "a segment is damaged")
    for effect in effects { assign(effect) }
    if !effects.isEmpty { trims += 1 }
    for key in disk.keys where key < Self.key(rowPage, segments(rowPage).lowerBound) && key >> 32 == rowPage {
      disk[key] = nil
    }
  }

  /// Evict the channel after writing its segments, and load it from its pages.
  func reload() {
    let pages = (state[slot].rows.rowCount + 255) / 256
    for page in 0..<UInt32(pages) { write(page) }
    var effects = state.effects(of: .head, in: slot)
    for page in 0..<UInt32(pages) { effects += state.effects(of: .rows(page), in: slot) }
    for segment in 0..<UInt32(state[slot].messages.segmentCount) {
      effects += state.effects(of: .segment(segment), in: slot)
    }
    state.remove(slot)
    load(effects)
  }

  private func load(_ effects: [Effect]) {
    slot = state.insert(number, cid: "team:a", created: Timestamp(milliseconds: 1), own: OptionPatch())
    for effect in effects { state.assign(effect, to: slot) }
  }

  /// All step and row pages after the whole log is replayed.
  func replay() -> StepHarness {
    let other = StepHarness(rows: 0)
    other.state.remove(other.slot)
    other.load(log)
    return other
  }

  /// The contents of row pages, and of segments in memory.
  func pages() -> [Effect] {
    var effects: [Effect] = []
    for page in 0..<UInt32((state[slot].rows.rowCount + 255) / 256) {
      effects += state.effects(of: .rows(page), in: slot)
    }
    return effects
  }

  // MARK: Queries

  func time(_ kind: StepKind, _ row: Int, reaching sequence: UInt32, seesHidden: Bool = false) -> StepTime {
    var read = ReadSegments()
    lastRead = 0
    lastRounds = 0
    while true {
      let answer = state[slot].stepTime(
        kind,
        MemberOrdinal(UInt32(row)),
        reaching: SequenceNumber(sequence),
        kept: kept,
        seesHidden: seesHidden,
        in: read
      )
      guard case .stored(let range) = answer else { return answer }
      lastRounds += 1
      for segment in range.segments {
        precondition(!read.contains(range.rowPage, segment), "requested twice")
        lastRead += 1
        precondition(read.add(range.rowPage, segment, disk[Self.key(range.rowPage, segment)]!))
      }
    }
  }

  /// The time by the list of all moves; nil where the watermark has not reached the message.
  func expected(_ kind: StepKind, _ row: Int, reaching sequence: UInt32) -> StepTime? {
    let list = moves[Self.key(kind, row)] ?? []
    guard let first = list.firstIndex(where: { $0.sequence >= sequence }) else { return nil }
    let unkept = max(0, list.count - Int(kept))
    let answer = list[min(max(first, unkept), list.count - 1)]
    let at = Timestamp(milliseconds: answer.time)
    if answer.isHidden { return .hidden(at) }
    return first >= unkept && kept > 0 ? .exact(at) : .latest(at)
  }

  /// The actual time when it was reached.
  func truth(_ kind: StepKind, _ row: Int, reaching sequence: UInt32) -> Int64? {
    moves[Self.key(kind, row)]?.first { $0.sequence >= sequence }?.time
  }
}
