import NIOCore
import Operations
import StoreEtcd
import TLSSession
import TestPrograms

/// Configurations of clients.
extension EtcdProcesses {
  /// A configuration of a client of all servers. Its calls have long time limits, so that none fails on a loaded
  /// machine.
  ///
  /// - Parameter endpoints: addresses to use instead of the servers'.
  func configuration(cluster: String = "test", endpoints: [Endpoint]? = nil) throws -> EtcdConfiguration {
    var tls: TLSContext?
    if hasTLS {
      tls = try TLSContext(
        client: TLSClientConfiguration(
          authorityFile: file("link-ca.pem"),
          certificateChainFile: file("client-cert.pem"),
          privateKeyFile: file("client-key.pem")
        )
      )
    }
    let endpoints = endpoints ?? servers.map(\.client)
    var configuration = try EtcdConfiguration(cluster: cluster, endpoints: endpoints, tls: tls)
    configuration.callTimeout = .seconds(20)
    configuration.connectTimeout = .seconds(20)
    return configuration
  }

  /// A configuration of a client of all servers, with the time limits of a service.
  func serviceConfiguration() throws -> EtcdConfiguration {
    try EtcdConfiguration(cluster: "test", endpoints: servers.map(\.client))
  }

  func configurationWithoutCertificate() throws -> EtcdConfiguration {
    let tls = try TLSContext(client: TLSClientConfiguration(authorityFile: file("link-ca.pem")))
    return try EtcdConfiguration(cluster: "test", endpoints: servers.map(\.client), tls: tls)
  }
}
