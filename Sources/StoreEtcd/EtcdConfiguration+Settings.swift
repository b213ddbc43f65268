package import Operations
package import TLSSession

/// Servers of etcd as an operator names them, for nodes and for `tidemark cluster`. Errors name the setting.
extension EtcdConfiguration {
  /// - Parameters:
  ///   - cluster: setting `cluster`.
  ///   - urls: setting `log`.
  ///   - files: settings `log-ca`, `log-cert` and `log-key`; read only for `https://`.
  package init(cluster: String, urls: [String], files: TLSClientConfiguration) throws(SettingsError) {
    guard !urls.isEmpty else {
      throw SettingsError("log", "is missing: give etcd's servers, such as https://e1:2379,https://e2:2379")
    }
    let servers = try urls.map { text throws(SettingsError) in
      guard let url = HTTPURL(text), url.path == "/" else {
        throw SettingsError("log", "\"\(text)\": give https://HOST:PORT")
      }
      return url
    }
    guard servers.allSatisfy({ $0.usesTLS == servers[0].usesTLS }) else {
      throw SettingsError("log", "give https:// for all servers, or for none")
    }
    let tls = servers[0].usesTLS ? try Self.tls(files) : nil
    do throws(Refusal) {
      try self.init(cluster: cluster, endpoints: servers.map(\.endpoint), tls: tls)
    } catch {
      throw Self.settingsError(error)
    }
  }

  private static func tls(_ files: TLSClientConfiguration) throws(SettingsError) -> TLSContext {
    do { return try TLSContext(client: files) } catch {
      throw SettingsError("log-cert", "the files of log-cert, log-key and log-ca: \(error)")
    }
  }

  private static func settingsError(_ refusal: Refusal) -> SettingsError {
    switch refusal {
    case .noEndpoint: SettingsError("log", "is missing: give etcd's servers")
    case .badClusterName:
      SettingsError("cluster", "has to be 1 to 64 letters, digits, hyphens, underscores and full stops")
    case .plaintextOffLoopback(let endpoint):
      SettingsError("log", "\(endpoint): is not on this machine: give https:// with --log-cert, --log-key and --log-ca")
    }
  }
}
