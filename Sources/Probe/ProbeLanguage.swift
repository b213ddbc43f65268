/// What two ends say to each other on a connection, as far as a probe has to know it: where a unit ends, how
/// it is written in a line, how it is read. Store frames are one such language (``StoreFrames``); HTTP/2
/// frames are to be another.
package protocol ProbeLanguage {
  /// Where the first unit in `bytes` ends.
  func cut(_ bytes: [UInt8]) -> ProbeCut
  /// A line, `kind name=value …`, as bytes. A language may fill in what the line leaves open: counters,
  /// correlations.
  ///
  /// Throws ``ProbeError``.
  mutating func encode(_ line: String) throws -> [UInt8]
  /// A unit as such a line.
  func text(_ unit: [UInt8]) -> String
  /// What in `unit` is not as the line says, a line each; empty: it is as expected. Fields that the line does
  /// not name are not compared, and `*` stands for any value.
  ///
  /// Throws ``ProbeError`` where the line names what there is not.
  func differences(_ line: String, from unit: [UInt8]) throws -> [String]
  /// A unit that may come at any time and that no script waits for.
  func isIncidental(_ unit: [UInt8]) -> Bool
  /// Whether the other end answers this unit, with whatever it is.
  func awaitsAnswer(_ unit: [UInt8]) -> Bool
  /// What has to be said before anything else.
  ///
  /// Throws ``ProbeError`` where the other end does not go along.
  mutating func open(_ exchange: ProbeExchange) async throws
}

/// What stands at the beginning of a stream of bytes.
package enum ProbeCut: Equatable, Sendable {
  case incomplete
  /// One unit of so many bytes.
  case unit(Int)
  /// No unit can follow; the text says why.
  case broken(String)
}
