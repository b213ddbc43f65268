import ArgumentParser
import LoadGenerator
import LocalStack
import Operations
import UnixSignals

/// Says what went wrong in one line on standard error, and leaves with a code.
func commandFailure(_ line: String, code: Int32 = 1) -> ExitCode {
  Terminal.printError(line)
  return ExitCode(code)
}

/// Runs a command's body. Errors that are meant for the person at the terminal become a line and an exit code; an
/// interrupt becomes the code that shells give it.
func reportingErrors(_ command: String, _ body: () async throws -> Void) async throws {
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
