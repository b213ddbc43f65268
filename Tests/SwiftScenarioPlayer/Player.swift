import Foundation
import TidemarkClient

/// Performs steps and compares states.
@MainActor final class Player {
  /// Time until a state has to be as expected.
  private static let limit = Duration.seconds(60)

  private let backend: Backend
  private var clients: [String: Client] = [:]
  /// Registered messages by channel and id.
  private var messages: [String: [String: Message]] = [:]
  /// Ids of the channels' messages, without threads, in order.
  private var order: [String: [String]] = [:]
  private var counted: [String: Int] = [:]

  init(_ backend: Backend) { self.backend = backend }

  func play(_ steps: [[String: [String: JSONValue]]]) async throws {
    for (index, step) in steps.enumerated() {
      do {
        guard let (name, fields) = step.first, step.count == 1 else { throw Failure("not one step") }
        try await perform(name, Arguments(fields: fields))
      } catch {
        throw Failure("step \(index + 1), \(JSONValue.object(step.mapValues(JSONValue.object))): \(error)")
      }
    }
    for client in clients.values { await client.tidemark.close() }
    backend.transport.close()
  }

  private func client(_ arguments: Arguments) throws -> Client {
    let name = try arguments.string("as")
    guard let client = clients[name] else { throw Failure("no client \(name)") }
    return client
  }

  private func message(_ arguments: Arguments) throws -> Message {
    guard let message = messages[try arguments.string("cid")]?[try arguments.string("id")] else {
      throw Failure("no such message")
    }
    return message
  }

  @discardableResult
  private func makeClient(_ arguments: Arguments) throws -> Client {
    var store: any Store = MemoryStore()
    if let owner = arguments["storeOf"].string {
      guard let other = clients[owner] else { throw Failure("no client \(owner)") }
      store = other.options.store
    }
    let options = Client.Options(
      user: try arguments.string("user"),
      store: store,
      readersThrow: arguments["throws"].bool ?? false,
      tokenSeconds: arguments["tokenSeconds"].int
    )
    let client = Client(options, backend)
    clients[try arguments.string("name")] = client
    return client
  }

  private func cids(_ arguments: Arguments) throws -> [String] {
    let prefix = try arguments.string("prefix")
    return (0..<(try arguments.int("count"))).map { "\(prefix)-\($0)" }
  }

  // MARK: Steps

  private func perform(_ name: String, _ arguments: Arguments) async throws {
    if try await performAtServer(name, arguments) { return }
    if try await performAtClient(name, arguments) { return }
    switch name {
    case "countFromNow":
      let route = try arguments.string("route")
      counted[route] = try await backend.countRequests(route)
    case "pause": try await Task.sleep(for: .milliseconds(arguments.int("milliseconds")))
    case "host":
      if backend.settings.withoutHost == true { return }
      write("@" + (try arguments.string("command")))
      let answer = await Self.readLine()
      guard answer == "done" else { throw Failure("the host answered \(answer ?? "nothing")") }
    case "compare": try await compare(arguments)
    default: try await expect(name, arguments)
    }
  }

  /// - Returns: Whether there is such a step.
  private func performAtServer(_ name: String, _ arguments: Arguments) async throws -> Bool {
    let channel = "/v1/channels/" + (arguments["cid"].string ?? "")
    switch name {
    case "channel": try await backend.request("PUT", channel, arguments.body(without: "cid"))
    case "channels":
      let cids = try cids(arguments)
      for first in stride(from: 0, to: cids.count, by: 100) {
        let channels = cids[first..<min(first + 100, cids.count)].map { cid in
          JSONValue.object(["cid": .string(cid), "members": arguments["members"]])
        }
        try await backend.request("POST", "/v1/channels", .object(["channels": .array(channels)]))
      }
    case "message":
      let (cid, id, user) = (try arguments.string("cid"), try arguments.string("id"), try arguments.string("user"))
      guard case .object(var body) = arguments.body(without: "cid", "user") else { return true }
      body["user_id"] = .string(user)
      let answer = try await backend.request("POST", channel + "/messages", .object(body))
      guard let seq = answer["message"]["seq"].int else { throw Failure("the message has no number") }
      let thread = arguments["parent_id"].string
      messages[cid, default: [:]][id] = Message(cid: cid, thread: thread, id: id, seq: seq, user: user)
      if thread == nil { order[cid, default: []].append(id) }
    case "deleteMessage":
      try await backend.request("DELETE", channel + "/messages/" + Backend.encode(try arguments.string("id")))
    case "truncate": try await backend.request("POST", channel + "/truncate", arguments.body(without: "cid"))
    case "members": try await backend.request("POST", channel + "/members", arguments.body(without: "cid"))
    case "deleteChannel": try await backend.request("DELETE", channel)
    default: return false
    }
    return true
  }

  /// - Returns: Whether there is such a step.
  private func performAtClient(_ name: String, _ arguments: Arguments) async throws -> Bool {
    let thread = arguments["thread"].string
    let id = arguments["id"].string
    switch name {
    case "client": try await makeClient(arguments).tidemark.start()
    case "unstarted": try makeClient(arguments)
    case "start": try await client(arguments).tidemark.start()
    case "close": try await client(arguments).tidemark.close()
    case "open": try await client(arguments).tidemark.open(arguments.string("cid"), thread: thread)
    case "openAll": try await client(arguments).tidemark.openAll(cids(arguments))
    case "show": try await show(arguments)
    case "read": try await client(arguments).tidemark.markRead(arguments.string("cid"), id, thread: thread)
    case "delivered" where arguments["is"] == .null:
      try await client(arguments).tidemark.markDelivered(
        arguments.string("cid"),
        arguments.string("id"),
        thread: thread
      )
    case "unread": try await client(arguments).tidemark.markUnread(arguments.string("cid"), messageID: id)
    case "readAll": try await client(arguments).tidemark.markAllRead(threads: true)
    case "acknowledge":
      try await client(arguments).tidemark.acknowledge(
        arguments.string("cid"),
        arguments.strings("ids"),
        note: arguments["note"].string
      )
    case "receipts":
      let (read, delivered) = (arguments["read"].bool, arguments["delivered"].bool)
      try await client(arguments).tidemark.setReceipts(read: read, delivered: delivered)
    case "autoRead": try await autoRead(arguments)
    case "offline": try client(arguments).network.cut()
    case "online":
      let client = try client(arguments)
      client.network.connect()
      await client.tidemark.reconnect()
    case "awaitOffline":
      let rest = try .milliseconds(arguments.int("milliseconds")) - client(arguments).network.offlineDuration
      if rest > .zero { try await Task.sleep(for: rest) }
    case "resumeElsewhere": try client(arguments).network.resumeElsewhere()
    case "restart":
      // The process ends with marks in its store, and another one starts with the same store.
      let ended = try client(arguments)
      await ended.tidemark.close()
      let restarted = Client(ended.options, backend)
      clients[try arguments.string("as")] = restarted
      try await restarted.tidemark.start()
    default: return false
    }
    return true
  }

  private func show(_ arguments: Arguments) async throws {
    let cid = try arguments.string("cid")
    let shown = try arguments.strings("ids").map { id in
      guard let message = messages[cid]?[id], let seq = message.seq else { throw Failure("no message \(id)") }
      return RegisteredMessage(id: id, seq: seq, user: message.user)
    }
    try await client(arguments).tidemark.show(cid, shown, thread: arguments["thread"].string)
  }

  private func autoRead(_ arguments: Arguments) async throws {
    let client = try client(arguments)
    await client.automaticRead?.stop()
    client.automaticRead = nil
    guard let cid = arguments["cid"].string else { return }
    client.automaticRead = await client.tidemark.autoRead { [weak self] in
      await self?.newest(cid).map { Shown(cid: cid, messageID: $0) }
    }
  }

  /// The newest message of a channel that was registered.
  private func newest(_ cid: String) -> String? { order[cid]?.last }

  // MARK: States

  private func state(_ name: String, _ arguments: Arguments) async throws -> JSONValue {
    if name == "requests" {
      let route = try arguments.string("route")
      guard let before = counted[route] else { throw Failure("\(route) is not counted") }
      return .int(try await backend.countRequests(route) - before)
    }
    let client = try client(arguments)
    let tidemark: Tidemark = client.tidemark
    let (cid, thread) = (arguments["cid"].string ?? "", arguments["thread"].string)
    switch name {
    case "status": return .string(await tidemark.deliveryStatus(try message(arguments)).rawValue)
    case "readers": return JSONValue(await tidemark.readersFor(try message(arguments)))
    case "deliveredTo": return JSONValue(await tidemark.deliveredFor(try message(arguments)))
    case "deliveredNotRead": return JSONValue(await tidemark.deliveredNotReadFor(try message(arguments)))
    case "hasRead":
      return .bool(await tidemark.hasUserRead(try message(arguments), user: try arguments.string("user")))
    case "unreadCount": return JSONValue(await tidemark.countUnread(cid, thread: thread))
    case "lastRead": return JSONValue(await tidemark.lastReadMessageID(cid, thread: thread))
    case "firstUnread": return JSONValue(await tidemark.firstUnreadMessageID(cid, thread: thread))
    case "total": return JSONValue(await tidemark.totals?.totalUnreadCount)
    case "pending": return .int(await tidemark.pending)
    case "isOpen": return .bool(await tidemark.readState(cid) != nil)
    case "refused": return JSONValue(client.refused)
    case "hasThrown": return .bool(client.thrown > 0)
    case "tokens": return .int(client.tokens)
    case "resumedElsewhere": return .int(client.network.resumedElsewhere)
    default: throw Failure("no such step")
    }
  }

  private func expect(_ name: String, _ arguments: Arguments) async throws {
    let end = ContinuousClock.now + Self.limit
    var actual: JSONValue
    repeat {
      actual = try await state(name, arguments)
      if actual == arguments["is"] { return }
      try await Task.sleep(for: .milliseconds(20))
    } while ContinuousClock.now < end
    throw Failure("expected \(arguments["is"]), and it is \(actual)")
  }

  /// The local rows and counts equal the server's.
  private func compare(_ arguments: Arguments) async throws {
    let client = try client(arguments)
    let (cid, thread) = (try arguments.string("cid"), arguments["thread"].string)
    let path = "/v1/channels/\(cid)/read-state" + (thread.map { "?thread_id=" + Backend.encode($0) } ?? "")
    let end = ContinuousClock.now + Self.limit
    var problem: String
    repeat {
      let answer = try await backend.request("GET", path, as: ["user_id": .string(client.options.user)])
      let stored = (answer["read"].array ?? []).map(Self.line).sorted()
      let local = (await client.tidemark.readState(cid, thread: thread)?.rows ?? [:]).map(Self.line).sorted()
      if stored == local { return }
      problem = "stored \(stored), local \(local)"
      try await Task.sleep(for: .milliseconds(100))
    } while ContinuousClock.now < end
    throw Failure(problem)
  }

  private static func line(_ stored: JSONValue) -> String {
    let fields = [
      "joined_seq", "last_read_seq", "last_delivered_seq", "unread_messages", "first_unread_message_id",
      "unread_epoch", "marked_unread",
    ]
    return "\(stored["user"]["id"].string ?? ""): \(JSONValue.array(fields.map { stored[$0] }))"
  }

  private static func line(_ user: String, _ row: Row) -> String {
    let fields: [JSONValue] = [
      .int(row.joinedSeq), .int(row.lastReadSeq), .int(row.lastDeliveredSeq), JSONValue(row.unreadMessages),
      JSONValue(row.firstUnreadMessageID), JSONValue(row.unreadEpoch), JSONValue(row.markedUnread),
    ]
    return "\(user): \(JSONValue.array(fields))"
  }

  // MARK: The host

  /// A line of standard input. Reading blocks, so it has a thread of its own.
  private static func readLine() async -> String? {
    await withCheckedContinuation { continuation in
      Thread.detachNewThread { continuation.resume(returning: Swift.readLine()) }
    }
  }
}

/// Write a line to standard output at once.
func write(_ line: String) { FileHandle.standardOutput.write(Data((line + "\n").utf8)) }
