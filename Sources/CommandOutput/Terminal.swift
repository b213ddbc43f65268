internal import Foundation
internal import Glibc
internal import Operations
internal import Synchronization
package import UnixSignals

/// Properties of the standard streams.
package enum Terminal {
  /// Whether standard output is a terminal.
  package static var outputIsTerminal: Bool { isatty(STDOUT_FILENO) == 1 }
  /// Whether standard error is a terminal.
  package static var errorIsTerminal: Bool { isatty(STDERR_FILENO) == 1 }

  /// Whether to use colour on standard output: on a terminal, unless NO_COLOR is set (no-color.org) or the terminal is
  /// dumb. FORCE_COLOR enables it elsewhere too.
  package static var usesColor: Bool {
    usesColor(isTerminal: outputIsTerminal, environment: ProcessInfo.processInfo.environment)
  }

  package static func usesColor(isTerminal: Bool, environment: [String: String]) -> Bool {
    func isSet(_ name: String) -> Bool { environment[name].map { !$0.isEmpty } ?? false }
    if isSet("NO_COLOR") { return false }
    if isSet("FORCE_COLOR") { return environment["FORCE_COLOR"] != "0" }
    return isTerminal && environment["TERM"] != "dumb"
  }

  /// Print to standard output at once, even if that is a pipe.
  package static func print(_ text: String) { write(text + "\n", to: STDOUT_FILENO) }

  /// Print to standard error.
  package static func printError(_ text: String) { write(text + "\n", to: STDERR_FILENO) }

  fileprivate static func write(_ text: String, to descriptor: Int32) {
    ProcessRunner.write(whole: text, to: descriptor)
  }
}

/// Receiver of texts that describe the progress of a command, such as ``ProgressLine/show(_:)``.
package typealias ProgressHandler = @Sendable (String) -> Void

/// Progress line on standard error. On a terminal it overwrites itself. Elsewhere, where each line stays, it is printed
/// at most every ten seconds.
package final class ProgressLine: Sendable {
  private struct State {
    var isShown = false
    var lastLineAt: ContinuousClock.Instant?
  }

  private let isTerminal = Terminal.errorIsTerminal
  private let state = Mutex(State())

  package init() {}

  /// Show a line in place of the last one.
  package func show(_ text: String) {
    state.withLock { state in
      if isTerminal {
        Terminal.write("\r\u{1B}[K" + text, to: STDERR_FILENO)
        state.isShown = true
      } else {
        let now = ContinuousClock.now
        if let last = state.lastLineAt, now - last < .seconds(10) { return }
        state.lastLineAt = now
        Terminal.write(text + "\n", to: STDERR_FILENO)
      }
    }
  }

  /// Remove the line.
  package func clear() {
    state.withLock { state in
      if state.isShown { Terminal.write("\r\u{1B}[K", to: STDERR_FILENO) }
      state.isShown = false
    }
  }
}

/// Error thrown when SIGINT or SIGTERM stopped this process's work.
package struct Interrupted: Error {
  /// The signal received.
  package let signal: UnixSignal
}

/// Run `body`, and cancel it on SIGINT or SIGTERM. The error is thrown only after `body` has returned, so that `body`
/// can clean up.
package func withInterrupts<Value: Sendable>(
  _ body: @escaping @Sendable () async throws -> Value
) async throws -> Value {
  let signals = await UnixSignalsSequence(trapping: .sigint, .sigterm)
  return try await withThrowingTaskGroup(of: Outcome<Value>.self) { group in
    group.addTask { .finished(try await body()) }
    group.addTask {
      for await signal in signals { return .interrupted(signal) }
      return .noSignal
    }
    var interrupted: UnixSignal?
    while true {
      do {
        switch try await group.next() {
        case .finished(let value):
          group.cancelAll()
          if let interrupted { throw Interrupted(signal: interrupted) }
          return value
        case .interrupted(let signal):
          interrupted = signal
          group.cancelAll()
        case .noSignal: continue
        case nil: throw CancellationError()
        }
      } catch {
        group.cancelAll()
        if let interrupted { throw Interrupted(signal: interrupted) }
        throw error
      }
    }
  }
}

private enum Outcome<Value: Sendable>: Sendable {
  case finished(Value)
  case interrupted(UnixSignal)
  case noSignal
}

/// Run `body`, then `cleanUp`, whether `body` returns or throws.
package func withCleanup<Outcome>(
  _ body: () async throws -> Outcome,
  cleanUp: () async -> Void
) async throws -> Outcome {
  do {
    let outcome = try await body()
    await cleanUp()
    return outcome
  } catch {
    await cleanUp()
    throw error
  }
}

extension String {
  /// The text with control characters replaced: notes and ids are written by others, and must not control the terminal.
  package var printable: String {
    String(
      String.UnicodeScalarView(
        unicodeScalars.map { scalar in
          switch scalar.properties.generalCategory {
          case .control, .format, .lineSeparator, .paragraphSeparator: "\u{FFFD}"
          default: scalar
          }
        }
      )
    )
  }
}
