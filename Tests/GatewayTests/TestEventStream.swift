import Foundation
import HTTP2Session
import Synchronization
import TestSupport
import Testing

/// A stream of events as a client reads it: its blocks, one after the other.
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

  /// 0: not answered yet.
  var status: Int { state.withLock { $0.status } }
  /// Of the last block read that had one.
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

  /// The next block; nil: the stream has ended, or no block came in time, which is recorded as an issue.
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

  /// The next event, heartbeats passed over; nil: the stream has ended, or none came among very many heartbeats, which
  /// is recorded as an issue.
  func event() async -> NSDictionary? {
    var blockCount = 0
    while let block = await block() {
      blockCount += 1
      guard blockCount < 5_000 else {
        Issue.record("no event came among \(blockCount) blocks")
        return nil
      }
      guard let data = block.split(separator: "\n").first(where: { $0.hasPrefix("data: ") }) else { continue }
      return (try? JSONSerialization.jsonObject(with: Data(data.dropFirst(6).utf8)) as? NSDictionary) ?? [:]
    }
    return nil
  }

  /// The types of the next events, with the user where there is one, as in `message.read bob`.
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

  /// Waits until it is live: the first heartbeat that has an id.
  func live() async -> Bool {
    while let block = await block() { if block.hasPrefix(":\nid: ") { return true } }
    return false
  }
}
