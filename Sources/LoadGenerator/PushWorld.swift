internal import Foundation
internal import HTTP2Session
internal import LocalStack
internal import NIOCore
internal import Synchronization

/// Channels, members, messages and tickets for a ``PushBench``, made and asked for through the first gateway.
struct PushWorld: Sendable {
  private static let inFlight = 64
  /// Requests for tickets, a thousand each.
  private static let ticketRequestsInFlight = 4
  /// Messages that one request registers.
  private static let perRequest = 1_000
  private static let tokenLifetime = Duration.seconds(6 * 3600)
  /// Channels that are read back, at most.
  private static let checkedMax = 100

  let walk: PushWalk
  /// A push worker's token.
  let token: String
  private let caller: HTTP2Caller

  init(_ walk: PushWalk, stack: LocalStack, files: StackFiles) async throws {
    self.walk = walk
    token = try await TokenMint(secretFile: files.jwtSecret).server(lifetime: Self.tokenLifetime)
    caller = try await HTTP2Caller.connect(to: stack.plan.gateways[0].listen)
  }

  func close() async { await caller.close() }

  /// Makes the channels and registers their messages.
  func make(_ note: @escaping @Sendable (String) -> Void) async throws {
    let walk = walk
    try await BenchStack.inParallel(walk.channels, atOnce: Self.inFlight) { [self] channel in
      if channel % 100 == 0 {
        note("\(Figures.count(channel)) of \(Figures.count(walk.channels)) channels made")
      }
      let cid = PushWalk.cid(channel)
      let members = (0..<walk.members).map { "\"\(PushWalk.user(channel * walk.members + $0))\"" }
      try await expect(.put, "/v1/channels/\(cid)", #"{"members":[\#(members.joined(separator: ","))]}"#)
      for first in stride(from: 1, through: walk.messages, by: Self.perRequest) {
        let entries = (first..<min(first + Self.perRequest, walk.messages + 1)).map {
          #"{"cid":"\#(cid)","id":"\#(PushWalk.message($0))"}"#
        }
        let text = try await expect(
          .post,
          "/v1/messages",
          #"{"messages":[\#(entries.joined(separator: ","))]}"#
        )
        guard !text.contains(#""code""#) else {
          throw LoadError("messages were refused: \(text.prefix(300))")
        }
      }
    }
  }

  /// What is sent, whole, with the tickets that it takes.
  func bodies(_ way: PushWay, _ note: @escaping @Sendable (String) -> Void) async throws -> PushBodies {
    let walk = walk
    let perBlock = PushBodies.piecesPerBlock(walk)
    let made = Mutex([ByteBuffer?](repeating: nil, count: perBlock * walk.messages))
    try await BenchStack.inParallel(perBlock * walk.messages, atOnce: Self.ticketRequestsInFlight) {
      [self] number in
      let (message, piece) = (number / perBlock + 1, number % perBlock)
      if piece == 0, way.usesTickets {
        note("tickets of \(message) of \(walk.messages) messages fetched")
      }
      let tickets = way.usesTickets ? try await tickets(message, piece) : []
      let buffer = PushBodies.piece(piece, ofMessage: message, walk, way, tickets: tickets)
      made.withLock { $0[number] = buffer }
    }
    return PushBodies(walk, pieces: made.withLock { $0.compactMap(\.self) })
  }

  private struct TicketsAnswer: Decodable { var tickets: [String] }

  private func tickets(_ message: Int, _ piece: Int) async throws -> [String] {
    let places = PushBodies.places(walk, ofPiece: piece)
    let entries = places.map { place in
      let (cid, user) = (PushWalk.cid(walk.channel(at: place)), PushWalk.user(walk.user(at: place)))
      return #"{"cid":"\#(cid)","message_id":"\#(PushWalk.message(message))","user_id":"\#(user)"}"#
    }
    let text = try await expect(
      .post,
      "/v1/push/tickets",
      #"{"tickets":[\#(entries.joined(separator: ","))]}"#
    )
    guard let answer = try? JSONDecoder().decode(TicketsAnswer.self, from: Data(text.utf8)),
      answer.tickets.count == places.count
    else { throw LoadError("tickets were refused: \(text.prefix(300))") }
    return answer.tickets
  }

  /// The names are the API's own.
  // swift-format-ignore: AlwaysUseLowerCamelCase
  private struct RowsAnswer: Decodable {
    struct User: Decodable { var id: String }
    struct Row: Decodable {
      var user: User
      var last_delivered_seq: Int
      var last_delivered_message_id: String?
    }
    var read: [Row]
  }

  /// Reads channels back, from the first to the last at even distances: every member has everything.
  ///
  /// - Returns: how many rows were compared.
  func check() async throws -> Int {
    var rows = 0
    let last = PushWalk.message(walk.messages)
    for channel in stride(from: 0, to: walk.channels, by: max(1, walk.channels / Self.checkedMax)) {
      let cid = PushWalk.cid(channel)
      let answer = try await caller.call(.get, "/v1/channels/\(cid)/read-state", token: token)
      guard answer.status == 200,
        let read = try? JSONDecoder().decode(RowsAnswer.self, from: Data(answer.body)).read
      else { throw LoadError("GET read-state was answered \(answer.status): \(answer.text.prefix(300))") }
      let users = Set((0..<walk.members).map { PushWalk.user(channel * walk.members + $0) })
      guard Set(read.map(\.user.id)) == users, read.count == users.count else {
        throw LoadError("\(cid): the members are not those who were added: \(answer.text.prefix(300))")
      }
      for row in read {
        guard row.last_delivered_seq == walk.messages, row.last_delivered_message_id == last else {
          throw LoadError(
            "\(cid): \(row.user.id) was acknowledged \(last), the row says \(row.last_delivered_seq)"
          )
        }
      }
      rows += read.count
    }
    return rows
  }

  @discardableResult
  private func expect(_ method: HTTP2Method, _ path: String, _ body: String) async throws -> String {
    let answer = try await caller.call(method, path, body: Array(body.utf8), token: token)
    guard (200...201).contains(answer.status) else {
      throw LoadError("\(method.name) \(path) was answered \(answer.status): \(answer.text.prefix(300))")
    }
    return answer.text
  }
}
