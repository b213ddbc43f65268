import Foundation
import NIOCore
import Synchronization
import Testing

@testable import Transfer

/// What an import of five lines counts, reports and sends again, as its calls are answered and end.
@Suite struct ImportStateTests {
  /// An event of an import, or what holds after the events before it.
  enum Step: Sendable {
    /// A call starts and reads this text to its end.
    case sends(String)
    /// The gateway's answer goes on with these bytes.
    case gets(String)
    /// The gateway's answer goes on with these bytes, which end the call.
    case fails(String, TransferError)
    /// Confirmed lines, refused ones among them, and the lines reported as refused since the start.
    case counts(Int, refused: Int = 0, reported: [Int] = [])
    /// The import is complete.
    case ends
    /// The response has ended before the import is complete.
    case endsEarly
  }

  struct Story: CustomTestStringConvertible, Sendable {
    var testDescription: String
    var skipped: Int
    var steps: [Step]

    init(_ name: String, skipped: Int = 0, _ steps: [Step]) {
      testDescription = name
      self.skipped = skipped
      self.steps = steps
    }
  }

  static let stories: [Story] = [
    Story(
      "each count confirms lines",
      [
        .sends("a\nb\nc\nd\ne\n"), .counts(0), .gets(#"{"lines":2,"refused":0}\#n"#), .counts(2), .endsEarly,
        .gets(#"{"done":true,"lines":5,"refused":0}\#n"#), .counts(5), .ends,
      ]
    ),
    Story(
      "an answer in two parts counts when it is whole",
      [
        .sends("a\nb\nc\nd\ne\n"), .gets(#"{"lines":2,"re"#), .counts(0), .gets(#"fused":0}\#n{"done":true,"#),
        .counts(2), .gets(#""lines":5,"refused":0}\#n"#), .counts(5), .ends,
      ]
    ),
    Story(
      "a call after a cut goes on after the last confirmed line, and drops half an answer",
      [
        .sends("a\nb\nc\nd\ne\n"), .gets(#"{"lines":2,"refused":0}\#n{"lines":3,"#), .endsEarly,
        .sends("c\nd\ne\n"), .counts(2), .gets(#"{"lines":1,"refused":0}\#n"#), .counts(3),
        .sends("d\ne\n"), .gets(#"{"done":true,"lines":2,"refused":0}\#n"#), .counts(5), .ends,
      ]
    ),
    Story(
      "a refused line is reported once a count confirms it",
      [
        .sends("a\nb\nc\nd\ne\n"), .gets(#"{"line":1,"code":"x"}\#n{"line":3,"code":"x"}\#n"#), .counts(0),
        .gets(#"{"lines":2,"refused":1}\#n"#), .counts(2, refused: 1, reported: [1]),
        .gets(#"{"done":true,"lines":5,"refused":2}\#n"#), .counts(5, refused: 2, reported: [1, 3]), .ends,
      ]
    ),
    Story(
      "a refused line that no count confirms is left to the next call",
      [
        .sends("a\nb\nc\nd\ne\n"),
        .gets(#"{"line":1,"code":"x"}\#n{"line":3,"code":"x"}\#n{"lines":2,"refused":1}\#n"#),
        .sends("c\nd\ne\n"), .counts(2, refused: 1, reported: [1]),
        .gets(#"{"line":1,"code":"x"}\#n{"done":true,"lines":3,"refused":1}\#n"#),
        .counts(5, refused: 2, reported: [1, 3]), .ends,
      ]
    ),
    Story(
      "skipped lines count as confirmed",
      skipped: 3,
      [
        .sends("d\ne\n"), .counts(3), .gets(#"{"line":1,"code":"x"}\#n{"lines":1,"refused":1}\#n"#),
        .counts(4, refused: 1, reported: [4]), .sends("e\n"), .gets(#"{"done":true,"lines":1,"refused":0}\#n"#),
        .counts(5, refused: 1, reported: [4]), .ends,
      ]
    ),
    Story(
      "an import that the gateway ends for a time can go on",
      [
        .sends("a\nb\nc\nd\ne\n"),
        .fails(
          #"{"done":false,"lines":2,"refused":0,"code":"store_unavailable","detail":"try later"}\#n"#,
          TransferError("the import was ended: store_unavailable: try later", mayRetry: true)
        ), .counts(2), .endsEarly, .sends("c\nd\ne\n"),
      ]
    ),
    Story(
      "an import that the gateway ends for good cannot go on",
      [
        .sends("a\nb\nc\nd\ne\n"),
        .fails(
          #"{"done":false,"lines":2,"refused":0,"code":"internal_error"}\#n"#,
          TransferError("the import was ended: internal_error")
        ), .counts(2), .endsEarly,
      ]
    ),
    Story(
      "bytes that are no answer end the import",
      [
        .sends("a\nb\nc\nd\ne\n"),
        .fails("lines: 2\n", TransferError("the gateway's answer is no answer to an import")), .counts(0),
      ]
    ),
  ]

  @Test(arguments: stories) func importCountsConfirmedLines(_ story: Story) throws {
    let path = NSTemporaryDirectory() + "tidemark-test-\(UUID().uuidString)"
    defer { try? FileManager.default.removeItem(atPath: path) }
    try Data("a\nb\nc\nd\ne\n".utf8).write(to: URL(fileURLWithPath: path))
    let reported = Mutex([Int]())
    let state = try ImportState(
      { try LineSource(path: path) },
      skipped: story.skipped,
      refused: { refusal in reported.withLock { $0.append(refusal.line) } },
      progress: { _, _, _ in }
    )
    for step in story.steps {
      switch step {
      case .sends(let text):
        try state.restart()
        var sent = ""
        while let piece = try state.next() { sent += String(buffer: piece) }
        #expect(sent == text)
      case .gets(let text):
        let bytes = Array(text.utf8)
        try state.receive(bytes.span.bytes)
      case .fails(let text, let error):
        let bytes = Array(text.utf8)
        #expect(throws: error) { try state.receive(bytes.span.bytes) }
      case .counts(let lines, let refused, let lineNumbers):
        #expect(state.summary == LineImport.Summary(lines: lines, refused: refused))
        #expect(reported.withLock { $0 } == lineNumbers)
      case .ends:
        let summary = try state.finish()
        #expect(summary == state.summary)
      case .endsEarly:
        #expect(throws: TransferError("the gateway has not confirmed all lines", mayRetry: true)) {
          _ = try state.finish()
        }
      }
    }
  }
}
