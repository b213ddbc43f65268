import NIOCore
import ReceiptModel
import ReceiptWire

/// Users' settings, and settling them and channel types.
extension FakeModel {
  private func home(of name: String) -> UInt16 {
    ShardID.owning(Array(name.utf8).span.bytes, count: Int(shardCount)).rawValue
  }

  func user(
    _ header: FrameHeader,
    _ id: String,
    _ tokenIssued: UInt32?,
    _ reader: inout FieldReader,
    fields: inout ByteBuffer
  ) throws {
    let shard = header.shard.rawValue
    revocation = (shard, tokenIssued)
    var record = settings[shard]?[id] ?? UserSettings(user: id)
    switch header.kind {
    case .patchUser:
      guard shard == home(of: id) else { throw Refused(code: .wrongShard) }
      try checkToken(of: id)
      let (mask, values) = (try reader.varint(), try reader.varint())
      let revokedBefore = try reader.time()
      let before = record
      if mask & 1 != 0 { record.hidesRead = values & 1 == 0 }
      if mask & 2 != 0 { record.hidesDelivered = values & 2 == 0 }
      if mask & 8 != 0 {
        record.isErasing = true
      } else {
        try checkErasing(id, in: shard)
      }
      if mask & 4 != 0 { record.tokensRevokedBefore = revokedBefore }
      if before.hidesRead && !record.hidesRead { record.readShownSince = Timestamp(milliseconds: 7) }
      if record != before {
        record.version += 1
        record.isSettled = false
      }
    case .assignUser:
      let version = try reader.varint()
      let flags = try reader.varint()
      if flags & 8 != 0, version > record.version {
        _ = (try reader.time(), try reader.time(), try reader.time())
        try reader.end()
        settings[shard]?[id] = nil
        erased[shard, default: []].insert(id)
        fields.writeField(id)
        fields.writeVarint(version)
        fields.writeVarint(8)
        for _ in 0..<3 { fields.writeTime(.none) }
        return
      }
      let assigned = UserSettings(
        user: id,
        version: version,
        hidesRead: flags & 1 != 0,
        hidesDelivered: flags & 2 != 0,
        readShownSince: try reader.time(),
        deliveredShownSince: try reader.time(),
        tokensRevokedBefore: try reader.time(),
        isSettled: true,
        isErasing: flags & 4 != 0
      )
      if version > record.version { record = assigned }
    default:
      guard shard == home(of: id) else { throw Refused(code: .wrongShard) }
      try checkToken(of: id)
    }
    try reader.end()
    if header.kind != .getUser, record.version > 0 { settings[shard, default: [:]][id] = record }
    fields.writeUserSettings(record)
  }

  func settle(_ shard: UInt16, _ name: String, _ reader: inout FieldReader, fields: inout ByteBuffer)
    throws
  {
    let (valueKind, version) = (try reader.byte(), try reader.varint())
    try reader.end()
    guard shard == home(of: name) else { throw Refused(code: .wrongShard) }
    let known = valueKind == 0 ? types[shard]?[name]?.version : settings[shard]?[name]?.version
    if known == version {
      if valueKind == 0 {
        types[shard]?[name]?.isSettled = true
      } else {
        settings[shard]?[name]?.isSettled = true
      }
    }
    fields.writeFlag(known == version)
  }

  func listUnsettled(_ shard: UInt16, fields: inout ByteBuffer) {
    let records = (types[shard] ?? [:]).values.filter { !$0.isSettled }.sorted { $0.name < $1.name }
    let users = (settings[shard] ?? [:]).values.filter { !$0.isSettled }.sorted { $0.user < $1.user }
    UnsettledReply(types: records, users: users).write(into: &fields)
  }

  func users(_ id: String) -> [String] {
    (0..<UInt16(shardCount)).map { shard in
      guard let known = settings[shard]?[id] else { return "-" }
      return
        "\(known.version)\(known.hidesRead ? " hides read" : "")\(known.hidesDelivered ? " hides delivered" : "")"
    }
  }

  func unsettledNames() -> [String] {
    var names: [String] = []
    for shard in 0..<UInt16(shardCount) {
      names += (types[shard] ?? [:]).values.filter { !$0.isSettled }.map(\.name)
      names += (settings[shard] ?? [:]).values.filter { !$0.isSettled }.map(\.user)
    }
    return names.sorted()
  }
}
