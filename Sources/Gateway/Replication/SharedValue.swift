internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// A versioned value replicated to every shard. Its home shard decides changes. The result is assigned to all others,
/// and marked replicated at home when the last of them has it (Proto/frames.md, 0x17 to 0x1C).
enum SharedValue: Equatable {
  case channelType(ChannelTypeRecord)
  case user(UserSettings)

  /// Identifies one version of one value.
  struct Identity: Hashable {
    var isUser: Bool
    var name: ExactText
    var version: UInt64
  }

  var identity: Identity { Identity(isUser: isUser, name: ExactText(name), version: version) }

  var isUser: Bool {
    switch self {
    case .channelType: false
    case .user: true
    }
  }

  /// The type's name, or the user's id.
  var name: String {
    switch self {
    case .channelType(let record): record.name
    case .user(let settings): settings.user
    }
  }

  /// 0: never set; there is nothing to replicate.
  var version: UInt64 {
    switch self {
    case .channelType(let record): record.version
    case .user(let settings): settings.version
    }
  }

  var assignKind: FrameKind {
    switch self {
    case .channelType: .assignChannelType
    case .user: .assignUser
    }
  }

  func home(shardCount: Int) -> ShardID {
    let name = Array(name.utf8)
    return ShardID.owning(name.span.bytes, count: shardCount)
  }

  /// Write the fields of assign_channel_type or assign_user after the counter.
  func writeAssignment(into buffer: inout ByteBuffer) {
    switch self {
    case .channelType(let record):
      buffer.writeAssignChannelType(version: record.version, record.options)
    case .user(let settings): buffer.writeAssignUser(settings)
    }
  }

  /// Write the fields of settle after the counter.
  func writeMarkReplicated(into buffer: inout ByteBuffer) {
    buffer.writeMarkReplicated(isUser: isUser, version: version)
  }
}
