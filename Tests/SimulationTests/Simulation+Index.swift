import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine

/// Changes of memberships between the loops, and what the indexes hold in the end.
extension Simulation {
  /// What is on its way from loop to loop.
  enum Mail {
    case changes([MembershipDelivery])
    case taken([MembershipAcknowledgement])
  }

  /// A loop hands something over: it comes at some time, in any order with the rest, perhaps twice or not at all.
  func post(_ mail: Mail) {
    if !isCalm, random.oneIn(20) {
      count("lost mail")
      return
    }
    self.mail.append(mail)
    if !isCalm, random.oneIn(20) { self.mail.append(mail) }
  }

  /// Something that is on its way comes to its loops.
  func deliverMail() {
    guard !mail.isEmpty else { return }
    let next = mail.remove(at: random.oneIn(4) ? random.below(mail.count) : 0)
    count("mail")
    for target in loops {
      let isOwn = { (shard: ShardID) in Int(shard.rawValue) % Self.loopCount == target.number }
      target.setClock(clock)
      switch next {
      case .changes(let deliveries):
        let own = deliveries.filter { isOwn($0.to) }
        if !own.isEmpty { target.loop.take(own) }
      case .taken(let acknowledgements):
        let own = acknowledgements.filter { isOwn($0.to) }
        if !own.isEmpty { target.loop.acknowledged(own) }
      }
    }
  }

  /// Whether a batch holds anything but what follows from changes of memberships, or from a deletion that goes on,
  /// which no request has asked for.
  func isOfRequests(_ effect: Effect, in shard: Int) -> Bool {
    switch effect {
    case .membershipAssigned, .membershipRemoved, .membershipsSent, .membershipsTaken, .countersAssigned,
      .membershipQueued, .idsWidened:
      false
    // What a deletion in slices began with was asked for, its end follows from it.
    case .channelDeleted(let number, let cid):
      !IndexName.isIndex(Array(cid.utf8)) && !oracles[shard].begun.contains(number)
    case .channelAssigned(_, let cid, _, _): !IndexName.isIndex(Array(cid.utf8))
    default: true
    }
  }

  /// Holds every user's index against what the channels say of them.
  func checkIndexes() {
    var expected: [String: [String: String]] = [:]
    for user in AskGenerator.everybody { expected[user] = [:] }
    for oracle in oracles {
      for (cid, channel) in oracle.live.channels {
        for (row, item) in channel.rows.enumerated() where !item.user.isEmpty {
          expected[item.user, default: [:]][cid] = "\(item.hasLeft ? "left" : "member") \(row)"
        }
        let messages = channel.messages + channel.threads.flatMap(\.messages)
        for message in messages where !message.sender.isEmpty {
          if expected[message.sender]?[cid] == nil { expected[message.sender, default: [:]][cid] = "sender" }
        }
      }
    }
    count("indexes checked")
    for (user, channels) in expected.sorted(by: { $0.key < $1.key }) {
      let found = index(of: user)
      if found != channels {
        let wrong = Set(found.keys).union(channels.keys).filter { found[$0] != channels[$0] }.sorted()
        faults.append(
          "index of \(user): \(wrong.map { "\($0) is \(found[$0] ?? "nothing"), not \(channels[$0] ?? "nothing")" })"
        )
        return
      }
    }
  }

  /// A user's index, asked of the store page by page.
  private func index(of user: String) -> [String: String] {
    let shard = ShardID.owning(Array(user.utf8).span.bytes, count: Self.shardCount)
    let target = loops[Int(shard.rawValue) % Self.loopCount]
    var found: [String: String] = [:]
    var cursor: UInt64?
    repeat {
      var reply: ByteBuffer?
      let lane = ReplyLane(
        session: SessionID(high: 1, low: 1),
        shards: target.loop.shardCount,
        deliver: { bytes, _ in reply = bytes.getSlice(at: 12, length: bytes.readableBytes - 12) },
        end: { _ in }
      )
      var payload = ByteBuffer()
      payload.writeField(user)
      payload.writeVarint(1)
      payload.writeVarint(3)
      payload.writeOptional(cursor)
      let header = FrameHeader(.listChannels, shard: shard, correlation: 1)
      do {
        try target.loop.receive(header, payload.readableBytesSpan, lane: lane)
        target.loop.endTurn()
        for _ in 0..<50 where reply == nil {
          answerLoad(target)
          commitStep(target)
        }
        guard let reply else { return ["no answer": ""] }
        var reader = FieldReader(reply.readableBytesSpan)
        for _ in 0..<(try reader.count()) {
          let entry = try ChannelEntryFields(&reader)
          let row = entry.row.map { " \($0)" } ?? ""
          found[entry.cid] = entry.isMember ? "member\(row)" : entry.row == nil ? "sender" : "left\(row)"
        }
        cursor = try reader.optional32().map(UInt64.init)
      } catch {
        return ["\(error)": ""]
      }
    } while cursor != nil
    return found
  }
}
