import ArgumentParser
import CommandSupport
import IndexRebuild
import LocalStack

/// Command `tidemark rebuild-index`.
struct RebuildIndexCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "rebuild-index",
    abstract: "Has a store rebuild its index of users' channels from the channels themselves.",
    discussion: """
      For a store whose log says that the index of a user could not be read and was begun again, and whenever a user's \
      channels or totals are not what their channels say. The store goes on serving meanwhile.

      First every shard sends the memberships of all its channels to the users' shards again (phase 1); when all have, \
      every shard removes from its indexes what was not sent (phase 2). Progress goes to standard error; the last \
      line on standard output is {"epoch","shards","channels","changes","entries"} as JSON. Ends with 0 only if every \
      shard is done. It may be interrupted, and run again at any time: then it begins again.
      """
  )

  @OptionGroup var storeOptions: StoreOptions
  @Option(help: ArgumentHelp("How long a shard may give no answer: 90s, 15m.", valueName: "time"))
  var timeout = TimeSpanArgument(seconds: 60)

  func run() async throws {
    try await reportingErrors("tidemark rebuild-index") {
      var rebuild = IndexRebuild(store: try storeOptions.endpoint, secrets: try storeOptions.secrets)
      rebuild.tls = try storeOptions.tls
      rebuild.responseTimeout = .milliseconds(timeout.milliseconds)
      let configured = rebuild
      let progress = ProgressLine()
      let summary = try await withInterrupts {
        defer { progress.clear() }
        return try await configured.run { progress.show("\($0)") }
      }
      Terminal.print(summary.document)
    }
  }
}
