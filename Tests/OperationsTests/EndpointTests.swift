import Testing

@testable import Operations

@Suite struct EndpointTests {
  @Test(arguments: [
    ("127.0.0.1:8443", "127.0.0.1", 8443), ("localhost:0", "localhost", 0), ("[::1]:65535", "::1", 65535),
    ("[2001:db8::7]:1", "2001:db8::7", 1), ("store-1.internal:7000", "store-1.internal", 7000),
  ])
  func endpointIsParsed(_ text: String, _ host: String, _ port: Int) throws {
    let endpoint = try #require(Endpoint(text))
    #expect(endpoint == Endpoint(host: host, port: port))
    #expect(endpoint.description == text)
  }

  @Test(arguments: [
    "", ":", ":80", "host", "host:", "host:x", "host:-1", "host:65536", "host:000080", "::1:80", "[::1]",
    "[]:80",
    "[host]:80", "a b:80", "host:80 ", "http://host:80", "host:+80", "host:８０",
  ])
  func invalidEndpointIsRefused(_ text: String) {
    #expect(Endpoint(text) == nil)
  }
}
