/// Runner of scripts, and of single frames for `probe send`, against one peer.
struct ProbeRunner {
  private let target: ProbeTarget
  let timeout: Duration
  let printer: ProbePrinter

  init(target: ProbeTarget, timeout: Duration, showsHex: Bool = false, output: @escaping ProbeOutput) {
    self.target = target
    self.timeout = timeout
    printer = ProbePrinter(showsHex: showsHex, output: output)
  }

  /// Run a script. A failed step ends its case, or the script if it has no cases.
  ///
  /// - Returns: whether every step succeeded.
  /// - Throws: ``ProbeError`` without a connection.
  func run<WireProtocol: ProbeProtocol>(_ script: ProbeScript, in wireProtocol: WireProtocol) async throws -> Bool {
    var exchange = try await connect(wireProtocol, timeout)
    var failed: [String] = []
    var current: ProbeScript.Step?
    var isSkipping = false
    for step in script.steps {
      if step.action == .newCase {
        current = step
        isSkipping = false
        printer.line("")
        printer.line("# \(step.text)")
        if !exchange.isFresh || exchange.timeout != timeout {
          await exchange.close()
          exchange = try await connect(exchange.wireProtocol, timeout)
        }
        continue
      }
      if isSkipping { continue }
      var lines: [String]
      do { lines = try await play(step, &exchange) } catch let error as ProbeError {
        lines = [error.description]
      }
      if lines.isEmpty { continue }
      // The line of the case may be far above.
      let place = current.map { " (\($0.text))" } ?? ""
      printer.line("line \(step.line): \(step.text)\(place)")
      for line in lines { printer.line("    " + line) }
      failed.append(current?.text ?? "line \(step.line)")
      guard current != nil else { break }
      isSkipping = true
    }
    await exchange.close()
    let count = script.cases.count
    if count > 0 {
      printer.line("")
      printer.line("\(count - failed.count) of \(count) cases held")
      for name in failed { printer.line("    failed: \(name)") }
    }
    return failed.isEmpty
  }

  /// Run a step and return its failures.
  private func play<WireProtocol: ProbeProtocol>(
    _ step: ProbeScript.Step,
    _ exchange: inout ProbeExchange<WireProtocol>
  ) async throws -> [String] {
    switch step.action {
    case .open: try await WireProtocol.open(exchange, "")
    case .openWith(let line): try await WireProtocol.open(exchange, line)
    case .send(let line): try await exchange.send(line, written: Self.argument(step.text))
    case .sendMany(let count, let line):
      let written = Self.argument(Self.argument(Self.argument(step.text)))
      try await exchange.send(line, times: count, written: written)
    case .expect(let line): return try await exchange.differences(line, within: step.within)
    case .expectClose: return try await exchange.differences("close", within: step.within)
    case .alive: return try await exchange.ping(within: step.within)
    case .wait(let time): try await Task.sleep(for: time)
    case .timeout(let time): exchange.timeout = time
    case .close: await exchange.close()
    case .connect:
      let timeout = exchange.timeout
      await exchange.close()
      exchange = try await connect(exchange.wireProtocol, timeout)
    case .newSession: exchange.wireProtocol.resetSession()
    case .newCase: break
    }
    return []
  }

  private func connect<WireProtocol: ProbeProtocol>(_ wireProtocol: WireProtocol, _ timeout: Duration) async throws
    -> ProbeExchange<WireProtocol>
  {
    let connection = try await ProbeConnection.connect(to: target, timeout: self.timeout)
    if let agreed = connection.agreed { printer.line("  \(agreed)") }
    var wireProtocol = wireProtocol
    wireProtocol.connected()
    return ProbeExchange(connection, wireProtocol, timeout: timeout, printer: printer)
  }

  /// Return the text behind the first word.
  private static func argument(_ text: String) -> String {
    String(text.drop { $0 != " " }.drop { $0 == " " })
  }
}

extension ProbeRunner {
  /// Send frames and wait for their answers, and for the answer to a ping if the protocol requires one.
  ///
  /// - Returns: whether all answers came.
  /// - Throws: ``ProbeError`` without a connection, after a failed handshake, or for an invalid frame.
  func send<WireProtocol: ProbeProtocol>(
    _ frames: [String],
    opens: Bool,
    in wireProtocol: WireProtocol
  ) async throws -> Bool {
    let exchange = try await connect(wireProtocol, timeout)
    if opens { try await WireProtocol.open(exchange, "") }
    var missing = 0
    for frame in frames {
      let units = try await exchange.send(frame)
      // Bytes that are not a frame get an answer too.
      missing += units.isEmpty ? 1 : units.reduce(0) { $0 + exchange.wireProtocol.answersAwaited($1) }
    }
    var isWell = try await receive(missing, exchange)
    if isWell, WireProtocol.endsWithPing {
      let differences = try await exchange.ping()
      for line in differences { printer.line("    " + line) }
      isWell = differences.isEmpty
    }
    await exchange.close()
    return isWell
  }

  private func receive<WireProtocol: ProbeProtocol>(
    _ count: Int,
    _ exchange: ProbeExchange<WireProtocol>
  ) async throws -> Bool {
    var missing = count
    while missing > 0 {
      switch try await exchange.receive(where: { $0.isAnswer($1) }) {
      case .unit: missing -= 1
      case .closed:
        printer.line("the connection was closed")
        return false
      case .timedOut:
        printer.line("\(missing) answers are missing after \(timeout)")
        return false
      case .broken(let reason):
        printer.line("received bytes that are not a frame: \(reason)")
        return false
      }
    }
    return true
  }
}
