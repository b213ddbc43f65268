/// Decoding for the commands, without a terminal.
package enum ProbeDecoding {
  /// Decode frames in hexadecimal text, one line each.
  ///
  /// - Returns: lines, and whether the text ends with a whole frame.
  /// - Throws: ``ProbeError`` for text that is not hexadecimal.
  package static func lines<WireProtocol: ProbeProtocol>(_ text: String, in wireProtocol: WireProtocol) throws
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
      case .incomplete:
        return (lines + ["\(bytes.count) bytes of an incomplete frame: \(Hex.text(bytes))"], false)
      case .broken(let reason): return (lines + ["\(reason): \(Hex.text(bytes))"], false)
      }
    }
    return (lines, true)
  }

  /// Decode frames of the store.
  package static func lines(_ text: String) throws -> (text: [String], isWhole: Bool) {
    try lines(text, in: StoreFrames())
  }

  /// Return the secret in a file: its first line.
  package static func secret(_ bytes: [UInt8]) -> [UInt8] {
    Array(bytes.prefix { $0 != UInt8(ascii: "\n") && $0 != UInt8(ascii: "\r") })
  }
}
