internal import Crypto
package import Foundation

/// Files of a store and gateways on this machine, all in one directory: data, certificate, secrets, logs.
package struct StackFiles: Sendable {
  /// Directory that contains all the files.
  package let directory: String

  package var data: String { directory + "/data" }
  /// Return the data directory of a cluster's node.
  package func data(ofNode number: Int) -> String { "\(directory)/data-\(number)" }
  package var certificate: String { directory + "/tls-cert.pem" }
  package var key: String { directory + "/tls-key.pem" }
  package var frameSecret: String { directory + "/frame-secret" }
  package var jwtSecret: String { directory + "/jwt-secret" }
  package var ticketSecret: String { directory + "/ticket-secret" }

  /// Addresses of etcd's servers, one a line: for clients, and for each other.
  package var etcdAddresses: String { directory + "/etcd-addresses" }

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
    guard !hasKey || !LoopbackCertificate.isValid(text ?? "", now: now) else { return }
    do {
      let made = try LoopbackCertificate.makeSelfSigned(now: now)
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
      FileManager.default.createFile(atPath: path, contents: Data(text.utf8), attributes: [.posixPermissions: 0o600])
    else { throw StackError("\(path): cannot be written") }
  }

  /// Remove the directory and its contents.
  package func remove() {
    try? FileManager.default.removeItem(atPath: directory)
  }

  /// Create 256 random bits as text, because a secret is a line of a file.
  package static func makeSecret() -> String {
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

/// Paths of the real programs, in the directory of the running one.
package struct Executables: Sendable {
  /// Path of `tidemark-store`.
  package let store: String
  /// Path of `tidemark-gateway`.
  package let gateway: String

  /// Find the programs in a directory.
  package init(directory: String) throws(StackError) {
    store = directory + "/tidemark-store"
    gateway = directory + "/tidemark-gateway"
    for path in [store, gateway] where !FileManager.default.isExecutableFile(atPath: path) {
      throw StackError("\(path) is not there: build the three programs into one directory (make build)")
    }
  }

  /// Find the programs in the directory of this process's executable.
  package static func besideCurrentExecutable() throws(StackError) -> Executables {
    try Executables(directory: (ownPath() as NSString).deletingLastPathComponent)
  }

  /// Return the path of this process's executable.
  package static func ownPath() throws(StackError) -> String {
    guard let own = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe") else {
      throw StackError("/proc/self/exe cannot be read")
    }
    return own
  }

  /// Find a program on the PATH.
  package static func find(_ name: String) -> String? {
    let path = ProcessInfo.processInfo.environment["PATH"] ?? "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"
    // Debian keeps servers in sbin, which is not on every user's PATH.
    let directories = path.split(separator: ":").map(String.init) + ["/usr/sbin", "/usr/local/sbin"]
    return directories.map { "\($0)/\(name)" }.first { FileManager.default.isExecutableFile(atPath: $0) }
  }
}
