internal import Foundation

/// Script of an exchange, one step per line:
///
/// ```
/// # comment
/// protocol http2                               first line of a script for HTTP/2
/// case 6.1/1 DATA on stream 0                  new connection; a failed step skips to the next case
/// open                                         hello, challenge, proof, ready; HTTP/2: preface and SETTINGS
/// open initial_window_size=0                   HTTP/2: with these settings
/// send mark_read cid=messaging:a user=alice    a frame; shard, correlation and counter are filled in
/// send data stream=1 then ping                 several in one write
/// send-hex 00000007                            raw bytes
/// repeat 300 send ping                         many in one write
/// expect mark_read_reply user=alice flags=*    the next frame has this kind and these fields
/// expect error busy within 200ms               the next frame is this error and arrives in time
/// expect goaway code=PROTOCOL_ERROR or close   one of these
/// expect close                                 the peer closes the connection without another frame
/// alive                                        a ping is answered; streams and connection are open
/// wait 100ms
/// timeout 2s                                   timeout of the following expectations
/// close                                        close the connection
/// connect                                      new connection; `open` then resumes the session
/// new-session                                  the next `open` starts a new session
/// ```
struct ProbeScript: Sendable {
  /// Protocol of a script.
  enum WireProtocol: String, Sendable {
    case store, http2
  }

  enum Action: Equatable, Sendable {
    case open
    case openWith(String)
    case send(String)
    case sendMany(Int, String)
    case expect(String)
    case expectClose
    case alive
    case wait(Duration)
    case timeout(Duration)
    case close
    case connect
    case newSession
    case newCase
  }

  struct Step: Equatable, Sendable {
    /// Line number from 1.
    var line: Int
    /// Text in the script, without the values of variables.
    var text: String
    var action: Action
    /// Timeout of this step; nil: that of the script.
    var within: Duration?
  }

  /// Nil if the script has no `protocol` line.
  var wireProtocol: WireProtocol?
  var steps: [Step]

  /// Names of the cases.
  var cases: [String] {
    steps.filter { $0.action == .newCase }.map { String($0.text.dropFirst("case ".count)) }
  }

  /// - Throws: ``ProbeError`` with the number of an invalid line.
  init(_ text: String, variables: ProbeVariables = ProbeVariables()) throws {
    steps = []
    for (index, line) in text.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
      let words = String(line).trimmed
      if words.isEmpty || words.hasPrefix("#") { continue }
      do {
        if words.hasPrefix("protocol ") {
          guard steps.isEmpty, wireProtocol == nil else {
            throw ProbeError("'protocol' has to be the first step, once")
          }
          wireProtocol = WireProtocol(rawValue: String(words.dropFirst("protocol ".count)).trimmed)
          if wireProtocol == nil { throw ProbeError("protocols are: store, http2") }
          continue
        }
        let (action, within) = try Self.timed(try variables.expand(words))
        steps.append(Step(line: index + 1, text: words, action: try Self.action(action), within: within))
      } catch {
        throw ProbeError("line \(index + 1): \(error)")
      }
    }
  }

  /// Parse `… within TIME` at the end of an `expect`.
  private static func timed(_ line: String) throws -> (String, Duration?) {
    let words = line.split(separator: " ")
    guard words.count >= 4, words[0] == "expect", words[words.count - 2] == "within" else { return (line, nil) }
    let time = try Duration(probe: String(words[words.count - 1]))
    return (String(line[..<words[words.count - 2].startIndex]).trimmed, time)
  }

  private static func action(_ line: String) throws -> Action {
    let parts = line.split(separator: " ", maxSplits: 1).map(String.init)
    let rest = parts.count > 1 ? parts[1].trimmed : ""
    switch (parts[0], rest) {
    case ("open", ""): return .open
    case ("open", let fields) where fields.contains("="): return .openWith(fields)
    case ("close", ""): return .close
    case ("connect", ""): return .connect
    case ("new-session", ""): return .newSession
    case ("alive", ""): return .alive
    case ("case", let name) where !name.isEmpty: return .newCase
    case ("expect", "close"): return .expectClose
    case ("send", let frame) where !frame.isEmpty: return .send(frame)
    case ("send-hex", let hex) where !hex.isEmpty: return .send("hex:\(hex)")
    case ("repeat", let rest):
      let words = rest.split(separator: " ", maxSplits: 2).map(String.init)
      guard words.count == 3, let count = Int(words[0]), 1...100_000 ~= count, words[1] == "send" else {
        throw ProbeError("repeat COUNT send … is expected: '\(line)'")
      }
      return .sendMany(count, words[2].trimmed)
    case ("expect", let frame) where !frame.isEmpty: return .expect(frame)
    case ("wait", let time): return .wait(try Duration(probe: time))
    case ("timeout", let time): return .timeout(try Duration(probe: time))
    default:
      throw ProbeError(
        """
        '\(line)' is not a step; steps are: case, open, send, send-hex, repeat, expect, alive, wait, timeout, close, \
        connect, new-session
        """
      )
    }
  }

  /// Return the alternatives of an expectation: `A or B`.
  static func alternatives(_ line: String) -> [String] { parts(line, between: "or") }

  /// Return the frames of one write: `A then B`.
  static func sequence(_ line: String) -> [String] { parts(line, between: "then") }

  /// Return the texts that a word separates outside of quotes.
  private static func parts(_ line: String, between separator: String) -> [String] {
    var all: [String] = []
    var current: [Substring] = []
    var quote: Character?
    for word in line.split(separator: " ", omittingEmptySubsequences: false) {
      if quote == nil, word == separator {
        all.append(current.joined(separator: " "))
        current = []
        continue
      }
      current.append(word)
      var isEscaped = false
      for character in word {
        if isEscaped {
          isEscaped = false
        } else if character == "\\", quote == "\"" {
          isEscaped = true
        } else if character == quote {
          quote = nil
        } else if quote == nil, character == "\"" || character == "'" {
          quote = character
        }
      }
    }
    return (all + [current.joined(separator: " ")]).map(\.trimmed)
  }
}

extension Duration {
  /// `100ms`, `2s`, `1.5s`, `1m`.
  ///
  /// - Throws: ``ProbeError``.
  init(probe text: String) throws {
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

/// Values of `$NAME` in scripts and frames, such as tokens, which should not be in files.
///
/// ```
/// $TOKEN  ${TOKEN}     the variable's value
/// $NOW                 time at which the script was read, in milliseconds since 1970, unless given
/// ${x*17000}           a text repeated
/// $$                   a dollar sign, like one before any other character
/// ```
struct ProbeVariables: Sendable {
  /// Size limit of a repetition.
  static let byteCountMax = 1 << 21

  private var given: [String: String]
  private let environment: [String: String]

  /// - Parameter environment: values of variables that are not given.
  init(given: [String: String] = [:], environment: [String: String] = [:]) {
    self.given = given
    self.environment = environment
  }

  /// Parse `NAME=VALUE` settings.
  ///
  /// - Throws: ``ProbeError`` for another form.
  init(settings: [String], environment: [String: String]) throws {
    let now = Int64(Date.now.timeIntervalSince1970 * 1_000)
    self.init(given: ["NOW": String(now)], environment: environment)
    for setting in settings {
      guard let equals = setting.firstIndex(of: "="), equals > setting.startIndex,
        setting[..<equals].allSatisfy(Self.isOfName)
      else { throw ProbeError("--set: NAME=VALUE is expected: \(setting.prefix { $0 != "=" })") }
      given[String(setting[..<equals])] = String(setting[setting.index(after: equals)...])
    }
  }

  /// Replace variables by their values.
  ///
  /// - Throws: ``ProbeError`` for a variable without a value.
  func expand(_ text: String) throws -> String {
    guard text.contains("$") else { return text }
    var result = ""
    var rest = text[...]
    while let dollar = rest.firstIndex(of: "$") {
      result += rest[..<dollar]
      rest = rest[rest.index(after: dollar)...]
      if rest.first == "$" {
        result += "$"
        rest = rest.dropFirst()
      } else if rest.first == "{" {
        guard let end = rest.firstIndex(of: "}") else { throw ProbeError("'}' is missing behind '${'") }
        result += try braced(rest[rest.index(after: rest.startIndex)..<end])
        rest = rest[rest.index(after: end)...]
      } else if let first = rest.first, Self.isOfName(first), !first.isNumber {
        let name = rest.prefix(while: Self.isOfName)
        result += try value(String(name))
        rest = rest[name.endIndex...]
      } else {
        result += "$"
      }
    }
    return result + rest
  }

  private func braced(_ content: Substring) throws -> String {
    guard let star = content.lastIndex(of: "*") else { return try value(String(content)) }
    let text = content[..<star]
    guard let count = Int(content[content.index(after: star)...]), count >= 0,
      count <= Self.byteCountMax / max(text.utf8.count, 1)
    else { throw ProbeError("${\(content)}: TEXT*COUNT makes at most \(Self.byteCountMax) bytes") }
    return String(repeating: String(text), count: count)
  }

  private func value(_ name: String) throws -> String {
    guard let value = given[name] ?? environment[name] else {
      throw ProbeError("$\(name) has no value: give --set \(name)=…, or set it in the environment")
    }
    return value
  }

  private static func isOfName(_ character: Character) -> Bool {
    character.isASCII && (character.isLetter || character.isNumber || character == "_")
  }
}
