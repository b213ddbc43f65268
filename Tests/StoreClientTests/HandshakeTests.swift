import NIOCore
import NIOEmbedded
import ReceiptModel
import ReceiptWire
import Testing

@testable import StoreClient

/// The handshake: proofs, versions, refusals, and peers that are no store.
struct HandshakeTests {
  static let old = Array("old secret".utf8)
  static let new = Array("new secret".utf8)

  struct SecretRow: CustomTestStringConvertible {
    var client: [[UInt8]]
    var store: [[UInt8]]
    var opens: Bool
    var testDescription: String
  }

  @Test(arguments: [
    SecretRow(client: [], store: [], opens: true, testDescription: "no secrets"),
    SecretRow(client: [new], store: [new], opens: true, testDescription: "the same secret"),
    SecretRow(client: [new], store: [old], opens: false, testDescription: "different secrets"),
    SecretRow(client: [new], store: [], opens: false, testDescription: "the store has none"),
    SecretRow(client: [], store: [new], opens: false, testDescription: "the gateway has none"),
    SecretRow(client: [new, old], store: [old], opens: true, testDescription: "gateway renewed first"),
    SecretRow(client: [old], store: [new, old], opens: false, testDescription: "store renewed first"),
    SecretRow(client: [new, old], store: [new, old], opens: true, testDescription: "both renewed"),
    SecretRow(client: [old, new], store: [new, old], opens: true, testDescription: "in other orders"),
  ])
  func secretsMustMatch(_ row: SecretRow) {
    let harness = ClientHarness { $0.secrets = row.client }
    harness.store.secrets = row.store
    harness.command(1)
    harness.open()
    #expect(harness.client.isReady == row.opens)
    #expect(harness.recorder.replies == (row.opens ? [1] : []))
    // A store without a valid proof gets neither proof nor request.
    if !row.opens { #expect(harness.store.requests.isEmpty) }
  }

  @Test func unprovenStoreGetsNoProof() {
    for proof in [[], [UInt8](repeating: 0, count: 32), [1, 2, 3], [UInt8](repeating: 7, count: 64)] {
      let harness = ClientHarness { $0.secrets = [Self.new] }
      harness.store.secrets = [Self.new]
      harness.store.proofOverride = proof
      harness.open()
      #expect(!harness.client.isReady)
      #expect(harness.store.connections[0].frames.map(\.kind) == [.hello])
    }
  }

  @Test func helloHasIdentityAndSessionAge() {
    let harness = ClientHarness { $0.name = String(repeating: "ä", count: 40) }
    harness.open()
    harness.advance(.milliseconds(700))
    harness.cut()
    harness.advance(.milliseconds(300))
    let hellos = harness.store.hellos
    #expect(hellos.count == 2)
    #expect(hellos[0].name == String(repeating: "ä", count: 32))
    #expect(hellos[0].versionLowest == 1 && hellos[0].versionHighest == 1)
    #expect(hellos[0].sessionAgeMilliseconds == nil)
    #expect(hellos[1].session == hellos[0].session)
    #expect(hellos[1].nonce != hellos[0].nonce)
    let age = hellos[1].sessionAgeMilliseconds ?? 0
    #expect(age >= 700 && age <= 1000)
  }

  @Test func unsupportedVersionsAndLimitsAreRefused() {
    let changes: [(EchoStore) -> Void] = [
      { $0.version = 2 }, { $0.window = 0 }, { $0.frameLengthMax = 100 },
    ]
    for change in changes {
      let harness = ClientHarness()
      change(harness.store)
      harness.open()
      #expect(!harness.client.isReady)
      #expect(harness.store.connections[0].frames.map(\.kind) == [.hello])
      harness.store.version = 1
      harness.store.window = 100
      harness.store.frameLengthMax = 1 << 20
      harness.advance(.seconds(1))
      #expect(harness.client.isReady)
    }
  }

  static let garbage: [(name: String, hex: String)] = [
    ("HTTP", "485454502f312e3120343030204261642052657175657374"),
    ("length below 8", "00000007 06000000"),
    ("oversized length", "00100001 02000000 00000000"),
    ("largest length", "ffffffff 02000000 00000000"),
    ("unknown kind", "00000008 7f000000 00000000"),
    ("unknown flags", "00000008 02800000 00000000"),
    ("ready before the challenge", "0000000b 04000000 00000000 000100"),
    ("challenge cut short", "0000000a 02000000 00000000 0101"),
    ("an error without fields", "00000008 0f000000 00000000"),
    ("a reply out of its turn", "00000009 94000000 00000001 00"),
  ]

  @Test(arguments: garbage)
  func garbageInsteadOfChallengeClosesConnection(_ row: (name: String, hex: String)) {
    let harness = ClientHarness()
    harness.command(1)
    harness.client.start()
    harness.loop.run()
    harness.deliver(ByteBuffer(hex: row.hex))
    #expect(harness.channel?.isActive == false, "\(row.name)")
    harness.advance(.seconds(1))
    #expect(harness.client.isReady, "\(row.name): not opened again")
    #expect(harness.recorder.replies == [1])
  }

  @Test(arguments: garbage)
  func garbageAfterTheOpeningClosesTheConnection(_ row: (name: String, hex: String)) {
    let harness = ClientHarness()
    harness.store.holdsReplies = true
    harness.open()
    harness.command(1)
    harness.flush()
    harness.deliver(ByteBuffer(hex: row.hex))
    #expect(!harness.client.isReady, "\(row.name)")
    harness.store.holdsReplies = false
    harness.advance(.seconds(1))
    #expect(harness.recorder.replies == [1], "\(row.name)")
    #expect(harness.store.requests.map(\.isResend) == [false, true])
  }

  @Test func strayRepliesCloseTheConnection() {
    for change in ["other correlation", "other kind", "twice", "before it was sent"] {
      let harness = ClientHarness()
      harness.store.holdsReplies = true
      harness.open()
      harness.command(1)
      harness.flush()
      let request = harness.store.waiting[0]
      var bytes = ByteBuffer()
      switch change {
      case "other correlation":
        bytes.writeFrame(FrameHeader(replyTo: .markRead, correlation: request.correlation + 1)) { _ in }
      case "other kind":
        bytes.writeFrame(FrameHeader(replyTo: .markUnread, correlation: request.correlation)) { _ in }
      case "before it was sent":
        harness.command(2)
        bytes.writeFrame(FrameHeader(replyTo: .markRead, correlation: request.correlation + 1)) { _ in }
      default:
        for _ in 0..<2 {
          bytes.writeFrame(FrameHeader(replyTo: .markRead, correlation: request.correlation)) { _ in }
        }
      }
      harness.deliver(bytes)
      #expect(!harness.client.isReady, "\(change)")
      #expect(harness.recorder.replies == (change == "twice" ? [1] : []), "\(change)")
    }
  }

  @Test func slowOpeningTimesOut() {
    let harness = ClientHarness()
    harness.client.start()
    harness.loop.run()
    // The store never answers the hello.
    for _ in 0..<99 { harness.loop.advanceTime(by: .milliseconds(100)) }
    #expect(harness.attempts.count == 1)
    harness.loop.advanceTime(by: .milliseconds(200))
    #expect(harness.attempts.count == 2)
    harness.advance(.seconds(1))
    #expect(harness.client.isReady)
  }

  @Test func channelErrorsCloseTheConnection() {
    let harness = ClientHarness()
    harness.open()
    var bytes = ByteBuffer()
    bytes.writeError(.superseded, detail: "elsewhere")
    harness.deliver(bytes)
    #expect(!harness.client.isReady)
    harness.advance(.seconds(1))
    #expect(harness.client.isReady)
    #expect(harness.store.hellos[0].session == harness.store.hellos[1].session)
  }
}

extension ByteBuffer {
  /// Parse hexadecimal digits; blanks are ignored.
  init(hex: String) {
    let digits = hex.compactMap(\.hexDigitValue)
    self.init(bytes: stride(from: 0, to: digits.count, by: 2).map { UInt8(digits[$0] << 4 | digits[$0 + 1]) })
  }
}
