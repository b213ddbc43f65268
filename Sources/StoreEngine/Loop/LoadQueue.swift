internal import DequeModule
internal import ReceiptModel

/// Channel loads of a loop: those that wait for room in memory, those in flight, and results that are not installed
/// yet.
struct LoadQueue {
  /// A channel that was read from storage.
  struct LoadedChannel {
    var request: LoadRequest
    var reference: ChannelReference
    var result: Result<StoredChannel?, StorageError>
  }

  /// Number of loads in flight, including results that are not installed yet.
  private(set) var inFlight = 0
  /// Delayed loads: for requests, and in the background.
  private var delayed: Deque<(request: LoadRequest, reference: ChannelReference)> = []
  private var delayedInBackground: Deque<(request: LoadRequest, reference: ChannelReference)> = []
  /// Loads for requests that have started since the last background one.
  private var startsSinceBackground = 0
  private var arrived: Deque<LoadedChannel> = []
  private var arrivedInBackground: Deque<LoadedChannel> = []

  /// Return whether no delayed load must start before this one.
  func canStart(_ request: LoadRequest) -> Bool {
    delayed.isEmpty && (delayedInBackground.isEmpty || !request.isBackground)
  }

  mutating func delay(_ request: LoadRequest, _ reference: ChannelReference) {
    if request.isBackground {
      delayedInBackground.append((request, reference))
    } else {
      delayed.append((request, reference))
    }
  }

  /// Take the next delayed load: those for requests first, but a background one after every four. If membership
  /// changes never reached the indexes, requests would be refused in the end.
  mutating func next() -> (request: LoadRequest, reference: ChannelReference)? {
    if startsSinceBackground < 4, let next = delayed.popFirst() {
      startsSinceBackground += 1
      return next
    }
    startsSinceBackground = 0
    return delayedInBackground.popFirst() ?? delayed.popFirst()
  }

  mutating func began() { inFlight += 1 }

  mutating func installed() { inFlight -= 1 }

  func hasArrived(isBackground: Bool) -> Bool {
    isBackground ? !arrivedInBackground.isEmpty : !arrived.isEmpty
  }

  mutating func keep(_ arrival: LoadedChannel) {
    if arrival.request.isBackground { arrivedInBackground.append(arrival) } else { arrived.append(arrival) }
  }

  /// Take the oldest result that is kept.
  mutating func takeLoaded(isBackground: Bool) -> LoadedChannel? {
    isBackground ? arrivedInBackground.popFirst() : arrived.popFirst()
  }
}
