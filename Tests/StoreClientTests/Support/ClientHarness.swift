import Logging
import NIOCore
import NIOEmbedded
import ReceiptModel
import ReceiptWire

@testable import StoreClient

/// Records the client's calls to its delegate.
final class Recorder: StoreClientDelegate {
  enum Event: Equatable {
    case replied(UInt64, FrameKind, [UInt8])
    case failed(UInt64, StoreFailure)
    case ready(Bool)
    case shards(reopened: [UInt16])
    case events(ShardID)
    case complete
  }

  var events: [Event] = []
  /// Called with each event; may call the client.
  var onEvent: ((Event) -> Void)?

  private func add(_ event: Event) {
    events.append(event)
    onEvent?(event)
  }

  func storeReplied(_ tag: UInt64, kind: FrameKind, payload: RawSpan) {
    add(.replied(tag, kind, payload.withUnsafeBytes { Array($0) }))
  }
  func storeFailed(_ tag: UInt64, _ failure: StoreFailure) { add(.failed(tag, failure)) }
  func storeEvents(_ shard: ShardID, _ payload: RawSpan) throws(WireError) { add(.events(shard)) }
  func storeReadComplete() { add(.complete) }
  func storeReadinessChanged(_ isReady: Bool) { add(.ready(isReady)) }
  func storeShardsChanged(reopened: [ShardID]) { add(.shards(reopened: reopened.map(\.rawValue))) }

  /// The tags of answered requests, in order.
  var replies: [UInt64] {
    events.compactMap { if case .replied(let tag, _, _) = $0 { tag } else { nil } }
  }
  /// The shards whose subscriptions were to begin again, for each change of owners.
  var reopened: [[UInt16]] {
    events.compactMap { if case .shards(let reopened) = $0 { reopened } else { nil } }
  }
  /// The shards whose events were delivered, in order.
  var eventShards: [UInt16] {
    events.compactMap { if case .events(let shard) = $0 { shard.rawValue } else { nil } }
  }
  var failures: [UInt64: StoreFailure] {
    var result: [UInt64: StoreFailure] = [:]
    for case .failed(let tag, let failure) in events { result[tag] = failure }
    return result
  }
}

extension StoreClientConfiguration {
  /// Addresses of fake stores, whose ports are their numbers from 1.
  static func forTests(stores count: Int) -> StoreClientConfiguration {
    var logger = Logger(label: "test")
    logger.logLevel = .critical
    return StoreClientConfiguration(
      addresses: (1...count).map { Address(host: "store", port: $0) },
      logger: logger
    )
  }
}

/// A client's connection to a fake store, without a socket.
final class FakeLink {
  let channel: EmbeddedChannel
  let connection: FakeConnection

  init(_ node: StoreNode<Recorder>, to store: EchoStore, on loop: EmbeddedEventLoop) {
    channel = EmbeddedChannel(handler: StoreConnectionHandler(node: node), loop: loop)
    connection = store.open()
  }

  func connect() -> EventLoopFuture<any Channel> {
    channel.connect(to: try! SocketAddress(ipAddress: "127.0.0.1", port: 1)).map { [channel] in channel }
  }

  /// Return the bytes that the client has sent in one write; nil: none.
  func takeSent() -> ByteBuffer? { (try? channel.readOutbound(as: ByteBuffer.self)) ?? nil }

  /// Take at most `countMax` bytes that the store has sent; nil: nothing.
  func takeReceived(_ countMax: Int = .max) -> ByteBuffer? {
    let count = min(countMax, connection.output.readableBytes)
    return count > 0 ? connection.output.readSlice(length: count) : nil
  }

  /// Deliver bytes to the client as one read.
  func deliver(_ bytes: ByteBuffer) {
    channel.pipeline.fireChannelRead(bytes)
    channel.pipeline.fireChannelReadComplete()
  }

  /// Close the link, with all data in flight.
  func cut() {
    connection.close()
    if channel.isActive { channel.close(promise: nil) }
  }
}

/// A client and fake stores on one embedded event loop, without sockets or threads. Time advances only on request.
final class ClientHarness {
  let loop = EmbeddedEventLoop()
  let recorder = Recorder()
  /// By address index.
  let stores: [EchoStore]
  /// Addresses that refuse connections.
  var down: Set<Int> = []
  private(set) var attempts: [Int] = []
  private(set) var client: StoreClient<Recorder>!
  private var link: FakeLink?
  /// The bytes that a side may still send on the current connection before it is cut; nil: no limit.
  var bytesUp: Int?
  var bytesDown: Int?
  /// The largest piece delivered at once.
  var pieceMax = Int.max

  struct Refused: Error {}

  init(stores: [EchoStore] = [EchoStore()], _ configure: (inout StoreClientConfiguration) -> Void = { _ in }) {
    self.stores = stores
    var configuration = StoreClientConfiguration.forTests(stores: stores.count)
    configure(&configuration)
    client = StoreClient(eventLoop: loop, configuration: configuration, delegate: recorder) {
      [unowned self] node, address in
      let index = address.port - 1
      attempts.append(index)
      if down.contains(index) { return loop.makeFailedFuture(Refused()) }
      let link = FakeLink(node, to: stores[index], on: loop)
      self.link = link
      return link.connect()
    }
  }

  var store: EchoStore { stores[0] }
  var channel: EmbeddedChannel? { link?.channel }
  var connection: FakeConnection? { link?.connection }

  /// Start the client and complete the handshake.
  func open() {
    client.start()
    pump()
  }

  /// Deliver bytes in both directions until none are left.
  func pump() {
    while step() {}
  }

  /// Deliver one piece in one direction; return false if there is none.
  func step() -> Bool {
    loop.run()
    guard let link, link.channel.isActive else { return false }
    if var sent = link.takeSent() {
      let count = min(bytesUp ?? .max, sent.readableBytes)
      link.connection.receive(sent.readSlice(length: count)!)
      bytesUp = bytesUp.map { $0 - count }
      if bytesUp == 0 { cut() }
      return true
    }
    if let received = link.takeReceived(min(pieceMax, bytesDown ?? .max)) {
      link.deliver(received)
      // The client may have replaced the link.
      guard self.link === link else { return true }
      bytesDown = bytesDown.map { $0 - received.readableBytes }
      if bytesDown == 0 { cut() }
      return true
    }
    if link.connection.isClosed {
      cut()
      return true
    }
    return false
  }

  /// Deliver bytes to the client as one read.
  func deliver(_ bytes: ByteBuffer) { link?.deliver(bytes) }

  /// Cut the connection, with all data in flight.
  func cut() {
    guard let link else { return }
    self.link = nil
    bytesUp = nil
    bytesDown = nil
    link.cut()
    loop.run()
  }

  func advance(_ time: TimeAmount) {
    // In small steps: frames sent at one time are delivered before time advances.
    var left = time.nanoseconds
    while left > 0 {
      let step = min(left, 10_000_000)
      loop.advanceTime(by: .nanoseconds(step))
      left -= step
      pump()
    }
  }

  @discardableResult
  func command(_ tag: UInt64, cid: String = "messaging:general", bytes: Int = 8) -> Bool {
    send(.markRead, tag, cid: cid, bytes: bytes)
  }

  @discardableResult
  func query(_ tag: UInt64, cid: String = "messaging:general") -> Bool {
    send(.getChannel, tag, cid: cid, bytes: 8)
  }

  /// The fields after cid and counter are the tag, 8 bytes, padded to `bytes`.
  @discardableResult
  func send(
    _ kind: FrameKind,
    _ tag: UInt64,
    cid: String,
    bytes: Int,
    issued: UInt32? = nil,
    thread: String? = nil
  ) -> Bool {
    let fields = { (buffer: inout ByteBuffer) in
      buffer.writeInteger(tag)
      buffer.writeRepeatingByte(0, count: bytes - 8)
    }
    let cid = Array(cid.utf8)
    guard let thread = thread.map({ Array($0.utf8) }) else {
      return client.send(kind, to: .channel(cid.span.bytes), tag: tag, issued: issued, fields)
    }
    return client.send(
      kind,
      to: .channel(cid.span.bytes, thread: thread.span.bytes),
      tag: tag,
      issued: issued,
      fields
    )
  }

  func flush() {
    client.flush()
    pump()
  }
}

/// The tag in a request's fields.
func tag(of rest: [UInt8]) -> UInt64 { rest.prefix(8).reduce(0) { $0 << 8 | UInt64($1) } }
