internal import Crypto
internal import Foundation
package import NIOCore
package import Operations

/// What the demo page may use (`--demo-file`): tokens of its people and of their chat backend, for a code that is in
/// the address which `tidemark run` prints.
package struct DemoSession: Sendable {
  /// The tokens by user, and `server`, as JSON.
  package let tokens: ByteBuffer
  private let codeHash: SHA256Digest

  /// The content of the file.
  private struct Content: Decodable {
    var code: String
    var tokens: [String: String]
  }

  /// Characters that a code has at least.
  package static let codeCountMin = 22

  /// Read the file: JSON with `code` and `tokens`.
  ///
  /// - Parameter warn: called with each warning to log.
  package init(path: String, warn: (String) -> Void) throws(SettingsError) {
    try self.init(try SecretFile.bytes(path, key: "demo-file", warn: warn), path: path)
  }

  /// - Parameter path: the file's, for errors.
  init(_ bytes: [UInt8], path: String) throws(SettingsError) {
    guard let content = try? JSONDecoder().decode(Content.self, from: Data(bytes)),
      let tokens = try? JSONEncoder().encode(content.tokens)
    else {
      throw SettingsError("demo-file", "\(path): has to be JSON with a text \"code\" and an object \"tokens\" of texts")
    }
    guard content.code.utf8.count >= Self.codeCountMin else {
      throw SettingsError("demo-file", "\(path): \"code\" has fewer than \(Self.codeCountMin) characters")
    }
    self.tokens = ByteBuffer(bytes: tokens)
    codeHash = SHA256.hash(data: Array("Bearer \(content.code)".utf8))
  }

  /// Return whether an `authorization` header has the code. The comparison of hashes takes the same time for all.
  func accepts(_ authorization: RawSpan) -> Bool {
    let given = authorization.withUnsafeBytes { SHA256.hash(data: $0) }
    return given == codeHash
  }
}
