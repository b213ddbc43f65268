import ArgumentParser
import CommandSupport
import LocalStack
import Transfer

/// Command `tidemark import`.
struct ImportCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "import",
    abstract: "Imports channels, members, messages and positions from a file of JSON lines.",
    discussion: """
      Sends POST /v1/import of a gateway, with a server token. docs/import-export.md explains the lines. Prints \
      refused lines. Goes on after a lost connection. The same lines again change nothing, so an import that was \
      stopped can be run again, with --skip or without. Exits with 0 if all lines were imported, and with 1 otherwise.
        tidemark import history.ndjson --gateway https://localhost:8443 --insecure \
      --jwt-secret-file .tidemark/jwt-secret
      """
  )

  @OptionGroup var gatewayOptions: GatewayOptions
  @OptionGroup var tokenOptions: TokenOptions
  @Flag(help: "Check the form of the lines, and import nothing.")
  var dryRun = false
  @Option(help: ArgumentHelp("Leave out this number of lines at the start.", valueName: "lines"))
  var skip = 0
  @Option(
    help: ArgumentHelp(
      "Write the refused lines to this file, as JSON lines, instead of printing them.",
      valueName: "file"
    )
  )
  var report: String?
  @Argument(help: ArgumentHelp("The file; - for standard input.", valueName: "file"))
  var file: String

  func validate() throws {
    try validateRanges([("skip", skip, 0...Int(UInt32.max))])
  }

  func run() async throws {
    try await reportingErrors("tidemark import") {
      let (gateway, tls) = (gatewayOptions.gateway, try gatewayOptions.makeTLS())
      let tokens = try await ServerTokens(tokenOptions)
      let report = try report.map { try ReportFile(path: $0) }
      let (file, skip, dryRun) = (file, skip, dryRun)
      let summary = try await withProgress { show in
        try await LineImport(gateway: gateway, tls: tls, isDryRun: dryRun).run(
          { try LineSource(path: file) },
          skipping: skip,
          token: { try await tokens.next() },
          refused: { line in
            if let report {
              report.write(line.json)
            } else {
              Terminal.print("line \(line.line): \(line.code): \(line.detail)")
            }
          },
          progress: { summary, bytes, total in
            let share = total.map { $0 > 0 ? ", \(min(bytes, $0) * 100 / $0) %" : "" } ?? ""
            show("\(summary.lines) lines, \(summary.refused) refused\(share)")
          },
          note: { Terminal.printError("tidemark import: \($0)") }
        )
      }
      Terminal.printError("\(summary.lines) lines, \(summary.refused) refused\(dryRun ? "; nothing was imported" : "")")
      if summary.refused > 0 { throw ExitCode(1) }
    }
  }
}

/// Command `tidemark export`.
struct ExportCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "export",
    abstract: "Exports channels, members, messages and positions as JSON lines, or one person's data.",
    discussion: """
      Reads GET /v1/export of a gateway, with a server token. Each channel is told as of one moment. tidemark import \
      takes the lines of an export without --user. An export that is cut has to be made again.
        tidemark export --gateway https://localhost:8443 --insecure --output all.ndjson \
      --jwt-secret-file .tidemark/jwt-secret
      """
  )

  @OptionGroup var gatewayOptions: GatewayOptions
  @OptionGroup var tokenOptions: TokenOptions
  @Option(help: ArgumentHelp("Only what belongs to this user: a person's data.", valueName: "id"))
  var user: String?
  @Option(help: ArgumentHelp("Only channels of this type.", valueName: "type"))
  var channelType: String?
  @Option(help: ArgumentHelp("Write to this file instead of standard output.", valueName: "file"))
  var output: String?

  func run() async throws {
    try await reportingErrors("tidemark export") {
      let export = LineExport(
        gateway: gatewayOptions.gateway,
        tls: try gatewayOptions.makeTLS(),
        user: user,
        channelType: channelType
      )
      let tokens = try await ServerTokens(tokenOptions)
      let output = output
      let lines = try await withProgress { show in
        try await export.run(to: output, token: try await tokens.next()) { show("\($0) lines") }
      }
      Terminal.printError("\(lines) lines")
    }
  }
}

/// The server token of a command: a given one, or a new one for each connection.
private struct ServerTokens: Sendable {
  private let given: String
  private let issuer: TokenIssuer?

  init(_ options: TokenOptions) async throws {
    given = options.token ?? ""
    issuer = try await options.makeIssuer()
  }

  func next() async throws -> String {
    guard let issuer else { return given }
    return try await issuer.server(lifetime: .seconds(86_400))
  }
}
