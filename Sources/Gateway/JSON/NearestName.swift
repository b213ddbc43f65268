/// Search for the known name that a caller most likely meant: the one with the least edit distance, ignoring letter
/// case, `_` and `-`, so that `messageId` is near `message_id`.
enum NearestName {
  /// Longer names match no known one, which bounds the work.
  private static let byteCountMax = 64

  /// Return the nearest known name; nil where none is within one edit per three characters.
  static func of(_ name: RawSpan, among known: [StaticString]) -> StaticString? {
    guard name.byteCount <= byteCountMax else { return nil }
    let given = name.withUnsafeBytes { folded($0) }
    var nearest: StaticString?
    var least = Int.max
    for candidate in known {
      let wanted = candidate.withUTF8Buffer { folded($0) }
      let distance = editDistance(given, wanted)
      guard distance <= max(1, min(given.count, wanted.count) / 3), distance < least else { continue }
      least = distance
      nearest = candidate
    }
    return nearest
  }

  private static func folded(_ bytes: some Sequence<UInt8>) -> [UInt8] {
    bytes.filter { $0 != UInt8(ascii: "_") && $0 != UInt8(ascii: "-") }
      .map { (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains($0) ? $0 | 0x20 : $0 }
  }

  /// Return the Levenshtein distance: insertions, deletions and substitutions of one byte.
  private static func editDistance(_ a: [UInt8], _ b: [UInt8]) -> Int {
    var row = Array(0...b.count)
    for (i, left) in a.enumerated() {
      var diagonal = row[0]
      row[0] = i + 1
      for (j, right) in b.enumerated() {
        let substituted = diagonal + (left == right ? 0 : 1)
        diagonal = row[j + 1]
        row[j + 1] = min(substituted, row[j] + 1, row[j + 1] + 1)
      }
    }
    return row[b.count]
  }
}
