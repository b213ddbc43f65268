import Operations
import StoreEtcd
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
}
