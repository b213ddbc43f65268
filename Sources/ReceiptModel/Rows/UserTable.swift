/// A user's number in one channel's memory. Numbers are assigned in order of first appearance, have no meaning outside
/// the channel and are never logged; pages and effects contain the id. 0 is nobody.
package struct UserNumber: Hashable, Sendable {
  package var rawValue: UInt32
  package init(_ rawValue: UInt32) { self.rawValue = rawValue }
  package static let nobody = UserNumber(0)
  /// A user who has no row and has sent nothing here.
  static let stranger = UserNumber(.max)
}

/// The ids of a channel's users (members and senders), each stored once. The table belongs to the channel, not to its
/// shard, so an evicted channel leaves nothing behind.
struct UserTable: ~Copyable, Sendable {
  private var bytes: [UInt8] = []
  /// The location of each id: its first byte's offset above, its length in the lower 24 bits; for number n at index
  /// n−1.
  private var locations: [UInt64] = []
  private var index = HashIndex()
  /// Reference counts by number, for owners that use ``retain(_:)``.
  private var references: [UInt32] = []
  /// Bytes of erased ids.
  private var holeBytes = 0

  private static let lengthBits: UInt64 = 24
  /// Holes are closed when they exceed this, and half of all bytes.
  private static let holeBytesMin = 4_096

  init() {}

  /// Return the number of a known user.
  func find(_ id: RawSpan) -> UserNumber? {
    index.find(StableHash.hash(id)) { self.matches($0, id) }.map { UserNumber($0 + 1) }
  }

  /// Return the number of this user; assign a new one if needed.
  mutating func intern(_ id: RawSpan) -> UserNumber {
    if let known = find(id) { return known }
    locations.append(append(id))
    index.insert(StableHash.hash(id), UInt32(locations.count - 1))
    return UserNumber(UInt32(locations.count))
  }

  private mutating func append(_ id: RawSpan) -> UInt64 {
    let location = UInt64(bytes.count) << Self.lengthBits | UInt64(id.byteCount)
    id.withUnsafeBytes { bytes.append(contentsOf: $0) }
    return location
  }

  /// Return the number of this user, assigning a new one if needed; nobody for the empty string.
  mutating func intern(_ id: String) -> UserNumber {
    if id.isEmpty { return .nobody }
    var id = id
    return id.withUTF8 { intern($0.span.bytes) }
  }

  /// Return the id's bytes; empty for nobody.
  @_lifetime(borrow self)
  borrowing func id(_ number: UserNumber) -> RawSpan {
    guard number != .nobody else { return bytes.span.bytes.extracting(first: 0) }
    return bytes.span.bytes.extracting(range(Int(number.rawValue) - 1))
  }

  /// Return the id as text; empty for nobody.
  func text(_ number: UserNumber) -> String {
    id(number).withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
  }

  /// Size in bytes.
  var byteCount: Int { heapBytes(bytes) + heapBytes(locations) + heapBytes(references) + index.byteCount }

  private func range(_ position: Int) -> Range<Int> {
    let location = locations[position]
    let start = Int(location >> Self.lengthBits)
    return start..<(start + Int(location & (1 << Self.lengthBits - 1)))
  }

  private func matches(_ position: UInt32, _ other: RawSpan) -> Bool {
    bytes.span.bytes.extracting(range(Int(position))).equals(other)
  }

  // MARK: Erasing (R16)

  /// Number of assigned numbers, including those without an id.
  var count: Int { locations.count }

  /// Return whether a number's id was erased.
  func isErased(_ number: UserNumber) -> Bool {
    number != .nobody && range(Int(number.rawValue) - 1).isEmpty
  }

  /// Add a reference to this user.
  mutating func retain(_ number: UserNumber) {
    guard number != .nobody else { return }
    while references.count < locations.count { references.append(0) }
    references[Int(number.rawValue) - 1] += 1
  }

  /// Remove a reference to this user. Erases the id when the last reference is gone.
  mutating func release(_ number: UserNumber) {
    guard number != .nobody else { return }
    let position = Int(number.rawValue) - 1
    references[position] -= 1
    if references[position] == 0 { erase(number) }
  }

  /// Return the number of references to a user.
  func referenceCount(_ number: UserNumber) -> Int {
    let position = Int(number.rawValue) - 1
    return position < references.count ? Int(references[position]) : 0
  }

  /// Erase a user's id from memory; the number stays, without an id. Idempotent.
  mutating func erase(_ number: UserNumber) {
    guard number != .nobody, !isErased(number) else { return }
    let position = Int(number.rawValue) - 1
    let range = range(position)
    index.remove(StableHash.hash(bytes.span.bytes.extracting(range)), UInt32(position))
    for offset in range { bytes[offset] = 0 }
    locations[position] = 0
    holeBytes += range.count
    if holeBytes > Self.holeBytesMin, holeBytes * 2 > bytes.count { closeHoles() }
  }

  /// Append a number without an id.
  mutating func appendErased() { locations.append(0) }

  /// Reassign an erased user's number to another user, who has none.
  mutating func assign(_ number: UserNumber, _ id: String) {
    precondition(isErased(number), "the number belongs to a user")
    var id = id
    id.withUTF8 { id in
      locations[Int(number.rawValue) - 1] = append(id.span.bytes)
      index.insert(StableHash.hash(id.span.bytes), number.rawValue - 1)
    }
  }

  private mutating func closeHoles() {
    var closed: [UInt8] = []
    closed.reserveCapacity(bytes.count - holeBytes)
    for position in locations.indices {
      let range = range(position)
      guard !range.isEmpty else { continue }
      locations[position] = UInt64(closed.count) << Self.lengthBits | UInt64(range.count)
      closed.append(contentsOf: bytes[range])
    }
    bytes = closed
    holeBytes = 0
  }
}
