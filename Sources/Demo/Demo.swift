internal import CommandOutput
internal import Foundation
internal import GatewayClient
package import LocalStack
internal import Operations
internal import TLSSession
internal import Watch

/// `tidemark demo`: a conversation through the real store and gateway, redrawn when its ticks change.
package struct Demo: Sendable {
  /// Whether to draw colour and ticks, or words alone.
  package var usesColor: Bool
  /// Pause between steps in seconds.
  package var pause: Double
  /// Number of nodes of a cluster; 1: a single store.
  package var nodeCount: Int
  /// Whether to stay until interrupted after the conversation, with the demo page.
  package var stays: Bool

  package init(usesColor: Bool, pause: Double, nodeCount: Int = 1, stays: Bool = false) {
    self.usesColor = usesColor
    self.pause = pause
    self.nodeCount = nodeCount
    self.stays = stays
  }

  private static let people = ["alice", "bob", "carol"]
  /// Member without a token and without a connection.
  static let offline = "dan"
  /// Person whose ticks come from a stream of events.
  private static let follower = "alice"
  private static let cid = "messaging:team"
  private static let texts = [
    "Shall we ship on Friday?", "Friday is good for me.", "I'll write the release notes.", "Then let's ship it!",
  ]

  /// Play the conversation, and stay if asked. The processes and their data are removed when this returns or throws.
  ///
  /// - Returns: whether all checks passed.
  package func run(executables: Executables) async throws -> Bool {
    let directory = NSTemporaryDirectory() + "/tidemark-demo-" + String(UInt32.random(in: 0...UInt32.max), radix: 16)
    let files = StackFiles(directory: (directory as NSString).standardizingPath)
    var plan = try StackPlan.onFreePorts(usesTLS: true)
    if nodeCount > 1 { plan.cluster = try ClusterPlan(nodes: nodeCount, first: plan.firstNode) }
    try files.prepare()
    let page = try await DemoPage(files)
    plan.gateways[0].flags += page.gatewayFlags
    let stack = LocalStack(plan: plan, files: files, executables: executables)
    return try await withCleanup {
      try await stack.start()
      let isRight = try await play(stack)
      guard stays && isRight else { return isRight }
      Terminal.print("\n\(page.lines(at: plan.gateways[0].listen))\n\nCtrl-C stops it; nothing is kept.")
      if let death = await stack.waitForUnexpectedExit(), !Task.isCancelled { throw StackError(death) }
      return isRight
    } cleanUp: {
      await stack.stop()
      files.remove()
    }
  }

  private func play(_ stack: LocalStack) async throws -> Bool {
    let style = TextStyle(usesColor: usesColor)
    let endpoint = stack.plan.gateways[0].listen
    let tls = try TLSContext(client: TLSClientConfiguration(authorityFile: stack.files.certificate))
    let tokenIssuer = try await TokenIssuer(secretFile: stack.files.jwtSecret)
    var tokens: [String: String] = [:]
    for person in Self.people {
      tokens[person] = try await tokenIssuer.user(person, lifetime: .seconds(3600))
    }
    let client = DemoClient(
      caller: try await AsyncHTTP2Client.connect(to: endpoint, tls: tls),
      cid: Self.cid,
      tokens: tokens,
      serverToken: try await tokenIssuer.server(lifetime: .seconds(3600))
    )
    let live = LiveTickStream(sender: Self.follower, style: style)
    let following = try follow(live, at: endpoint, tls: tls, tokenIssuer: tokenIssuer)
    defer { following.cancel() }
    let conversation = Conversation(
      client: client,
      live: live,
      people: Self.people,
      members: Self.people + [Self.offline],
      style: style,
      textWidth: Self.texts.map(\.count).max() ?? 0,
      pause: .milliseconds(Int(pause * 1000))
    )
    printIntroduction(style, endpoint)
    try await live.waitUntilOpen()
    try await playReceipts(conversation)
    try await playMarkUnread(conversation, style)
    let phone = OfflinePhone(
      program: try Executables.ownPath(),
      gateway: "https://\(endpoint)",
      certificate: stack.files.certificate,
      logFile: stack.files.log(of: "tidemark-ack")
    )
    try await playPushTicket(text: Self.texts[3], phone: phone, conversation, style)
    let programs = (phone.program as NSString).deletingLastPathComponent
    try await playQueuedPush(stack, programs: programs, conversation, style)
    try await playTokenDelivery(conversation, style)
    if stack.plan.cluster == nil {
      try await playStoreCrash(conversation, stack, style)
    } else {
      try await playNodeCrashes(conversation, stack, style)
    }
    try await finish(conversation)
    live.end()
    following.cancel()
    await following.value
    await client.caller.close()
    printSummary(conversation.checks, style)
    return conversation.checks.mismatches.isEmpty
  }

  private func printIntroduction(_ style: TextStyle, _ endpoint: Endpoint) {
    let store = nodeCount > 1 ? "a cluster of \(nodeCount) nodes over etcd, and a gateway" : "a real store and gateway"
    Terminal.print(
      """
      \(style.bold("Tidemark")): who has got it, who has read it
      \(style.grey("\(store) on this machine, HTTP/2 over TLS on \(endpoint), data in a new directory"))
      """
    )
    if usesColor {
      Terminal.print(
        "\(style.ticks(.sent))\(style.grey("sent"))   \(style.ticks(.delivered))\(style.grey("delivered"))   "
          + "\(style.ticks(.read))\(style.blue("read"))"
      )
    }
    Terminal.print(
      style.grey(
        """
        lines with a time (UTC) are events of \(Self.follower)'s live stream, GET /v1/events, as they come: her ticks \
        are made of them alone;
        those of the others are asked for after each step
        """
      )
    )
    if !stays { Terminal.print(style.grey("to chat yourself, in the browser: make run, or make demo STAY=1")) }
    Terminal.print("")
  }

  private func printSummary(_ checks: Checks, _ style: TextStyle) {
    Terminal.print("")
    if checks.mismatches.isEmpty {
      Terminal.print(style.green("All \(checks.count) checks were as they should be."))
    } else {
      Terminal.print(style.red("\(checks.mismatches.count) of \(checks.count) checks failed."))
    }
  }

  /// Open the follower's stream, as `tidemark watch` does. The caller must cancel it.
  private func follow(
    _ live: LiveTickStream,
    at endpoint: Endpoint,
    tls: TLSContext,
    tokenIssuer: TokenIssuer
  ) throws -> Task<Void, Never> {
    guard let gateway = GatewayURL("https://\(endpoint)") else {
      throw StackError("\(endpoint): not a gateway address")
    }
    let watch = EventWatch(gateway: gateway, tls: tls, request: WatchRequest()) {
      try await tokenIssuer.user(Self.follower, lifetime: .seconds(3600))
    }
    return Task { await live.follow(watch) }
  }

  // MARK: Acts

  /// Act 1: sent, delivered, read.
  private func playReceipts(_ conversation: Conversation) async throws {
    let client = conversation.client
    try await conversation.narrate("alice, bob, carol and \(Self.offline) are in \(Self.cid); alice writes")
    try await client.createChannel(members: conversation.members)
    try await conversation.write(Self.texts[0], by: "alice")
    try await conversation.show("sent")

    try await conversation.narrate("bob's phone gets it")
    try await client.delivered("alice-1", by: "bob")
    try await conversation.show("delivered to bob")

    try await conversation.narrate("carol's phone too")
    try await client.delivered("alice-1", by: "carol")
    try await conversation.show("delivered to bob and carol")

    try await conversation.narrate("bob reads it")
    _ = try await client.read("alice-1", by: "bob")
    try await conversation.show("read by bob, delivered to carol")

    try await conversation.narrate("bob answers")
    try await conversation.write(Self.texts[1], by: "bob")
    try await conversation.show("read by bob, delivered to carol", "sent")

    try await conversation.narrate("carol opens the channel: reading the newest reads all before it")
    _ = try await client.read("bob-2", by: "carol")
    try await conversation.show("read by bob and carol", "read by carol")

    try await conversation.narrate("carol writes, and the others read")
    try await conversation.write(Self.texts[2], by: "carol")
    _ = try await client.read("carol-3", by: "alice")
    _ = try await client.read("carol-3", by: "bob")
    try await conversation.show("read by bob and carol", "read by alice and carol", "read by alice and bob")
  }

  /// Act 2: mark-unread.
  private func playMarkUnread(_ conversation: Conversation, _ style: TextStyle) async throws {
    let client = conversation.client
    try await conversation.expectUnread(0, of: "bob")
    try await conversation.narrate("bob has no time now and marks the channel unread from alice's question on")
    let row = try await client.unread(from: "alice-1", by: "bob")
    conversation.expect("bob's unread count after mark-unread", 2, row.unread_messages ?? -1)
    conversation.expect("bob's first unread message", "alice-1", row.first_unread_message_id ?? "none")
    conversation.printLine(style.yellow("bob's unread count: \(row.unread_messages ?? -1)") + " (his own do not count)")
    let before = try await conversation.views()
    conversation.printLine("the others go on seeing that he has read")
    try await conversation.show("read by bob and carol", "read by alice and carol", "read by alice and bob")
    conversation.expect("what the others see", before, try await conversation.views())
  }

  /// Act 5: an open app acknowledges delivery with its user's token, as the ticket did.
  private func playTokenDelivery(_ conversation: Conversation, _ style: TextStyle) async throws {
    let client = conversation.client
    try await conversation.narrate("bob's phone gets it, and says so with bob's token")
    try await client.delivered("alice-4", by: "bob")
    try await conversation.show(
      "read by bob and carol, delivered to dan",
      "read by alice and carol, delivered to dan",
      "read by alice and bob, delivered to dan",
      "delivered to bob, carol and dan"
    )
    let own = try await client.readState(seenBy: "bob").first { $0.user.id == "bob" }
    conversation.printLine(style.yellow("bob's unread count: \(own?.unread_messages ?? -1)"))
    conversation.expect("bob's unread count", 3, own?.unread_messages ?? -1)
  }

  /// Act 6: kill -9 of the store during a request.
  private func playStoreCrash(_ conversation: Conversation, _ stack: LocalStack, _ style: TextStyle) async throws {
    let client = conversation.client
    try await conversation.narrate(
      "\(style.red("kill -9")) of the store; carol reads on meanwhile, and her request waits"
    )
    let before = try await conversation.views()
    await stack.killStore()
    async let early = client.read("alice-4", by: "carol")
    try await stack.startStore()
    try await stack.waitUntilGatewaysAreReady()
    if try await early == nil {
      conversation.printLine("it timed out with 503 and is retried")
      let row = try await client.read("alice-4", by: "carol")
      conversation.expect("the second try's answer", 4, row?.last_read_seq ?? -1)
    }
    conversation.printLine("the store is back; nothing that was acknowledged is lost, and carol's read is there:")
    try await showAfterCrash(conversation, before, style)
  }

  /// Act 6 in a cluster: kill -9 of every node, one after the other, during a request.
  private func playNodeCrashes(_ conversation: Conversation, _ stack: LocalStack, _ style: TextStyle) async throws {
    let client = conversation.client
    try await conversation.narrate(
      "\(style.red("kill -9")) of every node, one after the other; carol reads on, and her requests wait for the next owner"
    )
    let before = try await conversation.views()
    for index in 0..<nodeCount {
      await stack.killNode(index)
      let began = ContinuousClock.now
      let row = try await client.read("alice-4", by: "carol")
      let took = (ContinuousClock.now - began) / .seconds(1)
      conversation.expect("the answer without node \(index + 1)", 4, row?.last_read_seq ?? -1)
      conversation.printLine(
        "without node \(index + 1) carol's read took \(took.formatted(.number.precision(.fractionLength(2)))) s"
      )
      try await stack.startNode(index)
    }
    conversation.printLine(
      "every node was lost once; nothing that was acknowledged is lost, and carol's read is there:"
    )
    try await showAfterCrash(conversation, before, style)
  }

  private func showAfterCrash(_ conversation: Conversation, _ before: [MessageView], _ style: TextStyle) async throws {
    try await conversation.show(
      all: true,
      "read by bob and carol, delivered to dan",
      "read by alice and carol, delivered to dan",
      "read by alice and bob, delivered to dan",
      "read by carol, delivered to bob and dan"
    )
    let after = try await conversation.views()
    conversation.expect("the first three messages", Array(before.prefix(3)), Array(after.prefix(3)))
    try await conversation.expectUnread(3, of: "bob")
    try await conversation.expectUnread(0, of: "carol")
    conversation.printLine(style.yellow("bob's unread count: 3") + ", as before")
  }

  /// Act 7: everything is read.
  private func finish(_ conversation: Conversation) async throws {
    try await conversation.narrate("bob reads everything")
    let row = try await conversation.client.read("alice-4", by: "bob")
    conversation.expect("bob's unread count at the end", 0, row?.unread_messages ?? -1)
    try await conversation.show(
      "read by bob and carol, delivered to dan",
      "read by alice and carol, delivered to dan",
      "read by alice and bob, delivered to dan",
      "read by bob and carol, delivered to dan"
    )
    for person in Self.people { try await conversation.expectUnread(0, of: person) }
    conversation.printLine("bob's unread count: \(row?.unread_messages ?? -1)")
  }
}

extension Demo {
  /// Act 3: show that a push ticket alone marks a member delivered whose app is off, without a token or a stream.
  func playPushTicket(text: String, phone: OfflinePhone, _ conversation: Conversation, _ style: TextStyle) async throws
  {
    let client = conversation.client
    let dan = Self.offline
    try await conversation.narrate("alice writes again; \(dan)'s app has been off all the time: no stream, no token")
    try await conversation.write(text, by: "alice")
    try await conversation.show("read by bob and carol", "read by alice and carol", "read by alice and bob", "sent")
    let ticket = try await client.ticket(for: "alice-4", of: dan)
    try await conversation.narrate(
      "the push to \(dan) carries a ticket; his phone wakes a process that knows it and the gateway's address, no more"
    )
    conversation.printLine(style.grey("$ " + phone.commandLine(ticket.prefix(12) + "…")))
    let taken = "ok \(client.cid) alice-4 \(dan)"
    let response = try await phone.post(ticket)
    conversation.printLine(response)
    conversation.expect("what \(dan)'s phone is told", taken, response)
    try await conversation.show(
      "read by bob and carol, delivered to dan",
      "read by alice and carol, delivered to dan",
      "read by alice and bob, delivered to dan",
      "delivered to dan"
    )

    try await conversation.narrate("the push comes twice: the same ticket again changes nothing")
    let before = try await client.readState(seenBy: "alice")
    let again = try await phone.post(ticket)
    conversation.printLine(again)
    conversation.expect("what \(dan)'s phone is told the second time", taken, again)
    conversation.expect("what alice sees of everybody", before, try await client.readState(seenBy: "alice"))
    try await conversation.show(
      "read by bob and carol, delivered to dan",
      "read by alice and carol, delivered to dan",
      "read by alice and bob, delivered to dan",
      "delivered to dan"
    )
  }
}

/// Phone whose app is not running. A push wakes a separate process for some seconds, `tidemark ack`. It gets only the
/// gateway's address and the ticket that came with the push.
struct OfflinePhone {
  /// Path of `tidemark`.
  let program: String
  /// URL of the gateway.
  let gateway: String
  /// Certificate of the gateway, which phones trust.
  let certificate: String
  /// File for the output of the process.
  let logFile: String

  /// Return the command line that a person would type.
  func commandLine(_ ticket: String) -> String {
    "tidemark ack --gateway \(gateway) --ca \((certificate as NSString).lastPathComponent) \(ticket)"
  }

  /// Post a ticket.
  ///
  /// - Returns: the output of the process, with its exit status if it failed.
  func post(_ ticket: String) async throws -> String {
    let process = try ChildProcess(
      name: "tidemark ack",
      executable: program,
      arguments: ["ack", "--gateway", gateway, "--ca", certificate, ticket],
      logFile: logFile
    )
    let status = await withTaskCancellationHandler {
      await process.waitForExit()
    } onCancel: {
      process.signal(9)
    }
    let output = FileManager.default.contents(atPath: logFile)?.dropFirst(process.logOffset) ?? Data()
    let line = String(decoding: output, as: UTF8.self).trimmingCharacters(in: .whitespacesAndNewlines)
    return status == .exited(code: 0) ? line : "\(line) (\(status))"
  }
}
