internal import Foundation

/// A record or a line of a dump that was not converted.
package struct DumpRefusal: Hashable, Sendable {
  package var origin: DumpOrigin
  package var detail: String

  /// The refusal as a line of JSON, for a report.
  package var json: String {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    let fields = ["code": "dump_record", "detail": detail, "source": origin.description]
    return (try? encoder.encode(fields)).map { String(decoding: $0, as: UTF8.self) } ?? ""
  }
}

/// Receives what a reader finds in a dump: channels, settings of users, records by channel, and what is left out.
final class RecordCollector {
  /// A channel of the dump, without its records.
  struct Channel {
    let cid: String
    var createdAt: DumpTime?
    var origin: DumpOrigin
  }

  private(set) var channels: [Channel] = []
  /// Users who hide receipts, by their ids.
  private(set) var settings: [ExactID: (DumpLine.User.Settings, DumpOrigin)] = [:]
  var leftOut = LeftOutCounts()
  private(set) var refusedCount = 0

  private let spool: RecordSpool
  private let refused: (DumpRefusal) -> Void
  private var numbers: [ExactID: Int] = [:]

  /// - Parameter refused: called for each record that is refused.
  init(spool: RecordSpool, refused: @escaping (DumpRefusal) -> Void) {
    self.spool = spool
    self.refused = refused
  }

  /// Read a record; what is wrong with it refuses this record only.
  ///
  /// - Throws: what is not the record's fault, such as a full disk.
  func attempt(_ origin: DumpOrigin, _ body: () throws -> Void) throws {
    do {
      try body()
    } catch let refusal as RecordRefusal {
      refuse(origin, refusal.detail)
    } catch let error as DecodingError {
      refuse(origin, RecordRefusal(error, at: origin).detail)
    }
  }

  /// Read the elements of a list, each on its own.
  func attempt<Value>(
    _ elements: [Lenient<Value>],
    of list: String,
    at origin: DumpOrigin,
    _ body: (Value, DumpOrigin) throws -> Void
  ) throws {
    for (index, element) in elements.enumerated() {
      let origin = origin.within("\(list)[\(index)]")
      try attempt(origin) { try body(try element.result.get(), origin) }
    }
  }

  func refuse(_ origin: DumpOrigin, _ detail: String) {
    refusedCount += 1
    refused(DumpRefusal(origin: origin, detail: detail))
  }

  /// Note a channel, also one of which only records are known.
  func addChannel(_ cid: String, createdAt: DumpTime? = nil, at origin: DumpOrigin) {
    if let number = numbers[ExactID(cid)] {
      if let createdAt { channels[number].createdAt = createdAt }
      return
    }
    numbers[ExactID(cid)] = channels.count
    channels.append(Channel(cid: cid, createdAt: createdAt, origin: origin))
  }

  func add(_ record: DumpRecord, to cid: String, at origin: DumpOrigin) throws {
    addChannel(cid, at: origin)
    guard let number = numbers[ExactID(cid)] else { return }
    try spool.append(record, to: number)
  }

  /// Note what a user hides. A user who hides nothing has no line.
  ///
  /// - Returns: whether this is known only now.
  @discardableResult
  func addUser(_ id: String, hidesRead: Bool, hidesDelivered: Bool, at origin: DumpOrigin) -> Bool {
    let before = settings[ExactID(id)]?.0 ?? DumpLine.User.Settings()
    var after = before
    if hidesRead { after.readReceipts = .init(enabled: false) }
    if hidesDelivered { after.deliveryReceipts = .init(enabled: false) }
    guard after != before else { return false }
    settings[ExactID(id)] = (after, origin)
    return true
  }

  /// Return the users of mentions whose ids Tidemark takes; others are counted.
  func mentions(_ ids: [String]) -> [String] {
    let users = ids.filter { (try? ForeignID.user($0)) != nil }
    leftOut.add(ids.count - users.count, "mentions of ids that Tidemark does not take")
    return users
  }

  /// Return the records of a channel, by its index in `channels`.
  func records(of channel: Int) throws -> [DumpRecord] { try spool.records(of: channel) }
}
