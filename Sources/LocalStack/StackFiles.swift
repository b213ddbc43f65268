internal import Crypto
package import Foundation

/// Files of a store and gateways on this machine, all in one directory: data, certificate, secrets, logs.
package struct StackFiles: Sendable {
  /// Directory that contains all the files.
  package let directory: String

  package var data: String { directory + "/data" }
  package var certificate: String { directory + "/tls-cert.pem" }
  package var key: String { directory + "/tls-key.pem" }
  package var frameSecret: String { directory + "/frame-secret" }
  package var jwtSecret: String { directory + "/jwt-secret" }
  package var ticketSecret: String { directory + "/ticket-secret" }

  package init(directory: String) { self.directory = directory }

  /// Return the log file of a process.
  package func log(of process: String) -> String { "\(directory)/\(process).log" }

  /// Create missing files, and replace an expired certificate. Only the owner may read them.
  package func prepare(now: Date = Date()) throws(StackError) {
    do {
      try FileManager.default.createDirectory(
        atPath: directory,
        withIntermediateDirectories: true,
        attributes: [.posixPermissions: 0o700]
      )
    } catch {
      throw StackError("\(directory): cannot be created: \(error.localizedDescription)")
    }
    for path in [frameSecret, jwtSecret, ticketSecret] where !FileManager.default.fileExists(atPath: path) {
      try write(Self.makeSecret() + "\n", to: path)
    }
    let text = FileManager.default.contents(atPath: certificate).map { String(decoding: $0, as: UTF8.self) }
    let hasKey = FileManager.default.fileExists(atPath: key)
    guard !hasKey || !SelfSignedCertificate.isValid(text ?? "", now: now) else { return }
    do {
      let made = try SelfSignedCertificate.make(now: now)
      try write(made.key, to: key)
      try write(made.certificate, to: certificate)
    } catch let error as StackError {
      throw error
    } catch {
      throw StackError("a certificate could not be made: \(error)")
    }
  }

  /// Write a file that only its owner may read.
  package func write(_ text: String, to path: String) throws(StackError) {
    // The mode is set at creation, so others can never open the file.
    guard
      FileManager.default.createFile(
        atPath: path,
        contents: Data(text.utf8),
        attributes: [.posixPermissions: 0o600]
      )
    else { throw StackError("\(path): cannot be written") }
  }

  /// Remove the directory and its contents.
  package func remove() {
    try? FileManager.default.removeItem(atPath: directory)
  }

  /// Create 256 random bits as text, because a secret is a line of a file.
  private static func makeSecret() -> String {
    SymmetricKey(size: .bits256).withUnsafeBytes { bytes in
      bytes.map { byte in
        let text = String(byte, radix: 16)
        return byte < 16 ? "0" + text : text
      }.joined()
    }
  }
}

/// Setup error on this machine, in one line for the person at the terminal.
package struct StackError: Error, Hashable, CustomStringConvertible {
  package let description: String

  package init(_ description: String) { self.description = description }
}
