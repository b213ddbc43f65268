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
    let world = ClientWorld { $0.secrets = row.client }
    world.store.secrets = row.store
    world.command(1)
    world.open()
    #expect(world.client.isReady == row.opens)
    #expect(world.recorder.replies == (row.opens ? [1] : []))
    // A store without a valid proof gets neither proof nor request.
    if !row.opens { #expect(world.store.requests.isEmpty) }
  }

  @Test func unprovenStoreGetsNoProof() {
    for proof in [[], [UInt8](repeating: 0, count: 32), [1, 2, 3], [UInt8](repeating: 7, count: 64)] {
      let world = ClientWorld { $0.secrets = [Self.new] }
      world.store.secrets = [Self.new]
      world.store.proofOverride = proof
      world.open()
      #expect(!world.client.isReady)
      #expect(world.store.connections[0].frames.map(\.kind) == [.hello])
    }
  }

  @Test func helloHasIdentityAndSessionAge() {
    let world = ClientWorld { $0.name = String(repeating: "ä", count: 40) }
    world.open()
    world.advance(.milliseconds(700))
    world.cut()
    world.advance(.milliseconds(300))
    let hellos = world.store.hellos
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
    let changes: [(FakeStore) -> Void] = [
      { $0.version = 2 }, { $0.window = 0 }, { $0.frameLengthMax = 100 },
    ]
    for change in changes {
      let world = ClientWorld()
      change(world.store)
      world.open()
      #expect(!world.client.isReady)
      #expect(world.store.connections[0].frames.map(\.kind) == [.hello])
      world.store.version = 1
      world.store.window = 100
      world.store.frameLengthMax = 1 << 20
      world.advance(.seconds(1))
      #expect(world.client.isReady)
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

  @Test(arguments: garbage.indices)
  func garbageInsteadOfAChallengeClosesTheConnection(_ index: Int) {
    let row = Self.garbage[index]
    let world = ClientWorld()
    world.command(1)
    world.client.start()
    world.loop.run()
    world.deliver(ByteBuffer(hex: row.hex))
    #expect(world.channel?.isActive == false, "\(row.name)")
    world.advance(.seconds(1))
    #expect(world.client.isReady, "\(row.name): not opened again")
    #expect(world.recorder.replies == [1])
  }

  @Test(arguments: garbage.indices)
  func garbageAfterTheOpeningClosesTheConnection(_ index: Int) {
    let row = Self.garbage[index]
    let world = ClientWorld()
    world.store.holdsReplies = true
    world.open()
    world.command(1)
    world.flush()
    world.deliver(ByteBuffer(hex: row.hex))
    #expect(!world.client.isReady, "\(row.name)")
    world.store.holdsReplies = false
    world.advance(.seconds(1))
    #expect(world.recorder.replies == [1], "\(row.name)")
    #expect(world.store.requests.map(\.isResend) == [false, true])
  }

  @Test func strayRepliesCloseTheConnection() {
    for change in ["other correlation", "other kind", "twice", "before it was sent"] {
      let world = ClientWorld()
      world.store.holdsReplies = true
      world.open()
      world.command(1)
      world.flush()
      let request = world.store.waiting[0]
      var bytes = ByteBuffer()
      switch change {
      case "other correlation":
        bytes.writeFrame(FrameHeader(.markReadReply, correlation: request.correlation + 1)) { _ in }
      case "other kind":
        bytes.writeFrame(FrameHeader(.markUnreadReply, correlation: request.correlation)) { _ in }
      case "before it was sent":
        world.command(2)
        bytes.writeFrame(FrameHeader(.markReadReply, correlation: request.correlation + 1)) { _ in }
      default:
        for _ in 0..<2 {
          bytes.writeFrame(FrameHeader(.markReadReply, correlation: request.correlation)) { _ in }
        }
      }
      world.deliver(bytes)
      #expect(!world.client.isReady, "\(change)")
      #expect(world.recorder.replies == (change == "twice" ? [1] : []), "\(change)")
    }
  }

  @Test func slowOpeningTimesOut() {
    let world = ClientWorld()
    world.client.start()
    world.loop.run()
    // The store never answers the hello.
    for _ in 0..<99 { world.loop.advanceTime(by: .milliseconds(100)) }
    #expect(world.attempts.count == 1)
    world.loop.advanceTime(by: .milliseconds(200))
    #expect(world.attempts.count == 2)
    world.advance(.seconds(1))
    #expect(world.client.isReady)
  }

  @Test func channelErrorsCloseTheConnection() {
    let world = ClientWorld()
    world.open()
    var bytes = ByteBuffer()
    bytes.writeError(.superseded, detail: "elsewhere")
    world.deliver(bytes)
    #expect(!world.client.isReady)
    world.advance(.seconds(1))
    #expect(world.client.isReady)
    #expect(world.store.hellos[0].session == world.store.hellos[1].session)
  }
}

extension ByteBuffer {
  /// Parse hexadecimal digits; blanks are ignored.
  init(hex: String) {
    let digits = hex.compactMap(\.hexDigitValue)
    self.init(bytes: stride(from: 0, to: digits.count, by: 2).map { UInt8(digits[$0] << 4 | digits[$0 + 1]) })
  }
}
