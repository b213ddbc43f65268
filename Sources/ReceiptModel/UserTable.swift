/// A user in one channel's memory, as a number. It is given in order of first sight, means nothing outside the channel
/// and is never logged; pages and effects carry the id. 0 is nobody.
package struct UserNumber: Hashable, Sendable {
  package var rawValue: UInt32
  package init(_ rawValue: UInt32) { self.rawValue = rawValue }
  package static let nobody = UserNumber(0)
  /// Somebody who is in no row and has sent nothing here.
  static let stranger = UserNumber(.max)
}

/// The ids of a channel's users, members and senders, each kept once. They belong to the channel, not to its shard: a
/// channel that leaves memory leaves nothing behind.
struct UserTable: ~Copyable, Sendable {
  private var bytes: [UInt8] = []
  /// Where each id is: its first byte above, its length in the lower 24 bits; that of number n at n−1.
  private var places: [UInt64] = []
  private var index = HashIndex()
  /// How often each number is referred to, for owners who count it (``retain(_:)``).
  private var references: [UInt32] = []
  /// Bytes of ids that were erased.
  private var holeBytes = 0

  private static let lengthBits: UInt64 = 24
  /// Holes are closed when they are half of all bytes, and more than this.
  private static let holeBytesMin = 4_096

  init() {}

  /// The number of a known user.
  func find(_ id: RawSpan) -> UserNumber? {
    index.find(StableHash.hash(id)) { self.matches($0, id) }.map { UserNumber($0 + 1) }
  }

  /// The number of this user, new if need be.
  mutating func intern(_ id: RawSpan) -> UserNumber {
    if let known = find(id) { return known }
    places.append(append(id))
    index.insert(StableHash.hash(id), UInt32(places.count - 1))
    return UserNumber(UInt32(places.count))
  }

  private mutating func append(_ id: RawSpan) -> UInt64 {
    let place = UInt64(bytes.count) << Self.lengthBits | UInt64(id.byteCount)
    id.withUnsafeBytes { bytes.append(contentsOf: $0) }
    return place
  }

  /// The number of this user, new if need be; nobody for the empty string.
  mutating func intern(_ id: String) -> UserNumber {
    if id.isEmpty { return .nobody }
    var id = id
    return id.withUTF8 { intern($0.span.bytes) }
  }

  /// The id's bytes; empty for nobody.
  @_lifetime(borrow self)
  borrowing func id(_ number: UserNumber) -> RawSpan {
    guard number != .nobody else { return bytes.span.bytes.extracting(first: 0) }
    return bytes.span.bytes.extracting(range(Int(number.rawValue) - 1))
  }

  /// The id as text; empty for nobody.
  func text(_ number: UserNumber) -> String {
    id(number).withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
  }

  /// What it occupies, in bytes.
  var byteCount: Int { heapBytes(bytes) + heapBytes(places) + heapBytes(references) + index.byteCount }

  private func range(_ position: Int) -> Range<Int> {
    let place = places[position]
    let start = Int(place >> Self.lengthBits)
    return start..<(start + Int(place & (1 << Self.lengthBits - 1)))
  }

  private func matches(_ position: UInt32, _ other: RawSpan) -> Bool {
    bytes.span.bytes.extracting(range(Int(position))).isEqual(to: other)
  }

  // MARK: Erasing (R16)

  /// Numbers given, those without an id included.
  var count: Int { places.count }

  /// Whether a number's id was erased.
  func isErased(_ number: UserNumber) -> Bool {
    number != .nobody && range(Int(number.rawValue) - 1).isEmpty
  }

  /// Something refers to this user from here on.
  mutating func retain(_ number: UserNumber) {
    guard number != .nobody else { return }
    while references.count < places.count { references.append(0) }
    references[Int(number.rawValue) - 1] += 1
  }

  /// Something refers to this user no more. With the last of them the id leaves memory.
  mutating func release(_ number: UserNumber) {
    guard number != .nobody else { return }
    let position = Int(number.rawValue) - 1
    references[position] -= 1
    if references[position] == 0 { erase(number) }
  }

  /// How often a number is referred to.
  func referenceCount(_ number: UserNumber) -> Int {
    let position = Int(number.rawValue) - 1
    return position < references.count ? Int(references[position]) : 0
  }

  /// Takes a user's id out of memory; their number stays, without an id. Nothing happens where it was done before.
  mutating func erase(_ number: UserNumber) {
    guard number != .nobody, !isErased(number) else { return }
    let position = Int(number.rawValue) - 1
    let range = range(position)
    index.remove(StableHash.hash(bytes.span.bytes.extracting(range)), UInt32(position))
    for offset in range { bytes[offset] = 0 }
    places[position] = 0
    holeBytes += range.count
    if holeBytes > Self.holeBytesMin, holeBytes * 2 > bytes.count { closeHoles() }
  }

  /// A further number, without an id.
  mutating func appendErased() { places.append(0) }

  /// Gives an erased user's number to another, who has none.
  mutating func assign(_ number: UserNumber, _ id: String) {
    precondition(isErased(number), "the number is somebody's")
    var id = id
    id.withUTF8 { id in
      places[Int(number.rawValue) - 1] = append(id.span.bytes)
      index.insert(StableHash.hash(id.span.bytes), number.rawValue - 1)
    }
  }

  private mutating func closeHoles() {
    var closed: [UInt8] = []
    closed.reserveCapacity(bytes.count - holeBytes)
    for position in places.indices {
      let range = range(position)
      guard !range.isEmpty else { continue }
      places[position] = UInt64(closed.count) << Self.lengthBits | UInt64(range.count)
      closed.append(contentsOf: bytes[range])
    }
    bytes = closed
    holeBytes = 0
  }
}
