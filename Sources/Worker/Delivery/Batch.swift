internal import Crypto
package import FeedClient
internal import Foundation

/// Records of one partition that are delivered with one request.
package struct Batch: Sendable, Hashable {
  /// Position before the first record; nil if it is unknown.
  package let from: String?
  /// Position after the last record.
  package let end: String
  /// Number of records.
  package let count: Int
  /// Value of `webhook-id`. It is the same for the same records, whichever worker delivers them.
  package let id: String
  /// Body of the request.
  package let body: [UInt8]

  /// - Parameter records: at least one.
  package init(consumer: String, partition: String, from: String?, records: [FeedRecord]) {
    self.from = from
    end = records.last?.cursor ?? ""
    count = records.count
    id = Self.id(consumer: consumer, first: records.first?.id ?? "", last: records.last?.id ?? "")
    var body: [UInt8] = []
    body.reserveCapacity(128 + records.reduce(0) { $0 + $1.json.count + 1 })
    // Names and partitions have no characters that JSON escapes.
    body += Array(
      #"{"type":"tidemark.records","consumer":"\#(consumer)","partition":"\#(partition)","records":["#.utf8
    )
    for (index, record) in records.enumerated() {
      if index > 0 { body.append(UInt8(ascii: ",")) }
      body += record.json
    }
    body += Array("]}".utf8)
    self.body = body
  }

  private static func id(consumer: String, first: String, last: String) -> String {
    // A consumer's name has no line feed.
    "msg_" + Base64URL.text(SHA256.hash(data: Array("\(consumer)\n\(first)\n\(last)".utf8)))
  }
}

/// Collector of the records of the next batch.
package struct BatchAssembler: Sendable {
  /// Size in bytes of the records at which a batch is full.
  package static let byteCountMax = 1 << 20

  private let recordsMax: Int
  private let waitMilliseconds: Int64
  /// Records so far, in order.
  package private(set) var records: [FeedRecord] = []
  private var byteCount = 0
  private var deadline: Int64 = .max
  private var isClosed = false
  /// The batch of an earlier attempt that is put together again.
  private var repeated: PartitionState.Attempt?
  /// Heartbeats since the last record of a batch that is put together again.
  private var heartbeatCount = 0

  /// Create an empty batch with limits of records, and of milliseconds since the first record.
  package init(recordsMax: Int, waitMilliseconds: Int64) {
    self.recordsMax = recordsMax
    self.waitMilliseconds = waitMilliseconds
  }

  /// Collect the records of an earlier attempt: up to its last position or number of records, without a time limit.
  package mutating func repeatBatch(of attempt: PartitionState.Attempt) { repeated = attempt }

  /// Whether the batch takes no more records.
  package func isReady(now: Int64) -> Bool { isClosed || (!records.isEmpty && repeated == nil && now >= deadline) }

  /// When the batch becomes ready without further records; nil: not by time.
  package var readyAt: Int64? { records.isEmpty || isClosed || repeated != nil ? nil : deadline }

  /// Whether another record may be added.
  package var takesRecords: Bool { !isClosed }

  /// Add a record.
  package mutating func add(_ record: FeedRecord, now: Int64) {
    if records.isEmpty { deadline = now + waitMilliseconds }
    records.append(record)
    byteCount += record.json.count
    heartbeatCount = 0
    if let repeated {
      isClosed = record.cursor == repeated.end || records.count >= repeated.count
    } else {
      isClosed = records.count >= recordsMax || byteCount >= Self.byteCountMax
    }
  }

  /// Close the batch, unless it is empty: the records behind it do not follow on those in it.
  package mutating func close() { if !records.isEmpty { isClosed = true } }

  /// Handle a heartbeat. Two without a record between them show that a repeated batch has no more records: those that
  /// are missing have been hidden or are no longer kept.
  ///
  /// - Returns: whether a repeated batch turned out to have no records at all.
  package mutating func heartbeatReceived() -> Bool {
    guard repeated != nil, !isClosed else { return false }
    heartbeatCount += 1
    guard heartbeatCount >= 2 else { return false }
    if records.isEmpty {
      repeated = nil
      return true
    }
    isClosed = true
    return false
  }

  /// Return the records and start the next batch.
  package mutating func take() -> [FeedRecord] {
    defer { self = BatchAssembler(recordsMax: recordsMax, waitMilliseconds: waitMilliseconds) }
    return records
  }
}
