internal import LocalStack
internal import Operations

/// Foreign program that a bench runs, and its Debian package.
enum PeerProgram: String, Sendable, Hashable, CaseIterable {
  case nghttpd
  case nghttpx
  case nginx
  case redisServer = "redis-server"
  case redisBenchmark = "redis-benchmark"
  case redisCLI = "redis-cli"
  case webdis

  var package: String {
    switch self {
    case .nghttpd: "nghttp2-server"
    case .nghttpx: "nghttp2-proxy"
    case .nginx: "nginx"
    case .redisServer: "redis-server"
    case .redisBenchmark, .redisCLI: "redis-tools"
    case .webdis: "webdis"
    }
  }

  /// Return the path of the program.
  ///
  /// - Throws: ``LoadError`` that names the package to install.
  func path(find: (String) -> String? = Executables.find) throws(LoadError) -> String {
    guard let path = find(rawValue) else { throw LoadError("\(rawValue) is not installed: apt-get install \(package)") }
    return path
  }

  /// Check that all programs of the rows are installed.
  ///
  /// - Throws: ``LoadError`` that names every missing program and one command that installs them.
  static func check(_ rows: [BenchRow], find: (String) -> String? = Executables.find) throws(LoadError) {
    let needed = allCases.filter { program in rows.contains { $0.programs.contains(program) } }
    let missing = needed.filter { find($0.rawValue) == nil }
    guard !missing.isEmpty else { return }
    var packages: [String] = []
    for program in missing where !packages.contains(program.package) { packages.append(program.package) }
    throw LoadError(
      "not installed: \(missing.map(\.rawValue).joined(separator: ", ")): "
        + "apt-get install \(packages.joined(separator: " "))"
    )
  }

  /// Run the program to its end and return its output, which stays in `directory`.
  ///
  /// - Throws: ``LoadError`` if it fails. A cancelled task ends it.
  func output(_ arguments: [String], in directory: String) async throws -> String {
    try await ChildProcess.output(
      name: rawValue,
      executable: try path(),
      arguments: arguments,
      directory: directory
    )
  }
}

/// Configuration files of the peers. They differ from the packages' defaults in ports, directories, persistent
/// connections, no request logs, one worker each like our services, and Redis being durable before it answers.
enum PeerConfiguration {
  /// Configure nginx, serving the files of a directory.
  ///
  /// - Parameter isRoot: keeps the workers root; otherwise they could not read the directory.
  static func nginx(listen: Endpoint, documents: String, directory: String, isRoot: Bool) -> String {
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
      .map { #"  \#($0)_temp_path "\#(directory)/nginx-\#($0)";"# }
      .joined(separator: "\n")
    return """
      \(isRoot ? "user root;" : "")
      daemon off;
      worker_processes 1;
      pid "\(directory)/nginx.pid";
      error_log "\(directory)/nginx.log" warn;
      events {
        worker_connections 8192;
      }
      http {
        access_log off;
        keepalive_timeout 3600s;
        keepalive_requests 1000000000;
        open_file_cache max=16;
      \(temporary)
        server {
          listen \(listen);
          root "\(documents)";
        }
      }

      """
  }

  /// Configure nghttpx: HTTP/2 without TLS in front, persistent HTTP/1.1 connections behind.
  static func nghttpx(listen: Endpoint, backend: Endpoint) -> String {
    """
    frontend=\(listen.host),\(listen.port);no-tls
    backend=\(backend.host),\(backend.port)
    workers=1
    log-level=ERROR

    """
  }

  /// Configure Redis: every change is on disk before the response, in the append-only file alone.
  static func redis(listen: Endpoint, directory: String) -> String {
    """
    bind \(listen.host)
    port \(listen.port)
    daemonize no
    dir "\(directory)"
    save ""
    appendonly yes
    appendfsync always

    """
  }

  /// Configure webdis in front of that Redis.
  static func webdis(listen: Endpoint, redis: Endpoint, directory: String) -> String {
    """
    {
      "redis_host": "\(redis.host)",
      "redis_port": \(redis.port),
      "http_host": "\(listen.host)",
      "http_port": \(listen.port),
      "threads": 2,
      "pool_size": 20,
      "daemonize": false,
      "database": 0,
      "verbosity": 2,
      "logfile": "\(directory)/webdis.log"
    }

    """
  }
}
