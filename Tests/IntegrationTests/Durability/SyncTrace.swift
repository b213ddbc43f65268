import ReceiptWire
import Testing

/// The events that strace recorded for one store: marks received, replies to them sent, and syncs.
///
/// The bytes of each connection (`strace -xx`) are decoded into frames, so that pings and other housekeeping frames,
/// alone or in one read with a mark, are not taken for marks. strace is attached between two frames.
struct SyncTrace {
  enum Event: Equatable {
    /// A mark-read arrived whole.
    case mark(correlation: UInt32)
    /// A write that holds the reply to a mark-read began.
    case reply(correlation: UInt32)
    case syncBegan
    case syncReturned
  }

  /// The events in the order in which they happened.
  private(set) var events: [Event] = []
  /// The bytes of an unfinished frame, by connection and direction.
  private var unfinished: [Stream: [UInt8]] = [:]

  private struct Stream: Hashable {
    let connection: Substring
    let isReceived: Bool
  }

  /// Read a trace.
  ///
  /// - Parameter port: the store's port. Gateways' connections are those with it at their local end.
  init(_ trace: String, port: Int) {
    // strace splits a call that another thread interrupted over two lines. The bytes of a read are in the second line,
    // those of a write in the first.
    var pendingReads: [Substring: Substring] = [:]
    let end = "TCP:[127.0.0.1:\(port)->"
    for line in trace.split(separator: "\n") {
      guard let space = line.firstIndex(of: " ") else { continue }
      let thread = line[..<space]
      let call = line[space...].drop { $0 == " " }
      if call.hasPrefix("fdatasync(") || call.hasPrefix("fsync(") {
        events.append(.syncBegan)
        if call.hasSuffix("= 0") { events.append(.syncReturned) }
      } else if call.hasPrefix("<... fdatasync resumed>") || call.hasPrefix("<... fsync resumed>") {
        if call.hasSuffix("= 0") { events.append(.syncReturned) }
      } else if call.hasPrefix("<... re"), let connection = pendingReads.removeValue(forKey: thread) {
        decode(Self.bytes(call), of: Stream(connection: connection, isReceived: true))
      } else if let start = call.firstRange(of: end) {
        let connection = call[start.upperBound...].prefix { $0 != "]" }
        let isReceived = ["read(", "readv(", "recvfrom(", "recvmsg("].contains(where: call.hasPrefix)
        if isReceived, call.contains("<unfinished") {
          pendingReads[thread] = connection
        } else {
          decode(Self.bytes(call), of: Stream(connection: connection, isReceived: isReceived))
        }
      }
    }
  }

  /// The numbers of replies that left with and without a sync that began after their mark arrived and returned before
  /// they left.
  var replies: (covered: Int, bare: Int) {
    enum Progress { case arrived, syncBegan, synced }
    var open: [UInt32: Progress] = [:]
    var covered = 0
    var bare = 0
    for event in events {
      switch event {
      case .mark(let correlation): open[correlation] = .arrived
      case .syncBegan: open = open.mapValues { $0 == .arrived ? .syncBegan : $0 }
      case .syncReturned: open = open.mapValues { $0 == .syncBegan ? .synced : $0 }
      case .reply(let correlation):
        guard let progress = open.removeValue(forKey: correlation) else { continue }
        if progress == .synced { covered += 1 } else { bare += 1 }
      }
    }
    return (covered, bare)
  }

  private mutating func decode(_ bytes: [UInt8], of stream: Stream) {
    let pending = unfinished[stream, default: []] + bytes
    var offset = 0
    while offset < pending.count {
      guard
        case .frame(let header, let payloadCount)? = try? FrameDecoder().next(pending.span.bytes, at: offset)
      else { break }
      if header.kind == .markRead {
        events.append(
          header.isReply ? .reply(correlation: header.correlation) : .mark(correlation: header.correlation)
        )
      }
      offset += FrameHeader.byteCount + payloadCount
    }
    unfinished[stream] = Array(pending[offset...])
  }

  /// The bytes of a call's quoted arguments, which `-xx` prints as `\x0a`.
  private static func bytes(_ call: Substring) -> [UInt8] {
    let quoted = call.split(separator: "\"", omittingEmptySubsequences: false).enumerated()
    return quoted.filter { !$0.offset.isMultiple(of: 2) }.flatMap { _, text in
      text.split(separator: "\\x").compactMap { UInt8($0, radix: 16) }
    }
  }
}

/// Tests of the trace reader itself: it must detect a reply that leaves too early.
@Suite struct SyncTraceTests {
  private let began = "9 fdatasync(20</data/log> <unfinished ...>"
  private let returned = "9 <... fdatasync resumed>) = 0"
  private let ping = frame(.ping)
  private let pong = frame(.pong)
  private let mark = frame(.markRead)
  private let reply = frame(.markRead, isReply: true)

  /// A frame without a payload.
  private static func frame(_ kind: FrameKind, isReply: Bool = false) -> [UInt8] {
    [0, 0, 0, 8, kind.rawValue | (isReply ? FrameHeader.replyBit : 0), 0, 0, 0, 0, 0, 0, 7]
  }

  private func call(_ name: String, _ bytes: [UInt8]) -> String {
    "7 \(name)(12<TCP:[127.0.0.1:7410->127.0.0.1:5000]>, \"\(hex(bytes))\", 4096) = \(bytes.count)"
  }

  private func hex(_ bytes: [UInt8]) -> String {
    bytes.map { "\\x" + ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
  }

  private func events(_ lines: [String]) -> [SyncTrace.Event] {
    SyncTrace(lines.joined(separator: "\n"), port: 7410).events
  }

  private func replies(_ lines: [String]) -> (Int, Int) {
    SyncTrace(lines.joined(separator: "\n"), port: 7410).replies
  }

  @Test func replyAfterSyncIsCovered() {
    let lines = [call("read", mark), began, returned, call("write", reply)]
    #expect(events(lines) == [.mark(correlation: 7), .syncBegan, .syncReturned, .reply(correlation: 7)])
    #expect(replies(lines) == (1, 0))
  }

  @Test func housekeepingNeedsNoSync() {
    #expect(events([call("read", ping), call("write", pong)]).isEmpty)
    let lines = [call("read", mark + ping), call("write", pong), began, returned, call("write", reply)]
    #expect(replies(lines) == (1, 0))
  }

  @Test func framesAreJoinedOverReads() {
    let parts = [call("read", Array(mark[..<5])), call("read", Array(mark[5...]))]
    #expect(events(parts) == [.mark(correlation: 7)])
    let interrupted = [
      "7 read(12<TCP:[127.0.0.1:7410->127.0.0.1:5000]>,  <unfinished ...>",
      "7 <... read resumed>\"\(hex(mark))\", 4096) = 12",
    ]
    #expect(events(interrupted) == [.mark(correlation: 7)])
  }

  @Test func otherConnectionsAreIgnored() {
    let other = call("read", mark).replacing("7410->127.0.0.1:5000", with: "9090->127.0.0.1:5000")
    #expect(events([other]).isEmpty)
  }

  @Test func replyBeforeSyncIsDetected() {
    #expect(replies([call("read", mark), began, call("write", reply), returned]) == (0, 1))
    #expect(replies([began, call("read", mark), returned, call("write", reply)]) == (0, 1))
    #expect(replies([call("read", mark), call("write", pong + reply), began, returned]) == (0, 1))
  }
}
