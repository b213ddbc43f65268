internal import Foundation
package import GatewayClient
internal import HTTP2Session
internal import NIOCore
internal import Synchronization
package import TLSSession

/// The client of `GET /v1/export`: writes the lines to a file or to standard output.
package struct LineExport: Sendable {
  package var gateway: GatewayURL
  package var tls: TLSContext?
  /// Nil: everything.
  package var user: String?
  /// Nil: every channel type.
  package var channelType: String?

  package init(gateway: GatewayURL, tls: TLSContext?, user: String? = nil, channelType: String? = nil) {
    self.gateway = gateway
    self.tls = tls
    self.user = user
    self.channelType = channelType
  }

  /// `:path`, with the query.
  package var path: String {
    var query: [String] = []
    if let user { query.append("user_id=\(user.queryEscaped)") }
    if let channelType { query.append("channel_type=\(channelType.queryEscaped)") }
    return "/v1/export" + (query.isEmpty ? "" : "?" + query.joined(separator: "&"))
  }

  /// Export to a file, which gets its name only once it is whole; nil: to standard output.
  ///
  /// - Parameter progress: called with the lines written so far.
  /// - Returns: the number of lines.
  /// - Throws: ``TransferError``; an export that was cut has to be made again.
  package func run(
    to path: String?,
    token: String,
    progress: @escaping @Sendable (Int) -> Void
  ) async throws -> Int {
    let partial = path.map { $0 + ".partial" }
    let output = try partial.map { try Self.create($0) } ?? .standardOutput
    let writer = LineWriter(output, progress)
    let call = StreamedCall(gateway: gateway, tls: tls, method: .get, path: self.path, token: token)
    do {
      try await call.run {
        nil
      } receive: {
        try writer.write($0)
      }
      let lines = try writer.finish()
      if let path, let partial {
        try output.synchronize()
        guard rename(partial, path) == 0 else { throw TransferError("\(path): cannot be written") }
      }
      return lines
    } catch {
      if let partial { try? FileManager.default.removeItem(atPath: partial) }
      throw error
    }
  }

  private static func create(_ path: String) throws -> FileHandle {
    // A person's data, readable by its owner alone.
    guard FileManager.default.createFile(atPath: path, contents: nil, attributes: [.posixPermissions: 0o600]),
      let file = FileHandle(forWritingAtPath: path)
    else { throw TransferError("\(path): cannot be written") }
    return file
  }
}

/// Writes the lines of an export, and finds the line that ends one early.
private final class LineWriter: Sendable {
  private struct State {
    let output: FileHandle
    var lines = 0
    var lastLine: [UInt8] = []
  }

  private let state: Mutex<State>
  private let progress: @Sendable (Int) -> Void

  init(_ output: FileHandle, _ progress: @escaping @Sendable (Int) -> Void) {
    state = Mutex(State(output: output))
    self.progress = progress
  }

  func write(_ bytes: RawSpan) throws {
    try state.withLock { state in
      let data = bytes.withUnsafeBytes { Data($0) }
      try state.output.write(contentsOf: data)
      for byte in data {
        if byte == UInt8(ascii: "\n") {
          state.lines += 1
          if state.lastLine.starts(with: Array("{\"error\"".utf8)) { break }
          state.lastLine.removeAll(keepingCapacity: true)
        } else if state.lastLine.count < 1_024 {
          state.lastLine.append(byte)
        }
      }
      progress(state.lines)
    }
  }

  func finish() throws -> Int {
    try state.withLock { state in
      guard state.lastLine.isEmpty else {
        throw TransferError("the export was ended: \(String(decoding: state.lastLine, as: UTF8.self))")
      }
      return state.lines
    }
  }
}
