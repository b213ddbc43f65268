internal import LocalStack

extension Demo {
  /// Show that a push ticket alone marks a member delivered whose app is off, without a token or a stream.
  func playPushTicket(text: String, phone: OfflinePhone, _ conversation: Conversation, _ style: TextStyle)
    async throws
  {
    let client = conversation.client
    let dan = Self.offline
    try await conversation.narrate(
      "alice writes again; \(dan)'s app has been off all the time: no stream, no token"
    )
    try await conversation.write(text, by: "alice")
    try await conversation.show(
      "read by bob and carol",
      "read by alice and carol",
      "read by alice and bob",
      "sent"
    )
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
    conversation.expect(
      "what alice sees of everybody",
      before,
      try await client.readState(seenBy: "alice")
    )
    try await conversation.show(
      "read by bob and carol, delivered to dan",
      "read by alice and carol, delivered to dan",
      "read by alice and bob, delivered to dan",
      "delivered to dan"
    )
  }
}
