internal import CSpawn
internal import Dispatch
internal import Foundation
internal import Glibc
internal import Synchronization

/// Exit status of a process.
package enum ExitStatus: Sendable, Hashable, CustomStringConvertible {
  case exited(code: Int32)
  case signalled(Int32)

  package var description: String {
    switch self {
    case .exited(let code): "exited with code \(code)"
    case .signalled(let number): "was ended by signal \(number)"
    }
  }
}

/// Child process, watched until it ends. It is signalled only while it has not been reaped, so that a signal never
/// reaches another process with a reused id.
///
/// It has its own process group: an interrupt typed at the terminal reaches only this process, which then ends its
/// children in order. It inherits the descriptors it is given, and no others. Otherwise a socket or a pipe that another
/// part of this process opened meanwhile would stay open until the child ends.
package final class ChildProcess: Sendable {
  /// running → ended.
  private enum State {
    case running(waiters: [@Sendable (ExitStatus) -> Void])
    case ended(ExitStatus)
  }

  /// Name for messages.
  package let name: String
  /// The process id.
  package let processID: Int32

  /// Offset in the log file at which its output begins; the file may have earlier content.
  package let logOffset: Int

  private let state = Mutex(State.running(waiters: []))

  /// Start a program.
  ///
  /// - Parameters:
  ///   - name: for messages.
  ///   - executable: path of the program.
  ///   - arguments: without the program's own name.
  ///   - logFile: file to which its standard error and output are appended.
  ///   - input: its standard input; nil: empty.
  ///   - output: its standard output, instead of the log file.
  ///   - directory: its working directory; nil: that of this process.
  ///   - variables: additions to the environment. This process's `TIDEMARK_…` variables are not passed on: children are
  ///     configured by flags only.
  /// - Throws: the reason why the program cannot be started.
  package init(
    name: String,
    executable: String,
    arguments: [String],
    logFile: String,
    input: Int32? = nil,
    output: Int32? = nil,
    directory: String? = nil,
    variables: [String: String] = [:]
  ) throws(StackError) {
    self.name = name
    var information = stat()
    logOffset = stat(logFile, &information) == 0 ? Int(information.st_size) : 0
    var actions = posix_spawn_file_actions_t()
    var attributes = posix_spawnattr_t()
    posix_spawn_file_actions_init(&actions)
    posix_spawnattr_init(&attributes)
    defer {
      posix_spawn_file_actions_destroy(&actions)
      posix_spawnattr_destroy(&attributes)
    }
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, logFile, O_WRONLY | O_CREAT | O_APPEND, 0o600)
    posix_spawn_file_actions_adddup2(&actions, output ?? STDERR_FILENO, STDOUT_FILENO)
    if let input {
      posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO)
    } else {
      posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0)
    }
    // Runs in the child, between fork and exec. Setting close-on-exec in this process instead would affect descriptors
    // that another thread is about to pass to its child. It would also miss descriptors opened a moment later.
    posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1)
    if let directory { posix_spawn_file_actions_addchdir_np(&actions, directory) }

    Self.separateSignals(&attributes)

    var vector: [UnsafeMutablePointer<CChar>?] = ([executable] + arguments).map { strdup($0) }
    vector.append(nil)
    defer { for item in vector { free(item) } }
    var environment = Self.environment(adding: variables).map { strdup($0) } + [nil]
    defer { for item in environment { free(item) } }
    // If SIGCHLD is ignored, as inherited from this process's parent, the exit status of children is lost.
    Glibc.signal(SIGCHLD, SIG_DFL)
    var processID: pid_t = 0
    let result = Self.spawning.withLock { _ in
      posix_spawn(&processID, executable, &actions, &attributes, vector, &environment)
    }
    guard result == 0 else { throw StackError("cannot start \(executable): \(String(cString: strerror(result)))") }
    self.processID = processID
    // waitid blocks, so it gets its own thread. The pools of Dispatch and Swift have only as many threads as cores. If
    // children held them all, a timer or a task would wait up to a second until the pool grows by one.
    Thread.detachNewThread { self.watch() }
  }

  /// Held while a child is started: until it runs its program it has all descriptors of this process. Whoever opens a
  /// listening socket that no child may have for a moment holds it too.
  static let spawning = Mutex(())

  /// Whether the process is still running.
  package var isRunning: Bool {
    state.withLock { if case .running = $0 { true } else { false } }
  }

  /// Send a signal; does nothing once the process has ended.
  package func signal(_ number: Int32) {
    state.withLock { state in
      if case .running = state { _ = Glibc.kill(processID, number) }
    }
  }

  /// Kill the process and its process group; does nothing once the process has ended.
  package func kill() {
    state.withLock { state in
      if case .running = state { _ = Glibc.kill(-processID, SIGKILL) }
    }
  }

  /// Wait for the process to end.
  @discardableResult
  package func waitForExit() async -> ExitStatus {
    await withCheckedContinuation { continuation in onExit { continuation.resume(returning: $0) } }
  }

  /// Wait for the process to end, blocking the calling thread, for callers that cannot suspend.
  package func waitForExitBlocking() -> ExitStatus {
    let ended = DispatchSemaphore(value: 0)
    let status = Mutex(ExitStatus.exited(code: 0))
    onExit { value in
      status.withLock { $0 = value }
      ended.signal()
    }
    ended.wait()
    return status.withLock { $0 }
  }

  private func onExit(_ body: @escaping @Sendable (ExitStatus) -> Void) {
    let status: ExitStatus? = state.withLock { state in
      switch state {
      case .running(let waiters):
        state = .running(waiters: waiters + [body])
        return nil
      case .ended(let status): return status
      }
    }
    if let status { body(status) }
  }

  /// Stop the process with SIGTERM, or with SIGKILL if it has not ended after `grace`.
  @discardableResult
  package func stop(grace: Duration = .seconds(10)) async -> ExitStatus {
    signal(SIGTERM)
    let killer = Task {
      try await Task.sleep(for: grace)
      signal(SIGKILL)
    }
    defer { killer.cancel() }
    return await waitForExit()
  }

  /// Give a child default signals and its own process group: this process may ignore or block signals, which the child
  /// would inherit.
  private static func separateSignals(_ attributes: inout posix_spawnattr_t) {
    var none = sigset_t()
    sigemptyset(&none)
    var defaults = sigset_t()
    sigemptyset(&defaults)
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD] { sigaddset(&defaults, signal) }
    posix_spawnattr_setsigmask(&attributes, &none)
    posix_spawnattr_setsigdefault(&attributes, &defaults)
    posix_spawnattr_setpgroup(&attributes, 0)
    let flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP
    posix_spawnattr_setflags(&attributes, Int16(truncatingIfNeeded: flags))
  }

  private static func environment(adding variables: [String: String]) -> [String] {
    var entries: [String] = []
    var next = environ
    while let entry = next.pointee {
      entries.append(String(cString: entry))
      next += 1
    }
    let own = entries.filter { entry in
      !entry.hasPrefix("TIDEMARK_") && !variables.keys.contains { entry.hasPrefix($0 + "=") }
    }
    return own + variables.map { "\($0)=\($1)" }
  }

  private func watch() {
    var information = siginfo_t()
    // WNOWAIT leaves the process unreaped, so its id stays reserved until the state says that it has ended.
    while waitid(P_PID, id_t(processID), &information, WEXITED | WNOWAIT) != 0 && errno == EINTR {}
    let (status, waiters) = state.withLock {
      state -> (ExitStatus, [@Sendable (ExitStatus) -> Void]) in
      var code: Int32 = 0
      while waitpid(processID, &code, 0) < 0 && errno == EINTR {}
      let signal = code & 0x7F
      let status: ExitStatus = signal == 0 ? .exited(code: (code >> 8) & 0xFF) : .signalled(signal)
      guard case .running(let waiters) = state else { preconditionFailure("a process ends once") }
      state = .ended(status)
      return (status, waiters)
    }
    for waiter in waiters { waiter(status) }
  }
}
