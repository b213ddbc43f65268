/// Runner of scripts.
package struct ProbeRunner {
  private let target: ProbeTarget
  private let timeout: Duration
  private let printer: ProbePrinter

  package init(
    target: ProbeTarget,
    timeout: Duration,
    showsHex: Bool = false,
    output: @escaping ProbeOutput
  ) {
    self.target = target
    self.timeout = timeout
    printer = ProbePrinter(showsHex: showsHex, output: output)
  }

  /// Run a script. A failed step ends its case, or the script if it has no cases.
  ///
  /// - Returns: whether every step succeeded.
  /// - Throws: ``ProbeError`` without a connection.
  package func run<Language: ProbeLanguage>(_ script: ProbeScript, in language: Language) async throws -> Bool
  {
    var language = language
    var exchange = try await connect(&language, timeout)
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
          exchange = try await connect(&language, timeout)
        }
        continue
      }
      if isSkipping { continue }
      var lines: [String]
      do { lines = try await play(step, &exchange, &language) } catch let error as ProbeError {
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
  private func play<Language: ProbeLanguage>(
    _ step: ProbeScript.Step,
    _ exchange: inout ProbeExchange<Language>,
    _ language: inout Language
  ) async throws -> [String] {
    switch step.action {
    case .open: try await language.open(exchange, "")
    case .openWith(let line): try await language.open(exchange, line)
    case .send(let line):
      try await exchange.send(line, written: Self.argument(step.text), in: &language)
    case .sendMany(let count, let line):
      let written = Self.argument(Self.argument(Self.argument(step.text)))
      try await exchange.send(line, times: count, written: written, in: &language)
    case .expect(let line):
      return try await exchange.differences(line, within: step.within, in: &language)
    case .expectClose:
      return try await exchange.differences("close", within: step.within, in: &language)
    case .alive:
      let (ping, pong) = language.aliveness()
      try await exchange.send(ping, in: &language)
      return try await exchange.differences(pong, within: step.within, in: &language)
    case .wait(let time): try await Task.sleep(for: time)
    case .timeout(let time): exchange.timeout = time
    case .close: await exchange.close()
    case .connect:
      let timeout = exchange.timeout
      await exchange.close()
      exchange = try await connect(&language, timeout)
    case .newSession: language.forget()
    case .newCase: break
    }
    return []
  }

  private func connect<Language: ProbeLanguage>(
    _ language: inout Language,
    _ timeout: Duration
  ) async throws -> ProbeExchange<Language> {
    let connection = try await ProbeConnection.connect(to: target, timeout: self.timeout)
    if let agreed = connection.agreed { printer.line("  \(agreed)") }
    language.connected()
    return ProbeExchange(connection, timeout: timeout, printer: printer)
  }

  /// Text behind the first word.
  private static func argument(_ text: String) -> String {
    String(text.drop { $0 != " " }.drop { $0 == " " })
  }
}
