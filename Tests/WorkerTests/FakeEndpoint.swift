import Foundation
import NIOCore
import NIOHTTP1
import NIOPosix
import Operations
import Synchronization
import TestSupport

@testable import Worker

/// A webhook as it arrived.
struct ReceivedWebhook: Sendable, Hashable {
  var id: String
  var timestamp: String
  var signature: String
  var body: [UInt8]

  private struct Body: Decodable {
    struct Record: Decodable { var id: String }
    var consumer: String
    var partition: String
    var records: [Record]
  }

  /// The ids of its records, in order.
  var records: [String] {
    ((try? JSONDecoder().decode(Body.self, from: Data(body)))?.records ?? []).map(\.id)
  }

  var partition: String { (try? JSONDecoder().decode(Body.self, from: Data(body)))?.partition ?? "" }
}

/// Endpoint of a webhook over HTTP/1.1 that behaves as a test says.
final class FakeEndpoint: Sendable {
  enum Behaviour: Sendable {
    case status(Int, headers: [(String, String)] = [], body: String = "")
    /// Answer 204 after a while.
    case slow(TimeAmount)
    case hang
    case garbage
    case close
    /// Answer 200 with a body that never ends.
    case endlessBody

    static let ok = Behaviour.status(204)
  }

  private struct State {
    var behave: @Sendable (ReceivedWebhook, Int) -> Behaviour
    var attempts: [ReceivedWebhook] = []
    var delivered: [ReceivedWebhook] = []
    var inFlight: [String: Int] = [:]
    var overlaps = 0
    var count = 0
    var keepsNothing = false
  }

  private let state: Mutex<State>
  private let channel: any Channel
  let port: Int

  private init(_ channel: any Channel, _ behave: @escaping @Sendable (ReceivedWebhook, Int) -> Behaviour) {
    self.channel = channel
    port = channel.localAddress?.port ?? 0
    state = Mutex(State(behave: behave))
  }

  /// Run an endpoint while `body` runs.
  static func with<Value>(
    port: Int = 0,
    _ behave: @escaping @Sendable (ReceivedWebhook, Int) -> Behaviour = { _, _ in .ok },
    _ body: (FakeEndpoint) async throws -> Value
  ) async throws -> Value {
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    let holder = Mutex<FakeEndpoint?>(nil)
    let handler: @Sendable () -> FakeEndpoint? = { holder.withLock { $0 } }
    let channel = try await ServerBootstrap(group: group)
      .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
      .childChannelInitializer { channel in
        channel.eventLoop.makeCompletedFuture {
          try channel.pipeline.syncOperations.configureHTTPServerPipeline(withErrorHandling: true)
          try channel.pipeline.syncOperations.addHandler(Handler(handler))
        }
      }
      .bind(host: "127.0.0.1", port: port).get()
    let endpoint = FakeEndpoint(channel, behave)
    holder.withLock { $0 = endpoint }
    let result: Result<Value, any Error>
    do { result = .success(try await body(endpoint)) } catch { result = .failure(error) }
    try await channel.close()
    try await group.shutdownGracefully()
    return try result.get()
  }

  var url: String { "http://127.0.0.1:\(port)/hook" }

  /// Change the behaviour. Its second argument is the number of earlier attempts of the same webhook-id.
  func behave(_ behave: @escaping @Sendable (ReceivedWebhook, Int) -> Behaviour) {
    state.withLock { $0.behave = behave }
  }

  /// Count requests only, and answer 204.
  func keepsNothing() { state.withLock { $0.keepsNothing = true } }

  /// Number of requests that arrived whole.
  var count: Int { state.withLock { $0.count } }

  /// All requests that arrived whole.
  var attempts: [ReceivedWebhook] { state.withLock { $0.attempts } }

  /// The requests that were answered 2xx.
  var delivered: [ReceivedWebhook] { state.withLock { $0.delivered } }

  /// Number of requests that arrived whole and have not ended.
  var inFlight: Int { state.withLock { $0.inFlight.values.reduce(0, +) } }

  /// Requests of a partition that arrived while another of it was in flight.
  var overlaps: Int { state.withLock { $0.overlaps } }

  /// Ids of delivered records by partition, in the order of delivery and without repetitions.
  var records: [String: [String]] {
    var seen: Set<String> = []
    return delivered.reduce(into: [:]) { result, webhook in
      result[webhook.partition, default: []] += webhook.records.filter { seen.insert($0).inserted }
    }
  }

  fileprivate func receive(_ webhook: ReceivedWebhook) -> Behaviour {
    state.withLock { state in
      state.count += 1
      if state.keepsNothing { return .ok }
      let earlier = state.attempts.count { $0.id == webhook.id }
      let behaviour = state.behave(webhook, earlier)
      state.attempts.append(webhook)
      switch behaviour {
      case .status(200..<300, _, _), .slow, .endlessBody: state.delivered.append(webhook)
      case .status, .hang, .garbage, .close: break
      }
      if state.inFlight[webhook.partition, default: 0] > 0 { state.overlaps += 1 }
      state.inFlight[webhook.partition, default: 0] += 1
      return behaviour
    }
  }

  fileprivate func ended(_ partition: String) { state.withLock { $0.inFlight[partition, default: 1] -= 1 } }

  private final class Handler: ChannelInboundHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias OutboundOut = HTTPServerResponsePart

    private let endpoint: () -> FakeEndpoint?
    private var head: HTTPRequestHead?
    private var body: [UInt8] = []
    private var partition: String?

    init(_ endpoint: @escaping () -> FakeEndpoint?) { self.endpoint = endpoint }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
      switch unwrapInboundIn(data) {
      case .head(let head):
        self.head = head
        body = []
      case .body(let part): body += part.readableBytesView
      case .end:
        guard let head, let endpoint = endpoint() else { return context.close(promise: nil) }
        let webhook = ReceivedWebhook(
          id: head.headers.first(name: "webhook-id") ?? "",
          timestamp: head.headers.first(name: "webhook-timestamp") ?? "",
          signature: head.headers.first(name: "webhook-signature") ?? "",
          body: body
        )
        partition = webhook.partition
        answer(endpoint.receive(webhook), context)
      }
    }

    private func answer(_ behaviour: Behaviour, _ context: ChannelHandlerContext) {
      switch behaviour {
      case .status(let status, let headers, let body): write(status, headers, body, context)
      case .slow(let time):
        let bound = NIOLoopBound((self, context), eventLoop: context.eventLoop)
        context.eventLoop.scheduleTask(in: time) { bound.value.0.write(204, [], "", bound.value.1) }
      case .hang: break
      case .garbage:
        end()
        // From the encoder's context on, bytes pass unchanged.
        let encoder = try? context.pipeline.syncOperations.context(handlerType: HTTPResponseEncoder.self)
        encoder?.writeAndFlush(NIOAny(ByteBuffer(string: "\u{1}\u{2} no HTTP\r\n\r\n")), promise: nil)
      case .close:
        end()
        context.close(promise: nil)
      case .endlessBody:
        end()
        let head = HTTPResponseHead(version: .http1_1, status: .ok)
        context.write(wrapOutboundOut(.head(head)), promise: nil)
        context.writeAndFlush(
          wrapOutboundOut(.body(.byteBuffer(ByteBuffer(repeating: 0x61, count: 100_000)))),
          promise: nil
        )
      }
    }

    private func end() {
      if let partition { endpoint()?.ended(partition) }
      partition = nil
    }

    private func write(_ status: Int, _ headers: [(String, String)], _ body: String, _ context: ChannelHandlerContext) {
      end()
      var all = HTTPHeaders(headers)
      if status != 204 { all.add(name: "content-length", value: "\(body.utf8.count)") }
      let head = HTTPResponseHead(version: .http1_1, status: .init(statusCode: status), headers: all)
      context.write(wrapOutboundOut(.head(head)), promise: nil)
      if !body.isEmpty { context.write(wrapOutboundOut(.body(.byteBuffer(ByteBuffer(string: body)))), promise: nil) }
      context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil)
    }

    func channelInactive(context: ChannelHandlerContext) { end() }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
  }
}
