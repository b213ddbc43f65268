internal import ReceiptModel

/// The channels and users that the hub subscribes to, and the frames that do so.
extension EventHub {
  struct Channel {
    let cid: String
    let shard: Int
    var streams: [UInt32] = []
    /// Whether the store has confirmed the subscription.
    var isLive = false
    /// Whether the store may have a subscription to it, also after a refusal or a late reply.
    var mayBeSubscribed = false
    /// Frames in flight that name it.
    var frames = 0
    /// Whether it is queued to be checked for remaining streams.
    var isIdle = false
  }

  struct User {
    let name: String
    let home: Int
    var streams: [UInt32] = []
    var isLive = false
    var isSubscribing = false
    /// As for a channel.
    var mayBeSubscribed = false
    /// Unsubscribe requests in flight.
    var unsubscribesInFlight = 0
    var isIdle = false
  }

  enum Purpose: Equatable {
    case open(Ref)
    case attach([Ref])
    case former(Ref)
    /// Subscribe again after a loss, for all streams of the channels.
    case resync
    /// Unsubscribe channels without streams.
    case end
  }

  struct Frame {
    let shard: Int
    let channels: [ChannelIndex]
    let since: Timestamp?
    let purpose: Purpose
  }
}
