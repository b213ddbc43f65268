internal import ArgumentParser
internal import FeedClient
internal import Operations
internal import Worker

/// Command `tidemark-worker dead-letters`.
struct DeadLettersCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "dead-letters",
    abstract: "Lists or discards the batches that could not be delivered in time.",
    subcommands: [ListCommand.self, DiscardCommand.self],
    defaultSubcommand: ListCommand.self
  )
}

/// Command `tidemark-worker dead-letters list`.
struct ListCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "list",
    abstract: "Lists the dead letters; the default."
  )

  @OptionGroup var flags: GatewayFlags
  @Option(help: ArgumentHelp("Only this webhook.", valueName: "name")) var webhook: String?
  @Flag(help: "Print a JSON array.") var json = false

  func run() async throws {
    let tasks = try flags.tasks { _ in }
    let gateway = try await flags.configuration { _ in }.gateway
    let names = tasks.webhooks.map(\.name).filter { webhook == nil || webhook == $0 }
    guard !names.isEmpty else {
      throw SettingsError("webhook", "\"\(webhook ?? "")\" is not in the tasks file")
    }
    try await reportingGatewayErrors {
      var letters: [PlacedDeadLetter] = []
      for name in names { letters += try await DeadLetterReplay.list(gateway, webhook: name) }
      let text = json ? DeadLetterTable.json(letters) : DeadLetterTable.text(letters)
      for line in text.split(separator: "\n") { ProcessRunner.printLine(String(line)) }
    }
  }
}

/// Dead letters of a webhook that a command is for.
struct DeadLetterSelection: ParsableArguments {
  @OptionGroup var flags: GatewayFlags
  @Option(help: ArgumentHelp("Webhook of the dead letters.", valueName: "name")) var webhook: String
  @Option(help: ArgumentHelp("A dead letter, as `dead-letters` lists it.", valueName: "id")) var id: String?
  @Flag(help: "All of the webhook's, oldest first.") var all = false

  func validate() throws {
    guard (id != nil) != all else { throw ValidationError("give either --id or --all") }
  }

  /// Call `body` with each of them. Exit with 1 if it returns false for one, which stays.
  func forEach(_ body: (PlacedDeadLetter, DeadLetterReplay) async throws -> Bool) async throws {
    let tasks = try flags.tasks { _ in }
    let gateway = try await flags.configuration { _ in }.gateway
    guard let task = tasks.webhooks.first(where: { $0.name == webhook }) else {
      throw SettingsError("webhook", "\"\(webhook)\" is not in the tasks file")
    }
    var remaining = 0
    try await reportingGatewayErrors {
      let letters = try await DeadLetterReplay.list(gateway, webhook: webhook).filter { all || $0.id == id }
      guard !letters.isEmpty || all else {
        throw SettingsError("id", "\"\(id ?? "")\" is no dead letter of \(webhook); `dead-letters` lists them")
      }
      let replay = DeadLetterReplay(gateway: gateway, task: task)
      for placed in letters {
        do {
          if try await !body(placed, replay) { remaining += 1 }
        } catch {
          ProcessRunner.printLine("\(placed.id): \(error)")
          remaining += 1
        }
      }
      await replay.close()
    }
    if remaining > 0 { throw ExitCode(1) }
  }
}

/// Command `tidemark-worker dead-letters discard`.
struct DiscardCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "discard",
    abstract: "Removes dead letters without delivering them.",
    discussion: """
      For dead letters whose records are no longer in the feed, or that nobody needs. Cannot be undone. Workers may \
      run meanwhile. Exits with 1 if a dead letter stays.
      """
  )

  @OptionGroup var selection: DeadLetterSelection

  func run() async throws {
    try await selection.forEach { placed, replay in
      try await replay.remove(placed)
      ProcessRunner.printLine("\(placed.id): discarded \(placed.letter.count) records")
      return true
    }
  }
}

/// Command `tidemark-worker replay`.
struct ReplayCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "replay",
    abstract: "Delivers dead letters once more, and removes those that are delivered.",
    discussion: "Workers may run meanwhile. Exits with 1 if a dead letter stays."
  )

  @OptionGroup var selection: DeadLetterSelection

  func run() async throws {
    try await selection.forEach { placed, replay in
      switch try await replay.replay(placed) {
      case .delivered(let records):
        ProcessRunner.printLine("\(placed.id): delivered \(records) records")
        return true
      case .incomplete(let records):
        ProcessRunner.printLine(
          """
          \(placed.id): delivered \(records) records; others are no longer in the feed, so the dead letter stays: \
          `dead-letters discard` removes it
          """
        )
      case .failed(let problem): ProcessRunner.printLine("\(placed.id): not delivered: \(problem)")
      }
      return false
    }
  }
}

/// Print a failure of the gateway as one line, and exit with 1.
private func reportingGatewayErrors(_ body: () async throws -> Void) async throws {
  do {
    try await body()
  } catch let error as GatewayError {
    ProcessRunner.printError("tidemark-worker: \(error)")
    throw ExitCode(1)
  }
}
