import NIOCore
import ReceiptModel
import ReceiptWire

/// Deletion, truncation and erasure (R16).
extension FakeModel {
  func deleteChannel(_ cid: String, fields: inout ByteBuffer) {
    fields.writeFlag(channels[cid] != nil)
    channels[cid] = nil
    channelNumbers[cid] = nil
    order.removeAll { $0 == cid }
  }

  func truncate(_ channel: inout Channel, before message: String) throws {
    var end = channel.messages.count
    if !message.isEmpty {
      guard let index = channel.messages.firstIndex(of: message) else {
        throw Refused(code: .messageNotFound)
      }
      end = index
    }
    channel.deleted.formUnion(channel.messages[..<end])
  }

  func eraseMember(_ cid: String, _ channel: inout Channel, _ user: String, fields: inout ByteBuffer) {
    let isKnown = channel.members.contains { $0.user == user } || channel.senders.contains(user)
    channel.members.removeAll { $0.user == user }
    channel.senders = channel.senders.map { $0 == user ? "" : $0 }
    if isKnown, staleLists > 0 { stale[user, default: []].insert(cid) }
    fields.writeFlag(isKnown)
  }

  /// Reject changes in the name of a user who is being erased.
  func checkErasing(_ user: String, in shard: UInt16) throws {
    if settings[shard]?[user]?.isErasing ?? false { throw Refused(code: .userErased) }
  }

  /// Every shard has its own rounds. The second reply has an earlier one, as if the store had been restarted.
  func purge(_ shard: UInt16, _ reader: inout FieldReader, fields: inout ByteBuffer) throws {
    func round(_ attempt: Int) -> UInt64 { attempt == 0 ? 0 : UInt64(shard) * 100 + (attempt == 1 ? 300 : 7) }
    let attempt = purges[shard, default: 0]
    let requestedRound = try reader.varint()
    purges[shard] = attempt + 1
    guard attempt > purgesNeeded || requestedRound == round(attempt) else {
      throw Refused(code: .invalidField)
    }
    fields.writeVarint(attempt < purgesNeeded ? round(attempt + 1) : 0)
  }

  /// The places that still contain the user's id.
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
  func traces(of user: String) async throws -> [String] { try await withModel { $0.traces(of: user) } }
  /// The number of channels in each unread_counts since the last call.
  func takeCountFrames() async throws -> [Int] {
    try await withModel { model in
      defer { model.countFrames = [] }
      return model.countFrames
    }
  }
  /// Set the maximum number of entries in a list_channels reply.
  func setListMax(_ count: Int) async throws { try await withModel { $0.listMax = count } }
  /// Set how many lists still contain erased members, and how many purges each shard answers as unfinished.
  func setErasing(staleLists: Int, purges: Int) async throws {
    try await withModel { model in
      model.staleLists = staleLists
      model.purgesNeeded = purges
      model.purges = [:]
    }
  }
  func purges() async throws -> [Int] {
    try await withModel { model in (0..<UInt16(model.shardCount)).map { model.purges[$0] ?? 0 } }
  }
}
