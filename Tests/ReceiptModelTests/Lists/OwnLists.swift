@testable import NaiveReceiptModel
@testable import ReceiptModel

/// A user's own acknowledgement requests and threads in a channel (R9, R15), one line each. The real shard lists them
/// page by page, the model all at once.
extension TestShard {
  func ownLists(_ cid: String, _ user: String) -> [String]? {
    let (slot, user) = (slot(cid)!, Array(user.utf8))
    do throws(Refusal) {
      _ = try state.member(user.span.bytes, in: slot)
      var lines: [String] = []
      for wanted in [ShardState.AcknowledgementState.pending, .acknowledged] {
        var below: SequenceNumber?
        repeat {
          let page = try state.acknowledgementRequests(
            slot,
            of: user.span.bytes,
            wanted,
            below: below,
            limit: 3
          )
          if page.requests.count < 3, page.next != nil {
            faults.append("a short page of acknowledgement requests has a next page")
          }
          lines += page.requests.map { line($0, slot) }
          below = page.next
        } while below != nil
      }
      for wanted in [ShardState.ThreadSelection.unread, .read] {
        var below: SequenceNumber?
        repeat {
          let page = try state.threads(slot, of: user.span.bytes, wanted, below: below, limit: 2)
          lines += page.threads.map { line($0, slot) }
          below = page.next
        } while below != nil
      }
      return lines
    } catch {
      return nil
    }
  }

  private func line(_ request: ShardState.OwnAcknowledgement, _ slot: ChannelSlot) -> String {
    let message = state[slot].messages.text(request.sequence)
    guard request.acknowledgedAt != .none else {
      return "pending \(message) \(request.status) \(request.expiresAt.milliseconds)"
    }
    let sign = request.isExact ? "@" : "~"
    return
      "acknowledged \(message) \(request.status) \(sign)\(request.acknowledgedAt.milliseconds) \(request.note)"
  }

  private func line(_ thread: ShardState.OwnThread, _ slot: ChannelSlot) -> String {
    func id(_ place: ChannelSlot, _ sequence: SequenceNumber) -> String {
      sequence == .zero ? "-" : state[place].messages.text(sequence)
    }
    let newest = state[thread.slot].messages.newest
    return "thread \(id(slot, thread.parent)) \(thread.unreadReplies) \(id(thread.slot, thread.lastRead)) "
      + "\(id(thread.slot, thread.firstUnread)) \(id(thread.slot, newest))"
  }
}

extension NaiveModel {
  func ownLists(_ cid: String, _ user: String) -> [String]? {
    guard let row = membership(cid, user) else { return nil }
    let room = channels[cid]!.main
    let answers = answers(cid)
    var pending: [String] = []
    var acknowledged: [String] = []
    for (place, message) in room.messages.enumerated().reversed() {
      guard message.hasAcknowledgementRequest, !message.isDeleted, message.sender != user,
        place >= room.memberships[row].joinedAfter,
        case .status(let status) = answers.status(message.id, .member(user))
      else { continue }
      if let made = message.acknowledgements.first(where: { $0.membership == row }) {
        let time = made.isForgotten ? "~\(now) " : "@\(made.at) \(made.note)"
        acknowledged.append("acknowledged \(message.id) \(status.receipt) \(time)")
      } else if message.expiresAt.map({ now < $0 }) ?? true {
        pending.append("pending \(message.id) \(status.receipt) \(message.expiresAt ?? 0)")
      }
    }
    var unread: [String] = []
    var read: [String] = []
    for roomID in roomIDs(cid).sorted(by: { self[$0].parent ?? -1 > self[$1].parent ?? -1 })
    where roomID.thread != nil && !isClosed(roomID) {
      guard let row = self.answers(roomID).ownRow(user), let own = row.own else { continue }
      func id(_ id: String) -> String { id.isEmpty ? "-" : id }
      let parent = room.messages[self[roomID].parent!].id
      let last = self[roomID].messages.last!.id
      let line = "thread \(parent) \(own.unread) \(id(row.lastReadID)) \(id(own.firstUnreadID)) \(last)"
      if own.unread > 0 { unread.append(line) } else { read.append(line) }
    }
    return pending + acknowledged + unread + read
  }
}
