internal import Foundation
internal import LocalStack

/// Foreign program that a bench runs, and its Debian package.
package enum PeerProgram: String, Sendable, Hashable, CaseIterable {
  case nghttpd
  case nghttpx
  case nginx
  case redisServer = "redis-server"
  case redisBenchmark = "redis-benchmark"
  case redisCLI = "redis-cli"
  case webdis

  package var package: String {
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
    guard let path = find(rawValue) else {
      throw LoadError("\(rawValue) is not installed: apt-get install \(package)")
    }
    return path
  }

  /// Check that all programs of the rows are installed.
  ///
  /// - Throws: ``LoadError`` that names every missing program and one command that installs them.
  package static func check(
    _ rows: [BenchRow],
    find: (String) -> String? = Executables.find
  ) throws(LoadError) {
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
    let log = "\(directory)/\(rawValue)-\(UInt32.random(in: 0...UInt32.max)).log"
    let child = try ChildProcess(
      name: rawValue,
      executable: try path(),
      arguments: arguments,
      logFile: log
    )
    let status = await withTaskCancellationHandler {
      await child.waitForExit()
    } onCancel: {
      child.signal(15)
    }
    try Task.checkCancellation()
    let text = String(decoding: FileManager.default.contents(atPath: log) ?? Data(), as: UTF8.self)
    guard status == .exited(code: 0) else { throw LoadError("\(rawValue) \(status): \(text.suffix(300))") }
    return text
  }
}
