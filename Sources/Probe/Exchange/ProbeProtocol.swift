/// Protocol of a connection: where a unit ends, how it is written as a line, how it is decoded. The protocols are store
/// frames (``StoreFrames``) and HTTP/2 frames (``HTTP2Frames``).
package protocol ProbeProtocol: SendableMetatype {
  /// Decoded frame. It is decoded in order, because a header block depends on the table of those before it.
  associatedtype Unit

  /// Find the end of the first unit.
  static func boundary(in bytes: [UInt8]) -> FrameBoundary
  /// Reset the state of the last connection.
  mutating func connected()
  /// Reset the state that outlives a connection.
  mutating func resetSession()
  /// Encode a line, `kind name=value …`. A protocol may fill in missing counters and correlations.
  ///
  /// - Throws: ``ProbeError``.
  mutating func encode(_ line: String) throws -> [UInt8]
  /// Decode a unit. Called once for each, in their order on the connection.
  mutating func read(_ bytes: [UInt8], _ direction: ProbeDirection) -> Unit
  /// Format a unit as a line.
  func text(_ unit: Unit) -> String
  /// Compare a unit with a line. Fields that the line does not name are not compared; `*` matches any value.
  ///
  /// - Returns: the differences, one line each.
  /// - Throws: ``ProbeError`` for an unknown name.
  func differences(_ line: String, from unit: Unit) throws -> [String]
  /// Return whether to compare a unit with a line. Other units are kept for later expectations.
  ///
  /// - Parameter line: nil if the end of the connection is expected.
  /// - Throws: ``ProbeError`` for an unknown name.
  func matches(_ unit: Unit, by line: String?) throws -> Bool
  /// Return the number of answers to a unit, 0 or 1.
  func answersAwaited(_ unit: Unit) -> Int
  /// Return whether a received unit is an answer.
  func isAnswer(_ unit: Unit) -> Bool
  /// Ping that every peer answers, and its answer.
  mutating func pingExchange() -> (send: String, expect: String)
  /// Open the connection.
  ///
  /// - Parameter line: fields that the script adds.
  /// - Throws: ``ProbeError`` for an unexpected answer.
  mutating func open(_ exchange: ProbeExchange<Self>, _ line: String) async throws
  /// Whether `probe send` pings after the answers: a peer may close the connection because of an unanswered unit.
  static var endsWithPing: Bool { get }
}

/// Direction of a unit.
package enum ProbeDirection: Sendable {
  case sent, received
}

extension ProbeProtocol {
  package mutating func connected() {}
  package mutating func resetSession() {}
}

/// Start of a stream of bytes.
package enum FrameBoundary: Equatable, Sendable {
  case incomplete
  /// Unit with its size in bytes.
  case unit(Int)
  /// Not a unit, with the reason.
  case broken(String)
}
