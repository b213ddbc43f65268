internal import ArgumentParser

/// Format of push acks and identification by ticket or by name.
package enum PushMode: String, Sendable, CaseIterable, Codable, ExpressibleByArgument {
  case ndjsonTicket = "ndjson-ticket"
  case ndjsonName = "ndjson-name"
  case framesName = "frames-name"
  case framesTicket = "frames-ticket"

  /// Title in tables.
  package var title: String {
    (usesFrames ? "POST /v1/frames" : "POST /v1/push/acks, NDJSON") + (usesTickets ? ", tickets" : ", names")
  }

  var usesFrames: Bool { self == .framesName || self == .framesTicket }
  var usesTickets: Bool { self == .ndjsonTicket || self == .framesTicket }
  var path: String { usesFrames ? "/v1/frames" : "/v1/push/acks" }
  var contentType: String { usesFrames ? "application/vnd.tidemark.frames" : "application/x-ndjson" }
}

/// Order of the push acks, in blocks: a block acknowledges one message of every channel for every member. The
/// block of each message moves all watermarks. A repeated block of the message before it follows and moves none.
struct PushWalk: Sendable, Hashable {
  let channels: Int
  let members: Int
  /// Messages of each channel.
  let messages: Int

  /// Walk of whole blocks with at least `count` push acks.
  init(atLeast count: Int, channels: Int, members: Int) {
    self.channels = channels
    self.members = members
    let both = 2 * channels * members
    messages = max(1, (count + both - 1) / both)
  }

  /// Memberships of all channels, which are the push acks of a block.
  var pairs: Int { channels * members }
  var blocks: Int { 2 * messages }
  var count: Int { blocks * pairs }
  /// Push acks that move a watermark.
  var moves: Int { messages * pairs }

  /// Return the message of a block, from 1.
  func message(ofBlock block: Int) -> Int { block % 2 == 0 ? block / 2 + 1 : max(block / 2, 1) }

  /// Return the number of push acks of a message for each member.
  func sends(ofMessage message: Int) -> Int {
    (0..<min(blocks, 2 * message + 2)).count { self.message(ofBlock: $0) == message }
  }

  /// Return the channel at a position in a block: adjacent positions have different channels.
  func channel(at position: Int) -> Int { position % channels }
  /// Return the number of the user at a position in a block, over all channels.
  func user(at position: Int) -> Int { channel(at: position) * members + position / channels }

  static func cid(_ channel: Int) -> String { "messaging:push-\(channel)" }
  static func user(_ number: Int) -> String { "user-\(number)" }
  static func message(_ number: Int) -> String { "m\(number)" }
}
