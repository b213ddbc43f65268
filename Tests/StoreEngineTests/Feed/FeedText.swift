import NIOCore
import ReceiptModel
import ReceiptWire

/// The reply to read_feed, in words.
enum FeedText {
  static func page(_ payload: RawSpan) throws(WireError) -> String {
    var reader = FieldReader(payload)
    let reply = try ReadFeedReply(&reader)
    var words: [String] = []
    if reply.gapTo != .none { words.append("gap to \(reply.gapTo.milliseconds)") }
    for _ in 0..<(try reader.count(elementBytesMin: NamedFeedRecord.byteCountMin)) {
      words.append(record(try NamedFeedRecord(&reader)))
    }
    try reader.end()
    words.append("next \(reply.number) of \(reply.end)")
    return words.joined(separator: "; ")
  }

  private static func record(_ record: borrowing NamedFeedRecord) -> String {
    var words = ["\(record.number)", record.kind.name.description]
    for text in [text(record.cid), text(record.user), text(record.message)] where !text.isEmpty { words.append(text) }
    if record.sequence != .zero { words.append("\(record.sequence.rawValue)") }
    let thread = text(record.thread)
    if !thread.isEmpty { words.append("in \(thread)") }
    switch record.kind {
    case .status: words.append("from \(record.first) status \(record.second)")
    case .messageRegistered: words.append("moves \(record.first)")
    case .markedUnread: words.append("epoch \(record.first)\(record.second == 1 ? " channel" : "")")
    case .rowChanged: words.append("read \(record.first) delivered \(record.second)")
    case .userUpdated: words.append("shows \(record.first)")
    case .reminderDue:
      guard let reminder = FeedRecord.Reminder(first: record.first, second: record.second) else { break }
      words.append("\(reminder.condition.name) \(reminder.part)/\(reminder.partCount)")
      if reminder.isTruncated { words.append("truncated") }
      var users: [String] = []
      record.users?.forEach { users.append(text($0)) }
      words.append("[\(users.joined(separator: " "))]")
    case .delivered:
      if record.first > 0 { words.append("acked \(record.first)") }
      for text in [text(record.text), text(record.detail)] where !text.isEmpty { words.append(text) }
    default: break
    }
    return words.joined(separator: " ")
  }

  private static func text(_ bytes: RawSpan) -> String { bytes.withUnsafeBytes { String(decoding: $0, as: UTF8.self) } }
}

/// The requests about the feed.
extension Gateway {
  func consumer(
    _ name: String,
    kinds: [FeedRecordKind] = [],
    types: [String] = [],
    start: PutConsumerRequest.Start = .earliest,
    since: Int64 = 0,
    counter: UInt64? = nil
  ) {
    var set = FeedRecordKinds.all
    for kind in kinds { set.insert(kind) }
    let request = PutConsumerRequest(
      kinds: set,
      channelTypes: types,
      start: start,
      since: Timestamp(milliseconds: since)
    )
    send(.putConsumer, name, counter: counter) { request.write(into: &$0) }
  }

  func removeConsumer(_ name: String) { send(.removeConsumer, name) }

  func open(_ name: String, epoch: UInt64, _ partition: FeedPartition = FeedPartition(index: 0, count: 1)) {
    let request = OpenPartitionRequest(partition, epoch: epoch)
    send(.openPartition, name) { request.write(into: &$0) }
  }

  func commit(
    _ name: String,
    _ number: UInt64? = nil,
    time: Int64 = 1,
    epoch: UInt64? = nil,
    state: String? = nil
  ) {
    let request = CommitConsumerRequest(
      FeedPartition(index: 0, count: 1),
      FeedConsumerTable.Commit(
        position: number.map { ($0, Timestamp(milliseconds: time)) },
        state: state.map { Array($0.utf8) },
        epoch: epoch
      )
    )
    send(.commitConsumer, name) { request.write(into: &$0) }
  }

  func lease(_ name: String, _ worker: String, held: [UInt16] = [], count: UInt16 = 1, milliseconds: Int64 = 8_000) {
    let request = LeasePartitionsRequest(
      FeedLeases.Request(worker: worker, partitionCount: count, held: held, milliseconds: milliseconds)
    )
    send(.leasePartitions, name) { request.write(into: &$0) }
  }

  func consumers(_ name: String = "") { send(.listConsumers, name) }

  func feed(_ name: String, from number: UInt64, epoch: UInt64 = 0, atOnce: Bool = true, limit: Int = 1_000) {
    let request = ReadFeedRequest(
      FeedPartition(index: 0, count: 1),
      epoch: epoch,
      number: number,
      flags: atOnce ? ReadFeedRequest.answersAtOnce : 0,
      limit: limit
    )
    send(.readFeed, name) { request.write(into: &$0) }
  }
}
