internal import Foundation
internal import Glibc
internal import LocalStack

/// PostgreSQL server of a bench, from Debian's package, with the package's defaults and the C locale. It listens on a
/// Unix socket in its own directory only.
struct PostgresServer: Sendable {
  /// Debian's package.
  static let package = "postgresql"
  private static let installations = "/usr/lib/postgresql"
  /// User of the server if this process belongs to root.
  private static let owner = "postgres"
  private static let port = 5432
  /// Limit of a directory's path, so that the path of the socket in it is not too long (unix(7)).
  private static let directoryBytesMax = 80
  /// Timeouts: for programs that prepare something, for the server to become ready, and for a copy or a checkpoint.
  private static let preparationLimit = Duration.seconds(60)
  private static let readinessLimit = Duration.seconds(30)
  private static let copyLimit = Duration.seconds(600)

  /// Such as 15.
  let version: Int
  /// Holds data, socket and logs; removed by ``stop()``.
  let directory: String
  private let process: ChildProcess

  /// The newest installed version; nil: none is installed.
  static func installedVersion(in directory: String = installations) -> Int? {
    let names = (try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []
    return names.compactMap { Int($0) }.filter { version in
      ["initdb", "postgres", "psql"].allSatisfy {
        FileManager.default.isExecutableFile(atPath: "\(directory)/\(version)/bin/\($0)")
      }
    }.max()
  }

  // MARK: Start and stop

  /// Create a data directory, start a server, and return when it answers.
  ///
  /// - Parameter proposed: directory that does not exist yet. Another one in /var/tmp is used if its path is too long
  ///   or if this process belongs to root, because the server's user might not reach it.
  static func start(version: Int, in proposed: String) async throws -> PostgresServer {
    let isRoot = geteuid() == 0
    let suffix = String(UInt32.random(in: 0...UInt32.max), radix: 16)
    let isUsable = !isRoot && proposed.utf8.count <= directoryBytesMax
    let directory = isUsable ? proposed : "/var/tmp/tidemark-postgres-\(suffix)"
    try FileManager.default.createDirectory(
      atPath: directory,
      withIntermediateDirectories: true,
      attributes: [.posixPermissions: 0o700]
    )
    do {
      if isRoot { try giveToOwner(directory) }
      return try await start(version: version, inExisting: directory)
    } catch {
      try? FileManager.default.removeItem(atPath: directory)
      throw error
    }
  }

  private static func start(version: Int, inExisting directory: String) async throws -> PostgresServer {
    let data = directory + "/data"
    let initdb = try asOwner(
      program("initdb", version),
      ["-D", data, "-A", "trust", "-U", owner, "-E", "UTF8", "--locale=C"]
    )
    // The working directory is one that the server's user can enter, as PostgreSQL's programs demand.
    _ = try await ChildProcess.output(
      name: "initdb",
      executable: initdb.executable,
      arguments: initdb.arguments,
      directory: directory,
      limit: preparationLimit
    )
    let postgres = try asOwner(
      program("postgres", version),
      [
        "-D", data, "-k", directory, "-p", "\(port)", "-c", "listen_addresses=", "-c", "fsync=on",
        "-c", "synchronous_commit=on",
      ]
    )
    let process = try ChildProcess(
      name: "postgres",
      executable: postgres.executable,
      arguments: postgres.arguments,
      logFile: log(in: directory),
      directory: directory
    )
    let server = PostgresServer(version: version, directory: directory, process: process)
    do {
      try await server.waitUntilReady()
    } catch {
      await server.stop()
      throw error
    }
    return server
  }

  private func waitUntilReady() async throws {
    let deadline = ContinuousClock.now + Self.readinessLimit
    while true {
      guard process.isRunning else { throw LoadError("postgres did not start\(logTail)") }
      do {
        _ = try await query("SELECT 1", limit: Self.preparationLimit)
        return
      } catch let error as LoadError {
        guard ContinuousClock.now < deadline else {
          let seconds = Self.readinessLimit.components.seconds
          throw LoadError("timed out after \(seconds) s waiting for postgres to answer: \(error)\(logTail)")
        }
      }
      try await Task.sleep(for: .milliseconds(100))
    }
  }

  /// Stop the server and remove its directory.
  func stop() async {
    // SIGINT is the fast shutdown: SIGTERM alone would wait for open sessions.
    process.signal(SIGINT)
    await process.stop(grace: Self.readinessLimit)
    try? FileManager.default.removeItem(atPath: directory)
  }

  // MARK: Tables

  /// Copy a file into a new table.
  ///
  /// - Parameters:
  ///   - file: rows in COPY's text format.
  ///   - columns: what stands between the brackets of CREATE TABLE.
  /// - Returns: the time of the copy in seconds, client included, and the number of rows that the table then has.
  func copy(_ file: String, into table: String, columns: String) async throws -> (seconds: Double, rows: Int) {
    let create = "DROP TABLE IF EXISTS \(table); CREATE TABLE \(table) (\(columns))"
    _ = try await query(create, limit: Self.preparationLimit)
    // What an earlier copy has left is written before this one is timed, and what this one leaves before others are.
    _ = try await query("CHECKPOINT", limit: Self.copyLimit)
    let path = file.replacing("'", with: "''")
    let start = MonotonicClock.now
    _ = try await query("\\copy \(table) FROM '\(path)'", limit: Self.copyLimit)
    let seconds = MonotonicClock.seconds(since: start)
    let count = try await query("SELECT count(*) FROM \(table)", limit: Self.copyLimit)
    _ = try await query("CHECKPOINT", limit: Self.copyLimit)
    guard let rows = Int(count.trimmingCharacters(in: .whitespacesAndNewlines)) else {
      throw LoadError("psql did not count the rows: \(count.prefix(300))")
    }
    return (seconds, rows)
  }

  /// Run one command in psql, and return what it prints.
  private func query(_ text: String, limit: Duration) async throws -> String {
    try await ChildProcess.output(
      name: "psql",
      executable: Self.program("psql", version),
      arguments: [
        "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", directory, "-p", "\(Self.port)", "-U", Self.owner,
        "-d", "postgres", "-c", text,
      ],
      directory: directory,
      limit: limit
    )
  }

  // MARK: Programs

  private static func program(_ name: String, _ version: Int) -> String { "\(installations)/\(version)/bin/\(name)" }

  private static func log(in directory: String) -> String { directory + "/server.log" }

  private var logTail: String {
    let data = FileManager.default.contents(atPath: Self.log(in: directory)) ?? Data()
    return data.isEmpty ? "" : ":\n" + String(decoding: data.suffix(1_024), as: UTF8.self)
  }

  private static func giveToOwner(_ directory: String) throws(LoadError) {
    guard let account = getpwnam(owner) else { throw LoadError("there is no user \(owner)") }
    guard chown(directory, account.pointee.pw_uid, account.pointee.pw_gid) == 0 else {
      throw LoadError("\(directory) cannot be given to the user \(owner)")
    }
  }

  /// Return the command that runs a program as the server's user: PostgreSQL refuses to run as root. setpriv becomes
  /// the program, so signals for the child reach it. runuser would stay between them and block SIGINT.
  private static func asOwner(
    _ program: String,
    _ arguments: [String]
  ) throws(LoadError) -> (executable: String, arguments: [String]) {
    guard geteuid() == 0 else { return (program, arguments) }
    guard let setpriv = Executables.find("setpriv") else {
      throw LoadError("setpriv is not installed: apt-get install util-linux")
    }
    return (setpriv, ["--reuid=\(owner)", "--regid=\(owner)", "--init-groups", "--", program] + arguments)
  }
}
