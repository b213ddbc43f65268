internal import Crypto
internal import Foundation
internal import ReceiptModel

/// Manifest of a backup, in `manifest.json`. It is written last, so a copy without one is incomplete.
package struct BackupManifest: Codable, Hashable, Sendable {
  /// File under `data/`.
  package struct File: Codable, Hashable, Sendable {
    package var name: String
    package var size: UInt64
    /// In hexadecimal.
    package var sha256: String

    /// Return whether a name is a plain file name, so that nothing is written outside the directory.
    static func isPlain(_ name: String) -> Bool {
      !name.isEmpty && name != "." && name != ".."
        && name.utf8.allSatisfy { byte in
          let character = Character(Unicode.Scalar(byte))
          return byte < 0x80 && (character.isLetter || character.isNumber || "._-".contains(character))
        }
    }
  }

  /// Version of this layout that this program writes, and the only one that it reads.
  package static let formatVersion = 1
  static let fileName = "manifest.json"

  package var format: Int
  /// Identity of the copied store, in hexadecimal.
  package var store: String
  /// Start of the checkpoint by the store's clock, RFC 3339. Writes acknowledged before it are in the backup.
  package var time: String
  package var timeMilliseconds: Int64
  /// Last log index in the copy, by shard.
  package var logIndexes: [UInt64]
  package var files: [File]

  /// Size of all files in bytes.
  package var byteCount: UInt64 { files.reduce(0) { $0 + $1.size } }

  /// The document: the manifest and the SHA-256 of its canonical form.
  private struct Sealed: Codable {
    var manifest: BackupManifest
    var sha256: String
  }

  private struct Versioned: Codable {
    struct Format: Codable { var format: Int }
    var manifest: Format
  }

  private var digest: String {
    get throws {
      let encoder = JSONEncoder()
      encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
      return Array(SHA256.hash(data: try encoder.encode(self))).hex
    }
  }

  /// Write the manifest into a backup's directory, durable before this returns.
  func write(to directory: String) throws(BackupFailure) {
    let bytes: [UInt8]
    do {
      let encoder = JSONEncoder()
      encoder.outputFormatting = [.sortedKeys, .prettyPrinted, .withoutEscapingSlashes]
      bytes = Array(try encoder.encode(Sealed(manifest: self, sha256: try digest)))
    } catch {
      throw BackupFailure("\(directory): the manifest cannot be written (\(error))")
    }
    try LocalFiles.writeWhole(bytes, to: directory + "/" + Self.fileName)
  }

  /// Read a backup's manifest. Throws if it was altered since it was written.
  package static func read(from directory: String) throws(BackupFailure) -> BackupManifest {
    let path = directory + "/" + fileName
    guard let data = FileManager.default.contents(atPath: path) else {
      throw BackupFailure("\(path): cannot be read; without it the backup is incomplete; use another backup")
    }
    if let version = try? JSONDecoder().decode(Versioned.self, from: data).manifest.format, version != formatVersion {
      throw BackupFailure(
        "\(path): has format \(version); this tidemark reads format \(formatVersion): use the version that made it"
      )
    }
    guard let sealed = try? JSONDecoder().decode(Sealed.self, from: data),
      (try? sealed.manifest.digest) == sealed.sha256
    else { throw BackupFailure("\(path): is corrupt; use another backup") }
    for file in sealed.manifest.files where !File.isPlain(file.name) {
      throw BackupFailure("\(path): names \"\(file.name)\", which is no file of a store; use another backup")
    }
    return sealed.manifest
  }
}
