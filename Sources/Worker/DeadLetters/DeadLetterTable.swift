internal import Foundation
internal import Operations

/// Text forms of a list of dead letters.
package enum DeadLetterTable {
  private struct Row: Encodable {
    var webhook: String
    var id: String
    var partition: String
    var records: Int
    var first_error_at: String
    var last_error_at: String
    var error: String
    var from: String?
    var to: String
  }

  /// Return one line for each dead letter.
  package static func text(_ letters: [PlacedDeadLetter]) -> String {
    guard !letters.isEmpty else { return "no dead letters" }
    return letters.map { placed in
      let letter = placed.letter
      return "\(placed.webhook) \(placed.id) partition \(placed.partition), \(letter.count) records, "
        + "\(Times.text(letter.firstErrorAt)) to \(Times.text(letter.lastErrorAt)): \(letter.error)"
    }.joined(separator: "\n")
  }

  /// Return a JSON array of the dead letters.
  package static func json(_ letters: [PlacedDeadLetter]) -> String {
    let rows = letters.map { placed in
      Row(
        webhook: placed.webhook,
        id: placed.id,
        partition: placed.partition,
        records: placed.letter.count,
        first_error_at: Times.text(placed.letter.firstErrorAt),
        last_error_at: Times.text(placed.letter.lastErrorAt),
        error: placed.letter.error,
        from: placed.letter.from,
        to: placed.letter.to
      )
    }
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    // Texts and numbers can always be encoded.
    return (try? encoder.encode(rows)).map { String(decoding: $0, as: UTF8.self) } ?? "[]"
  }
}
