import Foundation
import HTTP2Session
import Synchronization
import TestSupport
import Testing

/// An event stream as a client reads it, block by block.
final class TestEventStream: Sendable {
  private struct State {
    var status = 0
    var rest = ""
    var lastID: String?
    var handle: HTTP2StreamHandle?
  }

  private let state = Mutex(State())
  private let blocks: AsyncStream<String>
  private let continuation: AsyncStream<String>.Continuation

  init() { (blocks, continuation) = AsyncStream.makeStream() }

  var handle: HTTP2StreamHandle? {
    get { state.withLock { $0.handle } }
    set { state.withLock { $0.handle = newValue } }
  }

  /// The status of the response; 0 before it.
  var status: Int { state.withLock { $0.status } }
  /// The id of the last block that had one.
  var lastID: String? { state.withLock { $0.lastID } }

  func received(status: Int, _ text: String) {
    state.withLock { state in
      state.status = status
      state.rest += text
      while let end = state.rest.range(of: "\n\n") {
        continuation.yield(String(state.rest[..<end.lowerBound]))
        state.rest.removeSubrange(..<end.upperBound)
      }
    }
  }

  func ended() {
    let rest = state.withLock { $0.rest }
    if !rest.isEmpty { continuation.yield(rest) }
    continuation.finish()
  }

  /// The next block, or nil if the stream has ended. A timeout is recorded as an issue and also returns nil.
  func block() async -> String? { await block("the next block of an event stream") { _ in true } }

  /// The next event, skipping heartbeats, or nil if the stream has ended. A timeout is recorded as an issue and also
  /// returns nil.
  func event() async -> NSDictionary? {
    let block = await block("the next event of an event stream") { Self.data(of: $0) != nil }
    guard let data = block.flatMap({ Self.data(of: $0) }) else { return nil }
    return (try? JSONSerialization.jsonObject(with: Data(data.utf8)) as? NSDictionary) ?? [:]
  }

  private static func data(of block: String) -> Substring? {
    block.split(separator: "\n").first { $0.hasPrefix("data: ") }?.dropFirst(6)
  }

  /// The next block that is wanted. The time limit is that of all blocks until it: a stream that sends only heartbeats
  /// does not prolong it.
  private func block(_ awaited: String, where isWanted: @escaping @Sendable (String) -> Bool) async -> String? {
    try? await within(awaited) { () -> String? in
      var iterator = self.blocks.makeAsyncIterator()
      while let block = await iterator.next() {
        for line in block.split(separator: "\n") where line.hasPrefix("id: ") {
          self.state.withLock { $0.lastID = String(line.dropFirst(4)) }
        }
        if isWanted(block) { return block }
      }
      return nil
    }
  }

  /// The types of the next events, each with its user if it has one, as in `message.read bob`.
  func types(_ count: Int) async -> [String] {
    var types: [String] = []
    for _ in 0..<count { types.append(await type() ?? "end") }
    return types
  }

  func type() async -> String? {
    guard let event = await event() else { return nil }
    let user = (event["user"] as? NSDictionary)?["id"] as? String
    return (event["type"] as? String ?? "no type") + (user.map { " \($0)" } ?? "")
  }

  /// Wait for the first heartbeat with an id, which shows that the stream is live.
  func live() async -> Bool {
    await block("a heartbeat with an id") { $0.hasPrefix(":\nid: ") } != nil
  }
}
