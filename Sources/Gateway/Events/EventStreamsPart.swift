internal import HTTP2Session
internal import Logging
internal import NIOCore
internal import Operations
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// The store requests of the ``EventHub``.
enum EventStoreRequest {
  case subscribeUser(EventHub.UserIndex)
  case unsubscribeUser(EventHub.UserIndex)
  case list(EventHub.Ref)
  case subscribe(frame: UInt32)
  case unsubscribe(frame: UInt32)
}

/// The event streams of one loop: performs the actions of ``EventHub``, delivers events, and ends streams.
final class EventStreamsPart: GatewayPart {
  private(set) var hub: EventHub
  private(set) var table = EventStreamTable()
  let writer = EventWriter()
  /// Whether ``perform()`` runs.
  private var isPerforming = false
  /// Checks of the streams so far.
  private(set) var ticks = 0
  /// Streams begun, and those resumed from an id, since the start.
  private var opened: UInt64 = 0
  private var resumes: UInt64 = 0
  /// Streams reset since the start because their client stalled.
  private var stalled: UInt64 = 0

  init(_ limits: GatewayLimits) { hub = EventHub(limits: limits.events, waiting: limits.waiting) }

  /// Open a stream. It is answered once its channels are subscribed to; a resuming stream, once they are listed.
  ///
  /// - Throws: `store_busy` where too many streams are open, or while draining; `limit_reached`.
  func open(_ request: EventHub.Request, _ context: RequestContext, wantsTotals: Bool) throws(Problem) {
    try loop.openStreams.checkNotDraining()
    let stream = EventStream(try hub.open(request), context, totalsOf: wantsTotals ? request.user : nil)
    table.insert(stream)
    loop.totals.opened(stream)
    perform()
  }

  private func remove(_ stream: EventStream) {
    table.remove(stream)
    loop.totals.closed(stream)
  }

  /// Return the id of a stream's next event; nil: it has none.
  private func id(_ stream: EventStream) -> Timestamp? { hub.hasID(stream.ref) ? hub.time : nil }

  /// Write an event for one stream only.
  func write(_ block: ByteBuffer, _ stream: EventStream, _ key: () -> StreamQueue.Key) {
    if stream.hasBegun { writer.write(block, to: stream, id: id(stream), on: loop, key: key) }
  }

  // MARK: Store replies and events

  /// Deliver the events of a shard.
  func deliver(_ shard: ShardID, _ payload: RawSpan) throws(WireError) {
    let fields = try EventsFields(payload)
    for channel in fields.channels { deliver(channel, .allStreams) }
    for user in fields.users {
      guard let index = hub.index(ofUser: user.user) else { continue }
      for event in user.events {
        switch event {
        case .membership(let entry, let time, let isGone): hub.membership(user: index, entry, at: time, isGone: isGone)
        case .tokensRevoked(let before): hub.tokensRevoked(user: index, before: before)
        }
      }
    }
    if fields.isLost { hub.lost(shard) }
    hub.completed(shard, through: fields.through)
    perform()
  }

  func completed(_ request: EventStoreRequest, with result: StoreResult) {
    switch result {
    case .reply(let kind, let payload): replied(request, kind: kind, payload: payload)
    case .failure(let failure): failed(request, failure.problem)
    }
  }

  private func replied(_ request: EventStoreRequest, kind: FrameKind, payload: RawSpan) {
    do throws(WireError) {
      switch request {
      case .subscribeUser(let index):
        var reader = FieldReader(payload)
        let through = try reader.time()
        try reader.end()
        hub.userSubscribed(index, through: through)
      case .list(let ref): try listed(ref, payload)
      case .subscribe(let frame):
        let fields = try SubscribedFields(payload)
        let recipients = hub.replayRecipients(of: Int(frame))
        for channel in fields.channels { deliver(channel, recipients) }
        hub.subscribed(Int(frame), through: fields.through, isComplete: fields.isComplete)
      case .unsubscribeUser(let index): hub.userUnsubscribed(index)
      case .unsubscribe(let frame): hub.unsubscribed(Int(frame))
      }
    } catch {
      loop.logMalformedReply(error, kind)
      return failed(request, Problem(.internalError))
    }
    perform()
  }

  private func listed(_ ref: EventHub.Ref, _ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    var entries: [ChannelEntryFields] = []
    let next = try reader.channelList { channel throws(WireError) in
      entries.append(try ChannelEntryFields(channel))
    }
    hub.listed(ref, entries, next: next)
  }

  private func failed(_ request: EventStoreRequest, _ problem: Problem) {
    switch request {
    case .subscribeUser(let index): hub.userFailed(index, problem)
    case .list(let ref): hub.listFailed(ref, problem)
    case .subscribe(let frame): hub.subscribeFailed(Int(frame), problem)
    case .unsubscribeUser(let index): hub.userUnsubscribeFailed(index)
    case .unsubscribe(let frame): hub.unsubscribeFailed(Int(frame))
    }
    perform()
  }

  /// Subscribe again on a new connection to the store, which has no subscriptions.
  ///
  /// - Parameter shards: the shards that the connection serves; nil: all.
  func connected(_ shards: [ShardID]? = nil) {
    let isSame = writer.connected(to: loop.store.storeID)
    hub.connected(
      shardCount: loop.store.shardCount,
      isSame: isSame,
      shards: shards.map { Set($0.map { Int($0.rawValue) }) }
    )
    perform()
  }

  // MARK: Actions

  /// Perform the hub's actions in order. An action that fails at once yields further ones, which follow in this call:
  /// a nested call performs none, so that stack depth does not grow with the number of waiting streams.
  private func perform() {
    guard !isPerforming else { return }
    isPerforming = true
    defer { isPerforming = false }
    while true {
      let actions = hub.takeActions()
      if actions.isEmpty { break }
      for action in actions { perform(action) }
    }
  }

  private func perform(_ action: EventHub.Action) {
    switch action {
    case .subscribeUser(let index, let name):
      trySend(.subscribeUser, to: home(of: name), name: name, request: .subscribeUser(index)) {
        $0.writeSubscribeUser(on: true)
      }
    case .unsubscribeUser(let index, let name):
      trySend(.subscribeUser, to: home(of: name), name: name, request: .unsubscribeUser(index)) {
        $0.writeSubscribeUser(on: false)
      }
    case .list(let ref, let user, let issued, let cursor, let since):
      trySend(.listChannels, to: home(of: user), name: user, request: .list(ref), issued: issued) {
        $0.writeListChannels(withAll: since != nil, limit: UserChannelScan.listMax, cursor: cursor, deletedSince: since)
      }
    case .subscribe(let frame, let since):
      let cids = hub.cids(of: frame)
      trySend(
        .subscribe,
        to: hub.shard(of: frame),
        name: nil,
        request: .subscribe(frame: UInt32(truncatingIfNeeded: frame))
      ) {
        $0.writeSubscribe(changesSince: since, cids)
      }
    case .unsubscribe(let frame):
      let cids = hub.cids(of: frame)
      trySend(
        .unsubscribe,
        to: hub.shard(of: frame),
        name: nil,
        request: .unsubscribe(frame: UInt32(truncatingIfNeeded: frame))
      ) {
        $0.writeStrings(cids)
      }
    case .begin(let ref): begin(ref)
    case .live(let ref): if let stream = table[ref] { sendHeartbeat(stream) }
    case .reset(let ref): reset(ref)
    case .refuse(let ref, let code, let detail): refuse(ref, Problem(code, detail))
    case .end(let ref):
      if let stream = table[ref] {
        end(stream, "the connection to the store was lost, or the token was revoked")
      }
    case .left(let ref, let cid, let time):
      guard let stream = table[ref], let user = hub[ref]?.request.user else { return }
      let block = EventJSON.left(cid: cid, user: user, at: time)
      write(block, stream) { StreamQueue.Key(.member, cid: cid, subject: user) }
      loop.totals.changed(for: stream)
    case .deleted(let ref, let cid, let time):
      guard let stream = table[ref] else { return }
      let event = EventFields.channelDeleted(at: time)
      write(EventJSON.block(.channelDeleted, of: event, cid: cid), stream) {
        StreamQueue.Key(.channelDeleted, of: event, cid: cid)
      }
      loop.totals.deliver(event, to: stream, isOwn: false)
    }
  }

  private func home(of user: String) -> ShardID { ShardID(UInt16(hub.home(of: user))) }

  private func trySend(
    _ kind: FrameKind,
    to shard: ShardID,
    name: String?,
    request: EventStoreRequest,
    issued: UInt32? = nil,
    _ fields: (inout ByteBuffer) -> Void
  ) {
    let pending = PendingRequest(.events(request), route: .events, isServer: false, isPageQuery: false)
    let name = name.map { Array($0.utf8) }
    if loop.trySend(kind, to: .shard(shard, name: name?.span.bytes), pending, issued: issued, fields) {
      return
    }
    failed(request, Problem(.storeBusy))
  }

  private func begin(_ ref: EventHub.Ref) {
    guard let stream = table[ref], let connection = loop.connections.connection(stream.connection) else {
      return
    }
    loop.connections.markDirty(stream.connection)
    let headers: [HTTP2Header] = [.noStore, HTTP2Header("x-accel-buffering", "no")]
    connection.startStreaming(stream.handle, status: 200, contentType: .eventStream, headers: headers)
    stream.hasBegun = true
    opened &+= 1
    if let hubStream = hub[ref], hubStream.request.start != .live {
      resumes &+= 1
      // The unread counts may have changed while the client was away.
      loop.totals.changed(for: stream)
    }
    loop.counters.answered(Route.events, status: 200)
    loop.endTurnSoon()
  }

  private func refuse(_ ref: EventHub.Ref, _ problem: Problem) {
    guard let stream = table[ref] else { return }
    remove(stream)
    loop.answer(problem, route: .events, stream: stream.handle, connection: stream.connection)
    loop.endTurnSoon()
  }

  /// End a started stream, with a comment that gives the reason.
  private func end(_ stream: EventStream, _ reason: StaticString) {
    remove(stream)
    hub.close(stream.ref)
    guard let connection = loop.connections.connection(stream.connection) else { return }
    loop.connections.markDirty(stream.connection)
    var bytes = ByteBuffer()
    bytes.writeStaticString(": ")
    bytes.writeStaticString(reason)
    bytes.writeStaticString("\n\n")
    connection.write(stream.handle, bytes)
    connection.finish(stream.handle)
    loop.endTurnSoon()
  }

  private func reset(_ ref: EventHub.Ref) {
    guard let stream = table[ref] else { return }
    writer.writeReset(to: stream, id: id(stream), on: loop)
  }

  // MARK: Delivery

  /// Deliver the events of one channel.
  private func deliver(_ channel: ChannelEventsFields, _ recipients: EventHub.ReplayRecipients) {
    let events = hub.eventsToDeliver(channel.events, to: recipients)
    // A member's latest join decides which events they get, including earlier ones.
    for case .memberAdded(let member) in events {
      hub.joined(member.user, channel.cid, at: member.at)
    }
    for (index, event) in zip(events.indices, events) {
      guard let channelIndex = hub.index(ofChannel: channel.cid) else { return }
      let refs: [EventHub.Ref]
      var isFormer = false
      switch recipients {
      case .allStreams: refs = hub.refs(ofChannel: channelIndex)
      case .streams(let streams), .newMembers(let streams):
        refs = streams.filter { hub.attachments.isAttached($0, channelIndex) }
      case .formerMember(let ref):
        refs = [ref]
        isFormer = true
      }
      let subject = hub.index(ofUser: event.subject)
      writer.clearForms()
      for ref in refs where hub.receives(event, ref, channel: channelIndex, isFormer: isFormer) {
        guard let stream = table[ref], stream.hasBegun else { continue }
        let forms = event.forms(for: hub.viewer(ref, subject: subject))
        if forms.isEmpty { continue }
        if let limits = channel.limits[index], let joinedAt = hub.joinedAt(ref, channelIndex),
          let limit = limits.first(where: { $0.from <= joinedAt && joinedAt <= $0.through })
        {
          deliver(event, forms, limit: limit, joinedAt: joinedAt, cid: channel.cid, to: stream)
          continue
        }
        for form in EventForm.allCases where forms.contains(EventForm.Forms(form)) {
          writer.write(form, of: event, cid: channel.cid, to: stream, id: id(stream), on: loop)
        }
        loop.totals.deliver(event, to: stream, isOwn: forms.hasOwn)
      }
      hub.detachAfter(event, channel: channelIndex, to: refs, later: events[(index + 1)...])
    }
  }

  /// Deliver to a member the part of an event that hidden history lets them see (R6).
  private func deliver(
    _ event: EventFields,
    _ forms: EventForm.Forms,
    limit: HistoryLimit,
    joinedAt: Timestamp,
    cid: String,
    to stream: EventStream
  ) {
    guard let visible = event.limited(by: limit, forms, joinedAt: joinedAt) else { return }
    for form in EventForm.allCases where visible.forms.contains(EventForm.Forms(form)) {
      write(EventJSON.block(form, of: visible.event, cid: cid), stream) {
        StreamQueue.Key(form, of: visible.event, cid: cid)
      }
    }
    loop.totals.deliver(visible.event, to: stream, isOwn: visible.forms.hasOwn)
  }

  // MARK: HTTP/2 events

  /// Clean up a stream whose client has disconnected.
  func aborted(_ handle: HTTP2StreamHandle) {
    guard let stream = table.stream(of: handle) else { return }
    remove(stream)
    hub.close(stream.ref)
    perform()
  }

  /// Write queued events after a stream has become writable again.
  func drained(_ handle: HTTP2StreamHandle) {
    guard let stream = table.stream(of: handle) else { return }
    writer.writeQueued(of: stream, on: loop)
  }

  // MARK: Metrics

  override func collect(into samples: inout MetricSamples) {
    let gauges: [(String, String, Int)] = [
      ("event_streams", "Streams of events open.", hub.streamCount),
      ("event_channels", "Channels with open event streams.", hub.channelCount),
      ("event_openings_waiting", "Event streams waiting to be opened.", hub.waitingCount),
    ]
    for (name, help, value) in gauges { samples.gauge("tidemark_gateway_\(name)", help: help, Double(value)) }
    writer.collect(into: &samples)
    samples.counter(
      "tidemark_gateway_event_streams_opened_total",
      help: "Streams of events begun.",
      Int64(clamping: opened)
    )
    samples.counter(
      "tidemark_gateway_event_resumes_total",
      help: "Event streams resumed from an id.",
      Int64(clamping: resumes)
    )
    samples.counter(
      "tidemark_gateway_event_streams_stalled_total",
      help: "Event streams reset because their client took no events.",
      Int64(clamping: stalled)
    )
  }
}

extension EventStreamsPart: OpenStreamOwner {
  var openStreams: [OpenStream] { table.all }
  func openStreams(part: Int, of parts: Int) -> [OpenStream] { table.streams(part: part, of: parts) }
  var checkInterval: TimeAmount { min(loop.limits.heartbeat, .seconds(1)) }
  var stallTimeout: TimeAmount { loop.limits.eventStallTimeout }

  /// End a stream, so that its client reconnects if it may; one that has not begun is refused.
  func end(_ stream: OpenStream, _ reason: StreamEnd) {
    guard let stream = table.stream(of: stream.handle) else { return }
    guard stream.hasBegun else { return hub.fail(stream.ref, reason.problem) }
    switch reason {
    case .tokenExpired: end(stream, "the token has expired")
    case .tokenRevoked: end(stream, "the token has been revoked")
    case .draining: end(stream, "this gateway is shutting down")
    }
  }

  /// Remove a stream whose client takes no events, and drop its queue. The client can resume from its last event.
  func removeStalled(_ stream: OpenStream) {
    guard let stream = table.stream(of: stream.handle) else { return }
    stalled &+= 1
    remove(stream)
    hub.close(stream.ref)
  }

  func completeEnds() { perform() }

  /// Send heartbeats to a part of the streams, so that not all 50,000 are written at once.
  func streamsChecked() {
    let parts = max(1, Int(loop.limits.heartbeat.nanoseconds / checkInterval.nanoseconds))
    let part = ticks % parts
    ticks &+= 1
    for stream in table.streams(part: part, of: parts) { sendHeartbeat(stream) }
    hub.tick()
    perform()
    loop.totals.count()
  }

  /// Write a heartbeat: a comment, and the id up to which the stream is complete. Queued events go out before any
  /// newer id.
  private func sendHeartbeat(_ stream: EventStream) {
    if stream.hasBegun { writer.writeHeartbeat(to: stream, id: id(stream), on: loop) }
  }
}

extension EventForm.Forms {
  /// Whether the user's own mark is among the forms.
  fileprivate var hasOwn: Bool {
    contains(EventForm.Forms(.markRead)) || contains(EventForm.Forms(.markUnread))
  }
}
