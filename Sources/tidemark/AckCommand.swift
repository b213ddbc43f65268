import ArgumentParser
import CommandSupport
import LocalStack
import TicketPost

/// Command `tidemark ack`.
struct AckCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "ack",
    abstract: "Posts tickets as a device does: each ticket marks its message delivered. No token is needed.",
    discussion: """
      Sends POST /v1/push/acks to a gateway. Tickets are arguments, or lines of standard input. Prints a line for each \
      ticket, in order: ok with channel, message and user, or the error. Exits with 0 if the gateway accepted all \
      tickets, and with 1 if it refused one or could not be reached. Tickets without a line can safely be posted again.
        tidemark ack --gateway https://localhost:8443 --insecure Agd…
      """
  )

  @OptionGroup var gatewayOptions: GatewayOptions
  @Flag(help: "Print each answer as a line of JSON.")
  var json = false
  @Argument(
    help: ArgumentHelp("Tickets that came with pushes; none: read standard input.", valueName: "ticket")
  )
  var tickets: [String] = []

  func run() async throws {
    try await reportingErrors("tidemark ack") {
      let (url, tls) = try gatewayOptions.resolve()
      let post = try await TicketPost.connect(to: url, tls: tls)
      var refused = 0
      var batch = nextBatch(isFirst: true)
      while !batch.isEmpty {
        try await post.post(batch) { responses in
          for response in responses { Terminal.print(json ? response.json : response.line) }
          refused += responses.count { !$0.isDelivered }
        }
        batch = nextBatch(isFirst: false)
      }
      await post.close()
      if refused > 0 { throw ExitCode(1) }
    }
  }

  /// Return all tickets given as arguments, or as many input lines as fit in one request.
  private func nextBatch(isFirst: Bool) -> [String] {
    guard tickets.isEmpty else { return isFirst ? tickets : [] }
    var batch: [String] = []
    while batch.count < TicketPost.batchCountMax, let line = readLine() {
      if !line.isEmpty { batch.append(line) }
    }
    return batch
  }
}
