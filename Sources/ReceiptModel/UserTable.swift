/// A user in one channel's memory, as a number. It is given in order of first sight, means nothing outside the channel and is
/// never logged; pages and effects carry the id. 0 is nobody.
package struct UserNumber: Hashable, Sendable {
  package var rawValue: UInt32
  package init(_ rawValue: UInt32) { self.rawValue = rawValue }
  package static let nobody = UserNumber(0)
}

/// The ids of a channel's users, members and senders, each kept once. They belong to the channel, not to its shard: a channel that leaves memory
/// leaves nothing behind.
struct UserTable: ~Copyable, Sendable {
  private var bytes: [UInt8] = []
  /// Where each id ends; the id of number n is at n−1.
  private var ends: [Int] = []
  private var index = HashIndex()

  init() {}

  /// The number of a known user.
  func find(_ id: RawSpan) -> UserNumber? {
    index.find(StableHash.hash(id)) { self.matches($0, id) }.map { UserNumber($0 + 1) }
  }

  /// The number of this user, new if need be.
  mutating func intern(_ id: RawSpan) -> UserNumber {
    if let known = find(id) { return known }
    id.withUnsafeBytes { bytes.append(contentsOf: $0) }
    ends.append(bytes.count)
    index.insert(StableHash.hash(id), UInt32(ends.count - 1))
    return UserNumber(UInt32(ends.count))
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
    let position = Int(number.rawValue) - 1
    return bytes.span.bytes.extracting(start(position)..<ends[position])
  }

  /// The id as text; empty for nobody.
  func text(_ number: UserNumber) -> String {
    id(number).withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
  }

  /// What it occupies, in bytes.
  var byteCount: Int { heapBytes(bytes) + heapBytes(ends) + index.byteCount }

  private func start(_ position: Int) -> Int { position == 0 ? 0 : ends[position - 1] }

  private func matches(_ position: UInt32, _ other: RawSpan) -> Bool {
    let position = Int(position)
    return bytes.span.bytes.extracting(start(position)..<ends[position]).isEqual(to: other)
  }
}
