/// A script of an exchange, a step a line:
///
/// ```
/// # comment
/// open                                         the opening: hello, challenge, proof, ready
/// send mark_read cid=messaging:a user=alice    a frame; shard, correlation and counter are filled in
/// send-hex 00000007                            raw bytes
/// expect mark_read_reply user=alice flags=*    the next frame is of this kind and has these fields
/// expect error busy                            the next frame is this error
/// expect close                                 the connection ends, with no frame before
/// wait 100ms
/// timeout 2s                                   how long each expect waits from here on
/// close                                        ends the connection from this side
/// connect                                      a new connection; `open` then goes on with the same session
/// new-session                                  the next `open` begins a new one
/// ```
package struct ProbeScript: Sendable {
  package enum Action: Equatable, Sendable {
    case open
    case send(String)
    case expect(String)
    case expectClose
    case wait(Duration)
    case timeout(Duration)
    case close
    case connect
    case newSession
  }

  package struct Step: Equatable, Sendable {
    /// From 1.
    package var line: Int
    /// As it stands in the script.
    package var text: String
    package var action: Action
  }

  package var steps: [Step]

  /// Throws ``ProbeError`` with the line that makes no sense.
  package init(_ text: String) throws {
    steps = []
    for (index, line) in text.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
      let words = String(line).trimmed
      if words.isEmpty || words.hasPrefix("#") { continue }
      do {
        steps.append(Step(line: index + 1, text: words, action: try Self.action(words)))
      } catch {
        throw ProbeError("line \(index + 1): \(error)")
      }
    }
  }

  private static func action(_ line: String) throws -> Action {
    let parts = line.split(separator: " ", maxSplits: 1).map(String.init)
    let rest = parts.count > 1 ? parts[1].trimmed : ""
    switch (parts[0], rest) {
    case ("open", ""): return .open
    case ("close", ""): return .close
    case ("connect", ""): return .connect
    case ("new-session", ""): return .newSession
    case ("expect", "close"): return .expectClose
    case ("send", let frame) where !frame.isEmpty: return .send(frame)
    case ("send-hex", let hex) where !hex.isEmpty: return .send("hex:\(hex)")
    case ("expect", let frame) where !frame.isEmpty: return .expect(frame)
    case ("wait", let time): return .wait(try Duration(probe: time))
    case ("timeout", let time): return .timeout(try Duration(probe: time))
    default:
      throw ProbeError(
        "'\(line)' is no step; steps are: open, send, send-hex, expect, wait, timeout, close, connect, new-session"
      )
    }
  }
}

extension Duration {
  /// `100ms`, `2s`, `1.5s`, `1m`.
  ///
  /// Throws ``ProbeError``.
  package init(probe text: String) throws {
    let units: [(String, Double)] = [("ms", 0.001), ("s", 1), ("m", 60)]
    for (unit, seconds) in units where text.hasSuffix(unit) {
      guard let value = Double(text.dropLast(unit.count)), value >= 0, value <= 86_400 else { break }
      self = .milliseconds(Int64(value * seconds * 1000))
      return
    }
    throw ProbeError("a time such as 100ms, 2s or 1m is expected: '\(text)'")
  }
}

extension String {
  fileprivate var trimmed: String {
    let blanks: (Character) -> Bool = { $0 == " " || $0 == "\t" || $0 == "\r" }
    var text = self[...]
    while let first = text.first, blanks(first) { text.removeFirst() }
    while let last = text.last, blanks(last) { text.removeLast() }
    return String(text)
  }
}
