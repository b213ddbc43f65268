import Operations
import StoreEtcd
import TLSSession
import Testing

@Suite struct EtcdConfigurationTests {
  private static let local = Endpoint(host: "127.0.0.1", port: 2_379)

  @Test func plaintextStaysOnLoopback() throws {
    let remote = Endpoint(host: "10.0.0.1", port: 2_379)
    #expect(throws: EtcdConfiguration.Refusal.plaintextOffLoopback(remote)) {
      try EtcdConfiguration(cluster: "c", endpoints: [Self.local, remote])
    }
    #expect(try EtcdConfiguration(cluster: "c", endpoints: [Self.local]).endpoints == [Self.local])
  }

  @Test(arguments: ["", "a/b", "a b", "é", String(repeating: "a", count: 65)])
  func namesThatWouldBreakKeysAreRefused(name: String) {
    #expect(throws: EtcdConfiguration.Refusal.badClusterName) {
      try EtcdConfiguration(cluster: name, endpoints: [Self.local])
    }
  }

  @Test func endpointIsNeeded() {
    #expect(throws: EtcdConfiguration.Refusal.noEndpoint) {
      try EtcdConfiguration(cluster: "A-1_b.c", endpoints: [])
    }
  }

  /// What an operator types, and the error that names the flag.
  @Test(arguments: [
    ("c", [], "--log is missing: give etcd's servers, such as https://e1:2379,https://e2:2379"),
    ("c", ["127.0.0.1:2379"], "--log \"127.0.0.1:2379\": give https://HOST:PORT"),
    ("c", ["http://127.0.0.1:2379/v3"], "--log \"http://127.0.0.1:2379/v3\": give https://HOST:PORT"),
    ("c", ["http://127.0.0.1:2379", "https://e2:2379"], "--log give https:// for all servers, or for none"),
    (
      "c", ["http://10.0.0.1:2379"],
      "--log 10.0.0.1:2379: is not on this machine: give https:// with --log-cert, --log-key and --log-ca"
    ),
    (
      "a/b", ["http://127.0.0.1:2379"],
      "--cluster has to be 1 to 64 letters, digits, hyphens, underscores and full stops"
    ),
  ])
  func settingsAreRefusedByName(cluster: String, urls: [String], error: String) {
    let refusal = #expect(throws: SettingsError.self) {
      try EtcdConfiguration(cluster: cluster, urls: urls, files: TLSClientConfiguration())
    }
    #expect(refusal?.description == error)
  }

  @Test func settingsNameServers() throws {
    let urls = ["http://127.0.0.1:2379", "http://[::1]:2379/"]
    let configuration = try EtcdConfiguration(cluster: "c", urls: urls, files: TLSClientConfiguration())
    #expect(configuration.endpoints == [Self.local, Endpoint(host: "::1", port: 2_379)])
  }
}
