internal import Foundation

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#endif

/// Shared secret and its predecessor, read from a file: the bytes of the first line, and of the second line if there is
/// one, without line ends.
package struct Secrets: Sendable, Equatable {
  /// Secret for new signatures and proofs.
  package var current: [UInt8]
  /// Secret that is still accepted.
  package var previous: [UInt8]?

  package init(current: [UInt8], previous: [UInt8]? = nil) {
    self.current = current
    self.previous = previous
  }

  /// Both secrets, the current one first.
  package var all: [[UInt8]] { previous.map { [current, $0] } ?? [current] }
}

/// Reader of secret files.
package enum SecretFile {
  /// A secret is a short line of text; a larger file was named by mistake.
  package static let byteCountMax = 64 * 1024

  /// Read the file that the setting `key` names.
  ///
  /// - Parameters:
  ///   - byteCountMin: shorter secrets are refused. HS256 requires 32 bytes (RFC 7518 section 3.2).
  ///   - warn: called with a line to log if users other than the owner and the group may read the file.
  package static func load(
    _ path: String,
    key: String,
    byteCountMin: Int = 1,
    warn: (String) -> Void
  ) throws(SettingsError) -> Secrets {
    let bytes = try self.bytes(path, key: key, warn: warn)
    return try parse(bytes, path: path, key: key, byteCountMin: byteCountMin)
  }

  /// Read the bytes of a file that the setting `key` names, with the same checks of its permissions.
  package static func bytes(_ path: String, key: String, warn: (String) -> Void) throws(SettingsError) -> [UInt8] {
    let data: [UInt8]
    do throws(FileFault) {
      data = try RegularFile.bytes(path, byteCountMax: byteCountMax)
    } catch {
      throw SettingsError(key, "\(path): the file cannot be read (\(error))")
    }
    guard data.count <= byteCountMax else {
      throw SettingsError(key, "\(path): the file is larger than \(byteCountMax) bytes")
    }
    let attributes = try? FileManager.default.attributesOfItem(atPath: path)
    if let mode = (attributes?[.posixPermissions] as? NSNumber)?.intValue, mode & 0o004 != 0 {
      warn("--\(key) \(path): every user of this machine may read this secret; chmod o-rwx it")
    }
    return data
  }

  static func parse(_ bytes: [UInt8], path: String, key: String, byteCountMin: Int) throws(SettingsError) -> Secrets {
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

/// Reader of settings and secrets. Only regular files are read: opening a FIFO, or reading a terminal, would block a
/// reload, and with it the end of the process.
package enum RegularFile {
  /// Read a whole file.
  ///
  /// - Parameter byteCountMax: limit on the size in bytes. A larger file is read up to one byte more.
  /// - Throws: the reason, in the system's words where it is the system's.
  package static func bytes(_ path: String, byteCountMax: Int) throws(FileFault) -> [UInt8] {
    let descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
    guard descriptor >= 0 else { throw FileFault(systemError: errno) }
    defer { close(descriptor) }
    if let fault = fault(ofOpen: descriptor) { throw fault }
    var bytes: [UInt8] = []
    while bytes.count <= byteCountMax {
      let room = min(64 * 1024, byteCountMax + 1 - bytes.count)
      var failure: Int32 = 0
      let part = [UInt8](unsafeUninitializedCapacity: room) { buffer, count in
        let found = read(descriptor, buffer.baseAddress, room)
        if found < 0 { failure = errno }
        count = max(0, found)
      }
      guard failure == 0 else { throw FileFault(systemError: failure) }
      if part.isEmpty { break }
      bytes += part
    }
    return bytes
  }

  private static func fault(ofOpen descriptor: Int32) -> FileFault? {
    var information = stat()
    guard fstat(descriptor, &information) == 0 else { return FileFault(systemError: errno) }
    switch information.st_mode & S_IFMT {
    case S_IFREG: return nil
    case S_IFDIR: return FileFault(systemError: EISDIR)
    default: return FileFault(reason: "it is not a regular file")
    }
  }
}

/// Why a file cannot be read.
package struct FileFault: Error, CustomStringConvertible {
  package let reason: String

  package init(reason: String) { self.reason = reason }

  package init(systemError: Int32) { reason = String(cString: strerror(systemError)) }

  package var description: String { reason }
}
