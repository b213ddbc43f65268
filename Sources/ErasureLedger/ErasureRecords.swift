internal import Crypto
internal import Foundation

/// Contents of an erasure ledger (docs/operate/backup.md, "The erasure ledger"): lines of text, each with a checksum at
/// its end.
///
/// ```
/// tidemark-erasures 2 CHECK
/// through MILLISECONDS COUNT CHECK   every erasure answered up to then is in the file, which then had COUNT records
/// key HEX CHECK                      key of the records that follow
/// erased MILLISECONDS HEX CHECK      HMAC-SHA-256 of a user's id
/// ```
package struct ErasureRecords: Sendable {
  /// Erasure of one user. Only the holder of the user's id can tell who it was.
  package struct Record: Hashable, Sendable {
    package var key: [UInt8]
    /// Time of the request, in milliseconds since 1970.
    package var time: Int64
    package var hash: [UInt8]
  }

  /// Reason why a ledger cannot be used.
  package struct Fault: Error, Hashable, Sendable, CustomStringConvertible {
    package let description: String

    package init(_ description: String) { self.description = description }
  }

  /// Records in the order in which they were written.
  package private(set) var records: [Record] = []
  /// Time up to which every answered erasure is in the ledger; nil if unknown.
  package private(set) var through: Int64?
  /// Key of new records; nil: none yet.
  private(set) var key: [UInt8]?
  /// Every key in the ledger, including those without records.
  private var keys: Set<[UInt8]> = []
  /// Whether the file has version 1, whose second line has no count.
  private(set) var isFirstVersion = false
  /// Size of the complete lines in bytes. Bytes behind them are a torn write, which was never answered.
  private(set) var intactByteCount = 0

  static let keyByteCount = 32
  static let header = line("tidemark-erasures 2")
  /// Encode the `through` line. Its length is fixed, so that it can be overwritten.
  static func throughLine(_ time: Int64, count: Int) -> String {
    func padded(_ number: Int64, _ width: Int) -> String {
      let digits = String(max(0, number))
      return String(repeating: "0", count: max(0, width - digits.count)) + digits
    }
    return line("through \(padded(time, 16)) \(padded(Int64(count), 10))")
  }

  package init() {}

  /// Read the records of a file; throws if it cannot be read.
  package init(file path: String) throws(Fault) {
    guard let data = FileManager.default.contents(atPath: path) else {
      throw Fault("\(path): cannot be read")
    }
    try self.init(Array(data), name: path)
  }

  /// Parse a ledger. Throws if a line other than the last is damaged, or if erasures are missing at the end (a
  /// truncated copy).
  package init(_ bytes: [UInt8], name: String) throws(Fault) {
    var position = 0
    var number = 0
    var expectedCount = 0
    while let end = bytes[position...].firstIndex(of: UInt8(ascii: "\n")) {
      number += 1
      let text = String(decoding: bytes[position..<end], as: UTF8.self)
      position = end + 1
      // The second line is overwritten in place: if it is torn, it is ignored.
      guard let fields = Self.fields(text) else {
        if number == 2 { continue }
        throw Fault("\(name), line \(number): is damaged; use a copy of the ledger, such as that of the newest backup")
      }
      intactByteCount = position
      guard parse(fields, number, &expectedCount) else {
        throw Fault("\(name), line \(number): is not a line of an erasure ledger that this version supports")
      }
    }
    guard number > 0 || bytes.isEmpty else { throw Fault("\(name): is not an erasure ledger") }
    guard records.count >= expectedCount else {
      throw Fault(
        "\(name): is truncated: it has \(records.count) of \(expectedCount) erasures; use a whole copy of the ledger, "
          + "such as that of the newest backup"
      )
    }
  }

  private mutating func parse(_ fields: [Substring], _ number: Int, _ expectedCount: inout Int) -> Bool {
    switch (fields.first, fields.count) {
    case ("tidemark-erasures", 2):
      isFirstVersion = fields[1] == "1"
      return number == 1 && (isFirstVersion || fields[1] == "2")
    case ("through", isFirstVersion ? 2 : 3):
      through = Int64(fields[1])
      if !isFirstVersion {
        guard let count = Int(fields[2]) else { return false }
        expectedCount = count
      }
      return number == 2 && through != nil
    case ("key", 2):
      guard let bytes = Self.bytes(fields[1]), bytes.count == Self.keyByteCount else { return false }
      key = bytes
      keys.insert(bytes)
      return true
    case ("erased", 3):
      guard let key, let time = Int64(fields[1]), let hash = Self.bytes(fields[2]), hash.count == 32 else {
        return false
      }
      records.append(Record(key: key, time: time, hash: hash))
      return true
    default: return false
    }
  }

  // MARK: Lines

  static func keyLine(_ key: [UInt8]) -> String { line("key " + hex(key)) }

  static func recordLine(_ record: Record) -> String { line("erased \(record.time) \(hex(record.hash))") }

  /// Encode records as lines, with the keys that they need.
  static func lines(_ records: [Record], after key: inout [UInt8]?) -> String {
    var text = ""
    for record in records {
      if record.key != key {
        text += keyLine(record.key)
        key = record.key
      }
      text += recordLine(record)
    }
    return text
  }

  private static func line(_ text: String) -> String { text + " " + check(text) + "\n" }

  private static func check(_ text: String) -> String {
    String(hex(Array(SHA256.hash(data: Array(text.utf8)))).prefix(8))
  }

  private static func fields(_ line: String) -> [Substring]? {
    guard let space = line.lastIndex(of: " "), check(String(line[..<space])) == line[line.index(after: space)...]
    else {
      return nil
    }
    return line[..<space].split(separator: " ")
  }

  private static func hex(_ bytes: [UInt8]) -> String {
    bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
  }

  private static func bytes(_ hex: Substring) -> [UInt8]? {
    let digits = hex.utf8.map { UInt8(String(UnicodeScalar($0)), radix: 16) }
    guard digits.count % 2 == 0, !digits.contains(nil) else { return nil }
    return stride(from: 0, to: digits.count, by: 2).map { digits[$0]! << 4 | digits[$0 + 1]! }
  }

  // MARK: Users

  static func hash(_ user: [UInt8], key: [UInt8]) -> [UInt8] {
    Array(HMAC<SHA256>.authenticationCode(for: user, using: SymmetricKey(data: key)))
  }

  /// Lookup of users that were erased since some time.
  package struct Search: Sendable {
    private var sought: [[UInt8]: Set<[UInt8]>] = [:]

    /// - Parameter since: earlier erasures are ignored.
    package init(_ records: ErasureRecords, since: Int64) {
      for record in records.records where record.time >= since {
        sought[record.key, default: []].insert(record.hash)
      }
    }

    package var isEmpty: Bool { sought.isEmpty }

    package func contains(_ user: String) -> Bool {
      let bytes = Array(user.utf8)
      return sought.contains { key, hashes in hashes.contains(ErasureRecords.hash(bytes, key: key)) }
    }
  }

  /// Whether the ledger has a key, as every file has that a store has opened.
  package var hasKey: Bool { !keys.isEmpty }

  /// Return whether another ledger is of the same store, as far as keys tell: a ledger without keys matches any.
  package func isOfSameStore(as other: ErasureRecords) -> Bool {
    keys.isEmpty || other.keys.isEmpty || !keys.isDisjoint(with: other.keys)
  }

  /// Return the records of another ledger that this one lacks. For a user with fewer records here, these are the
  /// other's last ones. Times may differ, since `tidemark repair-clock` corrects only those of the data directory.
  package func newRecords(from other: ErasureRecords) -> [Record] {
    var known: [Record: Int] = [:]
    func user(_ record: Record) -> Record { Record(key: record.key, time: 0, hash: record.hash) }
    for record in records { known[user(record), default: 0] += 1 }
    return other.records.filter { record in
      guard let count = known[user(record)], count > 0 else { return true }
      known[user(record)] = count - 1
      return false
    }
  }

  /// Clamp all times to `limit`; returns the number of changed records too.
  package func clamped(to limit: Int64) -> (records: ErasureRecords, changed: Int) {
    var clamped = self
    var changed = 0
    for index in clamped.records.indices where clamped.records[index].time > limit {
      clamped.records[index].time = limit
      changed += 1
    }
    clamped.through = through.map { min($0, limit) }
    return (clamped, changed)
  }

  /// Merge both ledgers; complete up to the later of their times.
  package func union(_ other: ErasureRecords) -> ErasureRecords {
    var union = self
    union.records += newRecords(from: other)
    union.keys.formUnion(other.keys)
    union.key = key ?? other.key
    union.through = [through, other.through].compactMap { $0 }.max()
    return union
  }

  /// Encode the ledger as the bytes of a file.
  package func document(through: Int64) -> [UInt8] {
    var last: [UInt8]?
    var text = Self.header + Self.throughLine(through, count: records.count)
    text += Self.lines(records, after: &last)
    // Later records have the same key. In a ledger without records the key identifies the store.
    if let key, key != last { text += Self.keyLine(key) }
    return Array(text.utf8)
  }
}
