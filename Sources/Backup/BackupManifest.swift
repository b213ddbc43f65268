internal import Foundation
internal import Crypto
internal import ReceiptModel

/// What a backup says of itself, in `manifest.json`. It is written last, so a copy without one is none.
package struct BackupManifest: Codable, Hashable, Sendable {
  /// One file under `data/`.
  package struct File: Codable, Hashable, Sendable {
    package var name: String
    package var size: UInt64
    /// In hexadecimal.
    package var sha256: String

    /// Whether a name is that of a file in one directory, so that nothing is written elsewhere.
    static func isPlain(_ name: String) -> Bool {
      !name.isEmpty && name != "." && name != ".."
        && name.utf8.allSatisfy { byte in
          let character = Character(Unicode.Scalar(byte))
          return byte < 0x80 && (character.isLetter || character.isNumber || "._-".contains(character))
        }
    }
  }

  /// The version of this layout that this program writes, and the only one that it reads.
  package static let formatVersion = 1
  static let fileName = "manifest.json"

  package var format: Int
  /// The identity of the store that was copied, in hexadecimal.
  package var store: String
  /// When the checkpoint was begun, by the store's clock: what was acknowledged before is in it. RFC 3339.
  package var time: String
  package var timeMilliseconds: Int64
  /// Per shard, the last log index in the copy.
  package var logIndexes: [UInt64]
  package var files: [File]

  /// All files' bytes.
  package var byteCount: UInt64 { files.reduce(0) { $0 + $1.size } }

  /// The document: the manifest and the SHA-256 of its own canonical form.
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

  /// Writes it into a backup's directory, durable before this returns.
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

  /// Reads a backup's manifest. Throws where it is not as it was written.
  package static func read(from directory: String) throws(BackupFailure) -> BackupManifest {
    let path = directory + "/" + fileName
    guard let data = FileManager.default.contents(atPath: path) else {
      throw BackupFailure("\(path): cannot be read; without it this is no whole backup; use another backup")
    }
    if let version = try? JSONDecoder().decode(Versioned.self, from: data).manifest.format,
      version != formatVersion
    {
      throw BackupFailure(
        "\(path): has format \(version); this tidemark reads format \(formatVersion): use the version that made it"
      )
    }
    guard let sealed = try? JSONDecoder().decode(Sealed.self, from: data),
      (try? sealed.manifest.digest) == sealed.sha256
    else { throw BackupFailure("\(path): is not as it was written; use another backup") }
    for file in sealed.manifest.files where !File.isPlain(file.name) {
      throw BackupFailure("\(path): names \"\(file.name)\", which is no file of a store; use another backup")
    }
    return sealed.manifest
  }
}
