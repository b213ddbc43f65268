@testable import NaiveReceiptModel

/// One channel of the naive model, with a clock.
struct NaiveRoom {
  var model = NaiveModel()
  var clock = 1000
  let cid = "team:room"

  init(_ settings: Settings = [:], _ users: [String] = ["alice", "bob", "carol"]) {
    _ = model.perform(
      .put(cid: cid, settings: settings, members: users.map { MemberSpec(user: $0) }),
      clock: clock
    )
  }

  /// Perform one command; the clock advances by 100 ms for each.
  @discardableResult
  mutating func `do`(_ command: Command) -> Outcome {
    clock += 100
    return model.perform(command, clock: clock)
  }

  mutating func post(_ id: String, by sender: String = "alice", requestsAcknowledgement: Bool = false) -> Outcome {
    self.do(
      .post(
        cid: cid,
        id: id,
        sender: sender,
        created: 0,
        isSilent: false,
        requestsAcknowledgement: requestsAcknowledgement
      )
    )
  }
  mutating func read(_ user: String, _ id: String = "") {
    self.do(.read(cid: cid, user: user, message: id, epoch: nil))
  }
  mutating func deliver(_ user: String, _ id: String = "") {
    self.do(.delivered(cid: cid, user: user, message: id))
  }
  mutating func acknowledge(_ user: String, _ ids: String..., note: String = "") -> Outcome {
    self.do(.acknowledge(cid: cid, user: user, messages: ids, note: note))
  }
  mutating func hide(_ user: String, read: Bool? = nil, delivered: Bool? = nil) {
    self.do(
      .patchUser(user, showsRead: read.map { !$0 }, showsDelivered: delivered.map { !$0 }, revoked: nil)
    )
  }
  mutating func set(_ settings: Settings) { self.do(.put(cid: cid, settings: settings, members: [])) }

  /// The status, `receipt_status`, read count, delivered count and recipient count.
  func status(_ id: String, _ viewer: Viewer = .server) -> String {
    switch model.answers(cid).status(id, viewer) {
    case .refused(let name): name
    case .status(let status):
      "\(status.word) \(status.receipt) \(status.readCount) \(status.deliveredCount) \(status.memberCount)"
    }
  }
  /// Each entry as `user@time`, with `~` before an inexact time, and the note after it.
  func list(_ id: String, _ list: ListName, _ order: OrderName = .joined, _ viewer: Viewer = .server)
    -> String
  {
    switch model.answers(cid).list(id, viewer, list, order) {
    case .failure(let refusal): refusal.name
    case .success(let entries):
      entries.map { "\($0.user)@\($0.isExact ? "" : "~")\($0.at)\($0.note)" }.joined(separator: " ")
    }
  }
  func member(_ user: String, _ id: String, _ viewer: Viewer = .server) -> String {
    switch model.answers(cid).memberStatuses(id, viewer, [user]) {
    case .failure(let refusal): refusal.name
    case .success(let results):
      switch results[0] {
      case .refused(let name): name
      case .status(let status):
        "\(status.word) \(status.readAt) \(status.deliveredAt) \(status.readIsExact && status.deliveredIsExact)"
      }
    }
  }

  // MARK: Threads and removal

  mutating func reply(
    _ id: String,
    to parent: String,
    by sender: String = "alice",
    requestsAcknowledgement: Bool = false
  )
    -> Outcome
  {
    let post = Command.post(
      cid: cid,
      id: id,
      sender: sender,
      created: 0,
      isSilent: false,
      requestsAcknowledgement: requestsAcknowledgement
    )
    return self.do(.inThread(parent, post))
  }
  mutating func readThread(_ user: String, _ parent: String, _ id: String = "") -> Outcome {
    self.do(.inThread(parent, .read(cid: cid, user: user, message: id, epoch: nil)))
  }
  mutating func unreadThread(_ user: String, _ parent: String, _ id: String = "") -> Outcome {
    self.do(.inThread(parent, .unread(cid: cid, user: user, message: id, epoch: nil)))
  }
  mutating func deliverThread(_ user: String, _ parent: String, _ id: String = "") -> Outcome {
    self.do(.inThread(parent, .delivered(cid: cid, user: user, message: id)))
  }
  mutating func change(add: String..., remove: String = "") {
    self.do(.change(cid: cid, add: add.map { MemberSpec(user: $0) }, remove: remove.isEmpty ? [] : [remove]))
  }

  /// A thread's rows in join order: `user read/delivered unread`.
  func thread(_ parent: String) -> String {
    let place = model.channels[cid]!.main.places[parent]!
    guard let roomID = model.thread(cid, of: place) else { return "none" }
    let answers = model.answers(roomID)
    return answers.members.map { member in
      let row = answers.ownRow(member.user)!
      return "\(row.user) \(row.lastRead)/\(row.lastDelivered) \(row.own!.unread)"
    }
    .joined(separator: ", ")
  }
  func row(_ user: String, in parent: String) -> RowView {
    let place = model.channels[cid]!.main.places[parent]!
    return model.answers(model.thread(cid, of: place)!).ownRow(user)!
  }
  /// The numbers of unread messages and unread threads.
  func unread(_ user: String) -> String {
    model.unread(cid, user).map { "\($0.messages) \($0.threads)" } ?? "no member"
  }
  /// For each channel that knows the user: its cid, the row, whether they are a member, and since when.
  func index(_ user: String) -> String {
    model.index(of: user).map {
      "\($0.cid) \($0.row.map { "\($0)" } ?? "-") \($0.isMember) \($0.joinedAt)"
    }
    .joined(separator: ", ")
  }
}
