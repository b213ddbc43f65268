internal import Foundation
internal import LocalStack
internal import Operations

/// A PostgreSQL server of its own, with the package's defaults and no network, that copies rows into a table.
struct PostgresCopy: Sendable {
  private let programs: String
  private let directory: String
  private let server: ChildProcess

  /// Start a server; nil: the programs are not installed.
  ///
  /// - Parameter directory: removed in ``stop()``. PostgreSQL does not run as root, so it belongs to another user then.
  static func start(in directory: String, _ log: @Sendable (String) -> Void) async throws -> PostgresCopy? {
    let root = "/usr/lib/postgresql"
    let versions = (try? FileManager.default.contentsOfDirectory(atPath: root)) ?? []
    guard let version = versions.compactMap(Int.init).max() else {
      log("PostgreSQL is left out: apt-get install postgresql")
      return nil
    }
    let programs = "\(root)/\(version)/bin"
    let place = NSTemporaryDirectory() + "tidemark-" + (directory as NSString).lastPathComponent
    try FileManager.default.createDirectory(atPath: place, withIntermediateDirectories: true)
    if getuid() == 0 { try await run("/usr/bin/chown", ["postgres", place], in: place) }
    let data = place + "/data"
    try await runAsOwner("\(programs)/initdb", ["-D", data, "-A", "trust", "-U", "postgres", "-E", "UTF8"], in: place)
    let (executable, arguments) = asOwner(
      "\(programs)/postgres",
      ["-D", data, "-k", place, "-c", "listen_addresses=", "-c", "shared_buffers=1GB", "-c", "max_wal_size=8GB"]
    )
    let server = try ChildProcess(
      name: "postgres",
      executable: executable,
      arguments: arguments,
      logFile: place + "/server.log"
    )
    let copy = PostgresCopy(programs: programs, directory: place, server: server)
    for attempt in 0... {
      do {
        try await copy.query("SELECT 1")
        return copy
      } catch let error where attempt < 100 {
        _ = error
        try await Task.sleep(for: .milliseconds(100))
      }
    }
    return copy
  }

  /// Copy a file into a new table, durably, and return how long that took.
  func copySeconds(_ rows: String) async throws -> Double {
    try await query(
      """
      DROP TABLE IF EXISTS positions; CREATE TABLE positions (cid text, user_id text, joined_at timestamptz, \
      read_id text, read_at timestamptz, delivered_id text, delivered_at timestamptz, PRIMARY KEY (cid, user_id))
      """
    )
    let start = MonotonicClock.now
    try await query("\\copy positions FROM '\(rows)'")
    return MonotonicClock.seconds(since: start)
  }

  func stop() async {
    server.signal(2)
    _ = await server.waitForExit()
    try? FileManager.default.removeItem(atPath: directory)
  }

  private func query(_ text: String) async throws {
    let arguments = ["-h", directory, "-U", "postgres", "-v", "ON_ERROR_STOP=1", "-q", "-c", text]
    try await Self.run("\(programs)/psql", arguments, in: directory)
  }

  private static func asOwner(_ program: String, _ arguments: [String]) -> (String, [String]) {
    getuid() == 0 ? ("/usr/sbin/runuser", ["-u", "postgres", "--", program] + arguments) : (program, arguments)
  }

  private static func runAsOwner(_ program: String, _ arguments: [String], in directory: String) async throws {
    let (executable, arguments) = asOwner(program, arguments)
    try await run(executable, arguments, in: directory)
  }

  private static func run(_ executable: String, _ arguments: [String], in directory: String) async throws {
    let name = (executable as NSString).lastPathComponent
    let log = "\(directory)/\(name)-\(UInt32.random(in: 0...UInt32.max)).log"
    let child = try ChildProcess(name: name, executable: executable, arguments: arguments, logFile: log)
    let status = await child.waitForExit()
    let text = String(decoding: FileManager.default.contents(atPath: log) ?? Data(), as: UTF8.self)
    guard status == .exited(code: 0) else { throw LoadError("\(executable) \(status): \(text.suffix(300))") }
  }
}
