import Foundation
import HTTP2Session
import Logging
import NIOCore
import NIOPosix
import Operations
import ReceiptModel
import StoreClient
import StoreTestSupport
import TestSupport
import Testing

@testable import Gateway

/// A gateway on one event loop with a ``StoreInMemory`` behind it and one HTTP/2 connection to it.
struct TestGateway: Sendable {
  let store: StoreInMemory
  let loop: NIOLoopBound<GatewayLoop>
  let client: TestClient
  let port: Int
  let eventLoop: any EventLoop
  /// Moves the gateway's clocks.
  let clock: GatewayClock.Shift

  /// The request deadline in tests with a store that does not answer. It is still long enough for a store that answers
  /// on a busy machine.
  static let shortDeadline = TimeAmount.seconds(3)

  /// - Parameters:
  ///   - settling: the interval of settlement rounds. By default there are none, so that the store's log has only
  ///     the test's requests.
  ///   - rates: the rate limits.
  ///   - storeTime: the time of a new store, which stands still; nil: the time of its start.
  ///   - feed: whether a new store keeps a change feed.
  ///   - other: the store to use; nil starts a new one.
  static func run(
    limits: GatewayLimits = GatewayLimits(),
    http2: HTTP2Limits = HTTP2Limits(),
    origins: CrossOrigins = CrossOrigins(),
    tickets: TicketKeys? = TicketKeys(secrets: [Array(TestTokens.secret.utf8)]),
    hooks: [PushHook] = [],
    demo: DemoSession? = nil,
    console: ConsoleSessions? = nil,
    deadline: TimeAmount = .seconds(5),
    settling: TimeAmount? = nil,
    tokenList: TimeAmount? = nil,
    rates: RateLimits = RateLimits(),
    storeTime: Timestamp? = nil,
    feed: Bool = false,
    store other: StoreInMemory? = nil,
    _ body: (TestGateway) async throws -> Void
  ) async throws {
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
    let eventLoop = group.next()
    let store: StoreInMemory
    if let other {
      store = other
    } else {
      store = try await StoreInMemory.start(on: group.next(), at: storeTime, keepsFeed: feed)
    }
    let address = Endpoint(host: "127.0.0.1", port: store.port)
    let keys = TokenKeys(secrets: [Array(TestTokens.secret.utf8)])
    var configuration = GatewayConfiguration(
      listen: Endpoint(host: "127.0.0.1", port: 0),
      stores: [address],
      tokenKeys: keys
    )
    configuration.limits = limits
    configuration.limits.settlementInterval = settling
    configuration.limits.tokenListInterval = tokenList
    configuration.http2 = http2
    configuration.origins = origins
    configuration.ticketKeys = tickets
    configuration.hooks = hooks
    configuration.demo = demo
    let clock = GatewayClock.Shift()
    let shared = SharedServices(
      logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() },
      clock: GatewayClock(shift: clock),
      rates: RateLimiter(rates),
      console: console
    )
    if tokenList == nil { shared.revokedTokens.replace([], version: 0) }
    let verifier = try await TokenVerifier(keys)
    var storeConfiguration = StoreClientConfiguration(
      addresses: [.init(host: address.host, port: address.port)],
      logger: shared.logger
    )
    storeConfiguration.requestDeadline = deadline
    let ready = eventLoop.makePromise(of: Void.self)
    let loop = try await eventLoop.submit { [configuration, storeConfiguration] in
      let loop = GatewayLoop(
        eventLoop: eventLoop,
        configuration: configuration,
        store: storeConfiguration,
        verifier: verifier,
        shared: shared,
        reportStoreReadiness: { if $0 == .connected { ready.succeed() } }
      )
      loop.start()
      return NIOLoopBound(loop, eventLoop: eventLoop)
    }.value("the start of the gateway's loop")
    try await ready.futureResult.value("the gateway's first connection to its store")
    let listener = try await ServerBootstrap(group: eventLoop)
      .childChannelInitializer { channel in
        channel.eventLoop.makeCompletedFuture { try GatewayPipeline.assemble(channel, loop.value, tls: nil) }
      }
      .bind(host: "127.0.0.1", port: 0).value("the gateway's listener")
    let port = listener.localAddress!.port!
    let client = try await TestClient.connect(port: port, on: group.next())
    let gateway = TestGateway(
      store: store,
      loop: loop,
      client: client,
      port: port,
      eventLoop: eventLoop,
      clock: clock
    )
    do { try await body(gateway) } catch { Issue.record(error) }
    let ownsStore = other == nil
    try await within("the gateway to end") {
      try await client.close()
      try await listener.close()
      try await eventLoop.flatSubmit { loop.value.drain() }.get()
      try await eventLoop.flatSubmit { loop.value.close() }.get()
      if ownsStore { try? await store.close() }
      try await group.shutdownGracefully()
    }
  }

  /// Create a channel with these members and messages.
  func setUp(_ cid: String, members: [String], messages: [String] = []) async throws {
    let list = members.map { "\"\($0)\"" }.joined(separator: ",")
    let put = try await client.put("/v1/channels/\(cid)", "{\"members\":[\(list)]}")
    #expect(put.status == 201)
    for message in messages {
      let registered = try await client.post(
        "/v1/channels/\(cid)/messages",
        "{\"id\":\"\(message)\",\"user_id\":\"\(members[0])\"}"
      )
      #expect(registered.status == 201)
    }
  }
}

extension TestGateway {
  /// The store's time as in answers, some milliseconds after its start.
  func storeTime(plus milliseconds: Int = 0) -> String {
    let time = Int(store.startTime.milliseconds) + milliseconds
    let seconds = Date(timeIntervalSince1970: Double(time / 1_000)).formatted(.iso8601).dropLast()
    return "\(seconds).\(String(1_000 + time % 1_000).dropFirst())Z"
  }

  /// The position up to which a member has received a channel's messages.
  func deliveredSequence(of user: String, in cid: String) async throws -> Int? {
    let state = try await client.get("/v1/channels/\(cid)/read-state")
    let rows = state.json["read"] as? [NSDictionary]
    return rows?.first { ($0["user"] as? NSDictionary)?["id"] as? String == user }?["last_delivered_seq"] as? Int
  }
}

/// The response to a request.
struct TestResponse: Sendable {
  var status: Int
  var contentType: String
  var headers: [String: String]
  var body: String

  /// The body, parsed by Foundation.
  var json: NSDictionary {
    (try? JSONSerialization.jsonObject(with: Data(body.utf8)) as? NSDictionary) ?? [:]
  }

  /// A problem's status and code, as in `404 message_not_found`; of other answers only the status.
  var verdict: String { (json["code"] as? String).map { "\(status) \($0)" } ?? "\(status)" }
}

struct TestStreamFailed: Error {
  var errorCode: UInt32
}

/// One HTTP/2 connection that sends requests and awaits their responses.
final class TestClient: Sendable {
  private let connection: NIOLoopBound<HTTP2ClientConnection<TestClientDelegate>>
  private let channel: any Channel
  private let port: Int

  private init(
    connection: NIOLoopBound<HTTP2ClientConnection<TestClientDelegate>>,
    channel: any Channel,
    port: Int
  ) {
    self.connection = connection
    self.channel = channel
    self.port = port
  }

  /// - Parameter window: the window of each stream in bytes; nil: 4 MiB.
  static func connect(port: Int, window: UInt32? = nil, on eventLoop: any EventLoop) async throws -> TestClient {
    var limits = HTTP2ClientLimits()
    if let window { limits.initialWindowSize = window }
    let connected = eventLoop.makePromise(of: NIOLoopBound<HTTP2ClientConnection<TestClientDelegate>>.self)
    let channel = try await ClientBootstrap(group: eventLoop)
      .channelInitializer { [limits] channel in
        channel.eventLoop.makeCompletedFuture {
          let connection = HTTP2ClientConnection(
            delegate: TestClientDelegate(),
            resources: HTTP2ClientResources(limits: limits)
          )
          connected.succeed(NIOLoopBound(connection, eventLoop: channel.eventLoop))
          try channel.pipeline.syncOperations.addHandler(connection)
        }
      }
      .connect(host: "127.0.0.1", port: port).value("a connection to port \(port)")
    let connection = try await connected.futureResult.value("a new connection")
    return TestClient(connection: connection, channel: channel, port: port)
  }

  func close() async throws { try? await channel.close() }
  /// Leave received data in the kernel's buffer.
  func stopReading() async throws { try await channel.setOption(.autoRead, value: false).get() }
  var isClosed: EventLoopFuture<Void> { channel.closeFuture }
  var isOpen: Bool { channel.isActive }

  func get(_ path: String, token: String? = TestTokens.server) async throws -> TestResponse {
    try await request(.get, path, nil, token: token)
  }

  func post(_ path: String, _ body: String?, token: String? = TestTokens.server) async throws -> TestResponse {
    try await request(.post, path, body, token: token)
  }

  func put(_ path: String, _ body: String?, token: String? = TestTokens.server) async throws -> TestResponse {
    try await request(.put, path, body, token: token)
  }

  func delete(_ path: String, token: String? = TestTokens.server) async throws -> TestResponse {
    try await request(.delete, path, nil, token: token)
  }

  func request(
    _ method: HTTP2Method,
    _ path: String,
    _ body: String?,
    token: String?,
    contentType: String = "application/json",
    headers: [(name: String, value: String)] = []
  ) async throws -> TestResponse {
    let response = try await submit(
      method,
      path,
      body,
      token: token,
      contentType: contentType,
      headers: headers
    )
    return try await response.value("the answer to \(method) \(path)")
  }

  /// Send a request without waiting for its response.
  func submit(
    _ method: HTTP2Method,
    _ path: String,
    _ body: String?,
    token: String?,
    contentType: String = "application/json",
    headers: [(name: String, value: String)] = []
  ) async throws -> EventLoopFuture<TestResponse> {
    let (port, connection, eventLoop) = (port, connection, channel.eventLoop)
    return try await eventLoop.submit {
      let template = HTTP2RequestTemplate(
        method: method,
        scheme: "http",
        authority: "127.0.0.1:\(port)",
        authorization: token.map { "Bearer \($0)" } ?? "",
        contentType: body == nil ? "" : contentType,
        headers: headers
      )
      let promise = eventLoop.makePromise(of: TestResponse.self)
      connection.value.delegate.submit(template, path, body, promise, on: connection.value)
      return promise.futureResult
    }.value("the client's event loop")
  }
}

extension TestClient {
  /// Open an event stream.
  func events(
    _ query: String = "",
    token: String?,
    headers: [(name: String, value: String)] = []
  ) async throws -> TestEventStream {
    let stream = TestEventStream()
    let (port, connection, eventLoop) = (port, connection, channel.eventLoop)
    stream.handle = try await eventLoop.submit {
      let template = HTTP2RequestTemplate(
        method: .get,
        scheme: "http",
        authority: "127.0.0.1:\(port)",
        authorization: token.map { "Bearer \($0)" } ?? "",
        headers: headers
      )
      return connection.value.delegate.open(template, "/v1/events\(query)", stream, on: connection.value)
    }.value("the client's event loop")
    return stream
  }

  /// Begin a request whose body follows, see ``TestRequestStream``.
  func open(
    _ method: HTTP2Method,
    _ path: String,
    contentType: String,
    token: String?,
    _ stream: TestRequestStream
  ) async throws {
    let (port, connection, eventLoop) = (port, connection, channel.eventLoop)
    stream.handle = try await eventLoop.submit {
      let template = HTTP2RequestTemplate(
        method: method,
        scheme: "http",
        authority: "127.0.0.1:\(port)",
        authorization: token.map { "Bearer \($0)" } ?? "",
        contentType: contentType
      )
      return connection.value.delegate.begin(template, path, stream, on: connection.value)
    }.value("the client's event loop")
  }

  /// Call the connection on its event loop.
  func onConnection(
    _ body: @escaping @Sendable (HTTP2ClientConnection<TestClientDelegate>) -> Void
  ) async throws {
    try await channel.eventLoop.submit { body(self.connection.value) }.value("the client's event loop")
  }

  /// Cancel a stream.
  func cancel(_ stream: TestEventStream) async throws {
    guard let handle = stream.handle else { return }
    try await channel.eventLoop.submit { self.connection.value.cancel(handle) }.value("the client's event loop")
  }
}

final class TestClientDelegate: HTTP2ClientDelegate {
  private var waiting: [UInt64: (EventLoopPromise<TestResponse>, HTTP2RequestTemplate)] = [:]
  private var nextTag: UInt64 = 1
  private var streams: [UInt64: (TestEventStream, HTTP2RequestTemplate)] = [:]
  private var requests: [UInt64: (TestRequestStream, HTTP2RequestTemplate)] = [:]

  func begin(
    _ template: HTTP2RequestTemplate,
    _ path: String,
    _ stream: TestRequestStream,
    on connection: HTTP2ClientConnection<TestClientDelegate>
  ) -> HTTP2StreamHandle? {
    let tag = nextTag
    nextTag += 1
    requests[tag] = (stream, template)
    let handle = connection.submit(template, path: path, tag: tag, streaming: true, hasMoreBody: true)
    connection.flushIfNeeded()
    return handle
  }

  func open(
    _ template: HTTP2RequestTemplate,
    _ path: String,
    _ stream: TestEventStream,
    on connection: HTTP2ClientConnection<TestClientDelegate>
  ) -> HTTP2StreamHandle? {
    let tag = nextTag
    nextTag += 1
    streams[tag] = (stream, template)
    let handle = connection.submit(template, path: path, tag: tag, streaming: true)
    connection.flushIfNeeded()
    return handle
  }

  func http2ResponsePart(
    tag: UInt64,
    response: borrowing HTTP2ClientResponse,
    on connection: HTTP2ClientConnection<TestClientDelegate>
  ) {
    streams[tag]?.0.received(status: response.status, response.body.text)
    requests[tag]?.0.received(response)
  }

  func submit(
    _ template: HTTP2RequestTemplate,
    _ path: String,
    _ body: String?,
    _ promise: EventLoopPromise<TestResponse>,
    on connection: HTTP2ClientConnection<TestClientDelegate>
  ) {
    let tag = nextTag
    nextTag += 1
    waiting[tag] = (promise, template)
    let handle = connection.submit(template, path: path, body: ByteBuffer(string: body ?? ""), tag: tag)
    if handle == nil {
      waiting[tag] = nil
      promise.fail(TestStreamFailed(errorCode: 0))
    }
    connection.flushIfNeeded()
  }

  func http2ResponseReceived(
    tag: UInt64,
    response: borrowing HTTP2ClientResponse,
    on connection: HTTP2ClientConnection<TestClientDelegate>
  ) {
    var headers: [String: String] = [:]
    let names: [StaticString] = [
      "x-request-id", "retry-after", "allow", "www-authenticate", "content-length", "etag", "vary",
      "cache-control", "set-cookie", "content-security-policy", "x-content-type-options",
      "access-control-allow-origin", "access-control-allow-methods", "access-control-allow-headers",
    ]
    for name in names { headers["\(name)"] = response.header(name)?.text }
    let copy = TestResponse(
      status: response.status,
      contentType: response.contentType.text,
      headers: headers,
      body: response.body.text
    )
    waiting.removeValue(forKey: tag)?.0.succeed(copy)
    if let (stream, _) = streams.removeValue(forKey: tag) {
      stream.received(status: copy.status, copy.body)
      stream.ended()
    }
    if let (stream, _) = requests.removeValue(forKey: tag) {
      stream.received(response)
      stream.ended()
    }
  }

  func http2StreamFailed(
    tag: UInt64,
    errorCode: UInt32,
    on connection: HTTP2ClientConnection<TestClientDelegate>
  ) {
    waiting.removeValue(forKey: tag)?.0.fail(TestStreamFailed(errorCode: errorCode))
    streams.removeValue(forKey: tag)?.0.ended()
    requests.removeValue(forKey: tag)?.0.ended()
  }

  func http2ConnectionClosed(_ connection: HTTP2ClientConnection<TestClientDelegate>) {
    for (promise, _) in waiting.values { promise.fail(TestStreamFailed(errorCode: 0)) }
    waiting = [:]
    for (stream, _) in streams.values { stream.ended() }
    streams = [:]
    for (stream, _) in requests.values { stream.ended() }
    requests = [:]
  }
}

extension EventLoopFuture where Value: Sendable {
  /// The future's value, awaited for at most ``waitLimit``. `awaited` names it in the failure message.
  func value(_ awaited: String) async throws -> Value {
    try await within(awaited) { try await self.get() }
  }
}

// Tests write indexes of tables as numbers.

extension ConnectionIndex: ExpressibleByIntegerLiteral {
  /// A connection by its number.
  public init(integerLiteral number: UInt32) { self.init(number) }
}

extension NamedTable.Index: ExpressibleByIntegerLiteral {
  init(integerLiteral slot: UInt32) { self.init(slot: slot) }
}

extension RawSpan {
  var text: String { withUnsafeBytes { String(decoding: $0, as: UTF8.self) } }
}
