internal import DequeModule
package import NIOCore

/// The lines of an import in order: those in flight, and the answers to those that are done. A pure state machine.
///
/// Lines are carried out in groups, whose results come in any order. Answers go out in the order of the lines: refused
/// lines, and a count every ``linesPerCount`` lines. A failure of the store ends the import after the lines before it.
package struct ImportOrder {
  /// Identifies a group of lines in flight.
  package typealias GroupID = UInt64

  /// Why a line is refused.
  package struct Refusal: Equatable {
    package var code: ProblemCode
    package var detail: String

    package init(_ code: ProblemCode, _ detail: String = "") {
      self.code = code
      self.detail = detail
    }
  }

  package static let linesPerCount = 10_000
  /// Groups and lines in flight, beyond which no line is read.
  package static let groupsMax = 128
  package static let linesMax = 16_384

  private struct Group {
    var lines: [Int] = []
    /// By line; nil: not done yet.
    var refusals: [Refusal?]?
    var failure: Refusal?
  }

  private var groups: Deque<Group> = []
  private var firstID: GroupID = 0
  /// Lines in ``groups``.
  private var lineCount = 0
  /// Groups that are not done.
  package private(set) var inFlight = 0
  /// Lines that are done, with all lines before them, and how many of them were refused.
  package private(set) var linesDone = 0
  package private(set) var refused = 0
  private var counted = 0
  /// Why the import ends early: the store has failed at the line after ``linesDone``.
  package private(set) var failure: Refusal?
  /// Answers to be sent.
  package private(set) var answers = ByteBuffer()

  package init() {}

  package var isEmpty: Bool { groups.isEmpty }
  package var hasRoom: Bool { inFlight < Self.groupsMax && lineCount < Self.linesMax }

  /// Begin a group of lines, which ``finish(_:_:)`` or ``fail(_:_:)`` ends.
  package mutating func begin() -> GroupID {
    groups.append(Group())
    inFlight += 1
    return firstID + UInt64(groups.count) - 1
  }

  /// Add a line to a group that has not ended.
  package mutating func add(_ line: Int, to id: GroupID) {
    groups[Int(id - firstID)].lines.append(line)
    lineCount += 1
  }

  /// Return the number of lines of a group that has not ended.
  package func lineCount(of id: GroupID) -> Int { groups[Int(id - firstID)].lines.count }

  /// Add a line that is done without a request.
  package mutating func skip(_ line: Int) {
    groups.append(Group(lines: [line], refusals: [nil]))
    lineCount += 1
    advance()
  }

  /// Add a line that is refused without a request.
  package mutating func refuse(_ line: Int, _ refusal: Refusal) {
    groups.append(Group(lines: [line], refusals: [refusal]))
    lineCount += 1
    advance()
  }

  /// Record the results of a group: for each line, its refusal.
  package mutating func finish(_ id: GroupID, _ refusals: [Refusal?]) {
    change(id) { $0.refusals = refusals }
  }

  /// Record that a whole group was refused.
  package mutating func finish(_ id: GroupID, refused refusal: Refusal) {
    change(id) { $0.refusals = Array(repeating: refusal, count: $0.lines.count) }
  }

  /// Record that the store did not carry out a group, or may not have.
  package mutating func fail(_ id: GroupID, _ failure: Refusal) { change(id) { $0.failure = failure } }

  package mutating func clearAnswers() { answers = ByteBuffer() }

  private mutating func change(_ id: GroupID, _ body: (inout Group) -> Void) {
    body(&groups[Int(id - firstID)])
    inFlight -= 1
    advance()
  }

  private mutating func advance() {
    while let group = groups.first, group.refusals != nil || group.failure != nil {
      groups.removeFirst()
      firstID += 1
      lineCount -= group.lines.count
      if failure == nil { failure = group.failure }
      guard failure == nil, let refusals = group.refusals else { continue }
      for (line, refusal) in zip(group.lines, refusals) {
        linesDone = max(linesDone, line)
        if let refusal {
          refused += 1
          ImportJSON.write(line: line, refusal, into: &answers)
        }
        if line / Self.linesPerCount > counted {
          counted = line / Self.linesPerCount
          ImportJSON.write(lines: linesDone, refused: refused, into: &answers)
        }
      }
    }
  }
}

/// JSON of the answers to an import (Proto/openapi.yaml).
package enum ImportJSON {
  /// Write `{"line","code","detail"}`.
  static func write(line: Int, _ refusal: ImportOrder.Refusal, into buffer: inout ByteBuffer) {
    buffer.writeString("{\"line\":\(line),\"code\":\"\(refusal.code.rawValue)\",\"detail\":")
    buffer.writeJSONString(detail(of: refusal))
    buffer.writeStaticString("}\n")
  }

  /// Write `{"lines","refused"}`.
  static func write(lines: Int, refused: Int, into buffer: inout ByteBuffer) {
    buffer.writeString("{\"lines\":\(lines),\"refused\":\(refused)}\n")
  }

  /// Write `{"done","lines","refused","code"?,"detail"?}`.
  package static func writeEnd(
    lines: Int,
    refused: Int,
    _ failure: ImportOrder.Refusal?,
    into buffer: inout ByteBuffer
  ) {
    buffer.writeString("{\"done\":\(failure == nil),\"lines\":\(lines),\"refused\":\(refused)")
    if let failure {
      buffer.writeString(",\"code\":\"\(failure.code.rawValue)\",\"detail\":")
      buffer.writeJSONString(detail(of: failure))
    }
    buffer.writeStaticString("}\n")
  }

  private static func detail(of refusal: ImportOrder.Refusal) -> String {
    refusal.detail.isEmpty ? "\(refusal.code.title)" : refusal.detail
  }
}
