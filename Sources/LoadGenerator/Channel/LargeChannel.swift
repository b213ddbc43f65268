internal import CommandOutput
internal import HTTP2Session

/// Plan of all moves: each member has a number of turns, alternately a delivery and a read mark, each further than the
/// one before.
struct MovePlan: Sendable {
  private static let turnsMax = 19
  /// Number of messages between two turns.
  private static let stride = 100

  let members: Int
  let moveCount: Int
  let messageCount = turnsMax * stride

  /// - Parameter moves: approximate number of moves, up to ten per member.
  init(members: Int, moves: Int) {
    self.members = members
    let turnsMean = max(1, moves / members)
    self.turnsMean = turnsMean
    moveCount = (0..<members).reduce(0) { $0 + Self.turns(of: $1, mean: turnsMean) }
  }

  private let turnsMean: Int

  func turns(of member: Int) -> Int { Self.turns(of: member, mean: turnsMean) }

  private static func turns(of member: Int, mean: Int) -> Int {
    min(turnsMax, 1 + Int(mix(UInt64(member)) % UInt64(2 * mean - 1)))
  }

  /// Return the message number of a member's turn, from 1.
  func target(_ member: Int, _ turn: Int) -> Int {
    turn * Self.stride + 1 + Int(Self.mix(UInt64(member) << 8 | UInt64(turn)) % UInt64(Self.stride))
  }

  /// Return whether a turn is a read mark: even turns are, odd ones are deliveries.
  func isRead(_ turn: Int) -> Bool { turn % 2 == 0 }

  /// Return the last read message after all turns of a member.
  func read(_ member: Int) -> Int { target(member, (turns(of: member) - 1) / 2 * 2) }

  /// Return the last delivered message that others see: at least the last read one.
  func delivered(_ member: Int) -> Int {
    let turns = turns(of: member)
    return turns < 2 ? read(member) : max(read(member), target(member, (turns - 2) / 2 * 2 + 1))
  }

  private static func mix(_ value: UInt64) -> UInt64 {
    // Finalizer of SplitMix64.
    var mixed = value &+ 0x9E37_79B9_7F4A_7C15
    mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
    mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
    return mixed ^ (mixed >> 31)
  }
}

/// Channel of a ``ChannelBench``.
struct LargeChannel: Sendable {
  private static let cid = "messaging:large"
  private static let inFlight = 128

  let client: BenchClient
  let plan: MovePlan
  let note: ProgressHandler

  private static func user(_ member: Int) -> String { "member-\(member)" }
  private var path: String { "/v1/channels/\(Self.cid)" }

  // MARK: Set-up

  func create() async throws {
    try await client.putChannel(Self.cid, members: (0..<plan.members).map(Self.user)) { joined in
      note("\(Figures.count(joined)) of \(Figures.count(plan.members)) members joined")
    }
    try await client.register(1..<plan.messageCount + 1) { (Self.cid, "m\($0)") }
  }

  func move() async throws {
    let progress = (note, "members have moved")
    try await inParallel(plan.members, atOnce: Self.inFlight, progress: progress) { [self] member in
      let user = Self.user(member)
      for turn in 0..<plan.turns(of: member) {
        let message = "m\(plan.target(member, turn))"
        if plan.isRead(turn) {
          try await client.expect(.post, "\(path)/read?message_id=\(message)&user_id=\(user)")
        } else {
          let text = try await client.expect(
            .post,
            "/v1/channels/delivered",
            #"{"user_id":"\#(user)","latest_delivered_messages":[{"cid":"\#(Self.cid)","id":"\#(message)"}]}"#
          )
          guard text.contains(#""ok":true"#) else { throw LoadError("not marked delivered: \(text.prefix(300))") }
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
      let ids = (0..<100).map { "m\(1 + (message + $0 * 19) % plan.messageCount)" }
      return (.post, "\(path)/receipts/query", #"{"message_ids":\#(BenchClient.array(ids))}"#)
    case .firstReaders: return (.get, "\(path)/messages/m1/readers", nil)
    case .sparseReaders: return (.get, "\(path)/messages/m\(plan.messageCount - 90)/readers", nil)
    case .firstUnread: return (.get, "\(path)/messages/m\(message)/unread", nil)
    case .readState: return (.get, "\(path)/read-state", nil)
    case .chosen:
      let users = (0..<100).map { Self.user((number + $0 * 977) % plan.members) }
      return (.get, "\(path)/messages/m\(message)/members?user_ids=\(users.joined(separator: ","))", nil)
    }
  }

  /// Time a question about one message after the other.
  func time(_ question: Question, count: Int) async throws -> Latencies {
    var call = call(question, 0)
    return try await Latencies.timing(count) {
      call = self.call(question, $0)
    } _: { _ in
      try await client.expect(call.method, call.path, call.body)
    }
  }

  // MARK: Comparing

  /// Compare the counts of every message, three lists of three messages, and the whole read state.
  ///
  /// - Returns: the number of compared responses.
  func compare() async throws -> Int {
    let read = (0..<plan.members).map(plan.read)
    let delivered = (0..<plan.members).map(plan.delivered)
    var compared = try await compareStatuses(read, delivered)
    for message in [1, plan.messageCount / 2, plan.messageCount - 150] {
      note("comparing the lists of message \(message)")
      compared += try await compareList("readers", message) { read[$0] >= message }
      compared += try await compareList("delivered", message) {
        read[$0] < message && delivered[$0] >= message
      }
      compared += try await compareList("unread", message) { read[$0] < message }
    }
    note("comparing the read state")
    let rows = try await client.readState(Self.cid) { compared += 1 }
    guard rows.count == plan.members else {
      throw LoadError("the read state has \(rows.count) rows, expected \(plan.members)")
    }
    // The last member that joined comes first.
    for (member, row) in zip((0..<plan.members).reversed(), rows) {
      guard row.user.id == Self.user(member), row.last_read_seq == read[member],
        row.last_delivered_seq == delivered[member]
      else { throw LoadError("the read state is wrong at \(Self.user(member)): \(row)") }
    }
    return compared
  }

  private func compareStatuses(_ read: [Int], _ delivered: [Int]) async throws -> Int {
    /// Return the number of positions at or behind each message.
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
      let ids = BenchClient.array(messages.map { "m\($0)" })
      let response: StatusesResponse = try await client.decode(
        .post,
        "\(path)/receipts/query",
        #"{"message_ids":\#(ids)}"#
      )
      let isRight =
        response.statuses.count == messages.count
        && zip(messages, response.statuses).allSatisfy { message, found in
          found.seq == message && found.read_count == readers[message] && found.delivered_count == receivers[message]
            && found.status == (readers[message] > 0 ? "read" : receivers[message] > 0 ? "delivered" : "sent")
            && found.unread_count == plan.members - readers[message] && found.member_count == plan.members
        }
      guard isRight else { throw LoadError("wrong counts of messages \(first) to \(messages.upperBound - 1)") }
    }
    return plan.messageCount
  }

  private func compareList(_ list: String, _ message: Int, _ isListed: (Int) -> Bool) async throws -> Int {
    let expected = (0..<plan.members).filter(isListed).map(Self.user)
    var found: [String] = []
    var pages = 0
    var next: String? = ""
    while let cursor = next {
      let page: MembersResponse = try await client.get("\(path)/messages/m\(message)/\(list)?cursor=\(cursor)")
      found += page.members.map(\.user.id)
      pages += 1
      next = page.next
    }
    guard found == expected else {
      throw LoadError("message \(message), \(list): \(found.count) members, expected \(expected.count) others")
    }
    return pages
  }
}
