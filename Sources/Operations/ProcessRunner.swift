package import Logging
package import ServiceLifecycle
internal import Synchronization
internal import UnixSignals

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#endif

/// Startup and shutdown code shared by both programs.
package enum ProcessRunner {
  /// Maximum duration of a drain, after which remaining work is cancelled.
  package static let drainDurationMax = Duration.seconds(30)

  /// Send log lines to standard error. Effective once per process; later calls do nothing.
  package static func bootstrap(logLevel: Logger.Level) {
    let isFirst = bootstrapped.withLock { done in
      defer { done = true }
      return !done
    }
    guard isFirst else { return }
    setLogLevel(logLevel)
    LoggingSystem.bootstrap { AdjustableLogHandler(LogLines.handler(label: $0)) }
  }

  /// Ignore SIGHUP until ``ReloadService`` handles it: its default would end a process that has only just started.
  package static func ignoreHangups() { signal(SIGHUP, SIG_IGN) }

  /// Set the level of every logger of the process, existing ones included.
  package static func setLogLevel(_ level: Logger.Level) { AdjustableLogHandler.level = level }

  private static let bootstrapped = Mutex(false)

  /// Read the setting `log-level`: trace, debug, info (the default), notice, warning, error or critical.
  package static func logLevel(_ settings: Settings) throws(SettingsError) -> Logger.Level {
    guard let text = try settings.string("log-level") else { return .info }
    guard let level = Logger.Level(rawValue: text.lowercased()) else {
      let known = Logger.Level.allCases.map(\.rawValue).joined(separator: ", ")
      throw SettingsError("log-level", "\"\(text)\": give one of \(known)")
    }
    return level
  }

  /// Run the services until one fails or the process receives SIGTERM or SIGINT, then shut them down in reverse order.
  package static func run(_ services: [any Service], logger: Logger) async throws {
    var configuration = ServiceGroupConfiguration(
      services: services.map {
        ServiceGroupConfiguration.ServiceConfiguration(
          service: $0,
          successTerminationBehavior: .gracefullyShutdownGroup,
          failureTerminationBehavior: .gracefullyShutdownGroup
        )
      },
      gracefulShutdownSignals: [.sigterm, .sigint],
      logger: logger
    )
    configuration.maximumGracefulShutdownDuration = drainDurationMax
    try await ServiceGroup(configuration: configuration).run()
  }

  /// Print `program: problem` as one line to standard error, and exit with ``SettingsError/exitCode``.
  package static func exit(_ program: String, _ error: SettingsError) -> Never {
    printError("\(program): \(error.description)")
    return Self.exitImmediately(SettingsError.exitCode)
  }

  /// Print a line to standard error.
  package static func printError(_ line: String) { write(line, to: STDERR_FILENO) }

  /// Print a line to standard output at once, even if that is a pipe.
  package static func printLine(_ line: String) { write(line, to: STDOUT_FILENO) }

  private static func write(_ line: String, to descriptor: Int32) {
    write(whole: LogLines.escaped(line.replacing("\n", with: " ")) + "\n", to: descriptor)
  }

  /// Write a line with its line feed to standard error, unchanged.
  static func printError(line: String) { write(whole: line, to: STDERR_FILENO) }

  /// Write a text unchanged.
  package static func write(whole text: String, to descriptor: Int32) {
    var bytes = Array(text.utf8)[...]
    while !bytes.isEmpty {
      #if canImport(Glibc)
        let count = bytes.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
      #else
        let count = bytes.withUnsafeBytes { Musl.write(descriptor, $0.baseAddress, $0.count) }
      #endif
      if count < 0 && errno == EINTR { continue }
      guard count > 0 else { return }
      bytes = bytes.dropFirst(count)
    }
  }

  /// Exit at once. All output is written by system calls, and the libraries' threads may still use resources that
  /// `exit` would tear down.
  private static func exitImmediately(_ code: Int32) -> Never {
    #if canImport(Glibc)
      Glibc._exit(code)
    #else
      Musl._exit(code)
    #endif
  }
}
