/// How acknowledgements are brought to the gateway, and what each names.
package enum PushWay: String, Sendable, CaseIterable, Codable {
  case ndjsonTicket = "ndjson-ticket"
  case ndjsonName = "ndjson-name"
  case framesName = "frames-name"
  case framesTicket = "frames-ticket"

  /// For people.
  package var title: String {
    (usesFrames ? "POST /v1/frames" : "POST /v1/push/acks, NDJSON") + (usesTickets ? ", tickets" : ", names")
  }

  var usesFrames: Bool { self == .framesName || self == .framesTicket }
  var usesTickets: Bool { self == .ndjsonTicket || self == .framesTicket }
  var path: String { usesFrames ? "/v1/frames" : "/v1/push/acks" }
  var contentType: String { usesFrames ? "application/vnd.tidemark.frames" : "application/x-ndjson" }
}

/// Which acknowledgements are made, in which order: block after block, each of one message of every channel for every
/// member. Each message in turn moves all watermarks; behind its block comes the one of the message before it again,
/// late and repeated, which moves none.
struct PushWalk: Sendable, Hashable {
  let channels: Int
  let members: Int
  /// Messages of each channel.
  let messages: Int

  /// A walk of at least so many acknowledgements: blocks are not cut.
  init(atLeast count: Int, channels: Int, members: Int) {
    self.channels = channels
    self.members = members
    let both = 2 * channels * members
    messages = max(1, (count + both - 1) / both)
  }

  /// Members of all channels: acknowledgements of a block.
  var pairs: Int { channels * members }
  var blocks: Int { 2 * messages }
  var count: Int { blocks * pairs }
  /// Acknowledgements that move a watermark.
  var moves: Int { messages * pairs }

  /// The message of a block, from 1.
  func message(ofBlock block: Int) -> Int { block % 2 == 0 ? block / 2 + 1 : max(block / 2, 1) }

  /// How often a message is acknowledged for each member.
  func sends(ofMessage message: Int) -> Int {
    (0..<min(blocks, 2 * message + 2)).count { self.message(ofBlock: $0) == message }
  }

  /// The channel of a place in a block: neighbours are of different channels.
  func channel(at place: Int) -> Int { place % channels }
  /// The number of the user at a place in a block, over all channels.
  func user(at place: Int) -> Int { channel(at: place) * members + place / channels }

  static func cid(_ channel: Int) -> String { "messaging:push-\(channel)" }
  static func user(_ number: Int) -> String { "user-\(number)" }
  static func message(_ number: Int) -> String { "m\(number)" }
}
