import Testing

@testable import Gateway

@Suite struct PendingRequestsTests {
  @Test func removedTokenFindsNothing() {
    var pending = PendingRequests(capacity: 2)
    let request = { PendingRequest(.tokenList(round: $0), route: .getToken) }
    func round(_ request: PendingRequest?) -> UInt32? {
      if case .tokenList(let round)? = request?.target { round } else { nil }
    }
    var tokens: [UInt64] = []
    for entry in 0..<100 { tokens.append(pending.insert(request(UInt32(entry)))) }
    #expect(pending.count == 100 && Set(tokens).count == 100)
    for (entry, token) in tokens.enumerated().reversed() {
      #expect(round(pending.remove(token)) == UInt32(entry))
      #expect(pending.remove(token) == nil)
    }
    #expect(pending.count == 0)
    let reused = pending.insert(request(7))
    #expect(!tokens.contains(reused))
    for token in tokens { #expect(pending.remove(token) == nil) }
    #expect(round(pending.remove(reused)) == 7)
    #expect(pending.remove(12_345) == nil)
  }

  /// Thousands of requests wait at once, and each mark copies one in and out.
  @Test func pendingRequestFitsIn48Bytes() { #expect(MemoryLayout<PendingRequest>.size <= 48) }
}
