package import ArgumentParser
internal import Foundation

/// Command `tidemark probe`: frames of the store and of HTTP/2 by hand.
package struct ProbeCommand: AsyncParsableCommand {
  package static let configuration = CommandConfiguration(
    commandName: "probe",
    abstract: "Encodes, decodes, sends and expects store frames (Proto/frames.md) or HTTP/2 frames.",
    discussion: """
      A frame is written KIND name=value …, for example:
        mark_read cid=messaging:general user=alice message=m-1
        put_channel cid=messaging:general members=[{user=alice role=admin} {user=bob}]
      Names are those of Proto/frames.md. @flags, @shard, @correlation and @length are fields of the header; @thread \
      and @issued set their flag and follow the fields. hex:… is raw bytes.
      With --http2:
        request :method=POST :path=/v1/channels/messaging:general/read authorization="Bearer $TOKEN" end_stream=0
        data stream=last end_stream json='{"message_id":"m-1"}'
        settings initial_window_size=0 · ping @length=7 · rst_stream stream=1 code=CANCEL · 0x16 payload=00
      docs/contribute/probe.md describes the syntax.
      """,
    subcommands: [Encode.self, Decode.self, Send.self, Run.self]
  )

  package init() {}

  /// Command `tidemark probe encode`.
  struct Encode: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Prints a frame in hexadecimal.")

    @Flag(help: "Encode an HTTP/2 frame.")
    var http2 = false

    @Argument(parsing: .allUnrecognized, help: "KIND name=value …")
    var frame: [String]

    func run() throws {
      let line = frame.joined(separator: " ")
      let bytes = try orExit {
        if http2 {
          var wireProtocol = HTTP2Frames()
          return try wireProtocol.encode(line)
        }
        var wireProtocol = StoreFrames(fillsIn: false)
        return try wireProtocol.encode(line)
      }
      print(Hex.text(bytes))
    }
  }

  /// Command `tidemark probe decode`.
  struct Decode: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Prints the frames in a stream of bytes.")

    @Flag(help: "Decode HTTP/2 frames, sent by one end from the beginning of the connection.")
    var http2 = false

    @Argument(help: "Hexadecimal digits, or - for standard input.")
    var hex: String

    func run() throws {
      let text = hex == "-" ? String(decoding: FileHandle.standardInput.readDataToEndOfFile(), as: UTF8.self) : hex
      let lines = try orExit {
        guard http2 else { return try ProbeDecoding.lines(text) }
        var wireProtocol = HTTP2Frames()
        wireProtocol.masksCredentials = false
        return try ProbeDecoding.lines(text, in: wireProtocol)
      }
      for line in lines.text { print(line) }
      if !lines.isWhole { throw ExitCode(1) }
    }
  }

  /// Options that `send` and `run` share.
  struct Connection: ParsableArguments {
    @Option(name: .customLong("secret-file"), help: "File with the secret shared with the store.")
    var secretFile: String?

    @Option(help: "The session to open, 32 hexadecimal digits. Default: a new one.")
    var session: String?

    @Option(help: "Timeout of an answer: 100ms, 2s, 1m.")
    var timeout = "5s"

    @Flag(help: "Use HTTP/2 with prior knowledge, to a gateway.")
    var http2 = false

    @Flag(help: "Use TLS, and verify the certificate with the system's authorities.")
    var tls = false

    @Option(
      name: [.customLong("ca"), .customLong("tls-ca")],
      help: ArgumentHelp("Use TLS, and verify the certificate with this PEM file.", valueName: "file")
    )
    var ca: String?

    @Option(help: ArgumentHelp("Client certificate, which a store with TLS requires.", valueName: "file"))
    var tlsCert: String?

    @Option(help: ArgumentHelp("Private key of --tls-cert.", valueName: "file"))
    var tlsKey: String?

    @Flag(help: "Use TLS without verifying the certificate.")
    var insecure = false

    @Option(name: .customLong("server-name"), help: "The name in the certificate. Default: HOST.")
    var serverName: String?

    @Option(
      name: .customLong("set"),
      help: "NAME=VALUE for $NAME in frames and scripts. Default: the environment's value."
    )
    var settings: [String] = []

    @Flag(help: "Print frames in hexadecimal too, including credentials.")
    var hex = false

    func validate() throws {
      if ca != nil && insecure { throw ValidationError("give either --ca or --insecure") }
      if serverName != nil && !usesTLS { throw ValidationError("--server-name is for TLS") }
      guard (tlsCert == nil) == (tlsKey == nil) else { throw ValidationError("--tls-cert and --tls-key go together") }
      if tlsCert != nil && !usesTLS { throw ValidationError("--tls-cert is for TLS: give --tls-ca") }
    }

    var usesTLS: Bool { tls || ca != nil || insecure }

    func target(_ address: String, speaksHTTP2: Bool) throws -> ProbeTarget {
      guard usesTLS else { return try ProbeTarget(address) }
      var tls = ProbeTarget.TLS(authorityFile: ca, isInsecure: insecure, serverName: serverName)
      tls.isForFrames = !speaksHTTP2
      if let tlsCert, let tlsKey { tls.identity = (tlsCert, tlsKey) }
      return try ProbeTarget(address, tls: tls)
    }

    func variables() throws -> ProbeVariables {
      try ProbeVariables(settings: settings, environment: ProcessInfo.processInfo.environment)
    }

    func http2(_ address: String) -> HTTP2Frames {
      HTTP2Frames(scheme: usesTLS ? "https" : "http", authority: address)
    }

    func wireProtocol() throws -> StoreFrames {
      var wireProtocol = StoreFrames()
      if let session {
        guard let bytes = Hex.bytes(session), bytes.count == 16 else {
          throw ValidationError("--session: 32 hexadecimal digits are expected")
        }
        wireProtocol.session = bytes
        wireProtocol.isResuming = true
      }
      if let secretFile {
        guard let data = FileManager.default.contents(atPath: secretFile) else {
          throw ValidationError("--secret-file: \(secretFile) cannot be read")
        }
        wireProtocol.secret = ProbeDecoding.secret(Array(data))
      }
      return wireProtocol
    }
  }

  /// Command `tidemark probe send`.
  struct Send: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Sends frames to a store or a gateway and prints the answers.",
      discussion: "Exits with 1 after a timeout, or if the connection ends before all answers."
    )

    @Argument(help: "HOST:PORT of the store, or, with --http2, of a gateway.")
    var target: String

    @OptionGroup var connection: Connection

    @Flag(name: .customLong("no-handshake"), help: "Send the frames at once, without the handshake.")
    var noHandshake = false

    @Argument(help: "Frames, each one argument: 'KIND name=value …' or hex:….")
    var frames: [String]

    func run() async throws {
      let isAnswered = try await orExit {
        let variables = try connection.variables()
        let runner = ProbeRunner(
          target: try connection.target(target, speaksHTTP2: connection.http2),
          timeout: try Duration(probe: connection.timeout),
          showsHex: connection.hex
        ) { show($0) }
        let lines = try frames.map { try variables.expand($0) }
        guard connection.http2 else {
          return try await runner.send(lines, opens: !noHandshake, in: try connection.wireProtocol())
        }
        return try await runner.send(lines, opens: !noHandshake, in: connection.http2(target))
      }
      if !isAnswered { throw ExitCode(1) }
    }
  }

  /// Command `tidemark probe run`.
  struct Run: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Runs a script against a store or a gateway; exits with 0 only if all steps succeed.",
      discussion: """
        Steps: case, open, send, send-hex, repeat, expect, expect close, alive, wait, timeout, close, connect, \
        new-session.
        Begin a script for a gateway with 'protocol http2', or run it with --http2.
        """
    )

    @Argument(help: "HOST:PORT of the store or gateway.")
    var target: String

    @Argument(help: "The script's file, or - for standard input.")
    var script: String

    @OptionGroup var connection: Connection

    func run() async throws {
      let data =
        script == "-" ? FileHandle.standardInput.readDataToEndOfFile() : FileManager.default.contents(atPath: script)
      guard let data else { throw ValidationError("\(script) cannot be read") }
      let wireProtocol = try connection.wireProtocol()
      let holds = try await orExit {
        let steps = try ProbeScript(String(decoding: data, as: UTF8.self), variables: connection.variables())
        if connection.http2, steps.wireProtocol == .store {
          throw ProbeError("\(script) is for a store: remove --http2")
        }
        let speaksHTTP2 = connection.http2 || steps.wireProtocol == .http2
        let runner = ProbeRunner(
          target: try connection.target(target, speaksHTTP2: speaksHTTP2),
          timeout: try Duration(probe: connection.timeout),
          showsHex: connection.hex
        ) { show($0) }
        guard speaksHTTP2 else { return try await runner.run(steps, in: wireProtocol) }
        return try await runner.run(steps, in: connection.http2(target))
      }
      if !holds { throw ExitCode(1) }
    }
  }
}

/// Print a line without buffering, so that a pipe shows the last line before a hang.
private func show(_ line: String) { FileHandle.standardOutput.write(Data((line + "\n").utf8)) }

/// Turn a ``ProbeError`` into a line on standard error, without the usage text, and an exit code.
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

/// Error in a line, in bytes or on a connection, for the terminal.
struct ProbeError: Error, Hashable, CustomStringConvertible {
  var description: String

  init(_ description: String) { self.description = description }
}

/// Decoding for the commands, without a terminal.
enum ProbeDecoding {
  /// Decode frames in hexadecimal text, one line each.
  ///
  /// - Returns: lines, and whether the text ends with a whole frame.
  /// - Throws: ``ProbeError`` for text that is not hexadecimal.
  static func lines<WireProtocol: ProbeProtocol>(_ text: String, in wireProtocol: WireProtocol) throws
    -> (text: [String], isWhole: Bool)
  {
    guard var bytes = Hex.bytes(text) else { throw ProbeError("hexadecimal digits are expected") }
    var wireProtocol = wireProtocol
    var lines: [String] = []
    while !bytes.isEmpty {
      switch WireProtocol.boundary(in: bytes) {
      case .unit(let count):
        lines.append(wireProtocol.text(wireProtocol.read(Array(bytes.prefix(count)), .received)))
        bytes.removeFirst(count)
      case .incomplete: return (lines + ["\(bytes.count) bytes of an incomplete frame: \(Hex.text(bytes))"], false)
      case .broken(let reason): return (lines + ["\(reason): \(Hex.text(bytes))"], false)
      }
    }
    return (lines, true)
  }

  /// Decode frames of the store.
  static func lines(_ text: String) throws -> (text: [String], isWhole: Bool) {
    try lines(text, in: StoreFrames())
  }

  /// Return the secret in a file: its first line.
  static func secret(_ bytes: [UInt8]) -> [UInt8] {
    Array(bytes.prefix { $0 != UInt8(ascii: "\n") && $0 != UInt8(ascii: "\r") })
  }
}
