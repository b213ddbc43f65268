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
  func block() async -> String? {
    let blocks = blocks
    let next = try? await within("the next block of an event stream") {
      var iterator = blocks.makeAsyncIterator()
      return await iterator.next()
    }
    if let block = next ?? nil {
      for line in block.split(separator: "\n") where line.hasPrefix("id: ") {
        state.withLock { $0.lastID = String(line.dropFirst(4)) }
      }
      return block
    }
    return nil
  }

  /// The next event, skipping heartbeats, or nil if the stream has ended. Too many heartbeats without an event are
  /// recorded as an issue and also return nil.
  func event() async -> NSDictionary? {
    var blockCount = 0
    while let block = await block() {
      blockCount += 1
      guard blockCount < 5_000 else {
        Issue.record("no event among \(blockCount) blocks")
        return nil
      }
      guard let data = block.split(separator: "\n").first(where: { $0.hasPrefix("data: ") }) else { continue }
      return (try? JSONSerialization.jsonObject(with: Data(data.dropFirst(6).utf8)) as? NSDictionary) ?? [:]
    }
    return nil
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
    while let block = await block() { if block.hasPrefix(":\nid: ") { return true } }
    return false
  }
}
