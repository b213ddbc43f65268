import NIOCore
import Testing

@testable import FeedClient
@testable import Worker

/// Rules without state: addresses, URLs, delays, lines of the feed.
@Suite struct RuleTests {
  @Test(arguments: [
    ("0.0.0.0", "unspecified"), ("10.1.2.3", "private"), ("100.64.0.1", "carrier-grade NAT"), ("127.0.0.1", "loopback"),
    ("169.254.169.254", "link-local"), ("172.31.255.255", "private"), ("192.0.0.8", "protocol assignment"),
    ("192.168.1.1", "private"), ("198.19.0.1", "benchmarking"), ("224.0.0.1", "multicast"),
    ("255.255.255.255", "reserved"), ("::", "unspecified"), ("::1", "loopback"), ("::ffff:8.8.8.8", "IPv4-mapped"),
    ("::ffff:127.0.0.1", "IPv4-mapped"), ("::7f00:1", "IPv4-compatible"), ("64:ff9b::7f00:1", "NAT64"),
    ("64:ff9b:1::1", "NAT64"), ("2001::1", "Teredo or protocol assignment"), ("2001:db8::1", "documentation"),
    ("2002:7f00:1::", "6to4"), ("fc00::1", "private"), ("fd12::1", "private"), ("fe80::1", "link-local"),
    ("fec0::1", "site-local"), ("ff02::1", "multicast"), ("4000::1", "reserved"),
  ])
  func specialAddressesAreRefused(_ address: String, _ kind: String) throws {
    #expect(AddressRules.refusal(of: try SocketAddress(ipAddress: address, port: 443)) == kind)
  }

  @Test(arguments: ["8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00:1450::1", "2001:4860::8888"])
  func publicAddressesAreAllowed(_ address: String) throws {
    #expect(AddressRules.refusal(of: try SocketAddress(ipAddress: address, port: 443)) == nil)
  }

  @Test(arguments: [
    ("https://example.com", "https://example.com:443/"),
    ("HTTPS://Example.COM:8443/a?b=c", "https://example.com:8443/a?b=c"),
    ("http://127.0.0.1", "http://127.0.0.1:80/"), ("https://[2001:DB8::1]:1/x", "https://[2001:db8::1]:1/x"),
    ("https://example.com?x", "https://example.com:443/?x"),
  ])
  func urlsAreNormalised(_ text: String, _ normal: String) {
    #expect(EndpointURL(text)?.text == normal)
  }

  @Test(arguments: [
    "", "example.com", "https://", "https:///x", "https://a b/", "https://u:p@h/", "https://h#f", "https://h:0/",
    "https://h:99999/", "https://h:/", "https://[::1", "https://[127.0.0.1]/", "https://h\\@evil/",
    "https://ex\u{e4}mple/",
    "https://a%2fb/",
  ])
  func invalidURLsAreRefused(_ text: String) {
    #expect(EndpointURL(text) == nil)
  }

  @Test func delaysDoubleToTheirCap() {
    let failure = DeliveryFailure(.status(500), "")
    let delays = (1...12).map { RetrySchedule.delay(afterAttempts: $0, failure, jitter: 0) / 1_000 }
    #expect(delays == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600])
    #expect(RetrySchedule.delay(afterAttempts: 3, failure, jitter: 1) == 2_000)
    #expect(RetrySchedule.delay(afterAttempts: .max, failure, jitter: 0.5) == 450_000)
  }

  @Test func retryAfterIsHonouredWithinBounds() {
    let now: Int64 = 784_111_777_000
    #expect(RetryAfter.milliseconds("7", now: now) == 7_000)
    #expect(RetryAfter.milliseconds("Sun, 06 Nov 1994 08:49:47 GMT", now: now) == 10_000)
    #expect(RetryAfter.milliseconds("Sun, 06 Nov 1994 08:49:27 GMT", now: now) == 0)
    for text in ["", "-1", "+1", "soon", "Sun, 06 Nop 1994 08:49:27 GMT", "1e3"] {
      #expect(RetryAfter.milliseconds(text, now: now) == nil, "\(text)")
    }
    func delay(_ status: Int, _ value: String) -> Int64 {
      let failure = DeliveryFailure.status(status, location: nil, retryAfter: value, excerpt: "", now: now)
      return RetrySchedule.delay(afterAttempts: 1, failure, jitter: 0)
    }
    #expect(delay(429, "30") == 30_000)
    #expect(delay(503, "99999999999") == 3_600_000)
    #expect(delay(500, "30") == 1_000)
    #expect(delay(410, "30") == 600_000)
  }

  @Test func failuresNameTheirCause() {
    let redirect = DeliveryFailure.status(302, location: "/new", retryAfter: nil, excerpt: "", now: 0)
    #expect(redirect.detail.contains("redirects are not followed") && redirect.detail.contains("/new"))
    #expect(redirect.cause.label == "3xx" && DeliveryFailure(.status(410), "").cause.label == "gone")
  }

  @Test func linesAreParsedWithoutTheirValues() throws {
    func parse(_ text: String) throws -> FeedLine { try FeedLine(Array(text.utf8)[...]) }
    #expect(
      try parse(#"{"type":"lease","epoch":7,"state":"{\"v\":1}","cursor":"c"}"#)
        == .lease(FeedLease(epoch: 7, cursor: "c", state: #"{"v":1}"#))
    )
    #expect(try parse(#" { "cursor" : "c" , "type":"heartbeat","at":"x"} "#) == .heartbeat(cursor: "c"))
    #expect(try parse(#"{"type":"lease_lost"}"#) == .leaseLost)
    #expect(
      try parse(#"{"cursor":"c","type":"gap","from":"a","to":"b"}"#) == .gap(cursor: "c", from: "a", to: "b")
    )
    let record = try parse(
      #"{"id":"i\u0041","cursor":"c","type":"read","user":{"id":"}\"{","x":[1,{"cursor":"no"}]},"at":1.50}"#
    )
    #expect(
      record
        == .record(
          FeedRecord(
            cursor: "c",
            id: "iA",
            json: Array(#"{"id":"i\u0041","type":"read","user":{"id":"}\"{","x":[1,{"cursor":"no"}]},"at":1.50}"#.utf8)
          )
        )
    )
    for text in [
      "", "[]", "{}", "{", #"{"type":"read"}"#, #"{"type":"read","cursor":"c"}"#, #"{"type":"lease"}"#, #"{"type":"x"#,
      #"{"type":"read","cursor":"c","id":"i"} x"#, #"{"type":"read","cursor":"c","id":[1}"#, #"{"type":"heartbeat"}"#,
    ] {
      #expect(throws: FeedLine.Fault.self, "\(text)") { try parse(text) }
    }
  }
}
