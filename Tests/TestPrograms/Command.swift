import Foundation
import LocalStack

/// Runs a foreign program to its end.
package enum Command {
  package struct Output: Sendable {
    /// The exit code; if a signal ended the program, the negative number of the signal.
    package var status: Int32
    package var out: String
    package var error: String
  }

  /// Run a program.
  ///
  /// - Parameters:
  ///   - program: a path, or a name to look up on the PATH.
  ///   - directory: the working directory; by default that of this process.
  ///   - environment: added to this process's own environment, without this project's variables, which only tests set.
  ///   - input: the program's standard input.
  ///   - limit: the program is ended after this time, and the output says so, so that a test cannot hang.
  package static func run(
    _ program: String,
    _ arguments: [String],
    directory: String? = nil,
    environment: [String: String] = [:],
    input: String = "",
    limit: Duration = .seconds(900)
  ) async throws -> Output {
    let run = try Run(program, arguments, directory, environment, input)
    defer { run.removeFiles() }
    let limiter = Task {
      try await Task.sleep(for: limit)
      run.process.kill()
      run.note("ended by the test: it had not ended by itself after \(limit)")
    }
    defer { limiter.cancel() }
    return run.output(await run.process.waitForExit())
  }

  /// The same for callers that cannot suspend: it blocks the calling thread.
  package static func runHere(
    _ program: String,
    _ arguments: [String],
    directory: String? = nil
  ) throws -> Output {
    let run = try Run(program, arguments, directory, [:], "")
    defer { run.removeFiles() }
    return run.output(run.process.waitForExitBlocking())
  }

  /// Output goes to files rather than pipes: files need no reader while the program runs, and cannot fill up.
  private struct Run: Sendable {
    let base = NSTemporaryDirectory() + "tidemark-command-\(UUID().uuidString)"
    let process: ChildProcess

    init(
      _ program: String,
      _ arguments: [String],
      _ directory: String?,
      _ environment: [String: String],
      _ input: String
    ) throws {
      for (end, content) in [(".in", input), (".out", ""), (".err", "")] {
        try Data(content.utf8).write(to: URL(fileURLWithPath: base + end))
      }
      let input = try FileHandle(forReadingFrom: URL(fileURLWithPath: base + ".in"))
      let output = try FileHandle(forWritingTo: URL(fileURLWithPath: base + ".out"))
      process = try ChildProcess(
        name: program,
        executable: try path(of: program),
        arguments: arguments,
        logFile: base + ".err",
        input: input.fileDescriptor,
        output: output.fileDescriptor,
        directory: directory,
        variables: environment
      )
      try input.close()
      try output.close()
    }

    func note(_ text: String) {
      guard let file = FileHandle(forWritingAtPath: base + ".err") else { return }
      _ = try? file.seekToEnd()
      try? file.write(contentsOf: Data("\n\(text)\n".utf8))
    }

    func output(_ status: ExitStatus) -> Output {
      func text(_ end: String) -> String {
        String(decoding: FileManager.default.contents(atPath: base + end) ?? Data(), as: UTF8.self)
      }
      let code: Int32 =
        switch status {
        case .exited(let code): code
        case .signalled(let number): -number
        }
      return Output(status: code, out: text(".out"), error: text(".err"))
    }

    func removeFiles() {
      for end in [".in", ".out", ".err"] { try? FileManager.default.removeItem(atPath: base + end) }
    }
  }

  static func path(of program: String) throws -> String {
    if program.hasPrefix("/") { return program }
    guard let path = Executables.find(program) else {
      throw StackError("\(program) is not on the PATH: `make test` installs what tests run")
    }
    return path
  }
}
