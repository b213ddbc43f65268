import NIOCore
import Operations
import Testing

@testable import Gateway

/// The PROXY protocol, as HAProxy specifies it.
@Suite struct ProxyHeaderTests {
  private func address(_ text: String) throws -> PeerAddress {
    try #require(PeerAddress(SocketAddress(ipAddress: text, port: 0)))
  }

  @Test(
    arguments: [
      ("PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\nPRI", "192.0.2.7"),
      ("PROXY TCP6 2001:db8::7 2001:db8::1 56324 443\r\n", "2001:db8::7"),
      ("PROXY UNKNOWN\r\n", nil), ("PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", nil),
    ] as [(String, String?)]
  )
  func version1HeaderIsParsed(_ line: String, client: String?) throws {
    let count =
      try #require(
        line.utf8.firstIndex(of: UInt8(ascii: "\n")).map { line.utf8.distance(from: line.startIndex, to: $0) }
      ) + 1
    let expected = ProxyHeader.complete(client: try client.map(address), byteCount: count)
    #expect(ProxyHeader(Array(line.utf8)) == expected)
    for cut in 0..<count { #expect(ProxyHeader(Array(line.utf8.prefix(cut))) == .incomplete) }
  }

  @Test(
    arguments: [
      "GET / HTTP/1.1\r\n", "PRI * HTTP/2.0\r\n", "PROXY TCP4 192.0.2.7\r\n", "PROXY TCP4 a b 1 2\r\n",
      "PROXY TCP6 192.0.2.7 192.0.2.8 1 2\r\n", "PROXY TCP4 192.0.2.7 192.0.2.8 1 66000\r\n", "PROXY \n",
      "PROXY TCP4 192.0.2.7 192.0.2.8 1 2\n", "PROXY UNKNOWN " + String(repeating: "x", count: 100) + "\r\n",
    ]
  )
  func invalidHeaderIsRejected(_ line: String) { #expect(ProxyHeader(Array(line.utf8)) == .invalid) }

  /// Extensions are skipped. The proxy's own connections have no client address.
  @Test
  func version2HeaderIsParsed() throws {
    let signature: [UInt8] = [0x0D, 0x0A, 0x0D, 0x0A, 0, 0x0D, 0x0A, 0x51, 0x55, 0x49, 0x54, 0x0A]
    let ipv4: [UInt8] = [192, 0, 2, 7, 198, 51, 100, 1, 0xDC, 4, 1, 0xBB]
    let ipv6: [UInt8] =
      [0x20, 1, 0xD, 0xB8] + Array(repeating: 0, count: 11) + [7] + Array(repeating: 1, count: 20)
    let extra: [UInt8] = [4, 0, 1, 9]
    for (command, family, body, expected) in [
      (0x21, 0x11, ipv4, "192.0.2.7"), (0x21, 0x11, ipv4 + extra, "192.0.2.7"),
      (0x21, 0x21, ipv6, "2001:db8::7"),
      (0x20, 0x00, [], nil), (0x20, 0x11, ipv4, nil), (0x21, 0x31, Array(repeating: 1, count: 216), nil),
    ] as [(UInt8, UInt8, [UInt8], String?)] {
      let header = signature + [command, family, UInt8(body.count >> 8), UInt8(body.count & 0xFF)] + body
      #expect(
        ProxyHeader(header + [1, 2]) == .complete(client: try expected.map(address), byteCount: header.count)
      )
      for cut in 0..<header.count { #expect(ProxyHeader(Array(header.prefix(cut))) == .incomplete) }
    }
    for (command, family, length) in [
      (0x31, 0x11, 12), (0x22, 0x11, 12), (0x21, 0x11, 11), (0x21, 0x21, 35), (0x21, 0x11, 5_000),
    ]
      as [(UInt8, UInt8, Int)]
    {
      let header = signature + [command, family, UInt8(length >> 8), UInt8(length & 0xFF)]
      #expect(ProxyHeader(header + Array(repeating: 0, count: length)) == .invalid)
    }
  }
}
