import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

/// The types of frames read the vectors of Proto/vectors and write the same bytes.
struct FrameRoundTripTests {
  @Test(arguments: FrameRoundTripTests.vectorsWithEntry)
  func typesRoundTripVectors(_ vector: Vectors.Frame) throws {
    let type = FrameType(FrameHeader(vector))
    let roundTrip = try #require(Self.all.first { $0.types.contains(type) })
    let bytes = [UInt8](hex: vector.hex)
    var frame = ByteBuffer()
    try roundTrip.write(bytes.span.bytes.extracting(FrameHeader.byteCount..<bytes.count), vector, into: &frame)
    #expect(Array(frame.readableBytesView).hex == vector.hex, "\(vector.name)")
  }

  /// No vector is left out silently: its kind has an entry, or is in the list of kinds without one.
  @Test func everyKindHasEntryOrIsListed() {
    let types = Set(Self.all.flatMap(\.types) + Self.withoutWriter)
    let missing = FrameType.allCases.filter { !types.contains($0) }
    #expect(missing.isEmpty)
    let unknown = types.subtracting(FrameType.allCases)
    #expect(unknown.isEmpty)
  }

  /// A kind that gets an entry leaves the list of kinds without one.
  @Test func everyKindIsListedOnce() {
    let types = Self.all.flatMap(\.types) + Self.withoutWriter
    let repeated = Dictionary(grouping: types) { $0 }.filter { $0.value.count > 1 }.map { $0.key }
    #expect(repeated.isEmpty)
  }

  /// The ids and times of a row differ in some vector of a mark, so that fields in the wrong order are detected.
  @Test func rowsOfMarksHaveDifferentIDs() {
    let ids = Vectors.frames.filter { $0.kind == "mark_unread_reply" || $0.kind == "mark_read_reply" }
      .filter { $0.fields.contains { $0.name == "first_unread_message" } }
      .map { frame in
        Set(
          ["last_read_message", "last_delivered_message", "first_unread_message"].map { frame.fields.text($0) }
        )
      }
    #expect(ids.contains { $0.count == 3 && !$0.contains("") })
  }

  /// What the type of some kinds reads and writes.
  struct RoundTrip: Sendable {
    typealias Body = @Sendable (RawSpan, Vectors.Frame, inout ByteBuffer) throws -> Void

    let types: [FrameType]
    /// Whether the type writes the header, too.
    private let writesHeader: Bool
    private let body: Body

    static func frame(_ kinds: FrameKind..., body: @escaping Body) -> RoundTrip {
      RoundTrip(types: kinds.map { FrameType($0) }, writesHeader: true, body: body)
    }

    static func payload(_ kinds: FrameKind..., body: @escaping Body) -> RoundTrip {
      RoundTrip(types: kinds.map { FrameType($0) }, writesHeader: false, body: body)
    }

    static func reply(_ kinds: FrameKind..., body: @escaping Body) -> RoundTrip {
      RoundTrip(types: kinds.map { FrameType($0, isReply: true) }, writesHeader: false, body: body)
    }

    /// Fields of a request between its name, its counter and what its flags append.
    static func request(
      _ kinds: FrameKind...,
      body: @escaping @Sendable (inout FieldReader, Vectors.Frame, inout ByteBuffer) throws -> Void
    ) -> RoundTrip {
      RoundTrip(types: kinds.map { FrameType($0) }, writesHeader: false) { payload, vector, buffer in
        let kind = FrameKind(rawValue: vector.kindNumber)!
        let flags = FrameHeader.Flags(rawValue: vector.flags)
        let fieldBytes = payload.byteCount - (flags.contains(.issued) ? FrameHeader.issuedByteCount : 0)
        var reader = FieldReader(payload.extracting(0..<fieldBytes))
        if kind.traits.contains(.named) { _ = try reader.string() }
        if kind.isCommand { _ = try reader.varint() }
        buffer.writeRaw(payload.extracting(0..<reader.offset))
        try body(&reader, vector, &buffer)
        // Only what the flags append is left.
        let end = reader.offset
        if flags.contains(.thread) { _ = try reader.string() }
        try reader.end()
        buffer.writeRaw(payload.extracting(end..<payload.byteCount))
      }
    }

    /// Read the payload, check the values that were read, and write the frame.
    func write(_ payload: RawSpan, _ vector: Vectors.Frame, into frame: inout ByteBuffer) throws {
      guard !writesHeader else { return try body(payload, vector, &frame) }
      let start = frame.beginFrame(FrameHeader(vector))
      try body(payload, vector, &frame)
      frame.endFrame(start)
    }
  }

  static let all: [RoundTrip] = [
    connection, nodes, events, channels, messages, marks, readStates, settings, settingRequests, lists, statuses, pages,
    push, pushJobs, feed, backups, transfers,
  ].flatMap { $0 }

  /// The vectors of the kinds in ``all``.
  static let vectorsWithEntry: [Vectors.Frame] = Vectors.frames.filter { vector in
    let type = FrameType(FrameHeader(vector))
    return all.contains { $0.types.contains(type) }
  }

  /// Frames whose fields no typed writer writes. ``parse`` reads them.
  static let withoutWriter =
    kindsWithoutWriter.map { FrameType($0) } + repliesWithoutWriter.map { FrameType($0, isReply: true) }

  private static let kindsWithoutWriter: [FrameKind] = [
    // No fields, or only the name and the counter.
    .drain, .deleteChannel, .getChannel, .getChannelType, .listChannelTypes, .getUser, .listUnsettled, .webhookKnown,
    .getToken, .listConsumers, .removeConsumer, .backupBegin, .backupEnd, .snapshotRead,
    // One field, which the sender writes itself.
    .ping, .pong, .eraseMember, .purge, .noteWebhook,
    // The gateway writes their lists of members from JSON.
    .putChannel, .changeMembers,
  ]
  private static let repliesWithoutWriter: [FrameKind] = [
    // No fields.
    .unsubscribe, .announceRow, .removeConsumer, .commitConsumer, .backupEnd,
    // Few fields, which the store writes itself.
    .purge, .subscribeUser, .backupRead, .backupDigest, .listStoredChannels,
  ]

  /// Handshake and errors.
  private static let connection: [RoundTrip] = [
    .frame(.hello) { payload, vector, buffer in
      let hello = try Hello(payload)
      #expect(UInt64(hello.versionLowest) == vector.fields.number("version_lowest"))
      #expect(UInt64(hello.versionHighest) == vector.fields.number("version_highest"))
      #expect(hello.session == SessionID(high: 0x0011_2233_4455_6677, low: 0x8899_AABB_CCDD_EEFF))
      #expect(hello.sessionAgeMilliseconds == vector.fields.optional("session_age"))
      #expect(hello.nonce.bytes == vector.fields.bytes("nonce"))
      #expect(UInt64(hello.frameLengthMax) == vector.fields.number("frame_length_max"))
      #expect(hello.name == vector.fields.text("name"))
      hello.write(into: &buffer)
    },
    .frame(.challenge) { payload, vector, buffer in
      let challenge = try Challenge(payload)
      #expect(challenge.nonce.bytes == vector.fields.bytes("nonce"))
      #expect(challenge.proof == vector.fields.bytes("proof"))
      #expect(UInt64(challenge.window) == vector.fields.number("window"))
      #expect(UInt64(challenge.shardCount) == vector.fields.number("shard_count"))
      #expect(challenge.store == SessionID(high: 0xF0E0_D0C0_B0A0_9080, low: 0x7060_5040_3020_1000))
      challenge.write(into: &buffer)
    },
    .frame(.proof) { payload, vector, buffer in
      let proof = try Proof(payload)
      #expect(proof.bytes == vector.fields.bytes("proof"))
      proof.write(into: &buffer)
    },
    .frame(.ready) { payload, vector, buffer in
      let ready = try Ready(payload)
      #expect(ready.isResumed == (vector.fields.number("session") == 1))
      #expect(ready.sessionLifetimeMilliseconds == vector.fields.number("session_lifetime"))
      #expect(ready.shards.map(\.address) == vector.fields.list("shards").map { $0.text("address") })
      #expect(ready.shards.map { UInt64($0.first) } == vector.fields.list("shards").map { $0.number("first") })
      #expect(ready.shards.map { UInt64($0.count) } == vector.fields.list("shards").map { $0.number("count") })
      ready.write(into: &buffer)
    },
    .frame(.error) { payload, vector, buffer in
      let error = try ErrorFrame(payload)
      #expect(error.rawCode == vector.fields.number("code"))
      #expect(error.code.map { UInt64($0.rawValue) } == vector.fields.number("code"))
      #expect(error.detail == vector.fields.text("detail"))
      buffer.writeError(
        error.code!,
        shard: ShardID(vector.shard),
        correlation: vector.correlation,
        retryAfterMilliseconds: error.retryAfterMilliseconds,
        detail: error.detail
      )
    },
  ]

  /// Between the nodes of a cluster, and the shards that a node owns.
  private static let nodes: [RoundTrip] = [
    .frame(.shardMap) { payload, vector, buffer in
      let map = try ShardMap(payload)
      let owned = vector.fields.list("owned")
      #expect(map.owned.map { UInt64($0.first) } == owned.map { $0.number("first") })
      #expect(map.owned.map { UInt64($0.count) } == owned.map { $0.number("count") })
      #expect(map.owned.map(\.epoch) == owned.map { $0.number("epoch") })
      #expect(UInt64(map.node) == vector.fields.number("node"))
      #expect(map.peers.map { UInt64($0.node) } == vector.fields.list("peers").map { $0.number("node") })
      #expect(map.peers.map(\.host) == vector.fields.list("peers").map { $0.text("host") })
      #expect(map.peers.map { UInt64($0.port) } == vector.fields.list("peers").map { $0.number("port") })
      map.write(into: &buffer)
    },
    .frame(.deliverChanges) { payload, vector, buffer in
      let delivery = try MembershipDelivery(to: ShardID(vector.shard), payload)
      #expect(UInt64(delivery.from.rawValue) == vector.fields.number("from"))
      #expect(delivery.after == vector.fields.number("after"))
      #expect(delivery.changes.map(\.number) == vector.fields.list("changes").map { $0.number("number") })
      delivery.write(into: &buffer)
    },
    .frame(.confirmChanges) { payload, vector, buffer in
      let confirmation = try MembershipConfirmation(to: ShardID(vector.shard), payload)
      #expect(UInt64(confirmation.from.rawValue) == vector.fields.number("from"))
      #expect(confirmation.through == vector.fields.number("through"))
      confirmation.write(into: &buffer)
    },
    .payload(.snapshotBegin) { payload, vector, buffer in
      let request = try SnapshotRequest(payload)
      #expect(UInt64(request.group) == vector.fields.number("group"))
      #expect(UInt64(request.shards.lowerBound) == vector.fields.number("first"))
      #expect(UInt64(request.shards.count) == vector.fields.number("count"))
      #expect(request.asksOwner == (vector.fields.number("from") == 1))
      request.write(into: &buffer)
    },
    .reply(.snapshotBegin) { payload, vector, buffer in
      let head = try SnapshotHead(payload)
      #expect(head.position == vector.fields.number("position"))
      #expect(head.epoch == vector.fields.number("epoch"))
      #expect(head.hash == vector.fields.bytes("hash").reduce(0) { $0 << 8 | UInt64($1) })
      #expect(head.key == vector.fields.number("record_key"))
      head.write(into: &buffer)
    },
    .payload(.recordKeys) { payload, vector, buffer in
      let request = try RecordKeysRequest(payload)
      #expect(UInt64(request.group) == vector.fields.number("group"))
      request.write(into: &buffer)
    },
    .reply(.recordKeys) { payload, vector, buffer in
      let list = try RecordKeyList(payload)
      #expect(list.keys.map(\.number) == vector.fields.list("keys").map { $0.number("number") })
      #expect(list.keys.map(\.secret) == vector.fields.list("keys").map { $0.bytes("secret") })
      list.write(into: &buffer)
    },
    .reply(.snapshotRead) { payload, vector, buffer in
      let part = try SnapshotPart(payload)
      #expect(part.isLast == (vector.fields.number("is_last") == 1))
      #expect(part.total == vector.fields.number("total"))
      #expect(part.digest == vector.fields.bytes("digest"))
      #expect(Array(part.bytes.readableBytesView) == vector.fields.bytes("bytes"))
      part.write(into: &buffer)
    },
  ]

  static func text(_ bytes: RawSpan) -> String {
    bytes.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
  }

  /// Return the strings of a list in a request.
  static func strings(_ list: borrowing StringListFields) -> [String] {
    var strings: [String] = []
    list.forEach { strings.append(text($0)) }
    return strings
  }

  /// Check for whom a query is answered.
  static func expect(_ viewer: ViewerFields, _ fields: [Vectors.Field]) {
    let (flags, user) = (viewer.flags, text(viewer.user))
    #expect(flags == fields.number("viewer_flags"))
    #expect(user == fields.text("viewer"))
  }
}
