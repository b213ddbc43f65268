import Crypto
import Foundation
import PushSandbox
import Testing

@testable import Worker

/// The published examples of the RFCs.
@Suite struct WebPushVectorTests {
  /// RFC 8291 section 5 and appendix A.
  private enum Example {
    static let plaintext = Array("When I grow up, I want to be a watermelon".utf8)
    static let receiverKey = "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"
    static let receiver =
      "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
    static let secret = "BTBZMqHH6r4Tts7J_aSIgg"
    static let senderKey = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"
    static let salt = "DGv6ra1nlYgDCS1FRnbzlw"
    static let body =
      "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl"
      + "7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
  }

  private static func bytes(_ text: String) throws -> [UInt8] { try #require(Base64URL.bytes(text)) }

  @Test func exampleIsEncrypted() throws {
    let subscription = WebPushSubscription(
      endpoint: "https://push.example.net/push/JzLQ3raZJfFBR0aqvOMsLrt54w4rJUsV",
      publicKey: try Self.bytes(Example.receiver),
      secret: try Self.bytes(Example.secret)
    )
    let body = try WebPushEncryption.encrypt(
      Example.plaintext,
      for: subscription,
      key: P256.KeyAgreement.PrivateKey(rawRepresentation: Self.bytes(Example.senderKey)),
      salt: Self.bytes(Example.salt)
    )
    #expect(Base64URL.text(body) == Example.body)
  }

  @Test func exampleIsDecrypted() throws {
    let key = try P256.KeyAgreement.PrivateKey(rawRepresentation: Self.bytes(Example.receiverKey))
    let secret = try Self.bytes(Example.secret)
    let body = try Self.bytes(Example.body)
    #expect(try WebPushEncryption.decrypt(body, key: key, secret: secret) == Example.plaintext)
    for index in body.indices {
      var damaged = body
      damaged[index] ^= 1
      // The record size is not authenticated, and a single record fits any size.
      guard !(16..<20).contains(index) else { continue }
      #expect(throws: (any Error).self, "byte \(index)") {
        try WebPushEncryption.decrypt(damaged, key: key, secret: secret)
      }
    }
    for count in 0..<body.count {
      #expect(throws: (any Error).self, "\(count) bytes") {
        try WebPushEncryption.decrypt(Array(body.prefix(count)), key: key, secret: secret)
      }
    }
  }

  /// RFC 8292 section 2.4.
  @Test func exampleOfVAPIDIsVerified() async throws {
    let key =
      "BA1Hxzyi1RUM1b5wjxsn7nGxAszw2u61m164i3MrAIxHF6YK5h4SDYic-dRuU_RCPCfA5aq9ojSwk5Y2EmClBPs"
    let token =
      "eyJ0eXAiOiJKV1QiLCJhbGciOiJFUzI1NiJ9.eyJhdWQiOiJodHRwczovL3B1c2guZXhhbXBsZS5uZXQiLCJleHAiOjE0NTM1MjM3NjgsInN1YiI6"
      + "Im1haWx0bzpwdXNoQGV4YW1wbGUuY29tIn0.i3CYb7t4xfxCDquptFOepC9GAu_HLGkMlMuCGSK2rpiUfnK9ojFwDXb1JrErtmysazNjjvW2L9Ok"
      + "SSHzvoD1oA"
    let header = "vapid t=\(token), k=\(key)"
    let origin = "https://push.example.net"
    let now: Int64 = 1_453_523_700_000
    func refusal(_ header: String, _ audience: String, _ now: Int64, _ expected: [UInt8]? = nil) async -> String? {
      await VAPIDVerifier.refusal(of: header, audience: audience, now: now, key: expected)
    }
    #expect(await refusal(header, origin, now, try Self.bytes(key)) == nil)
    #expect(await refusal(header, "https://push.example.com", now)?.hasPrefix("aud is") == true)
    #expect(await refusal(header, origin, 1_453_523_768_000) == "exp is not within 24 hours")
    #expect(await refusal(header, origin, now - 86_400_000) == "exp is not within 24 hours")
    let other = P256.Signing.PrivateKey().publicKey.x963Representation
    #expect(await refusal(header, origin, now, Array(other)) == "the subscription was made for another key")
    let forged = "vapid t=\(token), k=\(Base64URL.text(other))"
    #expect(await refusal(forged, origin, now) == "the signature is invalid")
  }

  @Test func ownHeadersAreVerified() async throws {
    let key = P256.Signing.PrivateKey()
    let header = try await VAPID.authorization(
      key: key,
      subject: "mailto:ops@example.com",
      audience: "https://push.example.net",
      now: 1_800_000_000_000
    )
    let refusal = await VAPIDVerifier.refusal(
      of: header,
      audience: "https://push.example.net",
      now: 1_800_000_000_000,
      key: Array(key.publicKey.x963Representation)
    )
    #expect(refusal == nil)
  }

  @Test(arguments: [
    ("chat-1", "chat-1"), (String(repeating: "a", count: 32), String(repeating: "a", count: 32)),
  ])
  func topicsArePassedOn(_ key: String, _ topic: String) { #expect(WebPushProvider.topic(key) == topic) }

  @Test(arguments: ["messaging:general", "a b", String(repeating: "a", count: 33), "ü"])
  func otherCollapseKeysAreHashed(_ key: String) {
    let topic = WebPushProvider.topic(key)
    #expect(topic.wholeMatch(of: /[A-Za-z0-9_-]{32}/) != nil && topic != key)
  }
}
