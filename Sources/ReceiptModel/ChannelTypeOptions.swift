/// What a member's mark-unread does to what others see (R4).
package enum MarkUnreadOption: UInt8, Sendable, CaseIterable {
  /// Others go on seeing the watermark.
  case `private` = 0
  /// Others see the own position.
  case `public` = 1
  /// Mark-unread is refused with `mark_unread_off`.
  case off = 2
}

/// Where a new member starts (R6).
package enum HistoryOption: UInt8, Sendable, CaseIterable {
  /// Read up to the newest message.
  case visible = 0
  /// At 0, and nothing before the join counts as unread.
  case hidden = 1
}

/// The options of a channel as they are in force: its type's, with the channel's own laid over them.
package struct ChannelTypeOptions: Hashable, Sendable {
  package var readEvents = true
  package var deliveryEvents = true
  package var markUnread = MarkUnreadOption.private
  package var history = HistoryOption.visible

  /// The defaults of API.md's option table.
  package init() {}

  /// These options with `patch` laid over them.
  package func applying(_ patch: OptionPatch) -> ChannelTypeOptions {
    var result = self
    if let value = patch.readEvents { result.readEvents = value }
    if let value = patch.deliveryEvents { result.deliveryEvents = value }
    if let value = patch.markUnread { result.markUnread = value }
    if let value = patch.history { result.history = value }
    return result
  }

  /// The patch that makes these options out of the defaults.
  package var asPatch: OptionPatch {
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
package struct OptionPatch: Hashable, Sendable {
  package var readEvents: Bool?
  package var deliveryEvents: Bool?
  package var markUnread: MarkUnreadOption?
  package var history: HistoryOption?

  package init() {}

  /// Nothing is set.
  package var isEmpty: Bool { self == OptionPatch() }

  /// This patch with `later` laid over it.
  package func merging(_ later: OptionPatch) -> OptionPatch {
    var result = self
    if let value = later.readEvents { result.readEvents = value }
    if let value = later.deliveryEvents { result.deliveryEvents = value }
    if let value = later.markUnread { result.markUnread = value }
    if let value = later.history { result.history = value }
    return result
  }
}

/// A channel type's versioned value. Version 0: never set, everything has its default.
package struct ChannelTypeRecord: Hashable, Sendable {
  package var name: String
  package var version: UInt64
  package var options: ChannelTypeOptions

  package init(name: String, version: UInt64 = 0, options: ChannelTypeOptions = ChannelTypeOptions()) {
    self.name = name
    self.version = version
    self.options = options
  }
}
