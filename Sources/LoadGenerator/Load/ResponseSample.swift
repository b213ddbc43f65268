internal import Foundation
internal import ReceiptModel
internal import ReceiptWire

/// Response that is kept to be checked after the run.
struct ResponseSample: Sendable {
  /// Channel and message of the request.
  var channel: Int
  var message: Int
  var body: [UInt8]
}

/// Responses of a connection that are kept: the first, the second, the fourth, and so on.
struct ResponseSampler: Sendable {
  /// Limits of the kept responses and of the size of a kept body.
  static let countMax = 24
  static let byteCountMax = 128 * 1024

  private(set) var samples: [ResponseSample] = []
  private var count: UInt = 0

  /// Count a response; return whether to keep it.
  @inline(__always)
  mutating func countResponse() -> Bool {
    count &+= 1
    return Self.isKept(count)
  }

  /// Return whether to keep the response with a number from 1.
  @inline(__always)
  static func isKept(_ number: UInt) -> Bool { number & (number &- 1) == 0 }

  /// Keep a response within the limits.
  mutating func keep(_ body: UnsafeRawBufferPointer, _ position: RequestWalk.Position) {
    guard samples.count < Self.countMax, body.count <= Self.byteCountMax else { return }
    samples.append(ResponseSample(channel: position.channel, message: position.message, body: [UInt8](body)))
  }
}

/// Positions of the members before a run of queries: each has read up to another message, so that every count in every
/// answer is known.
struct BenchPositions: Sendable {
  /// Messages of each channel.
  let messageCount: Int
  let memberCount: Int

  /// Return the number from 1 of the last message that a member, from 0, has read; 0 for none. The last message is
  /// unread.
  func lastRead(of member: Int) -> Int { member % messageCount }

  /// Return the number of members that have read a message, from 0.
  func readCount(of message: Int) -> Int { (0..<memberCount).count { lastRead(of: $0) > message } }
}

/// Comparison of kept responses with the expected ones.
struct ResponseCheck: Sendable {
  let names: BenchNames
  let form: RequestForm
  /// Positions of the members; nil for writes.
  let positions: BenchPositions?

  /// Return the problems of all kept responses.
  func problems(_ report: LoadReport) -> [String] {
    report.samples.enumerated().flatMap { connection, samples in
      samples.compactMap { problem($0, of: connection) }
    }
  }

  /// Return the problem of a response to a connection's request; nil for a correct one.
  func problem(_ sample: ResponseSample, of connection: Int) -> String? {
    let text = String(decoding: sample.body.prefix(400), as: UTF8.self)
    func unexpected(_ what: String) -> String {
      "\(names.channel(sample.channel)), message \(sample.message + 1): \(what): \(text)"
    }
    func decode<Value: Decodable>(_ type: Value.Type) -> Value? {
      try? JSONDecoder().decode(type, from: Data(sample.body))
    }
    switch form {
    case .query, .body:
      guard let row = decode(RowResponse.self)?.read else { return unexpected("no row") }
      return row.user.id == names.user(connection) && row.last_read_seq == sample.message + 1
        && row.last_read_message_id == names.message(sample.message, of: sample.channel)
        ? nil : unexpected("not the mark's row")
    case .frame:
      var sequence: UInt32?
      var user: [UInt8] = []
      do throws(WireError) {
        let reply = try MarkReply(sample.body.span.bytes)
        guard reply.uncounted == nil else { return unexpected("a mark that does not count") }
        sequence = reply.row.lastReadSequence.rawValue
        user = reply.row.user.withUnsafeBytes { [UInt8]($0) }
      } catch {
        return unexpected("not a row (\(error))")
      }
      return sequence.map { Int($0) } == sample.message + 1 && user == Array(names.user(connection).utf8)
        ? nil : unexpected("not the mark's row")
    case .register:
      guard let message = decode(MessageResponse.self)?.message else { return unexpected("no message") }
      return message.id == names.message(sample.message, of: sample.channel, by: connection)
        && message.cid == names.channel(sample.channel) && message.seq > sample.message
        ? nil : unexpected("not the message that was registered")
    case .readState(let memberCount):
      guard let page = decode(ReadStateResponse.self) else { return unexpected("no rows") }
      guard page.read.count == memberCount, page.next == nil else {
        return unexpected("\(page.read.count) rows instead of \(memberCount)")
      }
      let lastRead = Dictionary(page.read.map { ($0.user.id, $0.last_read_seq) }) { first, _ in first }
      for member in 0..<memberCount where lastRead[names.user(member)] != positions?.lastRead(of: member) {
        return unexpected("wrong position of \(names.user(member))")
      }
      return nil
    case .status:
      guard let response = decode(StatusResponse.self) else { return unexpected("no status") }
      let readCount = positions?.readCount(of: sample.message) ?? 0
      return response.message_id == names.message(sample.message, of: sample.channel)
        && response.seq == sample.message + 1 && response.read_count == readCount
        && response.member_count == positions?.memberCount && response.status == (readCount > 0 ? "read" : "sent")
        ? nil : unexpected("not the message's status")
    case .hashSet:
      guard let response = decode([String: Int].self)?["HSET"] else { return unexpected("not HSET's answer") }
      // 1 for a new field, 0 for a changed one.
      return response == (sample.message == 0 ? 1 : 0) ? nil : unexpected("wrong count of new fields")
    }
  }
}
