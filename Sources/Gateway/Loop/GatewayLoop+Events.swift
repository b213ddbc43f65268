internal import HTTP2Session
internal import Logging
internal import NIOCore
internal import Operations
package import ReceiptModel
package import ReceiptWire
internal import StoreClient

/// Performs what the ``EventHub`` says, and writes events into their streams.
extension GatewayLoop {
  // MARK: From the store

  /// Passes on what a shard tells.
  package func storeEvents(_ shard: ShardID, _ payload: RawSpan) throws(WireError) {
    let fields = try EventsFields(payload)
    for channel in fields.channels { tell(channel, .everybody) }
    for user in fields.users {
      guard let place = events.hub.place(ofUser: user.user) else { continue }
      for event in user.events {
        switch event {
        case .membership(let entry, let time, let isGone):
          events.hub.membership(user: place, entry, at: time, isGone: isGone)
        case .tokensRevoked(let before): events.hub.tokensRevoked(user: place, before: before)
        }
      }
    }
    if fields.isLost { events.hub.lost(shard) }
    events.hub.passed(shard, through: fields.through)
    performEvents()
  }

  func eventReplied(_ request: PendingRequest, _ kind: FrameKind, _ payload: RawSpan) {
    do throws(WireError) {
      switch request.shape {
      case .eventUser:
        var reader = FieldReader(payload)
        let through = try reader.time()
        try reader.end()
        events.hub.userSubscribed(request.gather, through: through)
      case .eventList: try listed(request, payload)
      case .eventFrame:
        let fields = try SubscribedFields(payload)
        let told = events.hub.told(of: Int(request.entry))
        for channel in fields.channels { tell(channel, told) }
        events.hub.subscribed(Int(request.entry), through: fields.through, isComplete: fields.isComplete)
      case .eventUserEnd: events.hub.userUnsubscribed(request.gather)
      case .eventFrameEnd: events.hub.unsubscribed(Int(request.entry))
      default: break
      }
    } catch {
      storeIsMistaken(error, kind)
      return eventFailed(request, Problem(.internalError))
    }
    performEvents()
  }

  private func listed(_ request: PendingRequest, _ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    var entries: [ChannelEntryFields] = []
    for _ in 0..<(try reader.count(elementBytesMin: ChannelEntryFields.byteCountMin)) {
      entries.append(try ChannelEntryFields(&reader))
    }
    let next = try reader.optional()
    try reader.end()
    events.hub.listed(Self.ref(request), entries, next: next)
  }

  func eventFailed(_ request: PendingRequest, _ problem: Problem) {
    switch request.shape {
    case .eventUser: events.hub.userFailed(request.gather, problem)
    case .eventList: events.hub.listFailed(Self.ref(request), problem)
    case .eventFrame: events.hub.subscribeFailed(Int(request.entry), problem)
    case .eventUserEnd: events.hub.userUnsubscribeFailed(request.gather)
    case .eventFrameEnd: events.hub.unsubscribeFailed(Int(request.entry))
    default: return
    }
    performEvents()
  }

  private static func ref(_ request: PendingRequest) -> EventHub.Ref {
    EventHub.Ref(place: request.gather, generation: request.entry)
  }

  /// A connection to the store is ready, which knows of no subscription.
  func subscribeAnew() {
    let isSame = events.store == nil || events.store == store.storeID
    events.store = store.storeID
    events.hub.connected(shardCount: store.shardCount, isSame: isSame)
    performEvents()
  }

  // MARK: Steps

  func performEvents() {
    while events.hub.hasSteps {
      for step in events.hub.takeSteps() { perform(step) }
    }
  }

  private func perform(_ step: EventHub.Step) {
    switch step {
    case .subscribeUser(let place, let name):
      ask(.subscribeUser, home(of: name), name, .eventUser, gather: place) { $0.writeInteger(UInt8(1)) }
    case .unsubscribeUser(let place, let name):
      ask(.subscribeUser, home(of: name), name, .eventUserEnd, gather: place) { $0.writeInteger(UInt8(0)) }
    case .list(let ref, let user, let issued, let cursor, let since):
      let (place, generation) = (ref.place, Int(ref.generation))
      ask(.listChannels, home(of: user), user, .eventList, gather: place, entry: generation, issued: issued) {
        // 1: what was left, 2: what was deleted.
        $0.writeVarint(since == nil ? 0 : 3)
        $0.writeVarint(UserWalk.listMax)
        $0.writeOptional(cursor)
        if let since { $0.writeTime(since) }
      }
    case .subscribe(let frame, let since):
      let cids = events.hub.cids(of: frame)
      ask(.subscribe, events.hub.shard(of: frame), nil, .eventFrame, entry: frame) { buffer in
        buffer.writeVarint(since == nil ? 0 : 1)
        buffer.writeTime(since ?? .none)
        buffer.writeVarint(cids.count)
        for cid in cids { buffer.writeField(cid) }
      }
    case .unsubscribe(let frame):
      let cids = events.hub.cids(of: frame)
      ask(.unsubscribe, events.hub.shard(of: frame), nil, .eventFrameEnd, entry: frame) { buffer in
        buffer.writeVarint(cids.count)
        for cid in cids { buffer.writeField(cid) }
      }
    case .begin(let ref): begin(ref)
    case .live(let ref): if let stream = events[ref] { beat(stream) }
    case .reset(let ref): reset(ref)
    case .refuse(let ref, let code, let detail): refuse(ref, Problem(code, detail))
    case .end(let ref):
      if let stream = events[ref] { end(stream, "the way to the store was lost, or the token revoked") }
    case .left(let ref, let cid, let time):
      guard let stream = events[ref], let user = events.hub[ref]?.request.user else { return }
      let block = EventJSON.left(cid: cid, user: user, at: time)
      write(block, stream) { StreamQueue.Key(.member, cid: cid, subject: user) }
      if let user = stream.totalsOf { totalsMayHaveChanged(user) }
    case .deleted(let ref, let cid, let time):
      guard let stream = events[ref] else { return }
      let event = EventFields.channelDeleted(at: time)
      write(EventJSON.block(.channelDeleted, of: event, cid: cid), stream) {
        StreamQueue.Key(.channelDeleted, of: event, cid: cid)
      }
      noteTotals(event, stream, isOwn: false)
    }
  }

  private func home(of user: String) -> ShardID { ShardID(UInt16(events.hub.home(of: user))) }

  private func ask(
    _ kind: FrameKind,
    _ shard: ShardID,
    _ name: String?,
    _ shape: ReplyShape,
    gather: UInt32 = 0,
    entry: Int = 0,
    issued: UInt32? = nil,
    _ fields: (inout ByteBuffer) -> Void
  ) {
    // It belongs to no stream of HTTP/2: what it says of one is not looked at.
    let request = PendingRequest(
      stream: HTTP2StreamHandle(slot: 0, generation: 0),
      connection: 0,
      gather: gather,
      entry: UInt32(truncatingIfNeeded: entry),
      shape: shape,
      route: .events,
      isServer: false
    )
    let token = pending.insert(request)
    let isSent: Bool
    if let name {
      let bytes = Array(name.utf8)
      isSent = store.send(kind, shard: shard, name: bytes.span.bytes, token: token, issued: issued, fields)
    } else {
      isSent = store.send(kind, shard: shard, name: nil, token: token, issued: issued, fields)
    }
    if isSent { return }
    _ = pending.remove(token)
    eventFailed(request, Problem(.storeBusy))
  }

  private func begin(_ ref: EventHub.Ref) {
    guard let stream = events[ref], let connection = connections.connection(stream.connection) else { return }
    connections.markDirty(stream.connection)
    let headers = [HTTP2Header("cache-control", "no-store"), HTTP2Header("x-accel-buffering", "no")]
    connection.startStreaming(stream.handle, status: 200, contentType: .eventStream, headers: headers)
    stream.hasBegun = true
    events.opened &+= 1
    if let hub = events.hub[ref], hub.request.start != .live {
      events.resumes &+= 1
      // What is unread may have changed meanwhile.
      if let user = stream.totalsOf { totalsMayHaveChanged(user) }
    }
    counters.answered(Route.events.rawValue, status: 200)
    endTurnSoon()
  }

  private func refuse(_ ref: EventHub.Ref, _ problem: Problem) {
    guard let stream = events[ref] else { return }
    events.remove(stream)
    guard let connection = connections.connection(stream.connection), connection.isOpen(stream.handle) else {
      return
    }
    connections.markDirty(stream.connection)
    answer(problem, Route.events.rawValue, stream.handle, connection)
    endTurnSoon()
  }

  /// Ends a stream that has begun, with a comment that says why.
  func end(_ stream: EventStream, _ reason: StaticString) {
    events.remove(stream)
    events.hub.close(stream.ref)
    guard let connection = connections.connection(stream.connection) else { return }
    connections.markDirty(stream.connection)
    var bytes = ByteBuffer()
    bytes.writeStaticString(": ")
    bytes.writeStaticString(reason)
    bytes.writeStaticString("\n\n")
    connection.write(stream.handle, bytes)
    connection.finish(stream.handle)
    endTurnSoon()
  }

  private func reset(_ ref: EventHub.Ref) {
    guard let stream = events[ref] else { return }
    events.resets &+= 1
    write(EventJSON.reset(at: Timestamp(milliseconds: now)), stream) { StreamQueue.Key(.reset) }
  }

  // MARK: Telling

  /// Tells of what happened in one channel.
  private func tell(_ channel: ChannelEventsFields, _ told: EventHub.Told) {
    let heard = events.hub.heard(channel.events, by: told)
    for (index, event) in zip(heard.indices, heard) {
      guard let place = events.hub.place(ofChannel: channel.cid) else { return }
      let refs: [EventHub.Ref]
      var isFormer = false
      switch told {
      case .everybody: refs = events.hub.refs(ofChannel: place)
      case .streams(let streams), .newMembers(let streams):
        refs = streams.filter { events.hub.isAttached($0, channel.cid) }
      case .formerMember(let ref):
        refs = [ref]
        isFormer = true
      }
      let subject = events.hub.place(ofUser: event.subject)
      events.forgetBlocks()
      for ref in refs where events.hub.hears(event, ref, channel: place, isFormer: isFormer) {
        guard let stream = events[ref], stream.hasBegun else { continue }
        let forms = event.forms(for: events.hub.viewer(ref, subject: subject))
        if forms.isEmpty { continue }
        for form in EventForm.allCases where forms.contains(EventForm.Forms(form)) {
          tell(form, of: event, cid: channel.cid, stream)
        }
        noteTotals(event, stream, isOwn: forms.hasOwn)
      }
      events.hub.passedOn(event, channel: place, to: refs, later: heard[(index + 1)...])
    }
  }

  private func tell(_ form: EventForm, of event: EventFields, cid: String, _ stream: EventStream) {
    let index = Int(form.rawValue)
    let hasID = events.hub.hasID(stream.ref) && events.hub.time != nil
    if events.blocks[index] == nil { events.blocks[index] = EventJSON.block(form, of: event, cid: cid) }
    guard let block = events.blocks[index] else { return }
    if stream.queue.isEmpty {
      let which = hasID ? 1 : 0
      if events.ended[which][index] == nil {
        events.ended[which][index] = finished(block, id: hasID ? events.hub.time : nil)
      }
      if let bytes = events.ended[which][index], take(bytes, stream) { return }
    }
    keep(block, stream, StreamQueue.Key(form, of: event, cid: cid), id: hasID ? events.hub.time : nil)
  }

  /// Writes one event that only this stream gets.
  func write(_ block: ByteBuffer, _ stream: EventStream, _ key: () -> StreamQueue.Key) {
    guard stream.hasBegun else { return }
    let id = events.hub.hasID(stream.ref) ? events.hub.time : nil
    if stream.queue.isEmpty, take(finished(block, id: id), stream) { return }
    keep(block, stream, key(), id: id)
  }

  /// A block with its id and its end.
  func finished(_ block: ByteBuffer, id: Timestamp?) -> ByteBuffer {
    var bytes = block
    writeID(id, into: &bytes)
    bytes.writeStaticString("\n")
    return bytes
  }

  private func writeID(_ id: Timestamp?, into bytes: inout ByteBuffer) {
    guard let id, let name = events.store else { return }
    bytes.writeStaticString("id: ")
    EventCursor(store: name, time: id).write(into: &bytes)
    bytes.writeStaticString("\n")
  }

  /// False: HTTP/2 takes no more for now.
  private func take(_ bytes: ByteBuffer, _ stream: EventStream) -> Bool {
    guard let connection = connections.connection(stream.connection) else { return true }
    switch connection.write(stream.handle, bytes, queueBytesMax: limits.eventStreamBytes) {
    case .queued:
      connections.markDirty(stream.connection)
      endTurnSoon()
      events.eventsWritten &+= 1
      return true
    case .full: return false
    // Its end is on its way here.
    case .gone: return true
    }
  }

  private func keep(_ block: ByteBuffer, _ stream: EventStream, _ key: StreamQueue.Key, id: Timestamp?) {
    let wasReset = stream.queue.isReset
    let entry = StreamQueue.Entry(key: key, bytes: block, id: id)
    switch stream.queue.put(entry, reset: { EventJSON.reset(at: Timestamp(milliseconds: now)) }) {
    case .kept: break
    case .conflated: events.eventsConflated &+= 1
    case .overflowed: if !wasReset { events.resets &+= 1 }
    }
    events.queueCountMax = max(events.queueCountMax, stream.queue.count)
  }

  /// The stream takes bytes again.
  func drained(_ stream: EventStream) {
    while let entry = stream.queue.pop() {
      guard take(finished(entry.bytes, id: entry.id), stream) else { return stream.queue.putBack(entry) }
    }
  }
}

extension EventForm.Forms {
  /// The user's own mark is among them.
  fileprivate var hasOwn: Bool {
    contains(EventForm.Forms(.markRead)) || contains(EventForm.Forms(.markUnread))
  }
}

extension StreamQueue.Key {
  init(_ form: EventForm, of event: EventFields, cid: String) {
    switch event {
    case .row(let row):
      let kind: Kind =
        switch form {
        case .read: .read
        case .delivered: .delivered
        case .markRead: .markRead
        case .markUnread: .markUnread
        default: .row
        }
      self.init(kind, cid: cid, thread: row.thread, subject: row.ownRow.user)
    case .messageNew(let message):
      self.init(.messageNew, cid: cid, thread: message.thread, subject: message.message)
    case .messageDeleted(let thread, _, let message, _):
      self.init(.messageDeleted, cid: cid, thread: thread, subject: message)
    case .truncated: self.init(.truncated, cid: cid)
    case .channelUpdated: self.init(.updated, cid: cid)
    case .channelDeleted: self.init(.channelDeleted, cid: cid)
    case .memberAdded(let member): self.init(.member, cid: cid, subject: member.user)
    case .memberRemoved(let user, _, _): self.init(.member, cid: cid, subject: user)
    case .status(let run):
      let messages = "\(run.sender) \(run.from.rawValue) \(run.to.rawValue)"
      self.init(.status, cid: cid, thread: run.thread, subject: messages)
    case .receipt(let receipt):
      self.init(.receipt, cid: cid, subject: "\(receipt.message)\0\(receipt.user)")
    }
  }
}
