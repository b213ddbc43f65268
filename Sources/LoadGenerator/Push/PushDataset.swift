internal import ArgumentParser
internal import CommandOutput
internal import HTTP2Session
internal import NIOCore
internal import Synchronization

/// Format of push acks and identification by ticket or by name.
enum PushMode: String, Sendable, CaseIterable, Codable, ExpressibleByArgument {
  case ndjsonTicket = "ndjson-ticket"
  case ndjsonName = "ndjson-name"
  case framesName = "frames-name"
  case framesTicket = "frames-ticket"

  /// Title in tables.
  var title: String {
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

/// Channels, members, messages and tickets of a ``PushBench``.
struct PushDataset: Sendable {
  private static let inFlight = 64
  /// Ticket requests in flight, each for a thousand tickets.
  private static let ticketRequestsInFlight = 4
  /// Limit of channels that are read back.
  private static let checkedMax = 100

  let walk: PushWalk
  let client: BenchClient
  let note: ProgressHandler

  /// Create the channels and register their messages.
  func make() async throws {
    try await inParallel(walk.channels, atOnce: Self.inFlight, progress: (note, "channels made")) { channel in
      let cid = PushWalk.cid(channel)
      try await client.putChannel(cid, members: members(channel))
      try await client.register(1..<walk.messages + 1) { (cid, PushWalk.message($0)) }
    }
  }

  private func members(_ channel: Int) -> [String] {
    (0..<walk.members).map { PushWalk.user(channel * walk.members + $0) }
  }

  /// Return all pieces of the request's body, with their tickets.
  func bodies(_ mode: PushMode) async throws -> PushBodies {
    let perBlock = PushBodies.piecesPerBlock(walk)
    let made = Mutex([ByteBuffer?](repeating: nil, count: perBlock * walk.messages))
    try await inParallel(perBlock * walk.messages, atOnce: Self.ticketRequestsInFlight) { number in
      let (message, piece) = (number / perBlock + 1, number % perBlock)
      if piece == 0, mode.usesTickets {
        note("tickets of \(message) of \(walk.messages) messages fetched")
      }
      let tickets = mode.usesTickets ? try await tickets(message, piece) : []
      let buffer = PushBodies.piece(piece, ofMessage: message, walk, mode, tickets: tickets)
      made.withLock { $0[number] = buffer }
    }
    return PushBodies(walk, pieces: made.withLock { $0.compactMap(\.self) })
  }

  private func tickets(_ message: Int, _ piece: Int) async throws -> [String] {
    let entries = PushBodies.positions(walk, ofPiece: piece).map { position in
      let (cid, user) = (PushWalk.cid(walk.channel(at: position)), PushWalk.user(walk.user(at: position)))
      return #"{"cid":"\#(cid)","message_id":"\#(PushWalk.message(message))","user_id":"\#(user)"}"#
    }
    let response: TicketsResponse = try await client.decode(
      .post,
      "/v1/push/tickets",
      #"{"tickets":[\#(entries.joined(separator: ","))]}"#
    )
    guard response.tickets.count == entries.count else {
      throw LoadError("\(response.tickets.count) tickets, expected \(entries.count)")
    }
    return response.tickets
  }

  /// Read evenly spread channels back: every member has acknowledged the last message.
  ///
  /// - Returns: the number of compared rows.
  func check() async throws -> Int {
    var rows = 0
    let last = PushWalk.message(walk.messages)
    for channel in stride(from: 0, to: walk.channels, by: max(1, walk.channels / Self.checkedMax)) {
      let cid = PushWalk.cid(channel)
      let read = try await client.readState(cid)
      guard read.map(\.user.id).sorted() == members(channel).sorted() else {
        throw LoadError("\(cid): unexpected members: \(read.map(\.user.id))")
      }
      for row in read {
        guard row.last_delivered_seq == walk.messages, row.last_delivered_message_id == last else {
          throw LoadError(
            "\(cid): the row of \(row.user.id) has \(row.last_delivered_seq ?? 0), acknowledged was \(last)"
          )
        }
      }
      rows += read.count
    }
    return rows
  }
}
