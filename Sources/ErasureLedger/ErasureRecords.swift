internal import Crypto
internal import Foundation

/// What an erasure ledger says, read from its bytes (docs/backup.md, "The erasure ledger"): lines of text, each with a
/// checksum at its end.
///
/// ```
/// tidemark-erasures 2 CHECK
/// through MILLISECONDS COUNT CHECK   every erasure that was answered up to then is in the file, which had so many
/// key HEX CHECK                      of the records that follow
/// erased MILLISECONDS HEX CHECK      HMAC-SHA-256 of a user's id
/// ```
package struct ErasureRecords: Sendable {
  /// An erasure: who it was only somebody can tell who has the id.
  package struct Record: Hashable, Sendable {
    package var key: [UInt8]
    /// When it was asked for, in milliseconds since 1970.
    package var time: Int64
    package var hash: [UInt8]
  }

  /// Why a ledger cannot be used.
  package struct Fault: Error, Hashable, Sendable, CustomStringConvertible {
    package let description: String

    package init(_ description: String) { self.description = description }
  }

  /// In the order in which they were written.
  package private(set) var records: [Record] = []
  /// Every erasure that was answered up to then is among them; nil: nobody says.
  package private(set) var through: Int64?
  /// Of the records that are added; nil: there is none yet.
  private(set) var key: [UInt8]?
  /// Every key that it names, also those of no record.
  private var keys: Set<[UInt8]> = []
  /// Whether it is of version 1, whose second line has no count.
  private(set) var isFirstVersion = false
  /// Bytes of whole lines. What is behind them was torn off while it was written, and never answered.
  private(set) var wholeBytes = 0

  static let keyByteCount = 32
  static let header = line("tidemark-erasures 2")
  /// Lines of the same length whatever they say, so that one can be written over the other.
  static func throughLine(_ time: Int64, count: Int) -> String {
    func padded(_ number: Int64, _ width: Int) -> String {
      let digits = String(max(0, number))
      return String(repeating: "0", count: max(0, width - digits.count)) + digits
    }
    return line("through \(padded(time, 16)) \(padded(Int64(count), 10))")
  }

  package init() {}

  /// Those of a file; throws too where it cannot be read.
  package init(file path: String) throws(Fault) {
    guard let data = FileManager.default.contents(atPath: path) else {
      throw Fault("\(path): cannot be read")
    }
    try self.init(Array(data), name: path)
  }

  /// Throws where a line is damaged that is not the last, and where erasures are missing at the end: a copy that was
  /// cut off.
  package init(_ bytes: [UInt8], name: String) throws(Fault) {
    var place = 0
    var number = 0
    var countThen = 0
    while let end = bytes[place...].firstIndex(of: UInt8(ascii: "\n")) {
      number += 1
      let text = String(decoding: bytes[place..<end], as: UTF8.self)
      place = end + 1
      // The second line is written over in place: where that was torn, it says nothing.
      guard let fields = Self.fields(text) else {
        if number == 2 { continue }
        throw Fault(
          "\(name), line \(number): is damaged; use a copy of the ledger, such as that of the newest backup"
        )
      }
      wholeBytes = place
      guard take(fields, number, &countThen) else {
        throw Fault("\(name), line \(number): is of no erasure ledger that this version knows")
      }
    }
    guard number > 0 || bytes.isEmpty else { throw Fault("\(name): is no erasure ledger") }
    guard records.count >= countThen else {
      throw Fault(
        "\(name): is cut off: it has \(records.count) of \(countThen) erasures; use a whole copy of the ledger, "
          + "such as that of the newest backup"
      )
    }
  }

  private mutating func take(_ fields: [Substring], _ number: Int, _ countThen: inout Int) -> Bool {
    switch (fields.first, fields.count) {
    case ("tidemark-erasures", 2):
      isFirstVersion = fields[1] == "1"
      return number == 1 && (isFirstVersion || fields[1] == "2")
    case ("through", isFirstVersion ? 2 : 3):
      through = Int64(fields[1])
      if !isFirstVersion {
        guard let count = Int(fields[2]) else { return false }
        countThen = count
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

  /// The lines of these records, keys included.
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
    guard let space = line.lastIndex(of: " "),
      check(String(line[..<space])) == line[line.index(after: space)...]
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

  /// Tells who was erased at some time.
  package struct Search: Sendable {
    private var sought: [[UInt8]: Set<[UInt8]>] = [:]

    /// - Parameter since: those of before are not looked for.
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

  /// Whether it says whose it is, as every file does that a store has opened.
  package var isWhole: Bool { !keys.isEmpty }

  /// Whether another ledger is of the same store, as far as their keys tell: one that has none may be of any.
  package func isOfSameStore(as other: ErasureRecords) -> Bool {
    keys.isEmpty || other.keys.isEmpty || !keys.isDisjoint(with: other.keys)
  }

  /// Records of another ledger that this one does not have: the last ones of a user of whom it has fewer. Their times
  /// may differ, since `tidemark repair-clock` corrects those of the data directory only.
  package func missing(from other: ErasureRecords) -> [Record] {
    var known: [Record: Int] = [:]
    func user(_ record: Record) -> Record { Record(key: record.key, time: 0, hash: record.hash) }
    for record in records { known[user(record), default: 0] += 1 }
    return other.records.filter { record in
      guard let count = known[user(record)], count > 0 else { return true }
      known[user(record)] = count - 1
      return false
    }
  }

  /// The same with no time after `limit`; how many records changed.
  package func clamped(to limit: Int64) -> (records: ErasureRecords, changed: Int) {
    var clamped = self
    var changed = 0
    for place in clamped.records.indices where clamped.records[place].time > limit {
      clamped.records[place].time = limit
      changed += 1
    }
    clamped.through = through.map { min($0, limit) }
    return (clamped, changed)
  }

  /// Both together, complete as far as either is.
  package func union(_ other: ErasureRecords) -> ErasureRecords {
    var union = self
    union.records += missing(from: other)
    union.keys.formUnion(other.keys)
    union.key = key ?? other.key
    union.through = [through, other.through].compactMap { $0 }.max()
    return union
  }

  /// The bytes of a file that says this.
  package func document(through: Int64) -> [UInt8] {
    var last: [UInt8]?
    var text = Self.header + Self.throughLine(through, count: records.count)
    text += Self.lines(records, after: &last)
    // What is added from here on has the same key, and a ledger without records says whose it is.
    if let key, key != last { text += Self.keyLine(key) }
    return Array(text.utf8)
  }
}
