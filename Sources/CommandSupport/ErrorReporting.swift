package import ArgumentParser
package import LocalStack
internal import Operations
internal import UnixSignals

/// Print an error as one line on standard error, and return the exit code to throw.
package func commandFailure(_ line: String, code: Int32 = 1) -> ExitCode {
  Terminal.printError(line)
  return ExitCode(code)
}

/// Run a command's body. Errors become a line for the person at the terminal and an exit code; an interrupt becomes the
/// exit code that shells use for it.
package func reportingErrors(_ command: String, _ body: () async throws -> Void) async throws {
  do {
    try await body()
  } catch let exit as ExitCode {
    throw exit
  } catch let interrupted as Interrupted {
    throw ExitCode(interrupted.signal == .sigint ? 130 : 143)
  } catch let error as SettingsError {
    throw commandFailure("\(command): \(error)", code: SettingsError.exitCode)
  } catch {
    throw commandFailure("\(command): \(error)")
  }
}

/// Run a command's work with a progress line, until it is done or interrupted.
package func withProgress<Value: Sendable>(
  _ body: @escaping @Sendable (@escaping ProgressHandler) async throws -> Value
) async throws -> Value {
  let progress = ProgressLine()
  return try await withInterrupts {
    defer { progress.clear() }
    return try await body(progress.show)
  }
}
