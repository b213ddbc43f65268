internal import Foundation
internal import HTTP2Session
internal import LocalStack

/// Which member moves where: each has so many moves, by turns of what they have read and of what was delivered to them,
/// every one further than the one before.
struct MovePlan: Sendable {
  private static let turnsMax = 19
  /// Messages between the starts of two turns.
  private static let stride = 100

  let members: Int
  let moveCount: Int
  let messageCount = turnsMax * stride

  /// - Parameter moves: how many there are to be, about; ten for each member is what the turns are made for.
  init(members: Int, moves: Int) {
    self.members = members
    let wanted = max(1, moves / members)
    turnsOf = { min(Self.turnsMax, 1 + Int(Self.mix(UInt64($0)) % UInt64(2 * wanted - 1))) }
    var count = 0
    for member in 0..<members { count += turnsOf(member) }
    moveCount = count
  }

  private let turnsOf: @Sendable (Int) -> Int

  func turns(of member: Int) -> Int { turnsOf(member) }

  /// The message of a member's turn, from 1.
  func target(_ member: Int, _ turn: Int) -> Int {
    turn * Self.stride + 1 + Int(Self.mix(UInt64(member) << 8 | UInt64(turn)) % UInt64(Self.stride))
  }

  /// Even turns read, odd ones deliver.
  func isRead(_ turn: Int) -> Bool { turn % 2 == 0 }

  /// Where a member stands after all their turns.
  func read(_ member: Int) -> Int { target(member, (turns(of: member) - 1) / 2 * 2) }

  /// What others see as delivered: whichever is further.
  func delivered(_ member: Int) -> Int {
    let turns = turns(of: member)
    return turns < 2 ? read(member) : max(read(member), target(member, (turns - 2) / 2 * 2 + 1))
  }

  private static func mix(_ value: UInt64) -> UInt64 {
    // SplitMix64's finalizer: spreads what differs in a few bits over all of them.
    var mixed = value &+ 0x9E37_79B9_7F4A_7C15
    mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
    mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
    return mixed ^ (mixed >> 31)
  }
}

/// The channel of a ``ChannelBench``.
struct LargeChannel: Sendable {
  private static let cid = "messaging:large"
  private static let neighbour = "messaging:small"
  private static let inFlight = 128

  let caller: HTTP2Caller
  let token: String
  let plan: MovePlan

  private static func user(_ member: Int) -> String { "member-\(member)" }
  private var path: String { "/v1/channels/\(Self.cid)" }

  // MARK: Making

  func create(_ note: @escaping @Sendable (String) -> Void) async throws {
    let step = 1_000
    for first in Swift.stride(from: 0, to: plan.members, by: step) {
      note("\(Figures.count(first)) of \(Figures.count(plan.members)) members joined")
      let names = (first..<min(plan.members, first + step)).map { "\"\(Self.user($0))\"" }
      try await expect([200, 201], .put, path, #"{"members":[\#(names.joined(separator: ","))]}"#)
    }
    for first in Swift.stride(from: 1, through: plan.messageCount, by: step) {
      let entries = (first..<min(plan.messageCount + 1, first + step)).map {
        #"{"cid":"\#(Self.cid)","id":"m\#($0)"}"#
      }
      let text = try await expect(
        [200],
        .post,
        "/v1/messages",
        #"{"messages":[\#(entries.joined(separator: ","))]}"#
      )
      guard !text.contains(#""code""#) else { throw LoadError("messages were refused: \(text.prefix(300))") }
    }
  }

  func createNeighbour(messages: Int) async throws {
    try await expect([200, 201], .put, "/v1/channels/\(Self.neighbour)", #"{"members":["alice","bob"]}"#)
    for number in 0..<messages {
      try await expect(
        [201],
        .post,
        "/v1/channels/\(Self.neighbour)/messages",
        #"{"id":"n\#(number)","user_id":"alice"}"#
      )
    }
  }

  func markNeighbour(_ number: Int) async throws {
    try await expect(
      [200],
      .post,
      "/v1/channels/\(Self.neighbour)/read?message_id=n\(number)&user_id=bob",
      nil
    )
  }

  // MARK: Moving

  func move(_ note: @escaping @Sendable (String) -> Void) async throws {
    let members = plan.members
    try await BenchStack.inParallel(members, atOnce: Self.inFlight) { [self] member in
      if member % 1_000 == 0 {
        note("\(Figures.count(member)) of \(Figures.count(members)) members have moved")
      }
      for turn in 0..<plan.turns(of: member) {
        let message = "m\(plan.target(member, turn))"
        if plan.isRead(turn) {
          try await expect(
            [200],
            .post,
            "\(path)/read?message_id=\(message)&user_id=\(Self.user(member))",
            nil
          )
        } else {
          let text = try await expect(
            [201],
            .post,
            "/v1/channels/delivered",
            #"{"user_id":"\#(Self.user(member))","latest_delivered_messages":[{"cid":"\#(Self.cid)","id":"\#(message)"}]}"#
          )
          guard text.contains(#""ok":true"#) else {
            throw LoadError("not marked delivered: \(text.prefix(300))")
          }
        }
      }
    }
  }

  // MARK: Questions

  enum Question: String, CaseIterable, Sendable {
    case status = "status of one message"
    case statuses = "statuses of 100 messages"
    case firstReaders = "first page of 100 readers, of a message that all have read"
    case sparseReaders = "first page of 100 readers, of a message that few have read"
    case firstUnread = "first page of 100 that have not read"
    case readState = "first page of the read state"
    case chosen = "status of one message for 100 chosen members"
  }

  func call(_ question: Question, _ number: Int) -> (method: HTTP2Method, path: String, body: String?) {
    let message = 1 + number * 37 % plan.messageCount
    switch question {
    case .status: return (.get, "\(path)/messages/m\(message)/status", nil)
    case .statuses:
      let ids = (0..<100).map { #""m\#(1 + (message + $0 * 19) % plan.messageCount)""# }
      return (.post, "\(path)/receipts/query", #"{"message_ids":[\#(ids.joined(separator: ","))]}"#)
    case .firstReaders: return (.get, "\(path)/messages/m1/readers", nil)
    case .sparseReaders: return (.get, "\(path)/messages/m\(plan.messageCount - 90)/readers", nil)
    case .firstUnread: return (.get, "\(path)/messages/m\(message)/unread", nil)
    case .readState: return (.get, "\(path)/read-state", nil)
    case .chosen:
      let users = (0..<100).map { Self.user((number + $0 * 977) % plan.members) }
      return (.get, "\(path)/messages/m\(message)/members?user_ids=\(users.joined(separator: ","))", nil)
    }
  }

  // MARK: Comparing

  private struct User: Decodable { var id: String }
  // The names are the API's own.
  // swift-format-ignore: AlwaysUseLowerCamelCase
  private struct Status: Decodable, Equatable {
    var seq: Int
    var status: String
    var read_count: Int
    var delivered_count: Int
    var unread_count: Int
    var member_count: Int
  }
  private struct Statuses: Decodable { var statuses: [Status] }
  // swift-format-ignore: AlwaysUseLowerCamelCase
  private struct Row: Decodable {
    var user: User
    var last_read_seq: Int
    var last_delivered_seq: Int
  }
  private struct ReadState: Decodable {
    var read: [Row]
    var next: String?
  }
  private struct Member: Decodable { var user: User }
  private struct Members: Decodable {
    var members: [Member]
    var next: String?
  }

  /// Counts of every message, three lists of three messages, and the whole read state.
  ///
  /// - Returns: how many answers were compared.
  func compare(_ note: @escaping @Sendable (String) -> Void) async throws -> Int {
    let read = (0..<plan.members).map(plan.read)
    let delivered = (0..<plan.members).map(plan.delivered)
    var compared = try await compareStatuses(read, delivered, note)
    for message in [1, plan.messageCount / 2, plan.messageCount - 150] {
      note("comparing the lists of message \(message)")
      compared += try await compareList("readers", message) { read[$0] >= message }
      compared += try await compareList("delivered", message) {
        read[$0] < message && delivered[$0] >= message
      }
      compared += try await compareList("unread", message) { read[$0] < message }
    }
    note("comparing the read state")
    var next: String? = ""
    var member = plan.members
    while let cursor = next {
      let page: ReadState = try await get("\(path)/read-state?cursor=\(cursor)")
      for row in page.read {
        member -= 1
        guard row.user.id == Self.user(member), row.last_read_seq == read[member],
          row.last_delivered_seq == delivered[member]
        else { throw LoadError("the read state is wrong at \(Self.user(member)): \(row)") }
      }
      compared += 1
      next = page.next
    }
    guard member == 0 else { throw LoadError("the read state lacks \(member) members") }
    return compared
  }

  private func compareStatuses(
    _ read: [Int],
    _ delivered: [Int],
    _ note: @Sendable (String) -> Void
  ) async throws -> Int {
    // How many stand at each message, summed up from the last to the first.
    func reached(_ positions: [Int]) -> [Int] {
      var counts = Array(repeating: 0, count: plan.messageCount + 2)
      for position in positions { counts[position] += 1 }
      for message in (0...plan.messageCount).reversed() { counts[message] += counts[message + 1] }
      return counts
    }
    let readers = reached(read)
    let receivers = reached(delivered)
    for first in Swift.stride(from: 1, through: plan.messageCount, by: 100) {
      note("comparing the counts of messages \(first) to \(first + 99)")
      let messages = first..<min(plan.messageCount + 1, first + 100)
      let ids = messages.map { #""m\#($0)""# }.joined(separator: ",")
      let text = try await expect([200], .post, "\(path)/receipts/query", #"{"message_ids":[\#(ids)]}"#)
      let answer = try JSONDecoder().decode(Statuses.self, from: Data(text.utf8))
      let expected = messages.map {
        Status(
          seq: $0,
          status: readers[$0] > 0 ? "read" : receivers[$0] > 0 ? "delivered" : "sent",
          read_count: readers[$0],
          delivered_count: receivers[$0],
          unread_count: plan.members - readers[$0],
          member_count: plan.members
        )
      }
      guard answer.statuses == expected else { throw LoadError("wrong counts: \(text.prefix(300))") }
    }
    return plan.messageCount
  }

  private func compareList(_ list: String, _ message: Int, _ isListed: (Int) -> Bool) async throws -> Int {
    let expected = (0..<plan.members).filter(isListed)
    var found = 0
    var pages = 0
    var next: String? = ""
    while let cursor = next {
      let page: Members = try await get("\(path)/messages/m\(message)/\(list)?cursor=\(cursor)")
      for member in page.members {
        guard found < expected.count, member.user.id == Self.user(expected[found]) else {
          throw LoadError("message \(message), \(list): \(member.user.id) at place \(found)")
        }
        found += 1
      }
      pages += 1
      next = page.next
    }
    guard found == expected.count else {
      throw LoadError("message \(message), \(list): \(found) members, not \(expected.count)")
    }
    return pages
  }

  // MARK: Calls

  private func get<Answer: Decodable>(_ path: String) async throws -> Answer {
    let text = try await expect([200], .get, path, nil)
    return try JSONDecoder().decode(Answer.self, from: Data(text.utf8))
  }

  @discardableResult
  func expect(_ statuses: Set<Int>, _ method: HTTP2Method, _ path: String, _ body: String?) async throws
    -> String
  {
    let answer = try await caller.call(method, path, body: body.map { Array($0.utf8) }, token: token)
    guard statuses.contains(answer.status) else {
      throw LoadError("\(method.name) \(path) was answered \(answer.status): \(answer.text.prefix(300))")
    }
    return answer.text
  }
}
