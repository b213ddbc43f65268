/// Step segments read from storage for one query.
package struct ReadSegments: Sendable {
  /// Maximum number of steps that one query may hold; 32 bytes each.
  package static let stepsMax = 1 << 19

  /// By row page and segment, each in the order in which the steps were made, so that the numbers of one watermark
  /// rise. Not sorted by watermark: a linear scan costs less for the few rows of a page that a query asks about.
  private var segments: [UInt64: [Step]] = [:]
  private var counts: [UInt32: UInt32] = [:]
  /// Number of steps held.
  package private(set) var stepCount = 0
  private var isClosed = false

  package init() {}

  /// Whether no more segments may be read. A step that is in none of them has only a latest possible time.
  package var isFull: Bool { isClosed || stepCount >= Self.stepsMax }

  /// Stop further reads for this query.
  package mutating func close() { isClosed = true }

  /// Add a segment's bytes.
  ///
  /// - Returns: false if the bytes are not valid steps.
  @discardableResult
  package mutating func add(_ rowPage: UInt32, _ segment: UInt32, _ bytes: [UInt8]) -> Bool {
    guard let steps = StepBytes.steps(bytes) else { return false }
    stepCount += steps.count
    counts[rowPage, default: 0] += 1
    segments[Self.key(rowPage, segment)] = steps
    return true
  }

  package func contains(_ rowPage: UInt32, _ segment: UInt32) -> Bool {
    segments[Self.key(rowPage, segment)] != nil
  }

  /// The row pages with segments here, unordered.
  package var rowPages: [UInt32] { Array(counts.keys) }

  /// Return the number of segments of this row page.
  func count(of rowPage: UInt32) -> UInt32 { counts[rowPage] ?? 0 }

  func steps(_ rowPage: UInt32, _ segment: UInt32) -> [Step]? {
    segments[Self.key(rowPage, segment)]
  }

  private static func key(_ rowPage: UInt32, _ segment: UInt32) -> UInt64 {
    UInt64(rowPage) << 32 | UInt64(segment)
  }
}
