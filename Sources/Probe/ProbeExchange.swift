/// Where a probe writes what it sees: standard output, or a test's list of lines.
package typealias ProbeOutput = (String) -> Void

/// A connection with its transcript: every unit is printed as it goes over, readable and in hexadecimal.
package final class ProbeExchange {
  private let connection: ProbeConnection
  private let output: ProbeOutput
  /// How long the other end is waited for.
  package var timeout: Duration

  package init(_ connection: ProbeConnection, timeout: Duration, output: @escaping ProbeOutput) {
    self.connection = connection
    self.timeout = timeout
    self.output = output
  }

  package func send(_ bytes: [UInt8], in language: some ProbeLanguage) async throws {
    print("→", bytes, language)
    await connection.send(bytes)
  }

  /// The next unit that is not incidental.
  package func receive(in language: some ProbeLanguage & Sendable) async throws -> Received {
    while true {
      let received = try await connection.receive(timeout: timeout) { language.cut($0) }
      guard case .unit(let unit) = received else { return received }
      print("←", unit, language)
      if !language.isIncidental(unit) { return received }
    }
  }

  package func close() async { await connection.close() }

  private func print(_ arrow: String, _ bytes: [UInt8], _ language: some ProbeLanguage) {
    // Bytes that were written raw are shown as what they make, where they make one unit.
    let isUnit = language.cut(bytes) == .unit(bytes.count)
    output("\(arrow) \(isUnit ? language.text(bytes) : "\(bytes.count) raw bytes")")
    for start in stride(from: 0, to: bytes.count, by: 32) {
      let row = bytes[start..<min(start + 32, bytes.count)]
      output(
        "    "
          + stride(from: row.startIndex, to: row.endIndex, by: 4).map {
            Hex.text(row[$0..<min($0 + 4, row.endIndex)])
          }.joined(separator: " ")
      )
    }
  }
}
