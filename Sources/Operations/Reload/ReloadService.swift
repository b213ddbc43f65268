package import Logging
internal import NIOPosix
internal import ServiceLifecycle
internal import Synchronization
internal import UnixSignals

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#endif

/// Has a process read its settings and files again, on SIGHUP and when one of the files has changed.
package final class ReloadService: Service {
  /// How often files are looked at.
  package static let pollInterval = Duration.seconds(2)
  /// Files are read once unchanged for this long, so that a set is complete.
  private static let stillInterval = Duration.milliseconds(250)
  /// One that never stands still is read all the same.
  private static let stillChecksMax = 20

  private struct State {
    var files: [String]
    var good: Int64 = 0
    var failed: Int64 = 0
    var isGood = true
    /// Milliseconds since 1970.
    var lastGood: Int64
  }

  /// Reads everything, and takes it if all of it is good; throws a ``SettingsError`` and leaves everything as it is, if
  /// not. Appends the files that it reads, also where it throws. Returns the settings that differ from those in use, and
  /// that only a restart changes. Never called while it runs.
  package typealias Reload = @Sendable (_ files: inout [String]) async throws -> [String]

  private enum Cause: String { case signal, files }

  private let prefix: String
  private let logger: Logger
  private let reload: Reload
  private let state: Mutex<State>
  /// Of the files as they were read at start.
  private let initial: [String: FileState]

  /// - Parameters:
  ///   - files: what was read at start.
  ///   - prefix: of the metrics' names, such as `tidemark_gateway`.
  package init(
    files: [String],
    prefix: String,
    logger: Logger,
    reload: @escaping Reload
  ) {
    self.prefix = prefix
    self.logger = logger
    self.reload = reload
    initial = FileState.of(files)
    state = Mutex(State(files: files, lastGood: Self.now))
  }

  /// Reloads until the group shuts down.
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
    var last = initial
    while !Task.isCancelled {
      guard (try? await Task.sleep(for: Self.pollInterval)) != nil else { return }
      var now = await fileStates()
      guard now != last else { continue }
      for _ in 0..<Self.stillChecksMax {
        try? await Task.sleep(for: Self.stillInterval)
        let next = await fileStates()
        if next == now { break }
        now = next
      }
      // From before they are read: what changes meanwhile is seen at the next look.
      last = now
      changed()
    }
  }

  /// Off the cooperative pool: a file may be on a network.
  private func fileStates() async -> [String: FileState] {
    let files = state.withLock { $0.files }
    return (try? await NIOThreadPool.singleton.runIfActive { FileState.of(files) }) ?? [:]
  }

  private func perform(_ cause: Cause) async {
    var files: [String] = []
    do {
      let unchanged = try await reload(&files)
      state.withLock { [files] state in
        state.files = files
        state.good += 1
        state.isGood = true
        state.lastGood = Self.now
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
        // One that is in use, or one that is to be: a change of either may help.
        state.files += files.filter { !state.files.contains($0) }
        state.failed += 1
        state.isGood = false
      }
      logger.error(
        "The reload failed; the previous settings, secrets and certificates stay in use",
        metadata: ["error": "\(error)", "cause": "\(cause)"]
      )
    }
  }

  /// Adds what came of reloads.
  package func collect(into samples: inout MetricSamples) {
    let state = state.withLock { $0 }
    for (result, count) in [("ok", state.good), ("failed", state.failed)] {
      samples.counter(
        "\(prefix)_reloads_total",
        help:
          "How often settings, secrets and certificates were read again, on SIGHUP or because a file changed.",
        labels: ["result": result],
        count
      )
    }
    samples.gauge(
      "\(prefix)_last_reload_successful",
      help: "1: what is in use is what the files said last; 0: they cannot be used, the log says why.",
      state.isGood ? 1 : 0
    )
    samples.gauge(
      "\(prefix)_last_reload_success_timestamp_seconds",
      help: "When settings, secrets and certificates were last read and taken, the start included.",
      Double(state.lastGood) / 1_000
    )
  }

  private static var now: Int64 {
    var time = timespec()
    clock_gettime(CLOCK_REALTIME, &time)
    return Int64(time.tv_sec) * 1_000 + Int64(time.tv_nsec) / 1_000_000
  }
}
