/// Plays a script against a listener.
package struct ProbeRunner {
  private let target: String
  private let timeout: Duration
  private let output: ProbeOutput

  package init(target: String, timeout: Duration, output: @escaping ProbeOutput) {
    self.target = target
    self.timeout = timeout
    self.output = output
  }

  /// True if every expectation held; the first that does not ends the script.
  ///
  /// Throws ``ProbeError`` where there is no connection, or a line names what there is not.
  package func run(_ script: ProbeScript, in language: StoreFrames) async throws -> Bool {
    var language = language
    var exchange = try await connect()
    for step in script.steps {
      do {
        switch step.action {
        case .open: try await language.open(exchange)
        case .send(let line): try await exchange.send(try language.encode(line), in: language)
        case .expect(let line):
          let lines = try await differences(line, exchange, language)
          if !lines.isEmpty { return await fail(step, lines, exchange) }
        case .expectClose:
          let received = try await exchange.receive(in: language)
          if received != .closed {
            return await fail(step, ["expected the end of the connection, \(what(received))"], exchange)
          }
        case .wait(let time): try await Task.sleep(for: time)
        case .timeout(let time): exchange.timeout = time
        case .close: await exchange.close()
        case .connect:
          let timeout = exchange.timeout
          await exchange.close()
          exchange = try await connect()
          exchange.timeout = timeout
        case .newSession:
          language.session = nil
          language.isResuming = false
        }
      } catch let error as ProbeError {
        return await fail(step, [error.description], exchange)
      }
    }
    await exchange.close()
    return true
  }

  private func connect() async throws -> ProbeExchange {
    ProbeExchange(
      try await ProbeConnection.connect(to: target, timeout: timeout),
      timeout: timeout,
      output: output
    )
  }

  private func differences(
    _ line: String,
    _ exchange: ProbeExchange,
    _ language: StoreFrames
  ) async throws -> [String] {
    let received = try await exchange.receive(in: language)
    guard case .unit(let unit) = received else { return ["expected \(line), \(what(received))"] }
    return try language.differences(line, from: unit)
  }

  private func what(_ received: Received) -> String {
    switch received {
    case .unit: "received a frame"
    case .closed: "the connection was closed"
    case .timedOut: "nothing came in time"
    case .broken(let reason): "what came is no frame: \(reason)"
    }
  }

  private func fail(_ step: ProbeScript.Step, _ lines: [String], _ exchange: ProbeExchange) async -> Bool {
    output("line \(step.line): \(step.text)")
    for line in lines { output("    " + line) }
    await exchange.close()
    return false
  }
}
