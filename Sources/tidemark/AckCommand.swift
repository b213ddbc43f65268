import ArgumentParser
import LocalStack
import TicketPost

/// tidemark ack
struct AckCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "ack",
    abstract: "Posts tickets as a device does: each marks its message delivered. It needs no token.",
    discussion: """
      POST /v1/push/acks of a gateway. Tickets are arguments, or lines of standard input. Prints a line for each, in order: \
      ok with channel, message and user, or why not. Exits with 0 when all were taken, with 1 when one was refused or the \
      gateway could not be reached; what has no line can be posted again, and harms nothing where it was taken.
        tidemark ack --gateway https://localhost:8443 --insecure Agd…
      """
  )

  @OptionGroup var place: GatewayOptions
  @Flag(help: "Print each answer as a line of JSON.")
  var json = false
  @Argument(help: ArgumentHelp("What came with the push; none: from standard input.", valueName: "ticket"))
  var tickets: [String] = []

  func run() async throws {
    try await reportingErrors("tidemark ack") {
      let (url, tls) = try place.place()
      let post = try await TicketPost.connect(to: url, tls: tls)
      var refused = 0
      var batch = nextBatch(isFirst: true)
      while !batch.isEmpty {
        try await post.post(batch) { answers in
          for answer in answers { Terminal.print(json ? answer.json : answer.line) }
          refused += answers.count { !$0.isDelivered }
        }
        batch = nextBatch(isFirst: false)
      }
      await post.close()
      if refused > 0 { throw ExitCode(1) }
    }
  }

  /// All that were given as arguments, or as many lines as one request takes.
  private func nextBatch(isFirst: Bool) -> [String] {
    guard tickets.isEmpty else { return isFirst ? tickets : [] }
    var batch: [String] = []
    while batch.count < TicketPost.batchCountMax, let line = readLine() {
      if !line.isEmpty { batch.append(line) }
    }
    return batch
  }
}
