package import ArgumentParser
internal import Foundation

/// `tidemark probe`: speaks the frame protocol by hand.
package struct ProbeCommand: AsyncParsableCommand {
  package static let configuration = CommandConfiguration(
    commandName: "probe",
    abstract: "Encodes, decodes, sends and expects frames of the store's protocol (Proto/frames.md).",
    discussion: """
      A frame is written KIND name=value …, for example:
        mark_read cid=messaging:general user=alice message=m-1
        put_channel cid=messaging:general members=[{user=alice role=admin} {user=bob}]
      Names are those of Proto/frames.md. @flags, @shard, @correlation and @length are the header's. hex:… is raw bytes.
      """,
    subcommands: [Encode.self, Decode.self, Send.self, Run.self]
  )

  package init() {}

  /// A frame as hexadecimal.
  package struct Encode: ParsableCommand {
    package static let configuration = CommandConfiguration(abstract: "Prints a frame in hexadecimal.")

    @Argument(parsing: .allUnrecognized, help: "KIND name=value …")
    var frame: [String]

    package init() {}

    package func run() throws {
      var language = StoreFrames(fillsIn: false)
      print(Hex.text(try orExit { try language.encode(frame.joined(separator: " ")) }))
    }
  }

  /// Hexadecimal as frames.
  package struct Decode: ParsableCommand {
    package static let configuration = CommandConfiguration(
      abstract: "Prints the frames in a stream of bytes."
    )

    @Argument(help: "Hexadecimal digits, or - for standard input.")
    var hex: String

    package init() {}

    package func run() throws {
      let text =
        hex == "-" ? String(decoding: FileHandle.standardInput.readDataToEndOfFile(), as: UTF8.self) : hex
      let lines = try orExit { try ProbeDecoding.lines(text) }
      for line in lines.text { print(line) }
      if !lines.isWhole { throw ExitCode(1) }
    }
  }

  /// What `send` and `run` share.
  struct Connection: ParsableArguments {
    @Option(name: .customLong("secret-file"), help: "The file that holds the secret shared with the store.")
    var secretFile: String?

    @Option(help: "The session to open, 32 hexadecimal digits. Default: a new one.")
    var session: String?

    @Option(help: "How long an answer is waited for: 100ms, 2s, 1m.")
    var timeout = "5s"

    func language() throws -> StoreFrames {
      var language = StoreFrames()
      if let session {
        guard let bytes = Hex.bytes(session), bytes.count == 16 else {
          throw ValidationError("--session: 32 hexadecimal digits are expected")
        }
        language.session = bytes
        language.isResuming = true
      }
      if let secretFile {
        guard let data = FileManager.default.contents(atPath: secretFile) else {
          throw ValidationError("--secret-file: \(secretFile) cannot be read")
        }
        language.secret = ProbeDecoding.secret(Array(data))
      }
      return language
    }
  }

  /// Frames to a store, and its answers.
  package struct Send: AsyncParsableCommand {
    package static let configuration = CommandConfiguration(
      abstract: "Sends frames to a store and prints what comes back.",
      discussion: "Ends with 1 if an answer is missing when the time is over."
    )

    @Argument(help: "HOST:PORT of the store.")
    var target: String

    @OptionGroup var connection: Connection

    @Flag(name: .customLong("no-handshake"), help: "Send the frames at once, without the opening.")
    var noHandshake = false

    @Argument(help: "Frames, each one argument: 'KIND name=value …' or hex:….")
    var frames: [String]

    package init() {}

    package func run() async throws {
      let timeout = try orExit { try Duration(probe: connection.timeout) }
      let language = try connection.language()
      let isAnswered = try await orExit {
        try await ProbeSender(target: target, timeout: timeout) { print($0) }
          .send(frames, opens: !noHandshake, in: language)
      }
      if !isAnswered { throw ExitCode(1) }
    }
  }

  /// A script of an exchange.
  package struct Run: AsyncParsableCommand {
    package static let configuration = CommandConfiguration(
      abstract: "Plays a script against a store; ends with 0 only if all its expectations held.",
      discussion:
        "Steps: open, send, send-hex, expect, expect close, wait, timeout, close, connect, new-session."
    )

    @Argument(help: "HOST:PORT of the store.")
    var target: String

    @Argument(help: "The script's file, or - for standard input.")
    var script: String

    @OptionGroup var connection: Connection

    package init() {}

    package func run() async throws {
      let data =
        script == "-"
        ? FileHandle.standardInput.readDataToEndOfFile() : FileManager.default.contents(atPath: script)
      guard let data else { throw ValidationError("\(script) cannot be read") }
      let steps = try orExit { try ProbeScript(String(decoding: data, as: UTF8.self)) }
      let timeout = try orExit { try Duration(probe: connection.timeout) }
      let language = try connection.language()
      let holds = try await orExit {
        try await ProbeRunner(target: target, timeout: timeout) { print($0) }.run(steps, in: language)
      }
      if !holds { throw ExitCode(1) }
    }
  }
}

/// A ``ProbeError`` is what the person at the terminal asked wrongly, or what is not there: said without a
/// usage text.
private func orExit<T>(_ body: () throws -> T) throws -> T {
  do { return try body() } catch let error as ProbeError { throw failure(error) }
}

private func orExit<T>(_ body: () async throws -> T) async throws -> T {
  do { return try await body() } catch let error as ProbeError { throw failure(error) }
}

private func failure(_ error: ProbeError) -> ExitCode {
  FileHandle.standardError.write(Data("probe: \(error)\n".utf8))
  return ExitCode(1)
}
