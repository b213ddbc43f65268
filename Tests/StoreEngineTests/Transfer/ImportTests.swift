import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import TestSupport
import Testing

/// Imports and exports of a shard (Proto/frames.md, 0x60 to 0x66).
@Suite("Imports and exports of a shard", .computing)
struct ImportTests {
  private static let time = Timestamp(milliseconds: 500)

  private static func imported(
    _ storage: MemoryStorage = MemoryStorage(),
    messages: Int = 3,
    configure: (inout StoreLoopConfiguration) -> Void = { _ in }
  ) throws -> (harness: EngineHarness, gateway: Gateway) {
    let harness = try EngineHarness(storage, configure: configure)
    let gateway = harness.connect()
    gateway.send(.importChannel, "team:a") { $0.writeImportChannel(created: time, OptionPatch()) }
    #expect(try replies(harness, gateway) == ["imported new"])
    for start in stride(from: 0, to: messages, by: 1_000) {
      let records = (start..<min(start + 1_000, messages)).map {
        TransferredMessage(id: "m\($0 + 1)", sender: "ann", registeredAt: time)
      }
      gateway.send(.importMessages, "team:a") { $0.writeRecords(records) }
      #expect(try replies(harness, gateway)[0].hasPrefix("imported ok"))
    }
    return (harness, gateway)
  }

  private static func replies(_ harness: EngineHarness, _ gateway: Gateway) throws -> [String] {
    harness.loop.endTurn()
    try harness.runUntilIdle()
    while !harness.stepReads.isEmpty {
      try harness.completeSteps()
      harness.loop.endTurn()
      try harness.runUntilIdle()
    }
    return gateway.take().map { String($0.drop { $0 != " " }.dropFirst()) }
  }

  private static func members(_ gateway: Gateway, counter: UInt64? = nil, _ members: TransferredMember...) {
    gateway.send(.importMembers, "team:a", counter: counter) { $0.writeRecords(members) }
  }

  private static func export(_ harness: EngineHarness, _ gateway: Gateway) throws -> [ExportChannelReply] {
    var parts: [ExportChannelReply] = []
    repeat {
      let snapshot = parts.last?.snapshot ?? 0
      gateway.send(.exportChannel, "team:a") {
        $0.writeExportChannel(user: "", snapshot: snapshot, part: UInt64(parts.count))
      }
      _ = try replies(harness, gateway)
      parts.append(try ExportChannelReply(gateway.lastPayload.readableBytesSpan))
    } while UInt64(parts.count) < parts[0].parts
    return parts
  }

  @Test("each record is decided on the result of the one before it, and refused by itself")
  func recordsAreDecidedInOrder() throws {
    let (harness, gateway) = try Self.imported()
    gateway.send(.importMessages, "team:a") {
      $0.writeRecords([
        TransferredMessage(id: "m4", sequence: SequenceNumber(4)),
        TransferredMessage(id: "m6", sequence: SequenceNumber(6)),
        TransferredMessage(id: "m5", parent: "m4"), TransferredMessage(id: ""),
      ])
    }
    #expect(try Self.replies(harness, gateway) == ["imported ok import_gap ok invalid_field"])
    Self.members(gateway, TransferredMember(user: "bob", read: "m4"), TransferredMember(user: "bob", thread: "m4"))
    #expect(try Self.replies(harness, gateway) == ["imported ok ok"])
    gateway.send(.importAcknowledgements, "team:a") {
      $0.writeRecords([TransferredAcknowledgement(message: "m4", user: "bob", at: .none)])
    }
    #expect(try Self.replies(harness, gateway) == ["imported receipt_not_requested"])
    gateway.list("bob")
    #expect(try Self.replies(harness, gateway) == ["team:a"], "the user's index has the channel")
  }

  @Test("a resent request is not applied again, after a change of its member by others")
  func duplicatesAreNotApplied() throws {
    let (harness, gateway) = try Self.imported()
    Self.members(gateway, counter: 50, TransferredMember(user: "bob"))
    gateway.counter = 50
    _ = try Self.replies(harness, gateway)
    gateway.change("team:a", remove: ["bob"])
    _ = try Self.replies(harness, gateway)
    Self.members(gateway, counter: 50, TransferredMember(user: "bob", joined: SequenceNumber(3)))
    #expect(try Self.replies(harness, gateway) == ["imported ok"])
    gateway.getChannel("team:a")
    #expect(try Self.replies(harness, gateway) == ["channel of 0"])
  }

  @Test("subscribers and the feed are told nothing")
  func nothingIsTold() throws {
    let (harness, gateway) = try Self.imported { $0.feedRetention = FeedRetention(milliseconds: 0, bytes: 0) }
    gateway.consumer("crm")
    gateway.send(.subscribe, nil) { buffer in
      buffer.writeVarint(UInt64(0))
      buffer.writeTime(.none)
      buffer.writeVarint(1)
      buffer.writeField("team:a")
    }
    _ = try Self.replies(harness, gateway)
    Self.members(gateway, TransferredMember(user: "bob", read: "m2"), TransferredMember(user: "carol"))
    gateway.send(.importMessages, "team:a") { $0.writeRecords([TransferredMessage(id: "m4", sender: "bob")]) }
    let told = try Self.replies(harness, gateway)
    #expect(told.allSatisfy { $0.hasPrefix("imported") || !$0.contains("bob") && !$0.contains("m4") }, "\(told)")
    gateway.feed("crm", from: 1)
    let records = try Self.replies(harness, gateway)
    #expect(!records.joined().contains("bob") && !records.joined().contains("m4"), "\(records)")
  }

  @Test("moves beyond a tail are kept in segments, and exported from storage")
  func movesAreKept() throws {
    let storage = MemoryStorage()
    let (harness, gateway) = try Self.imported(storage, messages: 300) { $0.pageWriteAgeMilliseconds = 1 }
    let moves = (1...300).map {
      TransferredMember.Move(.read, to: SequenceNumber($0), at: Timestamp(milliseconds: 500 + Int64($0)))
    }
    let bob = TransferredMember(
      user: "bob",
      joined: .zero,
      joinedAt: Self.time,
      read: "m300",
      readAt: Timestamp(milliseconds: 800),
      readMoves: 300,
      flags: .showsHistory,
      moves: moves
    )
    Self.members(gateway, bob)
    #expect(try Self.replies(harness, gateway) == ["imported ok"])
    #expect(try Self.export(harness, gateway)[0].members == [bob])
    try harness.writePages()
    let restarted = try EngineHarness(storage)
    let other = restarted.connect(session: 2)
    #expect(try Self.export(restarted, other)[0].members == [bob])
  }

  @Test("all parts of an export are of one moment")
  func exportsAreOfOneMoment() throws {
    let (harness, gateway) = try Self.imported(messages: 8_000)
    gateway.send(.exportChannel, "team:a") { $0.writeExportChannel(user: "", snapshot: 0, part: 0) }
    _ = try Self.replies(harness, gateway)
    var parts = [try ExportChannelReply(gateway.lastPayload.readableBytesSpan)]
    #expect(parts[0].parts > 1)
    gateway.post("team:a", "later", by: "ann")
    gateway.deleteMessage("team:a", "m8000")
    _ = try Self.replies(harness, gateway)
    while UInt64(parts.count) < parts[0].parts {
      gateway.send(.exportChannel, "team:a") {
        $0.writeExportChannel(user: "", snapshot: parts[0].snapshot, part: UInt64(parts.count))
      }
      _ = try Self.replies(harness, gateway)
      parts.append(try ExportChannelReply(gateway.lastPayload.readableBytesSpan))
    }
    let messages = parts.flatMap(\.messages)
    #expect(messages.count == 8_000 && messages.allSatisfy { !$0.flags.contains(.deleted) })
    // The last part was read, so nothing is kept.
    gateway.send(.exportChannel, "team:a") {
      $0.writeExportChannel(user: "", snapshot: parts[0].snapshot, part: 0)
    }
    #expect(try Self.replies(harness, gateway) == ["outcome_unknown"])
  }

  @Test("channels are listed by number, in memory and on storage, without users' indexes")
  func channelsAreListed() throws {
    let storage = MemoryStorage()
    let (harness, gateway) = try Self.imported(storage)
    for name in ["team:b", "team:c", "team:d"] { gateway.put(name, ["ann"]) }
    _ = try Self.replies(harness, gateway)
    gateway.deleteChannel("team:c")
    _ = try Self.replies(harness, gateway)
    try harness.writePages()
    let restarted = try EngineHarness(storage)
    let other = restarted.connect(session: 2)
    other.getChannel("team:d")
    _ = try Self.replies(restarted, other)
    other.send(.listStoredChannels, nil) { $0.writeListStored(after: 0, limit: 256) }
    #expect(try Self.replies(restarted, other) == ["channels team:a team:b team:d"])
    other.send(.listStoredChannels, nil) { $0.writeListStored(after: 0, limit: 1) }
    #expect(try Self.replies(restarted, other) == ["channels team:a + 1"])
  }
}
