/// Message as its sender sees it.
struct MessageView: Hashable {
  enum Status: String, Hashable, Codable {
    case sent, delivered, read
  }

  var sender: String
  var text: String
  var status: Status
  /// Others who have had it delivered but have not read it, sorted by name.
  var deliveredTo: [String]
  /// Others who have read it, sorted by name.
  var readBy: [String]

  /// Meaning of the ticks in words.
  var words: String {
    switch status {
    case .sent: "sent"
    case .delivered: "delivered to \(Self.list(deliveredTo))"
    case .read:
      "read by \(Self.list(readBy))" + (deliveredTo.isEmpty ? "" : ", delivered to \(Self.list(deliveredTo))")
    }
  }

  /// Join names: "bob", "bob and carol", "bob, carol and dan".
  static func list(_ names: [String]) -> String {
    switch names.count {
    case 0: "nobody"
    case 1: names[0]
    default: names.dropLast().joined(separator: ", ") + " and " + names[names.count - 1]
    }
  }
}
