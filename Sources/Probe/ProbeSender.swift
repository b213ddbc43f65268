/// Sends frames and prints what comes back, for `probe send`.
package struct ProbeSender {
  private let target: String
  private let timeout: Duration
  private let output: ProbeOutput

  package init(target: String, timeout: Duration, output: @escaping ProbeOutput) {
    self.target = target
    self.timeout = timeout
    self.output = output
  }

  /// True if as many units came back as were to be answered.
  ///
  /// Throws ``ProbeError`` where there is no connection, the opening fails, or a frame makes no sense.
  package func send(_ frames: [String], opens: Bool, in language: StoreFrames) async throws -> Bool {
    var language = language
    let exchange = ProbeExchange(
      try await ProbeConnection.connect(to: target, timeout: timeout),
      timeout: timeout,
      output: output
    )
    if opens { try await language.open(exchange) }
    var missing = 0
    for frame in frames {
      let bytes = try language.encode(frame)
      if language.awaitsAnswer(bytes) { missing += 1 }
      try await exchange.send(bytes, in: language)
    }
    loop: while missing > 0 {
      switch try await exchange.receive(in: language) {
      case .unit: missing -= 1
      case .closed:
        output("the connection was closed")
        break loop
      case .timedOut:
        output("\(missing) answers are missing after \(timeout)")
        break loop
      case .broken(let reason):
        output("what came is no frame: \(reason)")
        break loop
      }
    }
    await exchange.close()
    return missing == 0
  }
}

/// The parts of the commands that need no terminal.
package enum ProbeDecoding {
  /// The frames in hexadecimal text, a line each. `isWhole`: nothing was left over.
  ///
  /// Throws ``ProbeError`` where the text is not hexadecimal.
  package static func lines(_ text: String) throws -> (text: [String], isWhole: Bool) {
    guard var bytes = Hex.bytes(text) else { throw ProbeError("hexadecimal digits are expected") }
    let language = StoreFrames()
    var lines: [String] = []
    while !bytes.isEmpty {
      switch language.cut(bytes) {
      case .unit(let count):
        lines.append(language.text(Array(bytes.prefix(count))))
        bytes.removeFirst(count)
      case .incomplete:
        return (lines + ["\(bytes.count) bytes of an incomplete frame: \(Hex.text(bytes))"], false)
      case .broken(let reason): return (lines + ["\(reason): \(Hex.text(bytes))"], false)
      }
    }
    return (lines, true)
  }

  /// The secret in a file: its first line.
  package static func secret(_ bytes: [UInt8]) -> [UInt8] {
    Array(bytes.prefix { $0 != UInt8(ascii: "\n") && $0 != UInt8(ascii: "\r") })
  }
}
