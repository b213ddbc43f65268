internal import CSpawn
internal import Dispatch
internal import Foundation
internal import Glibc
internal import Synchronization

/// How a process ended.
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

/// A program that this process started: told apart by its process id, watched until it ends, and signalled only while
/// it has not been reaped, so that a signal can never reach another process that got the same id.
///
/// It is in a process group of its own: an interrupt typed at the terminal reaches this process only, which then ends
/// its children in their order. It inherits the descriptors it is given, and no others: a socket or a pipe that another
/// part of this process opened meanwhile would otherwise stay open until this child ends.
package final class ChildProcess: Sendable {
  /// running → ended.
  private enum State {
    case running(waiters: [@Sendable (ExitStatus) -> Void])
    case ended(ExitStatus)
  }

  /// A name for messages.
  package let name: String
  /// The process id.
  package let processID: Int32

  /// Where its output begins in the log file, which others may have written to before.
  package let logOffset: Int

  private let state = Mutex(State.running(waiters: []))

  /// Starts a program.
  ///
  /// - Parameters:
  ///   - name: for messages.
  ///   - executable: its path.
  ///   - arguments: without the program's own name.
  ///   - logFile: what its errors are appended to, and its output.
  ///   - input: what it reads; without it, it finds its input empty.
  ///   - output: what its output goes to instead of the log file.
  ///   - directory: where it runs; without it, where this process does.
  ///   - variables: added to the environment. What is set for this process as `TIDEMARK_…` is not meant for its
  ///     children, which are told everything by flags.
  /// - Throws: that it cannot be started, and why.
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
    // In the child, between fork and exec. To mark descriptors of this process as not to be inherited would change
    // them under whoever is about to hand one to a child of its own, and would miss those opened a moment later.
    posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1)
    if let directory { posix_spawn_file_actions_addchdir_np(&actions, directory) }

    // This process may ignore or block signals, which a child would inherit.
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

    var vector: [UnsafeMutablePointer<CChar>?] = ([executable] + arguments).map { strdup($0) }
    vector.append(nil)
    defer { for item in vector { free(item) } }
    var environment = Self.environment(adding: variables).map { strdup($0) } + [nil]
    defer { for item in environment { free(item) } }
    // Where whoever started this process has it ignored, nobody could be told how a child has ended.
    Glibc.signal(SIGCHLD, SIG_DFL)
    var processID: pid_t = 0
    let result = posix_spawn(&processID, executable, &actions, &attributes, vector, &environment)
    guard result == 0 else {
      throw StackError("cannot start \(executable): \(String(cString: strerror(result)))")
    }
    self.processID = processID
    // waitid blocks, so it has a thread of its own: those of Dispatch's and Swift's pool are as many as there are
    // cores, and where children hold them all, a timer or a task waits for a second until the pool grows by one.
    Thread.detachNewThread { self.watch() }
  }

  /// Whether it has not ended yet.
  package var isRunning: Bool {
    state.withLock { if case .running = $0 { true } else { false } }
  }

  /// Sends a signal; does nothing once the process has ended.
  package func signal(_ number: Int32) {
    state.withLock { state in
      if case .running = state { _ = Glibc.kill(processID, number) }
    }
  }

  /// Ends it and what it has started, if that is in its group still; does nothing once the process has ended.
  package func kill() {
    state.withLock { state in
      if case .running = state { _ = Glibc.kill(-processID, SIGKILL) }
    }
  }

  /// Waits for its end.
  @discardableResult
  package func waitForExit() async -> ExitStatus {
    await withCheckedContinuation { continuation in whenEnded { continuation.resume(returning: $0) } }
  }

  /// Waits for its end where nobody can be suspended: the calling thread stands still meanwhile.
  package func waitForExitHere() -> ExitStatus {
    let ended = DispatchSemaphore(value: 0)
    let status = Mutex(ExitStatus.exited(code: 0))
    whenEnded { value in
      status.withLock { $0 = value }
      ended.signal()
    }
    ended.wait()
    return status.withLock { $0 }
  }

  private func whenEnded(_ body: @escaping @Sendable (ExitStatus) -> Void) {
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

  /// Asks it to end with SIGTERM, and ends it with SIGKILL if it has not after `grace`.
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
    // WNOWAIT leaves the process unreaped, its id taken, until the state says that it has ended.
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
