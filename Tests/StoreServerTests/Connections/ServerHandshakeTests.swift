import Crypto
import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

@testable import StoreServer

/// The store's side of a handshake (Proto/frames.md, "Handshake").
@Suite struct ServerHandshakeTests {
  private static let session = SessionID(high: 3, low: 4)
  private static let gatewayNonce = Nonce([UInt8](repeating: 1, count: Nonce.byteCount))
  private static let storeNonce = Nonce([UInt8](repeating: 2, count: Nonce.byteCount))

  /// The store's side, and what it has answered.
  private struct Store {
    var handshake: ServerHandshake

    init(secrets: [String] = ["current", "previous"]) {
      handshake = ServerHandshake(
        terms: ServerHandshake.Terms(
          secrets: secrets.map { Array($0.utf8) },
          window: 128,
          frameLengthMax: 4_096,
          shardCount: 8,
          store: SessionID(high: 9, low: 9),
          sessionLifetimeMilliseconds: 60_000
        )
      )
    }

    /// The action in a word: `challenge`, `open`, `resumed` or the code of a refusal.
    mutating func received(_ kind: FrameKind, _ payload: ByteBuffer) throws -> String {
      let action = try handshake.frameReceived(kind, payload.readableBytesSpan) {
        ServerHandshakeTests.storeNonce
      }
      return switch action {
      case .send: "challenge"
      case .open(let ready, let session, let name):
        session == ServerHandshakeTests.session && name == "g1"
          ? ready.isResumed ? "resumed" : "open" : "other"
      case .refuse(let code, _): "\(code)"
      }
    }

    mutating func hello(age: UInt64? = nil, versions: ClosedRange<UInt32> = 1...1) throws -> String {
      var hello = Hello(
        session: ServerHandshakeTests.session,
        sessionAgeMilliseconds: age,
        nonce: ServerHandshakeTests.gatewayNonce,
        name: "g1"
      )
      hello.versionLowest = versions.lowerBound
      hello.versionHighest = versions.upperBound
      var payload = ByteBuffer()
      hello.write(into: &payload)
      payload.moveReaderIndex(forwardBy: FrameHeader.byteCount)
      return try received(.hello, payload)
    }

    mutating func proof(_ secret: String, side: Proof.Side = .gateway) throws -> String {
      let material = Proof.material(
        side,
        gateway: ServerHandshakeTests.gatewayNonce,
        store: ServerHandshakeTests.storeNonce,
        session: ServerHandshakeTests.session
      )
      let key = SymmetricKey(data: Array(secret.utf8))
      var payload = ByteBuffer()
      Proof(bytes: Array(HMAC<SHA256>.authenticationCode(for: material, using: key))).write(into: &payload)
      payload.moveReaderIndex(forwardBy: FrameHeader.byteCount)
      return try received(.proof, payload)
    }
  }

  @Test(arguments: ["current", "previous"])
  func eitherSecretIsAccepted(_ secret: String) throws {
    var store = Store()
    #expect(try store.hello() == "challenge")
    #expect(try store.proof(secret) == "open")
  }

  @Test func wrongSecretIsRefused() throws {
    var store = Store()
    #expect(try store.hello() == "challenge")
    #expect(try store.proof("wrong") == "authenticationFailed")
  }

  /// The store's own proof, sent back to it, proves nothing.
  @Test func reflectedProofIsRefused() throws {
    var store = Store()
    #expect(try store.hello() == "challenge")
    #expect(try store.proof("current", side: .store) == "authenticationFailed")
  }

  @Test func anyProofIsAcceptedWithoutSecrets() throws {
    var store = Store(secrets: [])
    #expect(try store.hello() == "challenge")
    #expect(try store.proof("any") == "open")
  }

  @Test func sessionResumesWithinItsLifetime() throws {
    var store = Store()
    #expect(try store.hello(age: 60_000) == "challenge")
    #expect(try store.proof("current") == "resumed")
    var late = Store()
    #expect(try late.hello(age: 60_001) == "sessionExpired")
  }

  @Test func otherVersionsAreRefused() throws {
    for versions in [0...0, 2...3] as [ClosedRange<UInt32>] {
      var store = Store()
      #expect(try store.hello(versions: versions) == "unsupportedVersion")
    }
    var store = Store()
    #expect(try store.hello(versions: 0...7) == "challenge")
  }

  @Test func framesOutOfOrderAreRefused() throws {
    var early = Store()
    #expect(try early.proof("current") == "handshakeRequired")
    #expect(try early.hello() == "handshakeRequired")
    var twice = Store()
    #expect(try twice.hello() == "challenge")
    #expect(try twice.hello() == "handshakeRequired")
    #expect(try twice.proof("current") == "handshakeRequired")
    var open = Store()
    _ = try open.hello()
    _ = try open.proof("current")
    #expect(try open.hello() == "handshakeRequired")
  }

  @Test func truncatedHelloThrows() throws {
    var payload = ByteBuffer()
    Hello(session: Self.session, sessionAgeMilliseconds: nil, nonce: Self.gatewayNonce, name: "g1")
      .write(into: &payload)
    payload.moveReaderIndex(forwardBy: FrameHeader.byteCount)
    for count in 0..<payload.readableBytes {
      var store = Store()
      let part = payload.getSlice(at: payload.readerIndex, length: count)!
      #expect(throws: WireError.self) { try store.received(.hello, part) }
    }
  }
}
