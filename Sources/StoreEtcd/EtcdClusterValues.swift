internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreEngine

/// What all nodes have in common, as a value. Later programs may add fields at its end.
struct EtcdConfigurationValue: Hashable {
  /// First byte of the value.
  private static let formatVersion: UInt8 = 3
  /// With an id for handshakes: a program that ignores it must not start.
  private static let formatOfAdopted: UInt8 = 4
  /// Formats of early builds: without an id, and without a level too.
  private static let formatWithoutID: UInt8 = 2
  private static let formatWithoutLevel: UInt8 = 1
  private static let shardsMax: UInt64 = 1 << 16

  var configuration: ClusterConfiguration

  init(_ configuration: ClusterConfiguration) { self.configuration = configuration }

  init(_ bytes: [UInt8]) throws(EtcdWireError) {
    do throws(WireError) {
      var reader = FieldReader(bytes.span.bytes)
      let format = try reader.byte()
      guard (Self.formatWithoutLevel...Self.formatOfAdopted).contains(format) else { throw .badValue(.format) }
      let (shards, groups, nodes) = (try reader.varint(), try reader.varint(), try reader.varint())
      let level = format == Self.formatWithoutLevel ? .oldest : ClusterLevel(try reader.byte())
      let id = format < Self.formatVersion ? nil : try reader.sessionID()
      guard (1...Self.shardsMax).contains(shards), (1...min(shards, 256)).contains(groups),
        (1...UInt64(GroupSet.membersMax)).contains(nodes)
      else { throw .badValue(.count) }
      configuration = ClusterConfiguration(
        shardCount: Int(shards),
        groupCount: Int(groups),
        initialNodeCount: Int(nodes),
        level: level,
        id: id,
        handshakeID: format == Self.formatOfAdopted ? try reader.sessionID() : nil
      )
    } catch {
      throw .badValue(.configuration)
    }
  }

  func encoded() -> ByteBuffer {
    var buffer = ByteBuffer()
    buffer.writeInteger(format)
    buffer.writeVarint(configuration.shardCount)
    buffer.writeVarint(configuration.groupCount)
    buffer.writeVarint(configuration.initialNodeCount)
    buffer.writeInteger(configuration.level.rawValue)
    if let id = configuration.id { buffer.writeSessionID(id) }
    if let id = configuration.handshakeID { buffer.writeSessionID(id) }
    return buffer
  }

  private var format: UInt8 {
    if configuration.handshakeID != nil { return Self.formatOfAdopted }
    return configuration.id == nil ? Self.formatWithoutID : Self.formatVersion
  }
}

/// A node's announcement as a value. Its number is in the key. Later programs may add fields at its end.
struct EtcdNodeValue: Hashable {
  /// First byte of the value.
  private static let formatVersion: UInt8 = 2

  var announcement: NodeAnnouncement

  init(_ announcement: NodeAnnouncement) { self.announcement = announcement }

  init(_ bytes: [UInt8], node: NodeID) throws(EtcdWireError) {
    do throws(WireError) {
      var reader = FieldReader(bytes.span.bytes)
      guard try reader.byte() == Self.formatVersion else { throw .badValue(.format) }
      let host = try reader.text()
      guard let port = UInt16(exactly: try reader.varint()), port > 0, !host.isEmpty else { throw .badValue(.node) }
      let version = try reader.text()
      let (oldest, newest) = (ClusterLevel(try reader.byte()), ClusterLevel(try reader.byte()))
      guard oldest <= newest else { throw .badValue(.node) }
      announcement = NodeAnnouncement(
        node: node,
        host: host,
        port: port,
        version: version,
        levels: oldest...newest
      )
    } catch {
      throw .badValue(.node)
    }
  }

  func encoded() -> ByteBuffer {
    var buffer = ByteBuffer()
    buffer.writeInteger(Self.formatVersion)
    buffer.writeField(announcement.host)
    buffer.writeVarint(UInt32(announcement.port))
    buffer.writeField(announcement.version)
    buffer.writeInteger(announcement.levels.lowerBound.rawValue)
    buffer.writeInteger(announcement.levels.upperBound.rawValue)
    return buffer
  }
}
