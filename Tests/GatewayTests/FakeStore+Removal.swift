import NIOCore
import ReceiptModel
import ReceiptWire

/// What removes (R16).
extension FakeModel {
  func deleteChannel(_ cid: String, fields: inout ByteBuffer) {
    fields.writeInteger(UInt8(channels[cid] == nil ? 0 : 1))
    channels[cid] = nil
    channelNumbers[cid] = nil
    order.removeAll { $0 == cid }
  }

  func truncate(_ channel: inout Channel, before message: String) throws {
    var end = channel.messages.count
    if !message.isEmpty {
      guard let place = channel.messages.firstIndex(of: message) else {
        throw Refused(code: .messageNotFound)
      }
      end = place
    }
    channel.deleted.formUnion(channel.messages[..<end])
  }

  func eraseMember(_ cid: String, _ channel: inout Channel, _ user: String, fields: inout ByteBuffer) {
    let isKnown = channel.members.contains { $0.user == user } || channel.senders.contains(user)
    channel.members.removeAll { $0.user == user }
    channel.senders = channel.senders.map { $0 == user ? "" : $0 }
    if isKnown, staleLists > 0 { stale[user, default: []].insert(cid) }
    fields.writeInteger(UInt8(isKnown ? 1 : 0))
  }

  /// Nothing new is made in the name of a user who is being erased.
  func checkErasing(_ user: String, in shard: UInt16) throws {
    if settings[shard]?[user]?.isErasing ?? false { throw Refused(code: .userErased) }
  }

  /// Every shard has rounds of its own. At the second asking it names an earlier one, as if it had been started again.
  func purge(_ shard: UInt16, _ reader: inout FieldReader, fields: inout ByteBuffer) throws {
    func round(_ asked: Int) -> UInt64 { asked == 0 ? 0 : UInt64(shard) * 100 + (asked == 1 ? 300 : 7) }
    let asked = purges[shard, default: 0]
    let given = try reader.varint()
    purges[shard] = asked + 1
    guard asked > purgesNeeded || given == round(asked) else { throw Refused(code: .invalidField) }
    fields.writeVarint(asked < purgesNeeded ? round(asked + 1) : 0)
  }

  /// Where the id of a user still stands.
  func traces(of user: String) -> [String] {
    var traces: [String] = []
    for (cid, channel) in channels.sorted(by: { $0.key < $1.key }) {
      if channel.members.contains(where: { $0.user == user }) { traces.append("\(cid) member") }
      if channel.senders.contains(user) { traces.append("\(cid) sender") }
    }
    for shard in 0..<UInt16(shardCount) where settings[shard]?[user] != nil {
      traces.append("shard \(shard)")
    }
    return traces
  }
}

extension FakeStore {
  func traces(of user: String) async throws -> [String] { try await ask { $0.traces(of: user) } }
  /// How many channels each unread_counts was about, since the last call.
  func takeCountFrames() async throws -> [Int] {
    try await ask { model in
      defer { model.countFrames = [] }
      return model.countFrames
    }
  }
  /// How many entries a list_channels has at most.
  func setListMax(_ count: Int) async throws { try await ask { $0.listMax = count } }
  /// For how many lists erased members still stand in the index, how often each shard is asked to purge in vain.
  func setErasing(staleLists: Int, purges: Int) async throws {
    try await ask { model in
      model.staleLists = staleLists
      model.purgesNeeded = purges
      model.purges = [:]
    }
  }
  func purges() async throws -> [Int] {
    try await ask { model in (0..<UInt16(model.shardCount)).map { model.purges[$0] ?? 0 } }
  }
}
