import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

/// Effects, batches and pages against Proto/vectors/log.json, both ways.
struct LogVectorTests {
  @Test func everyEffectHasAVector() {
    #expect(Set(Vectors.log.effects.map(\.effect)).count == 12)
  }

  @Test(arguments: Vectors.log.effects.indices)
  func effects(_ index: Int) throws {
    let vector = Vectors.log.effects[index]
    let effect = Self.effect(vector)
    var buffer = ByteBuffer()
    buffer.writeEffect(effect)
    #expect(Array(buffer.readableBytesView).hex == vector.hex, "\(vector.name)")
    let bytes = [UInt8](hex: vector.hex)
    var reader = FieldReader(bytes.span.bytes)
    #expect(try reader.effect() == effect, "\(vector.name)")
    try reader.end()
  }

  @Test(arguments: Vectors.log.batches.indices)
  func batches(_ index: Int) throws {
    let vector = Vectors.log.batches[index]
    let batch = LogBatch(
      index: LogIndex(vector.index),
      time: Timestamp(milliseconds: vector.time),
      sessions: vector.sessions.map(Self.session),
      effects: vector.effects.map(Self.effect(named:))
    )
    let bytes = [UInt8](hex: vector.hex)
    #expect(try LogBatch(bytes.span.bytes) == batch, "\(vector.name)")
    var effects = ByteBuffer()
    for effect in batch.effects { effects.writeEffect(effect) }
    var buffer = ByteBuffer()
    LogBatch.write(
      index: batch.index,
      time: batch.time,
      sessions: batch.sessions,
      effectCount: batch.effects.count,
      effects: effects,
      into: &buffer
    )
    #expect(Array(buffer.readableBytesView).hex == vector.hex, "\(vector.name)")
  }

  @Test(arguments: Vectors.log.pages.indices)
  func pages(_ index: Int) throws {
    let vector = Vectors.log.pages[index]
    let page = Page(index: LogIndex(vector.index), effects: vector.effects.map(Self.effect(named:)))
    let bytes = [UInt8](hex: vector.hex)
    #expect(try Page(bytes.span.bytes) == page, "\(vector.name)")
    var buffer = ByteBuffer()
    page.write(into: &buffer)
    #expect(Array(buffer.readableBytesView).hex == vector.hex, "\(vector.name)")
  }

  @Test(arguments: Vectors.log.badBatches.indices)
  func badBatches(_ index: Int) {
    let vector = Vectors.log.badBatches[index]
    let bytes = [UInt8](hex: vector.hex)
    do throws(WireError) {
      _ = try LogBatch(bytes.span.bytes)
      Issue.record("\(vector.name): accepted")
    } catch {
      #expect(error.name == vector.refusal, "\(vector.name)")
    }
  }

  /// A torn value is never taken for a whole one.
  @Test func everyPrefixOfABatchIsRefused() {
    for vector in Vectors.log.batches {
      let bytes = [UInt8](hex: vector.hex)
      for count in 0..<bytes.count {
        #expect(throws: WireError.self, "\(vector.name) at \(count)") {
          try LogBatch(bytes.span.bytes.extracting(0..<count))
        }
      }
    }
  }

  static func effect(named name: String) -> Effect { effect(Vectors.log.effects.first { $0.name == name }!) }

  static func session(_ fields: [Vectors.Field]) -> SessionRecord {
    let bytes = fields.bytes("session")
    let halves = [bytes.prefix(8), bytes.suffix(8)].map { $0.reduce(UInt64(0)) { $0 << 8 | UInt64($1) } }
    return SessionRecord(
      session: SessionID(high: halves[0], low: halves[1]),
      highest: fields.number("highest"),
      waiting: fields.list("waiting").map { $0.number("counter") },
      lastWritten: time(fields, "last_written")
    )
  }

  private static func time(_ fields: [Vectors.Field], _ name: String) -> Timestamp {
    Timestamp(milliseconds: Int64(fields.number(name)))
  }

  /// Built from the readable fields, by hand, with nothing of the decoder.
  static func effect(_ vector: Vectors.Effect) -> Effect {
    let fields = vector.fields
    func channel() -> ChannelNumber { ChannelNumber(fields.number("channel")) }
    func row() -> MemberOrdinal { MemberOrdinal(UInt32(fields.number("row"))) }
    func sequence(_ name: String = "sequence") -> SequenceNumber {
      SequenceNumber(UInt32(fields.number(name)))
    }
    func marker() -> SequenceNumber? { fields.optional("marker").map { SequenceNumber(UInt32($0)) } }
    func epoch() -> UInt32 { UInt32(fields.number("unread_epoch")) }
    switch vector.effect {
    case "channel_assigned":
      return .channelAssigned(
        channel(),
        cid: fields.text("cid"),
        created: time(fields, "created"),
        own: patch(fields.list("own"))
      )
    case "row_assigned":
      let flags = fields.number("flags")
      return .rowAssigned(
        channel(),
        row(),
        RowRecord(
          user: fields.text("user"),
          role: fields.text("role"),
          hasLeft: flags & 1 != 0,
          hidesHistory: flags & 2 != 0,
          joined: sequence("joined"),
          joinedAt: time(fields, "joined_at"),
          read: sequence("read"),
          readAt: time(fields, "read_at"),
          delivered: sequence("delivered"),
          deliveredAt: time(fields, "delivered_at"),
          marker: marker(),
          unreadEpoch: epoch()
        )
      )
    case "row_left": return .rowLeft(channel(), row(), at: time(fields, "time"))
    case "role_assigned": return .roleAssigned(channel(), row(), role: fields.text("role"))
    case "read_moved": return .readMoved(channel(), row(), to: sequence(), at: time(fields, "time"))
    case "delivered_moved": return .deliveredMoved(channel(), row(), to: sequence(), at: time(fields, "time"))
    case "marker_assigned": return .markerAssigned(channel(), row(), marker: marker(), epoch: epoch())
    case "message_assigned":
      return .messageAssigned(
        channel(),
        sequence(),
        MessageRecord(
          id: fields.text("id"),
          sender: fields.text("sender"),
          flags: MessageRecord.Flags(rawValue: UInt8(fields.number("flags"))),
          registeredAt: time(fields, "registered"),
          createdAt: time(fields, "created")
        )
      )
    case "message_deleted": return .messageDeleted(channel(), sequence(), at: time(fields, "time"))
    case "channel_type_assigned":
      return .channelTypeAssigned(
        ChannelTypeRecord(
          name: fields.text("type"),
          version: fields.number("version"),
          options: ChannelTypeOptions().applying(patch(fields.list("options")))
        )
      )
    case "counters_assigned":
      return .countersAssigned(
        nextChannel: ChannelNumber(fields.number("next_channel")),
        time: time(fields, "time")
      )
    case "session_assigned": return .sessionAssigned(session(fields))
    default: fatalError("no effect \(vector.effect)")
    }
  }

  private static func patch(_ entries: [[Vectors.Field]]) -> OptionPatch {
    var patch = OptionPatch()
    for entry in entries {
      let value = entry.bytes("value")[0]
      switch entry.number("option") {
      case 1: patch.readEvents = value == 1
      case 2: patch.deliveryEvents = value == 1
      case 3: patch.markUnread = MarkUnreadOption(rawValue: value)
      default: patch.history = HistoryOption(rawValue: value)
      }
    }
    return patch
  }
}
