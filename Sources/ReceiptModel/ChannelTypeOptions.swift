/// What a member's mark-unread does to what others see (R4).
public enum MarkUnreadOption: UInt8, Sendable, CaseIterable {
  /// Others go on seeing the watermark.
  case `private` = 0
  /// Others see the own position.
  case `public` = 1
  /// Mark-unread is refused with `mark_unread_off`.
  case off = 2
}

/// Where a new member starts (R6).
public enum HistoryOption: UInt8, Sendable, CaseIterable {
  /// Read up to the newest message.
  case visible = 0
  /// At 0, and nothing before the join counts as unread.
  case hidden = 1
}

/// The options of a channel as they are in force: its type's, with the channel's own laid over them.
public struct ChannelTypeOptions: Hashable, Sendable {
  public var readEvents = true
  public var deliveryEvents = true
  public var markUnread = MarkUnreadOption.private
  public var history = HistoryOption.visible

  /// The defaults of API.md's option table.
  public init() {}

  /// These options with `patch` laid over them.
  public func applying(_ patch: OptionPatch) -> ChannelTypeOptions {
    var result = self
    if let value = patch.readEvents { result.readEvents = value }
    if let value = patch.deliveryEvents { result.deliveryEvents = value }
    if let value = patch.markUnread { result.markUnread = value }
    if let value = patch.history { result.history = value }
    return result
  }

  /// The patch that makes these options out of the defaults.
  public var asPatch: OptionPatch {
    let defaults = ChannelTypeOptions()
    var patch = OptionPatch()
    if readEvents != defaults.readEvents { patch.readEvents = readEvents }
    if deliveryEvents != defaults.deliveryEvents { patch.deliveryEvents = deliveryEvents }
    if markUnread != defaults.markUnread { patch.markUnread = markUnread }
    if history != defaults.history { patch.history = history }
    return patch
  }
}

/// Some options: nil leaves what is there.
public struct OptionPatch: Hashable, Sendable {
  public var readEvents: Bool?
  public var deliveryEvents: Bool?
  public var markUnread: MarkUnreadOption?
  public var history: HistoryOption?

  public init() {}

  /// Nothing is set.
  public var isEmpty: Bool { self == OptionPatch() }

  /// This patch with `later` laid over it.
  public func merging(_ later: OptionPatch) -> OptionPatch {
    var result = self
    if let value = later.readEvents { result.readEvents = value }
    if let value = later.deliveryEvents { result.deliveryEvents = value }
    if let value = later.markUnread { result.markUnread = value }
    if let value = later.history { result.history = value }
    return result
  }
}

/// A channel type's versioned value. Version 0: never set, everything has its default.
public struct ChannelTypeRecord: Hashable, Sendable {
  public var name: String
  public var version: UInt64
  public var options: ChannelTypeOptions

  public init(name: String, version: UInt64 = 0, options: ChannelTypeOptions = ChannelTypeOptions()) {
    self.name = name
    self.version = version
    self.options = options
  }
}
