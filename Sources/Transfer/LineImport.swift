internal import Foundation
package import GatewayClient
internal import HTTP2Session
internal import NIOCore
internal import Synchronization
package import TLSSession

/// A refused line of an import.
package struct RefusedLine: Hashable, Sendable {
  package var line: Int
  package var code: String
  package var detail: String
  /// The place in a dump that the line was made of; nil: it was in the file itself.
  package var source: String?

  /// The line's answer, as a line of JSON.
  package var json: String {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    let fields = Fields(line: line, code: code, detail: detail, source: source)
    return (try? encoder.encode(fields)).map { String(decoding: $0, as: UTF8.self) } ?? ""
  }

  private struct Fields: Encodable {
    var line: Int
    var code: String
    var detail: String
    var source: String?
  }
}

/// The client of `POST /v1/import`: sends lines, and starts again after the last confirmed one when it loses the
/// gateway or the gateway its store. Lines that were imported already change nothing.
package struct LineImport: Sendable {
  /// Attempts without a further confirmed line after which the import gives up.
  private static let attemptsMax = 30

  package struct Summary: Hashable, Sendable {
    package var lines = 0
    package var refused = 0
  }

  package var gateway: GatewayURL
  package var tls: TLSContext?
  /// Whether lines are only checked.
  package var isDryRun: Bool

  package init(gateway: GatewayURL, tls: TLSContext?, isDryRun: Bool = false) {
    self.gateway = gateway
    self.tls = tls
    self.isDryRun = isDryRun
  }

  /// Import all lines.
  ///
  /// - Parameters:
  ///   - skipped: lines at the start that are left out.
  ///   - token: called before each connection.
  ///   - refused: called for each refused line, in order.
  ///   - progress: called with the lines that are done and refused, and the bytes read.
  /// - Throws: ``TransferError``, whose text says how far the import has come.
  package func run(
    _ makeSource: @escaping @Sendable () throws -> LineSource,
    skipping skipped: Int = 0,
    token: @Sendable () async throws -> String,
    refused: @escaping @Sendable (RefusedLine) -> Void,
    progress: @escaping @Sendable (Summary, UInt64, UInt64?) -> Void,
    note: @escaping @Sendable (String) -> Void
  ) async throws -> Summary {
    let state = try ImportState(makeSource, skipped: skipped, refused: refused, progress: progress)
    var attempts = 0
    var pause = Duration.milliseconds(200)
    while true {
      let before = state.summary
      do {
        try state.restart()
        let call = StreamedCall(
          gateway: gateway,
          tls: tls,
          method: .post,
          path: isDryRun ? "/v1/import?dry_run=true" : "/v1/import",
          token: try await token()
        )
        try await call.run {
          try state.next()
        } receive: {
          try state.receive($0)
        }
        return try state.finish()
      } catch let error as TransferError where error.mayRetry && attempts < Self.attemptsMax {
        let isFurther = state.summary.lines > before.lines
        attempts = isFurther ? 0 : attempts + 1
        pause = isFurther ? .milliseconds(200) : min(pause * 2, .seconds(5))
        note("\(error); going on after line \(state.summary.lines)")
        try await Task.sleep(for: pause)
      } catch let error as TransferError {
        throw TransferError("\(error); imported up to line \(state.summary.lines) (--skip \(state.summary.lines))")
      }
    }
  }
}

/// The progress of an import over several calls.
final class ImportState: Sendable {
  private struct State {
    var source: LineSource
    /// Lines before the first one of this call, and their refusals.
    var base = LineImport.Summary()
    var summary = LineImport.Summary()
    var partial: [UInt8] = []
    var isDone = false
    /// Refused lines of this call that no count has confirmed.
    var unconfirmed: [RefusedLine] = []
  }

  private struct Answer: Decodable {
    var line: Int?
    var lines: Int?
    var refused: Int?
    var done: Bool?
    var code: String?
    var detail: String?
  }

  private let state: Mutex<State>
  private let refused: @Sendable (RefusedLine) -> Void
  private let progress: @Sendable (LineImport.Summary, UInt64, UInt64?) -> Void

  init(
    _ makeSource: @Sendable () throws -> LineSource,
    skipped: Int,
    refused: @escaping @Sendable (RefusedLine) -> Void,
    progress: @escaping @Sendable (LineImport.Summary, UInt64, UInt64?) -> Void
  ) throws {
    var first = State(source: try makeSource())
    first.summary.lines = skipped
    state = Mutex(first)
    self.refused = refused
    self.progress = progress
  }

  var summary: LineImport.Summary { state.withLock { $0.summary } }

  /// Go back to the line after the last confirmed one.
  func restart() throws {
    try state.withLock { state in
      state.base = state.summary
      state.partial = []
      state.unconfirmed = []
      try state.source.restart(afterLine: state.summary.lines)
    }
  }

  func next() throws -> ByteBuffer? { try state.withLock { try $0.source.next() } }

  func receive(_ bytes: RawSpan) throws {
    try state.withLock { state in
      bytes.withUnsafeBytes { state.partial += $0 }
      while let end = state.partial.firstIndex(of: UInt8(ascii: "\n")) {
        let line = Data(state.partial[..<end])
        state.partial.removeFirst(end + 1)
        guard let answer = try? JSONDecoder().decode(Answer.self, from: line) else {
          throw TransferError("the gateway's answer is no answer to an import")
        }
        try handle(answer, &state)
      }
    }
  }

  private func handle(_ answer: Answer, _ state: inout State) throws {
    if let line = answer.line {
      let refusal = RefusedLine(
        line: state.base.lines + line,
        code: answer.code ?? "",
        detail: answer.detail ?? ""
      )
      state.unconfirmed.append(refusal)
      return
    }
    guard let lines = answer.lines, let count = answer.refused else { return }
    // What is refused after the last count is told by the next call.
    for refusal in state.unconfirmed.prefix(while: { $0.line <= state.base.lines + lines }) { refused(refusal) }
    state.unconfirmed.removeAll { $0.line <= state.base.lines + lines }
    state.summary = LineImport.Summary(lines: state.base.lines + lines, refused: state.base.refused + count)
    state.source.confirm(lines: state.summary.lines)
    progress(state.summary, state.source.bytesRead, state.source.byteCount)
    guard let done = answer.done else { return }
    state.isDone = done
    if !done {
      let words = [answer.code ?? "", answer.detail ?? ""].filter { !$0.isEmpty }.joined(separator: ": ")
      throw TransferError("the import was ended: \(words)", mayRetry: Self.mayRetry(answer.code ?? ""))
    }
  }

  private static func mayRetry(_ code: String) -> Bool { code != "internal_error" && code != "data_directory_lost" }

  func finish() throws -> LineImport.Summary {
    try state.withLock { state in
      guard state.isDone else { throw TransferError("the gateway has not confirmed all lines", mayRetry: true) }
      return state.summary
    }
  }
}

/// A file of refused lines.
package final class ReportFile: Sendable {
  private let file: Mutex<FileHandle>

  /// - Throws: if the file cannot be written.
  package init(path: String) throws {
    guard FileManager.default.createFile(atPath: path, contents: nil), let file = FileHandle(forWritingAtPath: path)
    else { throw TransferError("\(path): cannot be written") }
    self.file = Mutex(file)
  }

  package func write(_ line: String) {
    file.withLock { try? $0.write(contentsOf: Data((line + "\n").utf8)) }
  }
}
