internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// The channels of a ``UserChannelScan`` that counts or announces, in frames of one shard: being filled, ready, and in
/// flight.
struct CountFrames {
  /// Maximum channels of one unread_counts (Proto/frames.md).
  static let channelsMax = 1_024

  /// A channel of a frame. Encoded as a varint of the user's index, a varint of its position on the page plus 1 (0: not
  /// for the page), string cid, varint row.
  struct Channel: ~Escapable {
    let user: Int
    /// Its position on the page; nil: not for the page.
    let pagePosition: Int?
    let cid: RawSpan
    let row: UInt32

    @_lifetime(copy cid)
    init(user: Int, pagePosition: Int?, cid: RawSpan, row: UInt32) {
      self.user = user
      self.pagePosition = pagePosition
      self.cid = cid
      self.row = row
    }

    @_lifetime(copy reader)
    init(_ reader: inout FieldReader) throws(WireError) {
      user = Int(try reader.varint())
      pagePosition = try reader.optional().map { Int($0) }
      cid = try reader.string()
      row = try reader.varint32()
    }

    func write(into buffer: inout ByteBuffer) {
      buffer.writeVarint(user)
      buffer.writeOptional(pagePosition.map { UInt64($0) })
      buffer.writeField(cid)
      buffer.writeVarint(row)
    }
  }

  /// Channels of one shard.
  struct Frame {
    let shard: Int
    fileprivate(set) var count = 0
    fileprivate var bytes = ByteBuffer()

    /// A reader of the channels, as ``Channel/init(_:)`` does.
    var reader: FieldReader {
      @_lifetime(borrow self)
      get { FieldReader(bytes.readableBytesSpan) }
    }

    func forEach(_ body: (borrowing Channel) -> Void) {
      var reader = reader
      for _ in 0..<count {
        do throws(WireError) { body(try Channel(&reader)) } catch {
          preconditionFailure("a frame of our own does not parse: \(error)")
        }
      }
    }
  }

  /// The frame being filled, by shard.
  private var filling: [Frame]
  /// Channels in those frames.
  private(set) var heldCount = 0
  private var ready: [Frame] = []
  private var sent: [Int: Frame] = [:]
  private var nextNumber = 0

  /// - Parameter shardCount: 0 for a scan without frames.
  init(shardCount: Int) { filling = (0..<shardCount).map { Frame(shard: $0) } }

  var isEmpty: Bool { sent.isEmpty && ready.isEmpty && heldCount == 0 }
  var hasReady: Bool { !ready.isEmpty }

  /// A frame in flight.
  subscript(number: Int) -> Frame? { sent[number] }

  mutating func append(_ channel: borrowing Channel, shard: Int) {
    filling[shard].count += 1
    heldCount += 1
    channel.write(into: &filling[shard].bytes)
    if filling[shard].count == Self.channelsMax { close(shard) }
  }

  private mutating func close(_ shard: Int) {
    guard filling[shard].count > 0 else { return }
    heldCount -= filling[shard].count
    ready.append(filling[shard])
    filling[shard] = Frame(shard: shard)
  }

  /// Let partly filled frames be sent.
  mutating func closeAll() {
    for shard in filling.indices { close(shard) }
  }

  /// Put the next frame in flight; returns its number, or nil where none is ready or too many are in flight.
  mutating func next(inFlightMax: Int) -> Int? {
    guard sent.count < inFlightMax, let frame = ready.popLast() else { return nil }
    defer { nextNumber += 1 }
    sent[nextNumber] = frame
    return nextNumber
  }

  /// Remove an answered frame.
  mutating func remove(_ number: Int) -> Frame? { sent.removeValue(forKey: number) }
}
