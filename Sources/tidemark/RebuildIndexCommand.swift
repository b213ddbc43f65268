import ArgumentParser
import CommandSupport
import IndexRebuild
import LocalStack

/// Command `tidemark rebuild-index`.
struct RebuildIndexCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "rebuild-index",
    abstract: "Makes a store rebuild its index of users' channels from the channels.",
    discussion: """
      Use this if the store has logged that a user's index was unreadable and was restarted, or if a user's channels \
      or totals differ from the channels' data. The store keeps serving during the rebuild.

      In phase 1, every shard sends the memberships of all its channels to the users' shards. In phase 2, every shard \
      removes the index entries that were not sent. Progress goes to standard error; the last \
      line on standard output is {"epoch","shards","channels","changes","entries"} as JSON. Exits with 0 only if every \
      shard has finished. An interrupted rebuild can be run again at any time; it then starts over.
      """
  )

  @OptionGroup var storeOptions: StoreOptions
  @Option(help: ArgumentHelp("Timeout of a shard's answer: 90s, 15m.", valueName: "time"))
  var timeout = TimeSpanArgument(seconds: 60)

  func run() async throws {
    try await reportingErrors("tidemark rebuild-index") {
      var rebuild = IndexRebuild(store: try storeOptions.endpoint, secrets: try storeOptions.secrets)
      rebuild.tls = try storeOptions.tls
      rebuild.responseTimeout = .milliseconds(timeout.milliseconds)
      let summary = try await withProgress { [rebuild] note in
        try await rebuild.run { note("\($0)") }
      }
      Terminal.print(summary.document)
    }
  }
}
