internal import Foundation
package import NIOCore
internal import NIOPosix
package import ReceiptModel
package import ReceiptWire
internal import StoreEngine

/// A store for tests of its clients: the engine's loop over storage in memory, behind a socket. Tests decide which
/// requests reach the engine (``Mode``), and move its clock.
package final class StoreInMemory: Sendable {
  /// How the store answers requests.
  package enum Mode: Sendable {
    /// As the engine does.
    case normal
    /// Ignores every request.
    case silent
    /// Answers every request with this error.
    case refusing(ErrorCode)
    /// Answers assignments of channel types and users with this error.
    case refusingAssignments(ErrorCode)
    /// Answers requests of this kind with this error.
    case refusingKind(FrameKind, ErrorCode)
    /// Answers requests about this channel with this error.
    case refusingChannel(String, ErrorCode)
    /// Ignores requests of this kind.
    case ignoringKind(FrameKind)
    /// Closes the connection at a request of this kind.
    case closing(FrameKind)
    /// Answers every request with a payload that does not parse.
    case garbled
    /// Answers each request as the script says.
    case scripted(@Sendable (Request) throws -> Answer)
  }

  /// The answer to one request.
  package enum Answer: Sendable {
    /// The engine's.
    case engine
    case none
    case refusal(ErrorCode)
    /// A reply with these fields.
    case reply(ByteBuffer)
    /// None: the connection is closed.
    case closing
  }

  /// A received request.
  package struct Request: Sendable {
    package let kind: FrameKind
    package let shard: ShardID
    /// The fields, without the token's issue time.
    package let payload: ByteBuffer
    /// The issue time of the user's token; nil for a request without one.
    package let issued: UInt32?

    fileprivate init(_ header: FrameHeader, _ payload: ByteBuffer) {
      kind = header.kind
      shard = header.shard
      var payload = payload
      if header.flags.contains(.issued) {
        let fieldBytes = payload.readableBytes - FrameHeader.issuedByteCount
        issued = payload.getInteger(at: payload.readerIndex + fieldBytes)
        payload = payload.readSlice(length: fieldBytes)!
      } else {
        issued = nil
      }
      self.payload = payload
    }

    /// The first field, which is the channel of most requests.
    fileprivate var name: String? {
      var reader = FieldReader(payload.readableBytesSpan)
      return try? reader.text()
    }
  }

  private let listener: any Channel
  private let server: NIOLoopBound<Server>
  package let port: Int
  package let shardCount: Int
  /// The store's time at its start.
  package let startTime: Timestamp

  private init(listener: any Channel, server: NIOLoopBound<Server>, _ shardCount: Int, _ startTime: Timestamp) {
    self.listener = listener
    self.server = server
    self.shardCount = shardCount
    self.startTime = startTime
    port = listener.localAddress!.port!
  }

  /// - Parameters:
  ///   - time: the store's time until ``advance(milliseconds:)``; nil: the wall clock's second.
  ///   - keepsFeed: whether there is a change feed, of a day.
  package static func start(
    on eventLoop: any EventLoop,
    shardCount: Int = 4,
    at time: Timestamp? = nil,
    keepsFeed: Bool = false
  ) async throws -> StoreInMemory {
    let time = time ?? Timestamp(milliseconds: Int64(Date().timeIntervalSince1970) * 1_000)
    let server = try await eventLoop.submit {
      NIOLoopBound(Server(shardCount: shardCount, time, eventLoop, keepsFeed: keepsFeed), eventLoop: eventLoop)
    }.get()
    let listener = try await ServerBootstrap(group: eventLoop)
      .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
      .childChannelInitializer { channel in
        channel.eventLoop.makeCompletedFuture {
          let connection = Connection(server.value)
          let handler = StoreSideHandler(StoreSideHandler.Terms(shardCount: shardCount), connection)
          try channel.pipeline.syncOperations.addHandler(handler)
        }
      }
      .bind(host: "127.0.0.1", port: 0).get()
    return StoreInMemory(listener: listener, server: server, shardCount, time)
  }

  package func close() async throws {
    try await listener.close()
    try await dropConnections()
    try await listener.eventLoop.submit { self.server.value.stop() }.get()
  }

  // MARK: Control

  /// Set how the store answers from now on.
  package func set(_ mode: Mode) async throws { try await onLoop { $0.mode = mode } }

  /// Answer requests of one kind as the script says from now on, others as the engine does.
  package func script(_ kind: FrameKind, _ answer: @escaping @Sendable (Request) throws -> Answer) async throws {
    try await set(.scripted { request in request.kind == kind ? try answer(request) : .engine })
  }

  /// Limit the entries of a list_channels reply below the request's limit; nil: no limit.
  package func setListMax(_ limit: Int?) async throws { try await onLoop { $0.listMax = limit } }

  /// Let time pass in the store, and its timed work happen.
  package func advance(milliseconds: Int64) async throws {
    try await onLoop { $0.store.advance(milliseconds: milliseconds) }
  }

  /// Send a frame on every connection.
  package func send(_ header: FrameHeader, _ fields: @escaping @Sendable (inout ByteBuffer) -> Void) async throws {
    try await onLoop { server in
      var buffer = ByteBuffer()
      buffer.writeFrame(header, fields)
      for connection in server.connections.values { connection.write(buffer) }
    }
  }

  /// Close every connection.
  ///
  /// - Parameter next: what happens before a client can connect again.
  package func dropConnections(
    then next: @escaping @Sendable (SynchronousStore) -> Void = { _ in }
  ) async throws {
    try await onLoop { server in
      for connection in server.connections.values { connection.drop() }
      next(server.store)
    }
  }

  // MARK: State of the store

  /// The requests received since the last call, in order of arrival.
  package func takeRequests() async throws -> [Request] {
    try await onLoop { server in
      defer { server.requests = [] }
      return server.requests
    }
  }

  /// The kinds of the requests received since the last call, in order of arrival.
  package func takeLog() async throws -> [FrameKind] { try await takeRequests().map(\.kind) }

  /// The payload of the engine's reply to a query, in every mode.
  package func reply(
    to kind: FrameKind,
    _ shard: ShardID,
    _ fields: @escaping @Sendable (inout ByteBuffer) -> Void = { _ in }
  ) async throws -> ByteBuffer {
    try await onLoop { server in
      var payload = ByteBuffer()
      fields(&payload)
      return server.store.reply(to: kind, shard, payload)
    }
  }

  /// Call `body` with the store, on its event loop.
  package func withStore<Result: Sendable>(
    _ body: @escaping @Sendable (SynchronousStore) throws -> Result
  ) async throws -> Result {
    try await onLoop { try body($0.store) }
  }

  private func onLoop<Result: Sendable>(_ body: @escaping @Sendable (Server) throws -> Result) async throws -> Result {
    try await listener.eventLoop.submit { try body(self.server.value) }.get()
  }

  // MARK: The server

  /// The store's state on its event loop.
  fileprivate final class Server {
    let store: SynchronousStore
    var mode = Mode.normal
    var listMax: Int?
    var requests: [Request] = []
    var connections: [ObjectIdentifier: Connection] = [:]
    private var serial: UInt64 = 0
    private var ticks: RepeatedTask?

    init(shardCount: Int, _ time: Timestamp, _ eventLoop: any EventLoop, keepsFeed: Bool) {
      let shards = (0..<shardCount).map { ShardID(UInt16($0)) }
      var configuration = StoreLoopConfiguration()
      if keepsFeed { configuration.feedRetention = FeedRetention(milliseconds: 86_400_000, bytes: 0) }
      store = SynchronousStore(shards: shards, of: shardCount, clock: time, configuration: configuration)
      let store = NIOLoopBound(store, eventLoop: eventLoop)
      // Timed work continues where it does not depend on the clock.
      ticks = eventLoop.scheduleRepeatedTask(initialDelay: .milliseconds(20), delay: .milliseconds(20)) { _ in
        store.value.tick()
      }
    }

    func stop() { ticks?.cancel() }

    func nextSerial() -> UInt64 {
      serial += 1
      return serial
    }

    func answer(to request: Request) throws -> Answer {
      switch mode {
      case .normal: return .engine
      case .silent: return .none
      case .refusing(let code): return .refusal(code)
      case .refusingAssignments(let code):
        return [.assignChannelType, .assignUser].contains(request.kind) ? .refusal(code) : .engine
      case .refusingKind(let kind, let code): return request.kind == kind ? .refusal(code) : .engine
      case .refusingChannel(let cid, let code):
        if request.kind == .unreadCounts { return .reply(try unreadCounts(request, refusing: cid, code)) }
        return request.name == cid ? .refusal(code) : .engine
      case .ignoringKind(let kind): return request.kind == kind ? .none : .engine
      case .closing(let kind): return request.kind == kind ? .closing : .engine
      case .garbled: return .reply(ByteBuffer(repeating: 0xFF, count: 20))
      case .scripted(let script): return try script(request)
      }
    }

    /// Return the engine's counts, but a refusal for one channel.
    private func unreadCounts(_ request: Request, refusing cid: String, _ code: ErrorCode) throws -> ByteBuffer {
      let counts = store.reply(to: .unreadCounts, request.shard, request.payload)
      var asked = FieldReader(request.payload.readableBytesSpan)
      var answered = FieldReader(counts.readableBytesSpan)
      var changed = ByteBuffer()
      _ = try asked.count()
      let entryCount = try answered.count()
      changed.writeVarint(entryCount)
      for _ in 0..<entryCount {
        let entry = try UnreadCountEntry(&asked)
        let isRefused = entry.cid.withUnsafeBytes { $0.elementsEqual(cid.utf8) }
        let count = try UnreadCountFields(&answered)
        (isRefused ? UnreadCountFields.refused(code) : count).write(into: &changed)
      }
      return changed
    }
  }

  /// One client's connection.
  fileprivate final class Connection: StoreSideConnection {
    private let server: Server
    private var channel: (any Channel)?
    private var lane: ReplyLane?

    init(_ server: Server) { self.server = server }

    func opened(session: SessionID, on channel: any Channel) {
      self.channel = channel
      let backlog = ConnectionBacklog()
      let lane = ReplyLane(
        session: session,
        serial: server.nextSerial(),
        shards: server.store.loop.shardCount,
        backlog: backlog,
        deliver: { [unowned self] buffer, _ in
          write(buffer)
          backlog.wrote(buffer.readableBytes)
        },
        end: { [unowned self] _ in drop() }
      )
      self.lane = lane
      server.store.loop.open(lane)
      server.connections[ObjectIdentifier(self)] = self
    }

    func received(_ header: FrameHeader, _ payload: ByteBuffer, _ output: inout ByteBuffer) throws -> Bool {
      guard let lane else { return false }
      let request = Request(header, payload)
      server.requests.append(request)
      switch try server.answer(to: request) {
      case .none: return true
      case .closing: return false
      case .engine where request.kind == .listChannels && server.listMax != nil:
        var limited = try limitedList(request, server.listMax!)
        if let issued = request.issued { limited.writeInteger(issued) }
        try server.store.loop.receive(header, limited.readableBytesSpan, lane: lane)
      case .engine: try server.store.loop.receive(header, payload.readableBytesSpan, lane: lane)
      case .reply(let fields):
        output.writeFrame(header.reply) {
          $0.writeImmutableBuffer(fields)
        }
      case .refusal(let code):
        output.writeError(
          code,
          shard: header.shard,
          correlation: header.correlation,
          retryAfterMilliseconds: 1_500,
          detail: "fake"
        )
      }
      return true
    }

    /// Return list_channels with a lower limit.
    private func limitedList(_ request: Request, _ limit: Int) throws -> ByteBuffer {
      var reader = FieldReader(request.payload.readableBytesSpan)
      let user = try reader.text()
      let fields = try ListChannelsRequest(&reader)
      var limited = ByteBuffer()
      limited.writeField(user)
      limited.writeListChannels(
        withAll: fields.flags & ListChannelsRequest.withAll != 0,
        limit: min(Int(fields.limit), limit),
        cursor: fields.cursor.map { UInt64($0) },
        deletedSince: fields.flags & ListChannelsRequest.withDeleted == 0 ? nil : fields.since
      )
      return limited
    }

    func readEnded() {
      server.store.loop.endTurn()
      server.store.runUntilIdle()
    }

    func closed() {
      if let lane { server.store.loop.close(lane) }
      lane = nil
      server.connections[ObjectIdentifier(self)] = nil
    }

    func write(_ buffer: ByteBuffer) { channel?.writeAndFlush(buffer, promise: nil) }

    func drop() { channel?.close(promise: nil) }
  }
}
