/// What two ends say to each other on a connection, as far as a probe has to know it: where a unit ends, how
/// it is written in a line, how it is read. Store frames are one such language (``StoreFrames``), HTTP/2
/// frames the other (``HTTP2Frames``).
package protocol ProbeLanguage: SendableMetatype {
  /// A frame that went over, with what can be said of it only then and there: a header block is read with the
  /// table that the blocks before it have made.
  associatedtype Unit

  /// Where the first unit in `bytes` ends.
  static func cut(_ bytes: [UInt8]) -> ProbeCut
  /// A connection begins: nothing of the one before counts.
  mutating func connected()
  /// What is remembered from one connection to the next counts no longer.
  mutating func forget()
  /// A line, `kind name=value …`, as bytes. A language may fill in what the line leaves open: counters,
  /// correlations.
  ///
  /// Throws ``ProbeError``.
  mutating func encode(_ line: String) throws -> [UInt8]
  /// Takes note of a unit; called once for each, in the order in which they go over.
  mutating func read(_ bytes: [UInt8], _ direction: ProbeDirection) -> Unit
  /// A unit as such a line.
  func text(_ unit: Unit) -> String
  /// What in `unit` is not as the line says, a line each; empty: it is as expected. Fields that the line does
  /// not name are not compared, and `*` stands for any value.
  ///
  /// Throws ``ProbeError`` where the line names what there is not.
  func differences(_ line: String, from unit: Unit) throws -> [String]
  /// Whether `unit` is the one to compare with the line. Others stay until somebody expects them. nil for
  /// the line: the end of the connection is expected.
  ///
  /// Throws ``ProbeError`` where the line names what there is not.
  func isMeant(_ unit: Unit, by line: String?) throws -> Bool
  /// How many units complete what this unit asks for: 0 or 1, whatever the answer is.
  func answersAwaited(_ unit: Unit) -> Int
  /// Whether a unit that came completes what was asked.
  func isAnswer(_ unit: Unit) -> Bool
  /// What every other end answers, and the answer.
  mutating func aliveness() -> (send: String, expect: String)
  /// What has to be said before anything else. `line`: what the script adds to it.
  ///
  /// Throws ``ProbeError`` where the other end does not go along.
  mutating func open(_ exchange: ProbeExchange<Self>, _ line: String) async throws
  /// Whether ``send`` asks for a sign of life after the answers: a peer that answers nothing to some units may
  /// still end the connection for them.
  static var endsWithAliveness: Bool { get }
}

/// Which way a unit went.
package enum ProbeDirection: Sendable {
  case sent, received
}

extension ProbeLanguage {
  package mutating func connected() {}
  package mutating func forget() {}
  func cut(_ bytes: [UInt8]) -> ProbeCut { Self.cut(bytes) }
}

/// What stands at the beginning of a stream of bytes.
package enum ProbeCut: Equatable, Sendable {
  case incomplete
  /// One unit of so many bytes.
  case unit(Int)
  /// No unit can follow; the text says why.
  case broken(String)
}
