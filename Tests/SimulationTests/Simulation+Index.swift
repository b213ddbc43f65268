import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import TestSupport

/// Membership changes in flight between the loops, and the final content of the indexes.
extension Simulation {
  /// A message between loops.
  enum LoopMessage {
    case changes([MembershipDelivery])
    case taken([MembershipConfirmation])
  }

  /// Send a message from a loop: it arrives at a random time, in any order, perhaps twice or never.
  func post(_ mail: LoopMessage) {
    if !faultsAreOff, random.oneIn(20) {
      count("lost mail")
      return
    }
    self.mail.append(mail)
    if !faultsAreOff, random.oneIn(20) { self.mail.append(mail) }
  }

  /// Deliver a random message to its loops.
  func deliverMessages() {
    guard !mail.isEmpty else { return }
    let next = mail.remove(at: random.oneIn(4) ? random.below(mail.count) : 0)
    count("mail")
    for target in loops {
      let isOwn = { (shard: ShardID) in Int(shard.rawValue) % Self.loopCount == target.number }
      target.setClock(clock)
      switch next {
      case .changes(let deliveries):
        let own = deliveries.filter { isOwn($0.to) }
        if !own.isEmpty { target.loop.receive(own) }
      case .taken(let confirmations):
        let own = confirmations.filter { isOwn($0.to) }
        if !own.isEmpty { target.loop.confirmed(own) }
      }
    }
  }

  /// Whether an effect comes from a request, not from a membership change or a continuing deletion.
  func isCausedByRequest(_ effect: Effect, in shard: Int) -> Bool {
    switch effect {
    case .channel(_, .membershipAssigned), .channel(_, .membershipRemoved), .shard(.membershipsConfirmed),
      .shard(.membershipsReceived), .shard(.countersAssigned), .shard(.membershipQueued), .shard(.idsWidened):
      false
    // A request asks for the start of a sliced deletion; its end follows from that.
    case .channel(let number, .channelDeleted(let cid)):
      !IndexName.isIndex(Array(cid.utf8)) && !oracles[shard].begunDeletions.contains(number)
    case .channel(_, .channelAssigned(let cid, _, _)): !IndexName.isIndex(Array(cid.utf8))
    default: true
    }
  }

  /// Compare every user's index with the channels.
  func checkIndexes() {
    var expected: [String: [String: String]] = [:]
    for user in SimulatedRequestGenerator.everybody { expected[user] = [:] }
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

  /// Query a user's index from the store, page by page.
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
          completeLoad(target)
          commitStep(target)
          target.slice()
        }
        guard let reply else { return ["no answer": ""] }
        var reader = FieldReader(reply.readableBytesSpan)
        cursor = try reader.channelList { channel throws(WireError) in
          let entry = try ChannelEntryFields(channel)
          let row = entry.row.map { " \($0)" } ?? ""
          found[entry.cid] = entry.isMember ? "member\(row)" : entry.row == nil ? "sender" : "left\(row)"
        }
      } catch {
        return ["\(error)": ""]
      }
    } while cursor != nil
    return found
  }
}
