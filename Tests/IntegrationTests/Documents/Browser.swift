import Foundation
import LocalStack
import Operations
import TestPrograms
import TestSupport

/// A headless Chromium with a page that runs a script of the docs, and the page's reports.
final class Browser {
  /// A report of a page: an EventSource's state, an event's type and data, or a call of a function by the script.
  private struct Report: Decodable, CustomStringConvertible {
    /// The port of the page's origin; nil where the server itself reports.
    var port: Int?
    var what: String
    var data: String?

    var description: String { "\(what) \(data ?? "")" }
  }

  /// Debian's binary. The script in /usr/bin would stay between the browser and the process that started it.
  private static let program = "/usr/lib/chromium/chromium-headless-shell"

  /// The time limit for everything that a test waits for.
  private static let secondsMax = 180

  private let server: Companion
  private let process: ChildProcess
  private let log: String
  private let port: Int
  private var reports: [String] = []
  private var seen = 0

  /// The possible origins of a page, and the address of the gateway.
  struct Place {
    /// An origin that the gateway lists, and another one.
    var listed, other: Endpoint
    /// The proxy to the gateway, which a test can cut.
    var way: Endpoint

    init() throws {
      let ports = try LoopbackPorts.free(3)
      (listed, other, way) = (ports[0], ports[1], ports[2])
    }
  }

  /// The files of a page.
  struct Content {
    /// The page itself, a file of Clients.
    var document: String
    /// Further files of the page, by name.
    var files: [String: String]

    /// A page that follows events, as docs/api/events.md says.
    static func events() throws -> Content {
      Content(
        document: "Documents/browser_page.html",
        files: ["events.js": try CodeBlocks.block("js", of: "api/events.md")]
      )
    }
  }

  /// Open the page from one of its origins. Where its files name the gateway of the docs, they get this pair's.
  ///
  /// - Parameters:
  ///   - page: one of the place's origins.
  ///   - token: the token that the page presents first; see ``setToken(_:_:)``.
  init(_ services: TestServices, _ place: Place, page: Endpoint, token: String, _ content: Content)
    async throws
  {
    guard FileManager.default.isExecutableFile(atPath: Self.program) else {
      throw Unexpected("\(Self.program) is missing: `make test` installs Debian's chromium-headless-shell")
    }
    let directory = services.directory + "/page"
    try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
    try Self.setToken(token, services)
    let document = try String(contentsOfFile: TestServices.client(content.document), encoding: .utf8)
    for (name, text) in content.files.merging(["index.html": document], uniquingKeysWith: { $1 }) {
      let text = text.replacingOccurrences(
        of: "https://chat.example.org",
        with: "https://localhost:\(place.way.port)"
      )
      try text.write(toFile: directory + "/" + name, atomically: true, encoding: .utf8)
    }
    let ports = [place.listed, place.other, place.way, services.stack.plan.gateways[0].listen].map {
      "\($0.port)"
    }
    server = try Companion(
      TestServices.python,
      [TestServices.client("Documents/browser_server.py"), directory] + ports,
      limit: .seconds(Self.secondsMax)
    )
    port = page.port
    log = services.stack.files.log(of: "chromium-\(page.port)")
    do {
      guard try await Self.report(server)?.what == "ready" else { throw Unexpected("the page is not served") }
      process = try ChildProcess(
        name: "chromium",
        executable: Self.program,
        arguments: [
          // Root cannot use the sandbox; the page is our own.
          "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
          "--user-data-dir=\(directory)-\(page.port)",
          "--enable-logging=stderr", "--ignore-certificate-errors-spki-list=\(try await Self.pin(services))",
          // The browser connects only to this machine.
          "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1", "--no-proxy-server",
          "--disable-background-networking", "--disable-component-update", "--disable-sync",
          "http://\(page)/",
        ],
        logFile: log
      )
    } catch {
      server.end()
      throw error
    }
  }

  /// Stop the browser in any state.
  func end() async {
    await process.stop(grace: .seconds(5))
    server.end()
  }

  /// Set the token that the page fetches when it opens a stream.
  static func setToken(_ token: String, _ services: TestServices) throws {
    try token.write(toFile: services.directory + "/page/token", atomically: true, encoding: .utf8)
  }

  /// Cut the proxy to the gateway, or restore it.
  func way(_ command: String) async throws {
    server.send(command)
    while let what = try await next() { if what == command { return } }
    throw Unexpected("the way to the gateway was not \(command): the page's server has ended")
  }

  /// Wait until the page has reported all of these since the last wait, in any order.
  ///
  /// - Parameter wanted: for each report its kind, then parts of its data.
  func wait(for wanted: [String]...) async throws {
    while let missing = wanted.first(where: { !hasReported($0) }) {
      guard try await next() != nil else {
        let text = (try? String(contentsOfFile: log, encoding: .utf8)) ?? ""
        throw Unexpected("no \(missing) among \(reports[seen...]); before: \(reports[..<seen])\n\(text)")
      }
    }
    seen = reports.count
  }

  /// The number of these reports so far.
  func count(_ what: String) -> Int { reports.count { $0.hasPrefix(what + " ") } }

  /// The text of the browser's console.
  var console: String { (try? String(contentsOfFile: log, encoding: .utf8)) ?? "" }

  private func hasReported(_ wanted: [String]) -> Bool {
    reports[seen...].contains { report in
      report.hasPrefix(wanted[0] + " ") && wanted.dropFirst().allSatisfy(report.contains)
    }
  }

  private func next() async throws -> String? {
    guard let report = try await Self.report(server) else { return nil }
    guard let origin = report.port else { return report.what }
    guard origin == port else { throw Unexpected("\(report) from port \(origin)") }
    reports.append("\(report)")
    return reports[reports.count - 1]
  }

  private static func report(_ server: Companion) async throws -> Report? {
    guard let line = await server.line() else { return nil }
    return try JSONDecoder().decode(Report.self, from: Data(line.utf8))
  }

  /// The hash of the certificate's key: the browser trusts only the key of this test.
  private static func pin(_ services: TestServices) async throws -> String {
    let script =
      """
      set -o pipefail; openssl x509 -in '\(services.certificate)' -pubkey -noout | openssl pkey -pubin -outform der | \
      openssl dgst -sha256 -binary | base64
      """
    let output = try await Command.run("/bin/bash", ["-c", script])
    guard output.status == 0 else { throw Unexpected("no pin: \(output)") }
    return output.out.trimmingCharacters(in: .whitespacesAndNewlines)
  }
}
