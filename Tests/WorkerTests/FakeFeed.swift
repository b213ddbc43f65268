import Foundation
import GatewayClient
import HTTP2Session
import NIOCore
import NIOPosix
import Operations
import TLSSession
import TestPrograms
import TestSupport

@testable import FeedClient
@testable import Worker

/// Feed of a gateway in memory, with the routes that the worker uses. Partitions are filled by the tests.
final class FakeFeed: HTTP2ServerDelegate {
  struct Partition {
    /// Number of records that are committed.
    var committed = 0
    var epoch = 0
    var state: String?
    /// Positions in the order of their commits.
    var commits: [(cursor: String?, epoch: Int, worker: Int)] = []
  }

  struct Stream {
    var handle: HTTP2StreamHandle
    var connection: HTTP2ServerConnection<FakeFeed>
    var partition: Int
    var next: Int
    var isIdle = false
  }

  static let count = 4
  /// What a test may change.
  var retentionSeconds: Int?
  var filtersConflict = false
  var refusesLeases = false
  /// Called between the worker's or replay's reading of a consumer's state and its next request.
  var afterStateRead: (() -> Void)?

  private(set) var records: [[String]] = Array(repeating: [], count: FakeFeed.count)
  /// Records below that number are no longer kept.
  var kept = Array(repeating: 0, count: FakeFeed.count)
  var partitions = Array(repeating: Partition(), count: FakeFeed.count)
  private(set) var consumers: [String: [String: Any]] = [:]
  private(set) var authorizations: Set<String> = []
  private(set) var left: [String] = []
  private(set) var lateCommits = 0
  private var streams: [Stream] = []
  /// Workers with what they hold, in the order of their first call.
  private var workers: [(id: String, held: Set<String>)] = []

  static func cursor(_ partition: Int, _ index: Int) -> String { "p\(partition)-\(index)" }

  private static func index(_ cursor: String) -> Int { Int(cursor.split(separator: "-").last ?? "") ?? 0 }

  /// Add records to a partition; their ids are `partition.number`.
  func append(_ partition: Int, count: Int, padding: Int = 0) {
    let padding = padding > 0 ? #","padding":"\#(String(repeating: "x", count: padding))""# : ""
    for _ in 0..<count {
      let number = records[partition].count + 1
      records[partition].append(
        #""id":"\#(partition).\#(number)","type":"read","cid":"messaging:c\#(partition)","seq":\#(number)\#(padding)"#
      )
    }
    pumpAll()
  }

  /// Number of the records of a partition that have been sent.
  func sent(_ partition: Int) -> Int { streams.first { $0.partition == partition }?.next ?? 0 }

  /// End all streams, as a gateway that drains.
  func endStreams() {
    for stream in streams { stream.connection.finish(stream.handle) }
    for stream in streams { stream.connection.flushIfNeeded() }
    streams = []
  }

  /// Forget a worker, as when its lease has expired.
  func expire(_ worker: String) { workers.removeAll { $0.id == worker } }

  func heartbeat() {
    for index in streams.indices where streams[index].isIdle {
      write(index, #"{"cursor":"\#(Self.cursor(streams[index].partition, streams[index].next))","type":"heartbeat"}"#)
    }
    for stream in streams { stream.connection.flushIfNeeded() }
  }

  // MARK: Requests

  func http2RequestReceived(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<FakeFeed>) {
    let parts = connection.withRequest(stream) { request in
      (
        request.method, request.path.withUnsafeBytes { String(decoding: $0, as: UTF8.self) },
        request.body.withUnsafeBytes { Data($0) },
        request.authorization.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
      )
    }
    guard let (method, path, data, authorization) = parts else { return }
    authorizations.insert(authorization)
    let pieces = path.split(separator: "?", maxSplits: 1)
    let segments = pieces[0].split(separator: "/").map(String.init)
    let body = (try? JSONSerialization.jsonObject(with: data) as? [String: Any]) ?? [:]
    switch (method, segments.count, segments.last) {
    case (.put, 4, let name?):
      if filtersConflict { return refuse(stream, connection, 409, "other_filters") }
      let isNew = consumers.updateValue(body, forKey: name) == nil
      connection.respond(stream, status: isNew ? 201 : 200) { $0.writeString("{}") }
    case (.get, 3, "consumers"):
      let names = consumers.keys.map { #"{"name":"\#($0)","partitions":[\#(partitionsText(withState: false))]}"# }
      let retention = retentionSeconds.map { #""retention_seconds":\#($0),"# } ?? ""
      connection.respond(stream, status: 200) {
        $0.writeString("{\(retention)\"consumers\":[\(names.joined(separator: ","))]}")
      }
    case (.get, 4, let name?):
      connection.respond(stream, status: 200) {
        $0.writeString(#"{"name":"\#(name)","partitions":[\#(self.partitionsText(withState: true))]}"#)
      }
      let hook = afterStateRead
      afterStateRead = nil
      hook?()
    case (.post, 5, "commit"): commit(body, stream, connection)
    case (.post, 5, "lease"): lease(body, stream, connection)
    case (.get, 2, "feed"): open(String(pieces.last ?? ""), stream, connection)
    default: connection.respond(stream, status: 404)
    }
  }

  private func refuse(
    _ stream: HTTP2StreamHandle,
    _ connection: HTTP2ServerConnection<FakeFeed>,
    _ status: Int,
    _ code: String
  ) {
    connection.respond(stream, status: status) { $0.writeString(#"{"code":"\#(code)","detail":"a test's"}"#) }
  }

  private func partitionsText(withState: Bool) -> String {
    partitions.enumerated().map { index, partition in
      var object: [String: Any] = [
        "partition": "\(index)/\(Self.count)", "epoch": partition.epoch,
        "lag_records": records[index].count - partition.committed, "lag_seconds": 1.5,
      ]
      if withState { object["state"] = partition.state }
      return String(decoding: (try? JSONSerialization.data(withJSONObject: object)) ?? Data(), as: UTF8.self)
    }.joined(separator: ",")
  }

  private func partition(_ text: Any?) -> Int? {
    (text as? String).flatMap { Int($0.split(separator: "/")[0]) }
  }

  private func commit(
    _ body: [String: Any],
    _ stream: HTTP2StreamHandle,
    _ connection: HTTP2ServerConnection<FakeFeed>
  ) {
    guard let partition = partition(body["partition"]) else {
      return refuse(stream, connection, 400, "invalid")
    }
    // A commit without an epoch is no stream's.
    let epoch = body["epoch"] as? Int ?? partitions[partition].epoch
    guard epoch == partitions[partition].epoch else {
      lateCommits += 1
      return refuse(stream, connection, 409, "lease_lost")
    }
    let cursor = body["cursor"] as? String
    if let cursor { partitions[partition].committed = max(partitions[partition].committed, Self.index(cursor)) }
    if let state = body["state"] as? String { partitions[partition].state = state }
    partitions[partition].commits.append((cursor, epoch, 0))
    connection.respond(stream, status: 200) { $0.writeString("{}") }
  }

  private func lease(
    _ body: [String: Any],
    _ stream: HTTP2StreamHandle,
    _ connection: HTTP2ServerConnection<FakeFeed>
  ) {
    guard !refusesLeases else { return refuse(stream, connection, 503, "unavailable") }
    let (id, held) = (body["worker"] as? String ?? "", Set(body["held"] as? [String] ?? []))
    if body["ttl_seconds"] as? Int == 0 {
      left.append(id)
      workers.removeAll { $0.id == id }
    } else if let index = workers.firstIndex(where: { $0.id == id }) {
      workers[index].held = held
    } else {
      workers.append((id, held))
    }
    let granted = (0..<Self.count).filter { partition in
      guard !workers.isEmpty, workers[partition % workers.count].id == id else { return false }
      return !workers.contains { $0.id != id && $0.held.contains("\(partition)/\(Self.count)") }
    }
    let list = granted.map { #""\#($0)/\#(Self.count)""# }.joined(separator: ",")
    if let index = workers.firstIndex(where: { $0.id == id }) {
      workers[index].held = held.union(granted.map { "\($0)/\(Self.count)" })
    }
    connection.respond(stream, status: 200) {
      $0.writeString(#"{"partitions":[\#(list)],"workers":\#(self.workers.count),"expires_in":8}"#)
    }
  }

  // MARK: Streams

  private func open(_ query: String, _ stream: HTTP2StreamHandle, _ connection: HTTP2ServerConnection<FakeFeed>) {
    let values = Dictionary(
      query.split(separator: "&").map { pair in
        let parts = pair.split(separator: "=").map(String.init)
        return (parts[0], parts.last ?? "")
      }
    ) { $1 }
    guard let partition = partition(values["partition"]) else { return refuse(stream, connection, 400, "invalid") }
    if let from = values["from"], let to = values["to"] {
      return readRange(partition, Self.index(from), Self.index(to), stream, connection)
    }
    if let old = streams.firstIndex(where: { $0.partition == partition }) {
      write(old, #"{"type":"lease_lost"}"#)
      streams[old].connection.finish(streams[old].handle)
      streams[old].connection.flushIfNeeded()
      streams.remove(at: old)
    }
    partitions[partition].epoch += 1
    let state = partitions[partition].state.flatMap { try? JSONEncoder().encode($0) }
      .map { #","state":\#(String(decoding: $0, as: UTF8.self))"# }
    let start = partitions[partition].committed
    connection.startStreaming(stream, status: 200, contentType: .ndjson)
    streams.append(Stream(handle: stream, connection: connection, partition: partition, next: start))
    let cursor = Self.cursor(partition, start)
    write(
      streams.count - 1,
      #"{"type":"lease","epoch":\#(partitions[partition].epoch),"cursor":"\#(cursor)"\#(state ?? "")}"#
    )
    if kept[partition] > start {
      let end = Self.cursor(partition, kept[partition])
      write(streams.count - 1, #"{"cursor":"\#(end)","type":"gap","from":"\#(cursor)","to":"\#(end)"}"#)
      streams[streams.count - 1].next = kept[partition]
    }
    pump(streams.count - 1)
  }

  private func line(_ partition: Int, _ index: Int) -> String {
    #"{"cursor":"\#(Self.cursor(partition, index + 1))",\#(records[partition][index])}"#
  }

  private func readRange(
    _ partition: Int,
    _ from: Int,
    _ to: Int,
    _ stream: HTTP2StreamHandle,
    _ connection: HTTP2ServerConnection<FakeFeed>
  ) {
    var text = ""
    let start = max(from, kept[partition])
    if start > from {
      let (first, end) = (Self.cursor(partition, from), Self.cursor(partition, start))
      text += #"{"cursor":"\#(end)","type":"gap","from":"\#(first)","to":"\#(end)"}"# + "\n"
    }
    if start < to { for index in start..<to { text += line(partition, index) + "\n" } }
    text += #"{"cursor":"\#(Self.cursor(partition, to))","type":"heartbeat"}"# + "\n"
    connection.respond(stream, status: 200, contentType: .ndjson) { $0.writeString(text) }
  }

  @discardableResult
  private func write(_ index: Int, _ line: String) -> Bool {
    streams[index].connection.write(streams[index].handle, ByteBuffer(string: line + "\n")) == .queued
  }

  private func pump(_ index: Int) {
    let partition = streams[index].partition
    while streams[index].next < records[partition].count {
      guard write(index, line(partition, streams[index].next)) else { return }
      streams[index].next += 1
    }
    streams[index].isIdle = true
  }

  private func pumpAll() {
    for index in streams.indices { pump(index) }
    for stream in streams { stream.connection.flushIfNeeded() }
  }

  func http2StreamDrained(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<FakeFeed>) {
    if let index = streams.firstIndex(where: { $0.handle == stream && $0.connection === connection }) { pump(index) }
  }

  func http2StreamAborted(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<FakeFeed>) {
    streams.removeAll { $0.handle == stream && $0.connection === connection }
  }
}

/// The fake feed for tests, which run outside its event loop.
struct Feed: Sendable {
  let endpoint: Endpoint
  let bound: NIOLoopBound<FakeFeed>
  let loop: any EventLoop
  let gateway: FeedGateway

  /// Use the feed on its event loop.
  func use<Value: Sendable>(_ body: @escaping @Sendable (FakeFeed) -> Value) async throws -> Value {
    try await loop.submit { body(bound.value) }.get()
  }

  func append(_ partition: Int, count: Int) async throws {
    try await use { $0.append(partition, count: count) }
  }

  func committed() async throws -> [Int] { try await use { $0.partitions.map(\.committed) } }

  func state(_ partition: Int) async throws -> PartitionState {
    PartitionState(try await use { $0.partitions[partition].state }) ?? PartitionState()
  }

  /// Run a feed while `body` runs.
  ///
  /// - Parameter tls: contexts of the server and of its clients; nil: h2c.
  static func with<Value>(
    tls: (server: TLSContext, client: TLSContext)? = nil,
    _ body: (Feed) async throws -> Value
  ) async throws -> Value {
    let serverTLS = tls?.server
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    let loop = group.next()
    let shared = try await loop.submit {
      NIOLoopBound((FakeFeed(), HTTP2ServerResources(streamedContentTypes: [])), eventLoop: loop)
    }.get()
    let server = try await ServerBootstrap(group: group)
      .childChannelInitializer { channel in
        channel.eventLoop.makeCompletedFuture {
          if let serverTLS {
            try channel.pipeline.syncOperations.addHandler(TLSHandler(context: serverTLS, serverName: nil))
          }
          try channel.pipeline.syncOperations.addHandler(
            HTTP2ServerConnection(delegate: shared.value.0, resources: shared.value.1)
          )
        }
      }
      .bind(host: "127.0.0.1", port: 0).get()
    let bound = try await loop.submit { NIOLoopBound(shared.value.0, eventLoop: loop) }.get()
    loop.scheduleRepeatedTask(initialDelay: .milliseconds(300), delay: .milliseconds(300)) { _ in
      bound.value.heartbeat()
    }
    let endpoint = Endpoint(host: "127.0.0.1", port: server.localAddress?.port ?? 0)
    let secret = NSTemporaryDirectory() + "tidemark-worker-secret-\(UUID().uuidString)"
    try "0123456789abcdef0123456789abcdef\n".write(toFile: secret, atomically: true, encoding: .utf8)
    defer { try? FileManager.default.removeItem(atPath: secret) }
    guard let url = GatewayURL("\(tls == nil ? "http" : "https")://\(endpoint)") else { throw Unexpected("no URL") }
    let credential = try await ServerCredential.secretFile(secret) { _ in }
    let feed = Feed(
      endpoint: endpoint,
      bound: bound,
      loop: loop,
      gateway: FeedGateway(url: url, tls: tls?.client, credential: credential)
    )
    let result: Result<Value, any Error>
    do { result = .success(try await body(feed)) } catch { result = .failure(error) }
    await feed.gateway.close()
    try await server.close()
    try await group.shutdownGracefully()
    return try result.get()
  }
}
