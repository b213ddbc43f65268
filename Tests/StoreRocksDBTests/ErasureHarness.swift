import Foundation
import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine

@testable import StoreRocksDB

/// All shards of a RocksDB directory on one loop, driven by hand. The loop's requests are performed in order at the end
/// of the turn.
final class ErasureHarness: StoreLoopDriver {
  static let shardCount = 2

  private(set) var engine: RocksDBEngine
  private let directory: TestDirectory
  private var loop: StoreLoop!
  private var lane: ReplyLane!
  private var asked: [() -> Void] = []
  private var clock: Int64 = 1_000
  private var session: UInt64 = 0
  private var counter: UInt64 = 0
  private(set) var replies: [(kind: FrameKind, payload: ByteBuffer)] = []
  private(set) var faults: [String] = []

  init(_ directory: TestDirectory) throws {
    self.directory = directory
    engine = try directory.open(shards: Self.shardCount)
    try begin()
  }

  private func begin() throws {
    let shards = (0..<UInt16(Self.shardCount)).map(ShardID.init)
    loop = try StoreLoop(
      configuration: StoreLoopConfiguration(),
      shardCount: Self.shardCount,
      stored: try shards.map { (shard: $0, state: try engine.recover($0)) },
      driver: self
    )
    session += 1
    counter = 0
    lane = ReplyLane(
      session: SessionID(high: 9, low: session),
      shards: Self.shardCount,
      deliver: { [unowned self] bytes, _ in self.delivered(bytes) },
      end: { [unowned self] in self.faults.append("ended: \($0)") }
    )
    loop.open(lane)
    pass(0)
  }

  /// Stop as in a crash, and start again.
  func restart() throws {
    loop.stop()
    asked = []
    engine.close()
    engine = try directory.open(shards: Self.shardCount)
    try begin()
  }

  // MARK: StoreLoopDriver

  private func result<Value>(_ body: () throws(StorageError) -> Value) -> Result<Value, StorageError> {
    do throws(StorageError) { return .success(try body()) } catch { return .failure(error) }
  }

  func commit(_ commit: LoopCommit) {
    asked.append { [self] in
      loop.committed(result { () throws(StorageError) in try engine.commit(commit) })
    }
  }

  func load(_ request: LoadRequest, as reference: ChannelReference) {
    asked.append { [self] in
      let read = result { () throws(StorageError) in try engine.read(request.shard, request.channel) }
      loop.loaded(request, as: reference, read)
    }
  }

  func deliver(_ deliveries: [MembershipDelivery]) { asked.append { [self] in loop.receive(deliveries) } }
  func confirm(_ confirmations: [MembershipConfirmation]) {
    asked.append { [self] in loop.confirmed(confirmations) }
  }

  func readSteps(_ request: StepRequest) { faults.append("steps are read") }
  func sliceLater() { asked.append { [self] in loop.slice() } }

  func purge() {
    asked.append { [self] in loop.purged(result { () throws(StorageError) in try engine.purge() }) }
  }

  func peek(_ request: StorageReadRequest) {
    asked.append { [self] in loop.peeked(request, request.perform(on: engine)) }
  }

  func reportError(_ error: StorageError) { faults.append("\(error)") }
  func loopHalted(_ error: StorageError) { faults.append("halted: \(error)") }

  // MARK: Requests

  func pass(_ milliseconds: Int64) {
    clock += milliseconds
    loop.clock = Timestamp(milliseconds: clock)
  }

  func turn() {
    loop.endTurn()
    while !asked.isEmpty { asked.removeFirst()() }
  }

  /// Advance time, so that due pages are written.
  func tick() {
    pass(10_000)
    loop.tick()
    turn()
  }

  static func shard(of text: String) -> ShardID {
    let bytes = Array(text.utf8)
    return ShardID.owning(bytes.span.bytes, count: shardCount)
  }

  /// - Parameter shard: nil means the shard of the name.
  func send(
    _ kind: FrameKind,
    _ name: String?,
    shard: ShardID? = nil,
    _ fields: (inout ByteBuffer) -> Void = { _ in }
  ) {
    var payload = ByteBuffer()
    if let name { payload.writeField(name) }
    if kind.isCommand {
      counter += 1
      payload.writeVarint(counter)
    }
    fields(&payload)
    let header = FrameHeader(kind, shard: shard ?? Self.shard(of: name ?? ""))
    do {
      try loop.receive(header, payload.readableBytesSpan, lane: lane)
    } catch {
      faults.append("\(kind): \(error)")
    }
  }

  private func delivered(_ bytes: ByteBuffer) {
    let decoder = FrameDecoder()
    var offset = 0
    while case .frame(let header, let count)? = try? decoder.next(bytes.readableBytesSpan, at: offset) {
      let start = offset + FrameHeader.byteCount
      offset = start + count
      let payload = bytes.getSlice(at: bytes.readerIndex + start, length: count)!
      if header.kind == .error { faults.append("refused: \(String(buffer: payload))") }
      replies.append((header.kind, payload))
    }
  }

  /// The first byte of each reply since the last call.
  func takeFirstBytes() -> [UInt8] {
    defer { replies = [] }
    return replies.compactMap { $0.payload.readableBytesView.first }
  }

  // MARK: Stored data

  /// The places where one of these texts occurs: in RocksDB's keys and values, and in the decoded log batches and
  /// pages.
  ///
  /// - Parameter isExpected: pages that are skipped.
  func traces(_ texts: [String], but isExpected: (Page) -> Bool = { _ in false }) throws -> [String] {
    var found: [String] = []
    for (name, family) in [("meta", engine.meta), ("log", engine.log), ("pages", engine.pages)] {
      try engine.scan(
        family,
        from: StorageKey.log(ShardID(0), .zero),
        to: StorageKey.logEnd(ShardID(.max))
      ) { key, value throws(StorageError) in
        var decoded = ""
        do {
          if name == "log" { decoded = "\(try LogBatch(value.readableBytesSpan))" }
          if name == "pages", key.readableBytesView.first == UInt8(ascii: "P") {
            let page = try Page(value.readableBytesSpan)
            if isExpected(page) { return }
            decoded = "\(page)"
          }
        } catch {
          throw .corrupt("\(error)")
        }
        for text in texts {
          let isThere =
            decoded.contains(text) || key.readableBytesView.contains(text)
            || value.readableBytesView.contains(text)
          if isThere { found.append("\(name): \(text)") }
        }
      }
    }
    return found
  }

  /// The files of the directory, except its tables, that contain one of these texts byte for byte.
  func files(with texts: [String]) throws -> [String] {
    try directory.files(with: texts) { !$0.hasSuffix(".sst") }
  }
}

extension ByteBufferView {
  fileprivate func contains(_ text: String) -> Bool {
    Data(self).range(of: Data(text.utf8)) != nil
  }
}
