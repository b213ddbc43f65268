import Foundation
import TestPrograms

/// Certificates created by the `openssl` command for one test run.
final class Certificates: Sendable {
  static let shared = Certificates()

  private let directory: URL

  func path(_ name: String) -> String { directory.appendingPathComponent(name).path }

  private init() {
    directory = FileManager.default.temporaryDirectory.appendingPathComponent(
      "tls-tests-\(UUID().uuidString)"
    )
    do {
      try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
      for authority in ["ca", "other-ca"] { try makeAuthority(authority) }
      try makeCertificate("server", by: "ca", name: "localhost", alternative: "DNS:localhost,IP:127.0.0.1")
      try makeCertificate("other", by: "other-ca", name: "localhost", alternative: "DNS:localhost")
      try makeCertificate("client", by: "ca", name: "gateway", alternative: "DNS:gateway")
      try makeExpired("expired", by: "ca")
      try write("garbage.pem", "this is no certificate\n")
      atexit { Certificates.shared.remove() }
      try openssl("ec", "-aes256", "-passout", "pass:x", "-in", "server.key", "-out", "locked.key")
    } catch {
      fatalError("cannot make certificates: \(error)")
    }
  }

  private func remove() { try? FileManager.default.removeItem(at: directory) }

  func copy(_ from: String, _ to: String) throws {
    try? FileManager.default.removeItem(atPath: path(to))
    try FileManager.default.copyItem(atPath: path(from), toPath: path(to))
  }

  private func write(_ name: String, _ text: String) throws {
    try text.write(toFile: path(name), atomically: true, encoding: .utf8)
  }

  private func makeAuthority(_ name: String) throws {
    try openssl(
      "req",
      "-x509",
      "-newkey",
      "ec",
      "-pkeyopt",
      "ec_paramgen_curve:P-256",
      "-nodes",
      "-days",
      "2",
      "-subj",
      "/CN=\(name)",
      "-keyout",
      "\(name).key",
      "-out",
      "\(name).pem"
    )
  }

  private func makeRequest(_ name: String, _ subject: String) throws {
    try openssl(
      "req",
      "-newkey",
      "ec",
      "-pkeyopt",
      "ec_paramgen_curve:P-256",
      "-nodes",
      "-subj",
      "/CN=\(subject)",
      "-keyout",
      "\(name).key",
      "-out",
      "\(name).csr"
    )
  }

  private func makeCertificate(
    _ name: String,
    by authority: String,
    name subject: String,
    alternative: String
  ) throws {
    try makeRequest(name, subject)
    try write("\(name).ext", "subjectAltName=\(alternative)\n")
    try openssl(
      "x509",
      "-req",
      "-in",
      "\(name).csr",
      "-CA",
      "\(authority).pem",
      "-CAkey",
      "\(authority).key",
      "-CAcreateserial",
      "-days",
      "2",
      "-extfile",
      "\(name).ext",
      "-out",
      "\(name).pem"
    )
  }

  private func makeExpired(_ name: String, by authority: String) throws {
    try makeRequest(name, "localhost")
    try write("index.txt", "")
    try write("serial", "01\n")
    try write(
      "ca.cnf",
      """
      [ca]
      default_ca = it
      [it]
      database = index.txt
      serial = serial
      new_certs_dir = .
      default_md = sha256
      policy = any
      x509_extensions = names
      [any]
      commonName = supplied
      [names]
      subjectAltName = DNS:localhost

      """
    )
    try openssl(
      "ca",
      "-batch",
      "-config",
      "ca.cnf",
      "-cert",
      "\(authority).pem",
      "-keyfile",
      "\(authority).key",
      "-startdate",
      "20200101000000Z",
      "-enddate",
      "20200102000000Z",
      "-in",
      "\(name).csr",
      "-out",
      "\(name).pem",
      "-notext"
    )
  }

  private func openssl(_ arguments: String...) throws {
    let output = try Command.runHere("openssl", arguments, directory: directory.path)
    guard output.status == 0 else { throw Failed(text: output.error) }
  }

  struct Failed: Error { let text: String }
}
