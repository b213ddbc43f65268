internal import Logging
internal import Synchronization

/// Log handler that uses the process's log level, unless its logger has a level of its own.
struct AdjustableLogHandler: LogHandler {
  private static let index = Atomic<Int>(0)

  /// Log level of the process.
  static var level: Logger.Level {
    get { Logger.Level.allCases[index.load(ordering: .relaxed)] }
    set { index.store(Logger.Level.allCases.firstIndex(of: newValue) ?? 0, ordering: .relaxed) }
  }

  private var inner: StreamLogHandler
  private var ownLevel: Logger.Level?

  init(_ inner: StreamLogHandler) {
    self.inner = inner
    // The caller has already compared levels.
    self.inner.logLevel = .trace
  }

  var logLevel: Logger.Level {
    get { ownLevel ?? Self.level }
    set { ownLevel = newValue }
  }

  func log(event: LogEvent) { inner.log(event: event) }

  var metadata: Logger.Metadata {
    get { inner.metadata }
    set { inner.metadata = newValue }
  }

  var metadataProvider: Logger.MetadataProvider? {
    get { inner.metadataProvider }
    set { inner.metadataProvider = newValue }
  }

  subscript(metadataKey key: String) -> Logger.Metadata.Value? {
    get { inner[metadataKey: key] }
    set { inner[metadataKey: key] = newValue }
  }
}
