internal import NIOCore
internal import ReceiptWire
internal import StoreEngine

/// Keys of one cluster in etcd (Proto/frames.md, "Records of a cluster").
///
/// | key | value | written by |
/// | --- | --- | --- |
/// | `/tm/NAME/own/GG` | owner; its mod revision is the fence | a claim |
/// | `/tm/NAME/log/GG/PPPPPPPPPPPPPPPP` | a record | the owner, or a claim |
/// | `/tm/NAME/trim/GG` | the first position that is there | the first claim, then trims |
/// | `/tm/NAME/at/GG/NNNN` | how far a node has the log | that node |
/// | `/tm/NAME/set/GG` | the members; absent: the initial set | `tidemark cluster` |
/// | `/tm/NAME/cfg` | what all nodes have in common | the first node that starts |
/// | `/tm/NAME/node/NNNN` | address of a node, under a lease | that node |
///
/// Groups are two hex digits, nodes four, positions sixteen, so the order of keys is the order of positions.
struct EtcdKeys {
  private let cluster: [UInt8]

  init(cluster: String) { self.cluster = Array("/tm/\(cluster)/".utf8) }

  func owner(_ group: GroupID) -> [UInt8] { key("own/", group) }

  func trim(_ group: GroupID) -> [UInt8] { key("trim/", group) }

  func set(_ group: GroupID) -> [UInt8] { key("set/", group) }

  func record(_ group: GroupID, _ position: RecordPosition) -> [UInt8] {
    var key = key("log/", group)
    key.append(UInt8(ascii: "/"))
    Self.appendHex(position.rawValue, digits: 16, to: &key)
    return key
  }

  /// Return the first key behind all records of a group.
  func recordsEnd(_ group: GroupID) -> [UInt8] {
    var key = key("log/", group)
    key.append(UInt8(ascii: "/") + 1)
    return key
  }

  /// What all nodes have in common.
  var configuration: [UInt8] { cluster + Array("cfg".utf8) }

  func node(_ node: NodeID) -> [UInt8] {
    var key = nodesFirst
    Self.appendHex(UInt64(node.rawValue), digits: 4, to: &key)
    return key
  }

  /// The keys of all nodes are from this one on.
  var nodesFirst: [UInt8] { cluster + Array("node/".utf8) }

  /// The first key behind those of the nodes.
  var nodesEnd: [UInt8] { cluster + Array("node0".utf8) }

  func report(_ group: GroupID, _ node: NodeID) -> [UInt8] {
    var key = key("at/", group)
    key.append(UInt8(ascii: "/"))
    Self.appendHex(UInt64(node.rawValue), digits: 4, to: &key)
    return key
  }

  /// Return the first key behind the reports of a group's nodes.
  func reportsEnd(_ group: GroupID) -> [UInt8] {
    var key = key("at/", group)
    key.append(UInt8(ascii: "/") + 1)
    return key
  }

  /// Return the node of a key of ``report(_:_:)`` or ``node(_:)``; nil if it is another key.
  func node(ofKey key: [UInt8]) -> NodeID? {
    UInt16(String(decoding: key.suffix(4), as: UTF8.self), radix: 16).map { NodeID($0) }
  }

  private func key(_ kind: StaticString, _ group: GroupID) -> [UInt8] {
    var key = cluster
    key.reserveCapacity(cluster.count + 24)
    kind.withUTF8Buffer { key.append(contentsOf: $0) }
    Self.appendHex(UInt64(group.rawValue), digits: 2, to: &key)
    return key
  }

  private static func appendHex(_ value: UInt64, digits: Int, to key: inout [UInt8]) {
    for place in (0..<digits).reversed() {
      let digit = UInt8(truncatingIfNeeded: value >> (4 * UInt64(place)) & 0xF)
      key.append(digit < 10 ? UInt8(ascii: "0") + digit : UInt8(ascii: "a") + digit - 10)
    }
  }
}

/// Value of an owner's key: who appends, since which record.
struct EtcdOwnerValue: Hashable {
  /// First byte of the value.
  private static let formatVersion: UInt8 = 1

  var node: NodeID
  var epoch: OwnerEpoch
  /// Position of the claim.
  var claimedAt: RecordPosition

  init(node: NodeID, epoch: OwnerEpoch, claimedAt: RecordPosition) {
    self.node = node
    self.epoch = epoch
    self.claimedAt = claimedAt
  }

  init(_ bytes: [UInt8]) throws(EtcdWireError) {
    do throws(WireError) {
      var reader = FieldReader(bytes.span.bytes)
      guard try reader.byte() == Self.formatVersion else { throw .badValue(.format) }
      epoch = OwnerEpoch(try reader.varint())
      guard let node = UInt16(exactly: try reader.varint()), node > 0 else { throw .badValue(.node) }
      self.node = NodeID(node)
      claimedAt = RecordPosition(try reader.varint())
      try reader.end()
    } catch {
      throw .badValue(.owner)
    }
  }

  func encoded() -> ByteBuffer {
    var buffer = ByteBuffer()
    buffer.writeInteger(Self.formatVersion)
    buffer.writeVarint(epoch.rawValue)
    buffer.writeVarint(UInt64(node.rawValue))
    buffer.writeVarint(claimedAt.rawValue)
    return buffer
  }
}

/// The members of a group as a value, in the order of their ranks.
struct EtcdSetValue: Hashable {
  /// First byte of the value.
  private static let formatVersion: UInt8 = 1

  var members: [NodeID]

  init(_ members: [NodeID]) { self.members = members }

  init(_ bytes: [UInt8]) throws(EtcdWireError) {
    do throws(WireError) {
      var reader = FieldReader(bytes.span.bytes)
      guard try reader.byte() == Self.formatVersion else { throw .badValue(.format) }
      let count = try reader.count(elementBytesMin: 1)
      guard (1...GroupSet.membersMax).contains(count) else { throw .badValue(.count) }
      members = []
      for _ in 0..<count {
        guard let node = UInt16(exactly: try reader.varint()), node > 0, !members.contains(NodeID(node)) else {
          throw .badValue(.node)
        }
        members.append(NodeID(node))
      }
      try reader.end()
    } catch {
      throw .badValue(.set)
    }
  }

  func encoded() -> ByteBuffer {
    var buffer = ByteBuffer()
    buffer.writeInteger(Self.formatVersion)
    buffer.writeVarint(members.count)
    for member in members { buffer.writeVarint(UInt64(member.rawValue)) }
    return buffer
  }
}

/// A position as a value. Its order of bytes is the order of positions, so that a transaction can compare it.
struct EtcdPositionValue: Hashable {
  /// First byte of the value.
  private static let formatVersion: UInt8 = 1

  var position: RecordPosition

  init(_ position: RecordPosition) { self.position = position }

  init(_ bytes: [UInt8]) throws(EtcdWireError) {
    guard let (format, position) = parse(bytes), format == Self.formatVersion else { throw .badValue(.position) }
    self.position = position
  }

  func encoded() -> ByteBuffer { encode(Self.formatVersion, position) }
}

/// A member's report as a value.
struct EtcdReportValue: Hashable {
  /// First byte of the value.
  private static let following: UInt8 = 1
  private static let joining: UInt8 = 2
  private static let ineligible: UInt8 = 3

  var report: MemberReport

  init(_ report: MemberReport) { self.report = report }

  init(_ bytes: [UInt8]) throws(EtcdWireError) {
    do throws(WireError) {
      var reader = FieldReader(bytes.span.bytes)
      let phase: MemberReport.Phase
      switch try reader.byte() {
      case Self.following: phase = .following
      case Self.joining: phase = .joining
      case Self.ineligible: phase = .ineligible
      default: throw .badValue(.format)
      }
      report = MemberReport(position: RecordPosition(try reader.varint()), phase)
      report.key = RecordKeyNumber(try reader.varint())
      report.purged = RecordPosition(try reader.varint())
      try reader.end()
    } catch {
      throw .badValue(.position)
    }
  }

  func encoded() -> ByteBuffer {
    var buffer = ByteBuffer()
    buffer.writeInteger(format)
    buffer.writeVarint(report.position.rawValue)
    buffer.writeVarint(report.key.rawValue)
    buffer.writeVarint(report.purged.rawValue)
    return buffer
  }

  private var format: UInt8 {
    switch report.phase {
    case .following: Self.following
    case .joining: Self.joining
    case .ineligible: Self.ineligible
    }
  }
}

/// Return the byte and the position of a value; nil if it has another length.
private func parse(_ bytes: [UInt8]) -> (format: UInt8, position: RecordPosition)? {
  var buffer = ByteBuffer(bytes: bytes)
  guard bytes.count == 9, let format = buffer.readInteger(as: UInt8.self),
    let position = buffer.readInteger(as: UInt64.self)
  else { return nil }
  return (format, RecordPosition(position))
}

private func encode(_ format: UInt8, _ position: RecordPosition) -> ByteBuffer {
  var buffer = ByteBuffer()
  buffer.writeInteger(format)
  buffer.writeInteger(position.rawValue)
  return buffer
}
