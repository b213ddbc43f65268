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
    case .read: "read by \(Self.list(readBy))" + (deliveredTo.isEmpty ? "" : ", delivered to \(Self.list(deliveredTo))")
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

/// Text style of the demo: colour and ticks, or words alone.
struct TextStyle {
  let usesColor: Bool

  private func paint(_ text: String, _ code: String) -> String {
    usesColor ? "\u{1B}[\(code)m\(text)\u{1B}[0m" : text
  }

  func bold(_ text: String) -> String { paint(text, "1") }
  func grey(_ text: String) -> String { paint(text, "90") }
  func blue(_ text: String) -> String { paint(text, "94") }
  func red(_ text: String) -> String { paint(text, "91") }
  func green(_ text: String) -> String { paint(text, "92") }
  func yellow(_ text: String) -> String { paint(text, "93") }

  /// Draw one grey tick, two grey ones, or two blue ones; empty without colour.
  func ticks(_ status: MessageView.Status) -> String {
    guard usesColor else { return "" }
    switch status {
    case .sent: return grey("✓  ")
    case .delivered: return grey("✓✓ ")
    case .read: return blue("✓✓ ")
    }
  }

  /// Format a message's line. The columns before the ticks have fixed widths.
  func line(_ message: MessageView, textWidth: Int, nameWidth: Int) -> String {
    let name = Self.pad(message.sender, nameWidth)
    let text = Self.pad("“\(message.text)”", textWidth + 2)
    let words = usesColor ? (message.status == .read ? blue(message.words) : grey(message.words)) : message.words
    return "    \(bold(name))  \(text)  \(ticks(message.status))\(words)"
  }

  static func pad(_ text: String, _ width: Int) -> String {
    text + String(repeating: " ", count: max(0, width - text.count))
  }
}
