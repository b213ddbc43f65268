internal import Foundation
internal import LocalStack

/// Phone whose app is not running. A push wakes a separate process for some seconds, `tidemark ack`. It gets only the
/// gateway's address and the ticket that came with the push.
struct OfflinePhone {
  /// Path of `tidemark`.
  let program: String
  /// URL of the gateway.
  let gateway: String
  /// Certificate of the gateway, which phones trust.
  let certificate: String
  /// File for the output of the process.
  let logFile: String

  /// Return the command line that a person would type.
  func commandLine(_ ticket: String) -> String {
    "tidemark ack --gateway \(gateway) --ca \((certificate as NSString).lastPathComponent) \(ticket)"
  }

  /// Post a ticket.
  ///
  /// - Returns: the output of the process, with its exit status if it failed.
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
