package import ReceiptModel
import ReceiptWire

/// A user whom the ledger of erasures has to know before they are erased (R16).
package struct ErasureRequest: Hashable, Sendable {
  package var shard: ShardID
  package var ticket: UInt32
  package var user: [UInt8]
}

/// Commands to erase a user that wait until the ledger has them.
struct WaitingErasures {
  struct Command {
    var header: FrameHeader
    var user: String
    var counter: UInt64
    var lane: ReplyLane
  }

  private var commands: [UInt32: Command] = [:]
  private var lastTicket: UInt32 = 0

  var isEmpty: Bool { commands.isEmpty }

  mutating func add(_ command: Command) -> UInt32 {
    lastTicket &+= 1
    commands[lastTicket] = command
    return lastTicket
  }

  mutating func remove(_ ticket: UInt32) -> Command? { commands.removeValue(forKey: ticket) }

  mutating func removeAll() { commands = [:] }
}

extension ShardEngine {
  /// Has the ledger note a user before the command that erases them is decided; others may be decided first.
  func recordErasure(_ header: FrameHeader, _ user: String, _ command: CommandPlace, _ lane: ReplyLane) {
    sessions.waits(command.counter, at: command.session)
    let ticket = erasures.add(
      WaitingErasures.Command(header: header, user: user, counter: command.counter, lane: lane)
    )
    loop.driver.recordErasure(ErasureRequest(shard: state.id, ticket: ticket, user: Array(user.utf8)))
  }

  /// The ledger has the user, or could not be written: then nothing is erased.
  func erasureRecorded(_ ticket: UInt32, fault: String?) {
    guard let waiting = erasures.remove(ticket) else { return }
    // Its connection is gone: it is sent again on another.
    guard !waiting.lane.isClosed else {
      return sessions.refused(waiting.counter, at: sessionPosition(waiting.lane))
    }
    if let fault {
      let detail = "the erasure ledger cannot be written: \(fault)"
      return refuseUndecided(waiting.header, waiting.counter, .unavailable, 1_000, detail, waiting.lane)
    }
    beginErasing(waiting.header, waiting.user, takeUp(waiting.counter, waiting.lane), waiting.lane)
  }
}
