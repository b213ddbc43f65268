package import Operations
package import TLSSession

/// Files with which one end of the link between gateways and store authenticates itself and verifies the other end.
package struct LinkTLSFiles: Sendable, Equatable {
  /// PEM file and the setting that names it.
  package struct File: Sendable, Equatable {
    package var path: String
    /// Key of the setting, such as `tls-cert`.
    package var key: String

    package init(_ path: String, key: String) {
      self.path = path
      self.key = key
    }
  }

  /// This end's certificate first, then the chain.
  package var certificate: File
  /// Private key of that certificate, without a password.
  package var privateKey: File
  /// Authorities that must have issued the other end's certificate.
  package var authority: File

  package init(certificate: File, privateKey: File, authority: File) {
    self.certificate = certificate
    self.privateKey = privateKey
    self.authority = authority
  }

  /// Create the files from `--tls-cert`, `--tls-key` and `--tls-ca`: all three, or none.
  ///
  /// - Returns: nil for none.
  package init?(certificate: String?, privateKey: String?, authority: String?) throws(SettingsError) {
    if certificate == nil, privateKey == nil, authority == nil { return nil }
    let purpose = "--tls-cert, --tls-key and --tls-ca go together, or none of them"
    guard let certificate else { throw SettingsError("tls-cert", "is missing: \(purpose)") }
    guard let privateKey else { throw SettingsError("tls-key", "is missing: \(purpose)") }
    guard let authority else { throw SettingsError("tls-ca", "is missing: \(purpose)") }
    self.init(
      certificate: File(certificate, key: "tls-cert"),
      privateKey: File(privateKey, key: "tls-key"),
      authority: File(authority, key: "tls-ca")
    )
  }

  /// Read and check the files for an end.
  ///
  /// - Throws: an error that names the setting whose file cannot be used.
  package func context(of end: LinkTLS.End) throws(SettingsError) -> TLSContext {
    do throws(TLSError) {
      switch end {
      case .store: return try TLSContext(server: serverConfiguration)
      case .gateway: return try TLSContext(client: clientConfiguration)
      }
    } catch {
      throw settingsError(error)
    }
  }

  var serverConfiguration: TLSServerConfiguration {
    var configuration = TLSServerConfiguration(
      certificateChainFile: certificate.path,
      privateKeyFile: privateKey.path,
      clientAuthorityFile: authority.path,
      applicationProtocol: .frames
    )
    configuration.versions = LinkTLS.versions
    // A gateway's certificate is verified on every connection, without session resumption.
    configuration.issuesTickets = false
    return configuration
  }

  var clientConfiguration: TLSClientConfiguration {
    var configuration = TLSClientConfiguration(
      authorityFile: authority.path,
      certificateChainFile: certificate.path,
      privateKeyFile: privateKey.path,
      applicationProtocol: .frames
    )
    configuration.versions = LinkTLS.versions
    return configuration
  }

  /// Paths of the files.
  package var paths: [String] { [certificate.path, privateKey.path, authority.path] }

  /// Convert an error to one that names the setting.
  func settingsError(_ error: TLSError) -> SettingsError {
    guard case .file(let path, let reason) = error,
      let file = [certificate, privateKey, authority].first(where: { $0.path == path })
    else { return SettingsError(certificate.key, "cannot be used: \(error)") }
    return SettingsError(file.key, "\(path): \(reason)")
  }
}
