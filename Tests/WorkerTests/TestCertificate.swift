import Foundation
import TestPrograms
import TestSupport

/// Files of a certificate, its key and its CA.
enum TestCertificate {
  /// Create `cert.pem`, `key.pem` and `ca.pem` in a folder that is passed to `body` and removed after it.
  ///
  /// - Parameter names: what the certificate is for.
  static func with(_ names: String, _ body: (_ folder: String) async throws -> Void) async throws {
    let folder = NSTemporaryDirectory() + "tidemark-worker-tls-\(UUID().uuidString)"
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(atPath: folder) }
    try "subjectAltName=\(names)".write(toFile: folder + "/names", atomically: true, encoding: .utf8)
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    for arguments in [
      ["req", "-x509", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca", "-days", "2"] + key,
      ["req", "-keyout", "key.pem", "-out", "request", "-subj", "/CN=localhost"] + key,
      [
        "x509", "-req", "-in", "request", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "cert.pem",
        "-days", "2", "-extfile", "names",
      ],
    ] {
      let output = try await Command.run("openssl", arguments, directory: folder)
      guard output.status == 0 else { throw Unexpected("openssl: \(output)") }
    }
    try await body(folder)
  }
}
