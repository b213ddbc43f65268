package import NIOCore
internal import ReceiptModel

/// The layout of a request's fields and of its reply's.
///
/// Each stands beside the typed readers and writers of its request; tests check both against the golden vectors.
/// `POST /v1/frames` states its rules itself, in the gateway.
///
/// Fields are in order, separated by spaces outside of brackets, with the cid and a command's counter. A field is
/// `name`, `name:encoding` or `name:[fields]`. Without an encoding it is a string if the name is one of a string, else
/// a varint. `@x` names a compound field of Proto/frames.md.
package struct RequestSpec: Sendable {
  package let kind: FrameKind
  /// Name in Proto/frames.md.
  package let name: String
  package let fields: String
  package let reply: String

  init(_ kind: FrameKind, _ name: String, _ fields: String = "", reply: String = "") {
    self.kind = kind
    self.name = name
    self.fields = fields
    self.reply = reply
  }

  /// All requests, by their numbers.
  package static let all: [RequestSpec] = [
    channelRequests, markRequests, pageRequests, pushRequests, settingsRequests, statusRequests, userRequests,
    feedRequests, backupRequests, snapshotRequests, transferRequests, pushJobRequests,
  ].flatMap { $0 }.sorted { $0.kind.rawValue < $1.kind.rawValue }
}

/// The properties of a kind of request, on which store and gateway act. ``RequestSpec`` states its fields.
package struct RequestTraits: FlagSet {
  package let rawValue: UInt8
  package init(rawValue: UInt8) { self.rawValue = rawValue }

  /// Carries the session's counter and may change state.
  package static let command = RequestTraits(rawValue: 1)
  /// Carries no counter; repeating it is harmless.
  package static let idempotent = RequestTraits(rawValue: 2)
  /// About the whole store; names no shard, carries no counter and is never resent.
  package static let backup = RequestTraits(rawValue: 4)
  /// A request of a session: with a counter, or idempotent.
  static let request = RequestTraits(rawValue: 3)
  /// Begins with the name of what it is about: of a command the counter is the second field, else the first.
  package static let named = RequestTraits(rawValue: 8)
  /// Waits behind postponed requests of the channel that its first field or its ticket names.
  package static let orderedByChannel = RequestTraits(rawValue: 16)
  /// May have the flag `thread`: a thread's parent message follows the fields.
  package static let thread = RequestTraits(rawValue: 32)
  /// One request may name very many members or channels.
  package static let wide = RequestTraits(rawValue: 64)
  /// Between nodes, about a group's data; names no shard, carries no counter and is never resent.
  package static let snapshot = RequestTraits(rawValue: 128)
}

/// *viewer* of Proto/frames.md: for whom a query is answered.
package struct ViewerFields: ~Escapable {
  /// 1: a server; 0: a user. Others are invalid.
  package let flags: UInt64
  /// Empty: none.
  package let user: RawSpan

  @_lifetime(copy reader)
  @_lifetime(reader: copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    flags = try reader.varint()
    user = try reader.string()
  }

  package var isServer: Bool { flags == 1 }
  package var isValid: Bool { flags <= 1 }
}

/// A list of strings in a request. Its form is checked when it is read; its strings are then read in place.
package struct StringListFields: ~Escapable {
  package let count: Int
  private var rest: FieldReader
  private var remaining: Int

  /// Read the count, and pass over the strings.
  @_lifetime(copy reader)
  @_lifetime(reader: copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    count = try reader.count()
    remaining = count
    rest = reader
    for _ in 0..<count { _ = try reader.string() }
  }

  /// Read the next string; nil at the end.
  @_lifetime(copy self)
  @_lifetime(self: copy self)
  package mutating func next() -> RawSpan? {
    guard remaining > 0 else { return nil }
    remaining -= 1
    // The form was checked.
    return try? rest.string()
  }

  /// Call `body` with each string in order.
  package func forEach(_ body: (RawSpan) -> Void) {
    var list = self
    while let string = list.next() { body(string) }
  }
}

/// A reply of one byte, which `writeFlag` writes: whether the command did something, or the query's answer is yes.
package struct FlagReply: Hashable, Sendable {
  package let isSet: Bool

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    isSet = try reader.flag()
    try reader.end()
  }
}

extension ByteBuffer {
  /// Write what ``ViewerFields`` reads; an empty user: none.
  package mutating func writeViewer(_ user: RawSpan, isServer: Bool) {
    writeVarint(UInt64(isServer ? 1 : 0))
    writeField(user)
  }

  /// Write what ``StringListFields`` reads.
  package mutating func writeStrings(_ strings: some Collection<String>) {
    writeVarint(strings.count)
    for string in strings { writeField(string) }
  }
}
