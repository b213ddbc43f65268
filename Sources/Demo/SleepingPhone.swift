internal import Foundation
internal import LocalStack

/// A phone whose app is not running: a push wakes a process of its own for some seconds, `tidemark ack`, which is given
/// where the gateway is and the ticket that came with the push, and nothing else.
struct SleepingPhone {
  /// The path of `tidemark`.
  let program: String
  /// The gateway's URL.
  let gateway: String
  /// The gateway's certificate, which phones trust.
  let certificate: String
  /// What the process prints is kept here.
  let logFile: String

  /// What a person would type.
  func commandLine(_ ticket: String) -> String {
    "tidemark ack --gateway \(gateway) --ca \((certificate as NSString).lastPathComponent) \(ticket)"
  }

  /// Posts a ticket.
  ///
  /// - Returns: what the process printed; how it ended too, where that is not well.
  func post(_ ticket: String) async throws -> String {
    let process = try ChildProcess(
      name: "tidemark ack",
      executable: program,
      arguments: ["ack", "--gateway", gateway, "--ca", certificate, ticket],
      logFile: logFile
    )
    let status = await withTaskCancellationHandler {
      await process.waitForExit()
    } onCancel: {
      process.signal(9)
    }
    let output = FileManager.default.contents(atPath: logFile)?.dropFirst(process.logOffset) ?? Data()
    let line = String(decoding: output, as: UTF8.self).trimmingCharacters(in: .whitespacesAndNewlines)
    return status == .exited(code: 0) ? line : "\(line) (\(status))"
  }
}
