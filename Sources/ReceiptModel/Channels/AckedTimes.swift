/// The shown times of rows' last delivered moves, of those that were acknowledged with a time (R20). Only as long as
/// the highest row that ever had one.
struct AckedTimes: ~Copyable, Sendable {
  /// A time is valid only for the move with this number, so that a move without such a time need not touch it.
  private struct Move: Sendable {
    var number: UInt32 = 0
    var at: Int64 = 0
  }

  private var moves: [Move] = []

  /// Return the acknowledged time of a row's last delivered move; none: its own time is shown.
  ///
  /// - Parameter stepCount: the number of that move.
  func time(_ row: MemberOrdinal, stepCount: UInt32) -> Timestamp {
    let position = Int(row.rawValue)
    guard position < moves.count, moves[position].number == stepCount else { return .none }
    return Timestamp(milliseconds: moves[position].at)
  }

  mutating func assign(_ row: MemberOrdinal, stepCount: UInt32, at time: Timestamp) {
    let position = Int(row.rawValue)
    if position >= moves.count {
      if time == .none { return }
      moves.append(contentsOf: repeatElement(Move(), count: position + 1 - moves.count))
    }
    moves[position] = Move(number: stepCount, at: time.milliseconds)
  }

  /// Size in bytes.
  var byteCount: Int { heapBytes(moves) }
}
