internal import DequeModule
internal import NIOCore
internal import ReceiptModel

/// A scan over channels, for a request or a change of a channel type. It loads channels that are not in memory, a few
/// at a time.
struct ChannelScan {
  enum Purpose {
    /// Collect the changes in each channel at or after a time (Proto/frames.md, subscribe).
    case changes(since: Timestamp)
    /// Send to watchers how others see a user's row since a time (announce_row).
    case row(of: [UInt8], at: Timestamp)
    /// Send the options of all watched channels of a type, which changed at a time.
    case options(ofType: [UInt8], at: Timestamp)
    /// Report expired acknowledgement requests in watched channels, of which the first expired at `since`.
    case expiries(since: Timestamp)
  }

  /// Changes that were found in one channel.
  struct Found {
    let cid: [UInt8]
    /// *channel events*; empty if nothing has changed.
    var bytes: ByteBuffer
    var events: Int
    /// The channel's change count when it was scanned.
    var changes: UInt32
  }

  let purpose: Purpose
  /// A request waits for the scan.
  let isRequested: Bool
  /// Identifies the scan, also to a request that waits for it.
  var scanID: UInt32 = 0
  /// Start time, in the loop's elapsed time.
  var began: Int64 = 0
  /// Channels still to scan.
  var cids: Deque<[UInt8]> = []
  /// Of `options`: number of the next watched channel.
  var next = 0
  /// Channel loads in flight.
  var loading = 0
  private(set) var found: [Found] = []
  /// Number of events in ``found``, and their bytes.
  private(set) var events = 0
  private(set) var bytes = 0
  /// Last effect that the reply reveals.
  var last = LogIndex.zero
  /// Latest acknowledgement request expiry that the reply reveals; none if it reveals none.
  var expiry = Timestamp.none

  mutating func add(_ item: Found) {
    found.append(item)
    events += item.events
    bytes += item.bytes.readableBytes
  }

  /// Move stale channels from the found ones back to those to scan.
  mutating func requeueStale(where isStale: (Found) -> Bool) {
    let all = found
    found = []
    (events, bytes) = (0, 0)
    for item in all {
      if isStale(item) { cids.append(item.cid) } else { add(item) }
    }
  }
}
