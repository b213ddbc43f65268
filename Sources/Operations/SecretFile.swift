internal import Foundation

/// A shared secret and the one before it, read from a file: the bytes of the first line, and of the second
/// where there is one, without their line ends.
package struct Secrets: Sendable, Equatable {
  /// What new things are made with.
  package var current: [UInt8]
  /// What is still accepted.
  package var previous: [UInt8]?

  package init(current: [UInt8], previous: [UInt8]? = nil) {
    self.current = current
    self.previous = previous
  }

  /// Both, the current one first.
  package var all: [[UInt8]] { previous.map { [current, $0] } ?? [current] }
}

/// Reading of secret files.
package enum SecretFile {
  /// A secret is a line of text, not a file that was named by mistake.
  package static let byteCountMax = 64 * 1024

  /// Reads the file that the setting `key` names.
  ///
  /// - Parameters:
  ///   - byteCountMin: a shorter secret is refused. HS256 asks for 32 bytes (RFC 7518 section 3.2).
  ///   - warn: called with a line to log where others than the owner and their group may read the file.
  package static func load(
    _ path: String,
    key: String,
    byteCountMin: Int = 1,
    warn: (String) -> Void
  ) throws(SettingsError) -> Secrets {
    let bytes = try self.bytes(path, key: key, warn: warn)
    return try parse(bytes, path: path, key: key, byteCountMin: byteCountMin)
  }

  /// The bytes of a file that the setting `key` names, with the same checks of its readability.
  package static func bytes(
    _ path: String,
    key: String,
    warn: (String) -> Void
  ) throws(SettingsError) -> [UInt8] {
    guard let data = FileManager.default.contents(atPath: path) else {
      throw SettingsError(key, "\(path): the file cannot be read (\(ErrorText.reading(path)))")
    }
    guard data.count <= byteCountMax else {
      throw SettingsError(key, "\(path): the file is larger than \(byteCountMax) bytes")
    }
    let attributes = try? FileManager.default.attributesOfItem(atPath: path)
    if let mode = (attributes?[.posixPermissions] as? NSNumber)?.intValue, mode & 0o004 != 0 {
      warn("--\(key) \(path): every user of this machine may read this secret; chmod o-rwx it")
    }
    return [UInt8](data)
  }

  static func parse(
    _ bytes: [UInt8],
    path: String,
    key: String,
    byteCountMin: Int
  ) throws(SettingsError) -> Secrets {
    let lines = bytes.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false).map { line in
      line.last == UInt8(ascii: "\r") ? Array(line.dropLast()) : Array(line)
    }
    guard let current = lines.first, !current.isEmpty else {
      throw SettingsError(key, "\(path): the first line is empty; it has to be the secret")
    }
    let previous = lines.dropFirst().first.flatMap { $0.isEmpty ? nil : $0 }
    let secrets = Secrets(current: current, previous: previous)
    guard lines.dropFirst(2).allSatisfy(\.isEmpty) else {
      throw SettingsError(key, "\(path): more than two lines; the second is the previous secret")
    }
    for secret in secrets.all where secret.count < byteCountMin {
      throw SettingsError(
        key,
        "\(path): a secret of \(secret.count) bytes is too short; give at least \(byteCountMin) bytes"
      )
    }
    return secrets
  }
}
