import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import StoreTestSupport

/// Registers in a store: the role of one member in one channel for each. A write sets the role, a read lists the
/// channel's members.
final class StoreRegisters {
  static let shardsPerGroup = 2
  private static let user = "u"

  let groupCount: Int
  var shardCount: Int { groupCount * Self.shardsPerGroup }
  /// By group and register.
  private let cids: [[String]]
  /// The channels with their member, which no role was set for: what every node starts from.
  let initialData: StoredData

  init(groupCount: Int) {
    self.groupCount = groupCount
    let shardCount = groupCount * Self.shardsPerGroup
    var cids = [[String]](repeating: [], count: groupCount)
    var number = 0
    while let group = cids.firstIndex(where: { $0.count < Write.registerCount }) {
      number += 1
      let cid = "team:r\(number)"
      if Self.shard(cid, shardCount) / Self.shardsPerGroup == group { cids[group].append(cid) }
    }
    self.cids = cids
    let all = (0..<UInt16(shardCount)).map { ShardID($0) }
    var configuration = StoreLoopConfiguration()
    configuration.pageWriteAgeMilliseconds = 0
    let store = SynchronousStore(shards: all, of: shardCount, configuration: configuration)
    for (number, cid) in cids.flatMap({ $0 }).enumerated() {
      let payload = Self.creation(cid, counter: UInt64(number + 1))
      _ = store.reply(to: .putChannel, ShardID(UInt16(Self.shard(cid, shardCount))), payload)
    }
    store.finish()
    initialData = store.data
  }

  static func shard(_ cid: String, _ shardCount: Int) -> Int {
    Int(ShardID.owning(Array(cid.utf8).span.bytes, count: shardCount).rawValue)
  }

  func shards(of group: GroupID) -> [ShardID] {
    let first = UInt16(group.rawValue) * UInt16(Self.shardsPerGroup)
    return (0..<UInt16(Self.shardsPerGroup)).map { ShardID(first + $0) }
  }

  func group(of shard: ShardID) -> GroupID { GroupID(UInt8(Int(shard.rawValue) / Self.shardsPerGroup)) }

  // MARK: Frames

  func cid(_ group: GroupID, _ register: Int) -> String { cids[Int(group.rawValue)][register] }

  func shard(_ group: GroupID, _ register: Int) -> ShardID {
    ShardID(UInt16(Self.shard(cids[Int(group.rawValue)][register], shardCount)))
  }

  /// The payload of put_channel.
  private static func creation(_ cid: String, counter: UInt64) -> ByteBuffer {
    var payload = ByteBuffer()
    payload.writeField(cid)
    payload.writeVarint(counter)
    payload.writeOptionPatch(OptionPatch())
    payload.writeVarint(UInt64(1))
    payload.writeField(user)
    payload.writeField("")
    return payload
  }

  /// The payload of set_member.
  func payload(_ write: Write, _ group: GroupID) -> ByteBuffer {
    var payload = ByteBuffer()
    payload.writeField(cid(group, Int(write.register)))
    payload.writeVarint(UInt64(write.counter))
    writeFields(write, into: &payload)
    return payload
  }

  /// The fields of set_member after the counter.
  func writeFields(_ write: Write, into payload: inout ByteBuffer) {
    payload.writeField(Self.user)
    payload.writeField(Self.role(write))
    payload.writeVarint(UInt64(0))
  }

  /// The payload of list_roster, as a server.
  func queryPayload(_ group: GroupID, _ register: Int) -> ByteBuffer {
    var payload = ByteBuffer()
    payload.writeField(cid(group, register))
    writeQueryFields(into: &payload)
    return payload
  }

  /// The fields of list_roster after the channel.
  func writeQueryFields(into payload: inout ByteBuffer) {
    payload.writeVarint(UInt64(1))
    payload.writeField("")
    payload.writeVarint(UInt64(10))
    payload.writeVarint(UInt64(0))
  }

  /// Contents of the reply to list_roster.
  func write(inReply payload: RawSpan, register: Int) throws(WireError) -> Write? {
    var reader = FieldReader(payload)
    guard try reader.count() == 1 else { throw .badValue(.count) }
    let member = try RosterEntryFields(&reader)
    let role = member.role.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
    return Self.write(role, UInt8(register))
  }

  private static func role(_ write: Write) -> String { "c\(write.client)-\(write.counter)" }

  private static func write(_ role: String, _ register: UInt8) -> Write? {
    let parts = role.dropFirst().split(separator: "-")
    guard parts.count == 2, let client = UInt16(parts[0]), let counter = UInt32(parts[1]) else { return nil }
    return Write(client: client, counter: counter, register: register)
  }

  /// The values of all registers of a group in a storage.
  func stored(_ data: StoredData, _ group: GroupID) -> [Write?] {
    let store = SynchronousStore(data, shards: shards(of: group), of: shardCount)
    return (0..<Write.registerCount).map { register in
      let reply = store.reply(to: .listRoster, shard(group, register), queryPayload(group, register))
      return try? write(inReply: reply.readableBytesSpan, register: register)
    }
  }

  // MARK: Log

  func content(_ payload: [UInt8], of group: GroupID) -> RecordContent {
    var content = RecordContent(writes: [])
    for batch in (try? LoopCommit.batches(ofRecordPayload: payload)) ?? [] {
      guard let decoded = try? LogBatch(batch.bytes.readableBytesSpan) else { continue }
      content.times.append((batch.shard, decoded.time.milliseconds))
      for case .channel(let number, .roleAssigned(_, let role)) in decoded.effects {
        let write = Self.write(role, register(batch.shard, number, group))
        if let write { content.writes.append(write) }
      }
    }
    return content
  }

  private func register(_ shard: ShardID, _ number: ChannelNumber, _ group: GroupID) -> UInt8 {
    let names = initialData.directory[shard] ?? [:]
    let cid = names.first { $0.value == number }.map { String(decoding: $0.key, as: UTF8.self) }
    guard let register = cids[Int(group.rawValue)].firstIndex(where: { $0 == cid }) else {
      preconditionFailure(
        "shard \(shard.rawValue) has no register in channel \(number.rawValue), names \(initialData.directory)"
      )
    }
    return UInt8(register)
  }
}
