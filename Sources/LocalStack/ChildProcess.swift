internal import Dispatch
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
/// its children in their order.
package final class ChildProcess: Sendable {
  /// running → ended.
  private enum State {
    case running(waiters: [CheckedContinuation<ExitStatus, Never>])
    case ended(ExitStatus)
  }

  /// A name for messages.
  package let name: String
  /// The process id.
  package let processID: Int32

  /// Where its output begins in the log file, which others may have written to before.
  package let logOffset: Int

  private let state = Mutex(State.running(waiters: []))

  /// Starts a program. Its output and errors are appended to a file, its input is empty.
  package init(name: String, executable: String, arguments: [String], logFile: String) throws(StackError) {
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
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0)
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, logFile, O_WRONLY | O_CREAT | O_APPEND, 0o600)
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO)

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
    var environment = Self.environment.map { strdup($0) } + [nil]
    defer { for item in environment { free(item) } }
    Self.closeDescriptorsInChildren()
    var processID: pid_t = 0
    let result = posix_spawn(&processID, executable, &actions, &attributes, vector, &environment)
    guard result == 0 else {
      throw StackError("cannot start \(executable): \(String(cString: strerror(result)))")
    }
    self.processID = processID
    // waitid blocks, so it may not be done on a thread of Swift's own pool.
    DispatchQueue.global().async { self.watch() }
  }

  /// Whether it has not ended yet.
  package var isRunning: Bool {
    state.withLock { if case .running = $0 { true } else { false } }
  }

  /// Sends a signal; does nothing once the process has ended.
  package func signal(_ number: Int32) {
    state.withLock { state in
      if case .running = state { kill(processID, number) }
    }
  }

  /// Waits for its end.
  @discardableResult
  package func waitForExit() async -> ExitStatus {
    await withCheckedContinuation { continuation in
      let status: ExitStatus? = state.withLock { state in
        switch state {
        case .running(let waiters):
          state = .running(waiters: waiters + [continuation])
          return nil
        case .ended(let status): return status
        }
      }
      if let status { continuation.resume(returning: status) }
    }
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

  /// What is set for this process is not meant for its children: they are told everything by flags.
  private static var environment: [String] {
    var entries: [String] = []
    var next = environ
    while let entry = next.pointee {
      entries.append(String(cString: entry))
      next += 1
    }
    return entries.filter { !$0.hasPrefix("TIDEMARK_") }
  }

  /// swift-nio leaves sockets open across exec: a store started anew would hold the demo's connections.
  private static func closeDescriptorsInChildren() {
    guard let directory = opendir("/proc/self/fd") else { return }
    defer { closedir(directory) }
    while let entry = readdir(directory) {
      let name = withUnsafePointer(to: &entry.pointee.d_name) { pointer in
        pointer.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      guard let descriptor = Int32(name), descriptor > STDERR_FILENO else { continue }
      let flags = fcntl(descriptor, F_GETFD)
      if flags >= 0 { _ = fcntl(descriptor, F_SETFD, flags | FD_CLOEXEC) }
    }
  }

  private func watch() {
    var information = siginfo_t()
    // WNOWAIT leaves the process unreaped, its id taken, until the state says that it has ended.
    while waitid(P_PID, id_t(processID), &information, WEXITED | WNOWAIT) != 0 && errno == EINTR {}
    let (status, waiters) = state.withLock {
      state -> (ExitStatus, [CheckedContinuation<ExitStatus, Never>]) in
      var code: Int32 = 0
      while waitpid(processID, &code, 0) < 0 && errno == EINTR {}
      let signal = code & 0x7F
      let status: ExitStatus = signal == 0 ? .exited(code: (code >> 8) & 0xFF) : .signalled(signal)
      guard case .running(let waiters) = state else { preconditionFailure("a process ends once") }
      state = .ended(status)
      return (status, waiters)
    }
    for waiter in waiters { waiter.resume(returning: status) }
  }
}
