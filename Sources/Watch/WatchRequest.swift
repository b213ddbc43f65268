/// Subscription of a watch.
package struct WatchRequest: Hashable, Sendable {
  /// User whose events are wanted; nil if a server watches channels.
  package var user: String?
  /// Channels to watch; empty: all of the user's.
  package var channels: [String]
  package var wantsTotals: Bool

  package init(user: String? = nil, channels: [String] = [], wantsTotals: Bool = false) {
    self.user = user
    self.channels = channels
    self.wantsTotals = wantsTotals
  }

  /// `:path`, with the query.
  package var path: String {
    var query: [String] = []
    if let user { query.append("user_id=\(Self.escaped(user))") }
    if !channels.isEmpty { query.append("channels=\(channels.map(Self.escaped).joined(separator: ","))") }
    if wantsTotals { query.append("totals=true") }
    return "/v1/events" + (query.isEmpty ? "" : "?" + query.joined(separator: "&"))
  }

  private static func escaped(_ text: String) -> String {
    text.utf8.map { byte in
      switch byte {
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
        UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"),
        UInt8(ascii: "~"), UInt8(ascii: ":"), UInt8(ascii: "@"), UInt8(ascii: "!"):
        String(UnicodeScalar(byte))
      default:
        "%" + (byte < 16 ? "0" : "") + String(byte, radix: 16, uppercase: true)
      }
    }.joined()
  }
}
