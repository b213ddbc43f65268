import ArgumentParser
import CommandOutput
import CommandSupport
import DumpReaders
import GatewayClient
import TLSSession
import Transfer

extension DumpFormat: ExpressibleByArgument {}

/// Command `tidemark import`.
struct ImportCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "import",
    abstract: "Imports channels, members, messages and positions from a file of JSON lines.",
    discussion: """
      Sends POST /v1/import of a gateway, with a server token. docs/api/import-export.md explains the lines. Prints \
      refused lines. Goes on after a lost connection. The same lines again change nothing, so an import that was \
      stopped can be run again, with --skip or without. Exits with 0 if all lines were imported, and with 1 otherwise.
        tidemark import history.ndjson --gateway https://localhost:8443 --insecure \
      --jwt-secret-file .tidemark/jwt-secret
      With --from the file is a dump of another product, which is converted first: docs/api/import-dumps.md says how \
      to make one, and what is carried. --convert-to writes the lines and imports nothing.
        tidemark import import.jsonl --from mattermost --convert-to history.ndjson
      """
  )

  @OptionGroup var target: ImportTarget
  @Option(help: ArgumentHelp("The product whose dump the file is.", valueName: "product"))
  var from: DumpFormat?
  @Option(
    help: ArgumentHelp(
      "With --from: write the lines to this file, - for standard output, and import nothing.",
      valueName: "file"
    )
  )
  var convertTo: String?
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
    guard convertTo != nil else { return try target.check() }
    guard from != nil else { throw ValidationError("--convert-to needs --from") }
    guard convertTo == "-" || convertTo != file else { throw ValidationError("--convert-to has to name another file") }
    guard target.isEmpty, !dryRun, skip == 0 else {
      throw ValidationError("--convert-to imports nothing: give no gateway, no token, no --dry-run and no --skip")
    }
  }

  func run() async throws {
    try await reportingErrors("tidemark import") {
      let report = try report.map { try ReportFile(path: $0) }
      // A conversion may take long. What else can be wrong is noticed before it.
      let gateway = try await target.resolve()
      var refused = 0
      if let from {
        let dump = try await convert(from, report)
        defer { dump.remove() }
        refused = dump.summary.refused
        if let convertTo { try await withProgress { _ in try dump.copyLines(to: convertTo) } }
        if let gateway {
          refused += try await importLines(of: dump.path, to: gateway, report) { dump.origin(ofLine: $0) }
        }
      } else if let gateway {
        refused = try await importLines(of: file, to: gateway, report) { _ in nil }
      }
      if refused > 0 { throw ExitCode(1) }
    }
  }

  /// Convert a dump, and print what became of it.
  private func convert(_ format: DumpFormat, _ report: ReportFile?) async throws -> ConvertedDump {
    // Standard output may be the lines.
    let isSilent = convertTo == "-"
    let file = file
    let dump = try await withProgress { show in
      try ConvertedDump(file, from: format) { refusal in
        let text = "\(refusal.origin): \(refusal.detail)"
        if let report {
          report.write(refusal.json)
        } else if isSilent {
          Terminal.printError(text)
        } else {
          Terminal.print(text)
        }
      } progress: { bytes in
        try Task.checkCancellation()
        show("\(bytes >> 20) MiB converted")
      }
    }
    let summary = dump.summary
    Terminal.printError("converted to \(summary.lines) lines, \(summary.refused) records refused")
    guard summary.lines > 0 || summary.refused > 0 else {
      dump.remove()
      throw TransferError("\(file): has no records; is it a dump of \(format.rawValue), and whole?")
    }
    if !summary.leftOut.counts.isEmpty { Terminal.printError("left out: \(summary.leftOut)") }
    return dump
  }

  /// Import the lines of a file.
  ///
  /// - Parameter source: returns the place in a dump that a line was made of.
  /// - Returns: the number of refused lines.
  private func importLines(
    of file: String,
    to gateway: ImportTarget.Gateway,
    _ report: ReportFile?,
    source: @escaping @Sendable (Int) -> String?
  ) async throws -> Int {
    let (skip, dryRun) = (skip, dryRun)
    let summary = try await withProgress { show in
      try await LineImport(gateway: gateway.url, tls: gateway.tls, isDryRun: dryRun).run(
        { try LineSource(path: file) },
        skipping: skip,
        token: { try await gateway.tokens.next() },
        refused: { refused in
          var line = refused
          line.source = source(line.line)
          if let report {
            report.write(line.json)
          } else {
            let place = line.source.map { " (\($0) of the dump)" } ?? ""
            Terminal.print("line \(line.line)\(place): \(line.code): \(line.detail)")
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
    return summary.refused
  }
}

/// The gateway of an import. A conversion alone needs none.
struct ImportTarget: ParsableArguments {
  /// How to reach a gateway.
  struct Gateway: Sendable {
    let url: GatewayURL
    let tls: TLSContext?
    fileprivate let tokens: ServerTokens
  }

  @Option(
    help: ArgumentHelp("URL of the gateway; http:// for h2c.", valueName: "url"),
    transform: parsing("https://HOST:PORT or http://HOST:PORT", GatewayURL.init)
  )
  var gateway: GatewayURL?
  @OptionGroup var verification: VerificationOptions
  @OptionGroup var tokens: TokenSource

  var isEmpty: Bool { gateway == nil && verification.isEmpty && tokens.isEmpty }

  /// - Throws: if a gateway or its token is missing.
  func check() throws {
    guard let gateway else { throw ValidationError("give --gateway") }
    try verification.check(gateway)
    try tokens.check()
  }

  /// Return how to reach the gateway; nil if there is none.
  func resolve() async throws -> Gateway? {
    guard let gateway else { return nil }
    return Gateway(url: gateway, tls: try verification.makeTLS(gateway), tokens: try await ServerTokens(tokens))
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
      let tokens = try await ServerTokens(tokenOptions.source)
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

  init(_ source: TokenSource) async throws {
    given = source.token ?? ""
    issuer = try await source.makeIssuer()
  }

  func next() async throws -> String {
    guard let issuer else { return given }
    return try await issuer.server(lifetime: .seconds(86_400))
  }
}
