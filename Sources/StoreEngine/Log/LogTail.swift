internal import DequeModule
internal import ReceiptModel

/// Effects of the log's tail for channels that are not in memory. Recovery and followers index them, and loads apply
/// them.
final class LogTail {
  private var effects: [ChannelNumber: [(index: LogIndex, effect: ChannelEffect)]] = [:]
  /// Number of effects.
  private(set) var effectCount = 0
  /// Each channel's first effect, oldest first. Entries of channels that were loaded since are removed late.
  private var firsts: Deque<(index: LogIndex, channel: ChannelNumber)> = []
  /// Channels created in the tail, which storage does not find by their cid yet.
  private var numbers: [[UInt8]: ChannelNumber] = [:]
  private var order: Deque<ChannelNumber> = []
  /// Channels that could not be read. They are retried later, because they hold the log.
  private var postponed: [ChannelNumber] = []

  var isEmpty: Bool { effects.isEmpty }
  var hasPostponed: Bool { !postponed.isEmpty }
  var count: Int { effects.count }

  func append(_ effect: ChannelEffect, on channel: ChannelNumber, at index: LogIndex) {
    if effects[channel] == nil {
      order.append(channel)
      firsts.append((index, channel))
    }
    effects[channel, default: []].append((index, effect))
    effectCount += 1
    if case .channelAssigned(let cid, _, _) = effect { numbers[Array(cid.utf8)] = channel }
  }

  func number(of cid: [UInt8]) -> ChannelNumber? { numbers[cid] }

  /// Return the log index of the oldest effect.
  func oldest() -> LogIndex? {
    while let first = firsts.first {
      if effects[first.channel]?.first?.index == first.index { return first.index }
      firsts.removeFirst()
    }
    return nil
  }

  /// Return the next channel to load, so that its pages can be written and the log can be trimmed.
  func next() -> ChannelNumber? {
    while let channel = order.popFirst() {
      if effects[channel] != nil { return channel }
    }
    return nil
  }

  func postpone(_ channel: ChannelNumber) { postponed.append(channel) }

  func retryPostponed() {
    order.append(contentsOf: postponed)
    postponed = []
  }

  func effects(of channel: ChannelNumber) -> [(index: LogIndex, effect: ChannelEffect)] {
    effects[channel] ?? []
  }

  func hasEffects(on channel: ChannelNumber) -> Bool { effects[channel] != nil }

  func remove(_ channel: ChannelNumber, cid: [UInt8]) {
    if numbers[cid] == channel { numbers[cid] = nil }
    effectCount -= effects.removeValue(forKey: channel)?.count ?? 0
  }

  /// Return the cid, creation time and own options of a channel that was created in the tail.
  func head(of channel: ChannelNumber) -> (cid: String, created: Timestamp, own: OptionPatch)? {
    for (_, effect) in effects[channel] ?? [] {
      if case .channelAssigned(let cid, let created, let own) = effect { return (cid, created, own) }
    }
    return nil
  }
}
