internal import ReceiptModel

/// The streams of an ``EventHub``, and their queue for opening slots. A slot is held while a stream is opened or
/// relisted. Only this type changes whether a stream waits or holds a slot, so that the queue agrees with the phases.
/// ``EventStreamTable`` has their HTTP/2 streams and queued events.
struct HubStreamTable {
  typealias Ref = EventHub.Ref
  typealias Stream = EventHub.Stream

  private var streams = SlotTable<Stream>()
  private var waiting: WaitingQueue<Ref, Ref>
  /// Streams whose relisting failed; they wait again from the next tick on.
  private var retries: [Ref] = []
  /// Opening slots in use, by streams being opened or relisted.
  private(set) var openings = 0

  /// - Parameter waitingMax: maximum number of streams that wait for their opening.
  init(waitingMax: Int) { waiting = WaitingQueue(limit: waitingMax) }

  var count: Int { streams.count }
  /// All streams, in the order of their slots.
  var refs: [Ref] { streams.indexes }
  /// Streams that wait for an opening slot.
  var waitingCount: Int { waiting.count + retries.count }
  /// Whether no further stream may wait for its opening.
  var isFull: Bool { waiting.isFull }

  /// A stream; nil: it was removed.
  subscript(ref: Ref) -> Stream? { _read { yield streams[ref] } }

  /// Look at a stream in place, as with every event; nil: it was removed.
  @inline(__always)
  func read<Result>(_ ref: Ref, _ body: (borrowing Stream) -> Result) -> Result? { streams.read(ref, body) }

  func contains(_ ref: Ref) -> Bool { streams.contains(ref) }

  /// Return the stream in a slot in use.
  func ref(slot: UInt32) -> Ref { streams.index(slot: slot) }

  /// Add a stream to the end of the queue.
  mutating func insert(_ stream: Stream) -> Ref {
    let ref = streams.insert(stream)
    waiting.requeue(ref, id: ref)
    return ref
  }

  /// Remove a stream, and free the slot that it holds.
  mutating func remove(_ ref: Ref) {
    guard let stream = streams.remove(ref) else { return }
    if stream.holdsOpeningSlot { openings -= 1 }
    if stream.isWaiting, waiting.cancel(ref) == nil { retries.removeAll { $0 == ref } }
  }

  /// Change a stream in place, which keeps its opening slot; nil: it was removed.
  @discardableResult
  mutating func update<Result>(_ ref: Ref, _ body: (inout Stream) -> Result) -> Result? {
    guard streams.contains(ref) else { return nil }
    return body(&streams[ref]!)
  }

  // MARK: Opening slots

  /// Give the next waiting stream a slot, if fewer than `limit` are in use.
  mutating func takeSlot(limit: Int) -> Ref? {
    guard openings < limit, let ref = waiting.popFirst() else { return nil }
    openings += 1
    streams[ref]?.takeSlot()
    return ref
  }

  mutating func tick() {
    for ref in retries { waiting.requeue(ref, id: ref) }
    retries = []
  }

  /// Count a reply that a stream waits for.
  ///
  /// - Returns: how the stream was opened, if the reply was the last one and made it live.
  mutating func replyReceived(_ ref: Ref) -> Stream.Subscribing? {
    guard let opened = streams[ref]?.replyReceived() else { return nil }
    openings -= 1
    return opened
  }

  /// Request that a stream is listed again.
  ///
  /// - Returns: whether it waits for a slot since.
  mutating func requestRelisting(_ ref: Ref) -> Bool {
    guard streams[ref]?.requestRelisting() == true else { return false }
    waiting.requeue(ref, id: ref)
    return true
  }

  /// End the relisting of a live stream; nil: it is not being relisted.
  mutating func endRelisting(_ ref: Ref) -> Stream.RelistedChannels? {
    guard let relisted = streams[ref]?.endRelisting() else { return nil }
    openings -= 1
    return relisted
  }

  /// Let a live stream wait for another slot from the next tick on, after its relisting failed.
  ///
  /// - Returns: false: it is not being relisted.
  mutating func retryRelisting(_ ref: Ref) -> Bool {
    guard streams[ref]?.retryRelisting() == true else { return false }
    retries.append(ref)
    openings -= 1
    return true
  }

  /// The first broken invariant; nil: there is none.
  var brokenInvariant: String? {
    let streams = streams.all.map(\.value)
    if openings != streams.count(where: \.holdsOpeningSlot) { return "opening slots" }
    if waitingCount != streams.count(where: \.isWaiting) { return "waiting streams" }
    return nil
  }
}

extension EventHub {
  /// A stream, with the data of its phase.
  struct Stream {
    let request: Request
    /// Index of its user; nil: a server's stream.
    let user: UserIndex?
    /// The channels that a user's stream names; nil: all.
    let named: Set<ExactText>?
    private(set) var phase = Phase.waiting

    init(_ request: Request, user: UserIndex?) {
      self.request = request
      self.user = user
      named = user == nil ? nil : request.channels.map { Set($0.map { ExactText($0) }) }
    }

    enum Phase {
      /// Waiting for an opening slot. Becomes `subscribingUser`, or `subscribing` for a server's stream.
      case waiting
      /// Subscribing to its user. Becomes `listing`.
      case subscribingUser
      /// Listing its user's channels. Becomes `subscribing`.
      case listing(OpeningList)
      /// Subscribing to its channels. Becomes `live`.
      case subscribing(Subscribing)
      case live(Live)
    }

    struct OpeningList {
      /// `reset` once the list could not be read from the time that the request names.
      var start: EventCursor.Start
      var listing = Listing()
      var isStale = false
    }

    struct Subscribing {
      /// `reset` once a replay was incomplete.
      var start: EventCursor.Start
      /// Whether the stream must be relisted once it is live.
      var isStale = false
      /// Whether 200 was answered.
      var hasBegun = false
      /// Pending replies.
      var pending = 0

      /// The time from which the channels' events are replayed; nil: from none.
      var since: Timestamp? { if case .since(let time) = start { time } else { nil } }
    }

    struct Live {
      /// Pending replies, and 1 during a relisting; while there are any, the stream's events have no id.
      var pending = 0
      var relisting = Relisting.none
    }

    /// Phase of relisting a live stream's channels, after membership changes may have been missed.
    enum Relisting {
      /// Becomes `waiting`.
      case none
      /// Waiting for an opening slot. Becomes `subscribingUser`.
      case waiting
      /// Subscribing to its user. Becomes `listing`, or `waiting` after a failure.
      case subscribingUser
      /// Becomes `none`, or `waiting` after a failure.
      case listing(RelistedChannels)
    }

    struct RelistedChannels {
      var listing = Listing()
      /// Whether the stream must be relisted again.
      var isStale = false
    }

    // MARK: Queries

    /// Whether the stream is being opened or relisted.
    var holdsOpeningSlot: Bool {
      switch phase {
      case .waiting: false
      case .subscribingUser, .listing, .subscribing: true
      case .live(let live):
        switch live.relisting {
        case .none, .waiting: false
        case .subscribingUser, .listing: true
        }
      }
    }

    /// Whether the stream waits for an opening slot.
    var isWaiting: Bool {
      switch phase {
      case .waiting: true
      case .live(let live): if case .waiting = live.relisting { true } else { false }
      case .subscribingUser, .listing, .subscribing: false
      }
    }

    /// Whether the stream waits for the subscription to its user.
    var waitsForUser: Bool {
      switch phase {
      case .subscribingUser: true
      case .live(let live): if case .subscribingUser = live.relisting { true } else { false }
      case .waiting, .listing, .subscribing: false
      }
    }

    var isLive: Bool { if case .live = phase { true } else { false } }

    /// Whether the stream is live and waits for no reply: its events have ids.
    var isComplete: Bool { if case .live(let live) = phase { live.pending == 0 } else { false } }

    /// Whether 200 was answered.
    var hasBegun: Bool {
      switch phase {
      case .waiting, .subscribingUser, .listing: false
      case .subscribing(let subscribing): subscribing.hasBegun
      case .live: true
      }
    }

    /// Whether changes of its user's membership matter: before the list is read there is nothing to change.
    var hasListBegun: Bool {
      switch phase {
      case .waiting, .subscribingUser: false
      case .listing, .subscribing, .live: true
      }
    }

    /// The list of an opening, or of a relisting; nil: none is being read.
    var listing: Listing? {
      switch phase {
      case .listing(let list): list.listing
      case .live(let live): if case .listing(let list) = live.relisting { list.listing } else { nil }
      case .waiting, .subscribingUser, .subscribing: nil
      }
    }

    /// Whether the list of an opening is being read; events of its channels must follow the list.
    var isOpeningList: Bool { if case .listing = phase { true } else { false } }

    /// How the stream subscribes to its channels; nil: in another phase.
    var subscribing: Subscribing? { if case .subscribing(let subscribing) = phase { subscribing } else { nil } }

    /// The time from which the list of an opening resumes; nil: from none.
    var listResumesFrom: Timestamp? {
      if case .listing(let list) = phase, case .since(let time) = list.start { time } else { nil }
    }

    /// Pending replies; see ``Live/pending``.
    var pending: Int {
      switch phase {
      case .waiting, .subscribingUser, .listing: 0
      case .subscribing(let subscribing): subscribing.pending
      case .live(let live): live.pending
      }
    }

    /// Whether a live stream is being relisted, or waits for it.
    var isRelisting: Bool {
      guard case .live(let live) = phase else { return false }
      if case .none = live.relisting { return false }
      return true
    }

    // MARK: Changes that keep the opening slot

    /// Handle the subscription to the stream's user.
    mutating func userSubscribed() {
      assert(waitsForUser)
      if case .subscribingUser = phase {
        phase = .listing(OpeningList(start: request.start))
      } else {
        updateLive { $0.relisting = .listing(RelistedChannels()) }
      }
    }

    /// Read the list of an opening again from its start, without a time to resume from.
    mutating func restartList() {
      updateOpeningList { list in
        list.start = .reset
        list.listing = Listing()
      }
    }

    /// Change the list of an opening or a relisting, if one is being read.
    mutating func updateListing(_ body: (inout Listing) -> Void) {
      updateOpeningList { body(&$0.listing) }
      updateLive { live in
        guard case .listing(var list) = live.relisting else { return }
        live.relisting = .none
        body(&list.listing)
        live.relisting = .listing(list)
      }
    }

    /// End the list of an opening: the stream subscribes to its channels.
    mutating func endList() {
      guard case .listing(let list) = phase else { return assertionFailure("no list is being read") }
      phase = .subscribing(Subscribing(start: list.start, isStale: list.isStale))
    }

    /// Count the answer 200 of a stream being opened. False: it was given before.
    mutating func begin() -> Bool {
      guard case .subscribing(var subscribing) = phase, !subscribing.hasBegun else { return false }
      subscribing.hasBegun = true
      phase = .subscribing(subscribing)
      return true
    }

    /// Tell the client to query its state again once the stream is live: a replay was incomplete.
    mutating func replayIncomplete() {
      guard case .subscribing(var subscribing) = phase else { return }
      subscribing.start = .reset
      phase = .subscribing(subscribing)
    }

    /// Wait for one more reply.
    mutating func expectReply() {
      if case .subscribing(var subscribing) = phase {
        subscribing.pending += 1
        phase = .subscribing(subscribing)
      } else {
        assert(isLive)
        updateLive { $0.pending += 1 }
      }
    }

    private mutating func updateOpeningList(_ body: (inout OpeningList) -> Void) {
      guard case .listing(var list) = phase else { return }
      // Releases the state's own reference, so that its arrays are changed in place.
      phase = .waiting
      body(&list)
      phase = .listing(list)
    }

    private mutating func updateLive(_ body: (inout Live) -> Void) {
      guard case .live(var live) = phase else { return }
      phase = .waiting
      body(&live)
      phase = .live(live)
    }

    // MARK: Changes of the opening slot, for the table

    fileprivate mutating func takeSlot() {
      assert(isWaiting)
      if case .waiting = phase {
        phase = user == nil ? .subscribing(Subscribing(start: request.start)) : .subscribingUser
      } else {
        updateLive { $0.relisting = .subscribingUser }
      }
    }

    /// Count a reply. The last one of an opening makes the stream live; returns how it was opened.
    fileprivate mutating func replyReceived() -> Subscribing? {
      guard case .subscribing(var subscribing) = phase else {
        updateLive { $0.pending -= 1 }
        return nil
      }
      subscribing.pending -= 1
      guard subscribing.pending == 0 else {
        phase = .subscribing(subscribing)
        return nil
      }
      phase = .live(Live())
      return subscribing
    }

    /// Request a relisting. False: one is waiting, or follows the present opening or relisting.
    fileprivate mutating func requestRelisting() -> Bool {
      switch phase {
      case .waiting, .subscribingUser: return false
      case .listing:
        updateOpeningList { $0.isStale = true }
        return false
      case .subscribing(var subscribing):
        subscribing.isStale = true
        phase = .subscribing(subscribing)
        return false
      case .live(var live):
        switch live.relisting {
        case .waiting, .subscribingUser: return false
        case .listing(var list):
          list.isStale = true
          live.relisting = .listing(list)
          phase = .live(live)
          return false
        case .none:
          live.relisting = .waiting
          live.pending += 1
          phase = .live(live)
          return true
        }
      }
    }

    fileprivate mutating func endRelisting() -> RelistedChannels? {
      guard case .live(var live) = phase, case .listing(let list) = live.relisting else { return nil }
      live.relisting = .none
      live.pending -= 1
      phase = .live(live)
      return list
    }

    fileprivate mutating func retryRelisting() -> Bool {
      guard isLive, holdsOpeningSlot else { return false }
      updateLive { $0.relisting = .waiting }
      return true
    }
  }
}
