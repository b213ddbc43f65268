package import Logging
internal import NIOPosix
internal import ServiceLifecycle
internal import Synchronization
internal import UnixSignals

/// Service that rereads settings and files, on SIGHUP and when one of the files has changed.
package final class ReloadService: Service {
  /// Interval between checks of the files.
  package static let pollInterval = Duration.seconds(2)
  /// Files are read once unchanged for this long, so that a set of files is complete.
  private static let stableInterval = Duration.milliseconds(250)
  /// Files that keep changing are read after this many checks.
  private static let stableChecksMax = 20

  private struct State {
    var files: [String]
    /// States of the files when they were last read.
    var seen: [String: FileState]
    var good: Int64 = 0
    var failed: Int64 = 0
    var lastReloadSucceeded = true
    /// Time of the last successful reload, in milliseconds since 1970.
    var lastSucceededAt: Int64
  }

  /// Read everything, and use it if all of it is valid. Otherwise throw a ``SettingsError`` and change nothing. Append
  /// the files that were read, even when throwing. Return the changed settings that need a restart. Calls never
  /// overlap.
  package typealias Reload = @Sendable (_ files: inout [String]) async throws -> [String]

  private enum Cause: String { case signal, files }

  private let prefix: String
  private let logger: Logger
  private let reload: Reload
  private let state: Mutex<State>

  /// - Parameters:
  ///   - files: paths of the files read at startup.
  ///   - prefix: prefix of the metric names, such as `tidemark_gateway`.
  package init(files: [String], prefix: String, logger: Logger, reload: @escaping Reload) {
    self.prefix = prefix
    self.logger = logger
    self.reload = reload
    state = Mutex(State(files: files, seen: FileState.of(files), lastSucceededAt: Times.now))
  }

  /// Reload on demand until the group shuts down.
  package func run() async throws {
    let (causes, continuation) = AsyncStream.makeStream(of: Cause.self, bufferingPolicy: .bufferingNewest(1))
    await withTaskCancellationOrGracefulShutdownHandler {
      await withTaskGroup(of: Void.self) { group in
        group.addTask {
          for await _ in await UnixSignalsSequence(trapping: .sighup) { continuation.yield(.signal) }
        }
        group.addTask { await self.watch { continuation.yield(.files) } }
        for await cause in causes { await self.perform(cause) }
        group.cancelAll()
      }
    } onCancelOrGracefulShutdown: {
      continuation.finish()
    }
  }

  private func watch(_ changed: () -> Void) async {
    while !Task.isCancelled {
      guard (try? await Task.sleep(for: Self.pollInterval)) != nil else { return }
      if await fileStates() != state.withLock({ $0.seen }) { changed() }
    }
  }

  /// Wait until the files are unchanged for a while, so that a file is not read while it is written, and a set of files
  /// is complete. Returns false if they are as they were when they were last read.
  private func filesHaveChanged() async -> Bool {
    var now = await fileStates()
    for _ in 0..<Self.stableChecksMax {
      try? await Task.sleep(for: Self.stableInterval)
      let next = await fileStates()
      if next == now { break }
      now = next
    }
    return state.withLock { [now] state in
      // These are the states from before the reload, so that the next check sees changes made meanwhile.
      defer { state.seen = now }
      return state.seen != now
    }
  }

  /// Check the files off the cooperative pool: they may be on a network file system.
  private func fileStates() async -> [String: FileState] {
    let files = state.withLock { $0.files }
    return (try? await NIOThreadPool.singleton.runIfActive { FileState.of(files) }) ?? [:]
  }

  private func perform(_ cause: Cause) async {
    // A signal's reload may have read the changed files by now.
    guard await filesHaveChanged() || cause == .signal else { return }
    var files: [String] = []
    do {
      let unchanged = try await reload(&files)
      state.withLock { [files] state in
        state.files = files
        state.good += 1
        state.lastReloadSucceeded = true
        state.lastSucceededAt = Times.now
      }
      logger.notice("Settings, secrets and certificates were reloaded", metadata: ["cause": "\(cause)"])
      if !unchanged.isEmpty {
        logger.warning(
          "Some changed settings need a restart",
          metadata: ["settings": "\(unchanged.map { "--\($0)" }.joined(separator: ", "))"]
        )
      }
    } catch {
      state.withLock { [files] state in
        // Watch the files in use and the rejected ones: a change of either may help.
        state.files += files.filter { !state.files.contains($0) }
        state.failed += 1
        state.lastReloadSucceeded = false
      }
      logger.error(
        "The reload failed; the previous settings, secrets and certificates stay in use",
        metadata: ["error": "\(error)", "cause": "\(cause)"]
      )
    }
  }

  /// Add the results of reloads.
  package func collect(into samples: inout MetricSamples) {
    let state = state.withLock { $0 }
    for (result, count) in [("ok", state.good), ("failed", state.failed)] {
      samples.counter(
        "\(prefix)_reloads_total",
        help: "Reloads of settings, secrets and certificates, on SIGHUP or a file change.",
        labels: ["result": result],
        count
      )
    }
    samples.gauge(
      "\(prefix)_last_reload_successful",
      help: "1 if the last reload succeeded, 0 if it failed; the log has the reason.",
      state.lastReloadSucceeded ? 1 : 0
    )
    samples.gauge(
      "\(prefix)_last_reload_success_timestamp_seconds",
      help: "Time of the last successful load of settings, secrets and certificates, including the start.",
      Double(state.lastSucceededAt) / 1_000
    )
  }
}

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#endif

/// Metadata that changes when a file is written or replaced. stat(2) follows symbolic links, so a changed link on the
/// way is detected too, as in a mounted Kubernetes Secret.
struct FileState: Equatable, Sendable {
  private let device: UInt64
  private let inode: UInt64
  private let byteCount: Int64
  private let modified: [Int]
  /// Change time, which includes changes of permissions.
  private let changed: [Int]

  /// Read the state of a file; nil if it does not exist or cannot be reached.
  init?(_ path: String) {
    var information = stat()
    guard stat(path, &information) == 0 else { return nil }
    device = UInt64(information.st_dev)
    inode = UInt64(information.st_ino)
    byteCount = Int64(information.st_size)
    modified = [information.st_mtim.tv_sec, information.st_mtim.tv_nsec]
    changed = [information.st_ctim.tv_sec, information.st_ctim.tv_nsec]
  }

  /// Return the states of files, by path; missing files are left out.
  static func of(_ paths: [String]) -> [String: FileState] {
    var states: [String: FileState] = [:]
    for path in paths { states[path] = FileState(path) }
    return states
  }
}
