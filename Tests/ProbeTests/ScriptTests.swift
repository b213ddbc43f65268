import Crypto
import Foundation
import NIOCore
import NIOPosix
import Testing

@testable import Probe

/// Parsing scripts, and playing them against a listener.
struct ScriptTests {
  @Test func stepsAreParsed() throws {
    let script = try ProbeScript(
      """
      # a comment

      open
        send ping bytes=0102030405060708
      send-hex 00 07
      expect pong bytes=*
      expect error busy
      expect close
      wait 100ms
      timeout 1.5s
      close
      connect
      new-session
      """
    )
    #expect(
      script.steps.map(\.action) == [
        .open, .send("ping bytes=0102030405060708"), .send("hex:00 07"), .expect("pong bytes=*"),
        .expect("error busy"), .expectClose, .wait(.milliseconds(100)), .timeout(.milliseconds(1500)), .close,
        .connect, .newSession,
      ]
    )
    #expect(script.steps[0].line == 3)
    #expect(script.steps[1].line == 4)
  }

  @Test func invalidStepsAreNamed() {
    for (line, message) in [
      ("snd ping", "line 2: 'snd ping' is not a step"), ("send", "line 2: 'send' is not a step"),
      ("wait soon", "line 2: a time such as"), ("wait -1s", "line 2: a time such as"),
      ("open sesame", "line 2: 'open sesame' is not a step"),
    ] {
      do {
        _ = try ProbeScript("# first\n\(line)")
        Issue.record("read: \(line)")
      } catch {
        #expect("\(error)".hasPrefix(message), "\(error)")
      }
    }
  }

  @Test func repositoryScriptsAreValid() throws {
    let folder = FrameVectors.proto.appending(path: "scripts")
    let names = try FileManager.default.contentsOfDirectory(atPath: folder.path)
    let scripts = names.filter { $0.hasSuffix(".probe") }
    #expect(scripts.count >= 8)
    for name in scripts {
      let script = try ProbeScript(
        String(decoding: Data(contentsOf: folder.appending(path: name)), as: UTF8.self),
        variables: ScriptFolderTests.variables
      )
      for step in script.steps {
        var wireProtocol = StoreFrames()
        switch step.action {
        case .send(let line): for line in ProbeScript.sequence(line) { _ = try wireProtocol.encode(line) }
        case .expect(let line):
          for line in ProbeScript.alternatives(line) where line != "close" {
            _ = try wireProtocol.differences(line, from: wireProtocol.encode("drain"))
          }
        default: break
        }
      }
    }
  }

  struct ScriptCase: CustomTestStringConvertible {
    var script: String
    var holds: Bool
    /// The beginning of a line in the transcript.
    var transcriptLine: String
    var testDescription: String { script.replacing("\n", with: " / ") }
  }

  static let scriptCases = [
    ScriptCase(
      script: "open\nsend ping bytes=0102030405060708\nexpect pong bytes=0102030405060708",
      holds: true,
      transcriptLine: "← pong bytes=0102030405060708"
    ),
    ScriptCase(
      script: "open\nsend ping\nexpect pong bytes=0102030405060708",
      holds: false,
      transcriptLine: "    bytes: expected 0102030405060708, received 0000000000000000"
    ),
    ScriptCase(
      script: "open\nsend ping\nexpect drain",
      holds: false,
      transcriptLine: "    expected drain, received pong"
    ),
    ScriptCase(
      script: "open\nsend get_channel cid=a:b\nexpect error channel_not_found",
      holds: true,
      transcriptLine: "→ get_channel @shard=6 @correlation=1 cid=a:b"
    ),
    ScriptCase(
      script: "open\nsend get_channel cid=a:b\nexpect error busy",
      holds: false,
      transcriptLine: "line 3: expect error busy"
    ), ScriptCase(script: "send-hex 00000007\nexpect close", holds: true, transcriptLine: "→ 4 raw bytes"),
    ScriptCase(
      script: "open\ntimeout 20ms\nexpect close",
      holds: false,
      transcriptLine: "    expected the end of the connection, nothing came in time"
    ),
    ScriptCase(
      script: "open\nsend ping\nexpect close",
      holds: false,
      transcriptLine: "    expected the end of the connection, received a frame"
    ),
    ScriptCase(
      script: "open\ntimeout 20ms\nexpect pong",
      holds: false,
      transcriptLine: "    expected pong, nothing came in time"
    ),
    ScriptCase(
      script: "send-hex 00000007\nexpect pong",
      holds: false,
      transcriptLine: "    expected pong, the connection was closed"
    ),
    ScriptCase(
      script: "open\nsend drain foo=1",
      holds: false,
      transcriptLine: "    drain has no field 'foo'; its fields are: "
    ),
    // Unexpected events are skipped.
    ScriptCase(
      script: """
        open
        send subscribe channels=[a:b]
        expect subscribe_reply complete=1
        expect events channels=[{cid=a:b events=[{event=truncated sequence=3}]}]
        expect events channels=[]
        """,
      holds: true,
      transcriptLine: "← events through=1 lost=0 channels=[] users=[]"
    ),
    ScriptCase(
      script: """
        open
        send subscribe channels=[a:b]
        expect subscribe_reply
        expect events channels=[{cid=a:b events=[{sequence=4}]}]
        """,
      holds: false,
      transcriptLine: "    channels[0].events[0].sequence: expected 4, received 3"
    ),
    ScriptCase(
      script: "open\nsend subscribe channels=[a:b]\nexpect subscribe_reply\ntimeout 20ms\nexpect close",
      holds: false,
      transcriptLine: "    expected the end of the connection, nothing came in time"
    ),
    ScriptCase(
      script: "open\nconnect\nopen\nclose\nexpect close",
      holds: true,
      transcriptLine: "← ready session=resumed"
    ), ScriptCase(script: "open\nconnect\nnew-session\nopen", holds: true, transcriptLine: "← ready session=new"),
    ScriptCase(
      script: "wait 1ms\nsend ping\nexpect close",
      holds: true,
      transcriptLine: "→ ping bytes=0000000000000000"
    ),
  ]

  @Test(arguments: scriptCases)
  func scriptGivesExpectedTranscript(_ scriptCase: ScriptCase) async throws {
    let secret = Array("a secret of the test".utf8)
    let listener = try await Listener.start(secret: secret)
    let lines = Lines()
    var wireProtocol = StoreFrames()
    wireProtocol.secret = secret
    let runner = ProbeRunner(target: try ProbeTarget(listener.target), timeout: .seconds(20)) {
      lines.all.append($0)
    }
    let holds = try await runner.run(try ProbeScript(scriptCase.script), in: wireProtocol)
    #expect(holds == scriptCase.holds)
    #expect(lines.all.contains { $0.hasPrefix(scriptCase.transcriptLine) }, "\(lines.all.joined(separator: "\n"))")
    try await listener.stop()
  }

  @Test func storeWithOtherSecretGetsNoProof() async throws {
    let listener = try await Listener.start(secret: Array("another".utf8))
    let lines = Lines()
    var wireProtocol = StoreFrames()
    wireProtocol.secret = Array("mine".utf8)
    let runner = ProbeRunner(target: try ProbeTarget(listener.target), timeout: .seconds(20)) {
      lines.all.append($0)
    }
    let holds = try await runner.run(try ProbeScript("open"), in: wireProtocol)
    #expect(!holds)
    #expect(lines.all.contains("    the store does not prove that it holds the secret"))
    #expect(!lines.all.contains { $0.hasPrefix("→ proof") })
    try await listener.stop()
  }

  @Test func sendingWaitsForAllAnswers() async throws {
    let listener = try await Listener.start(secret: nil)
    let lines = Lines()
    let sender = ProbeRunner(target: try ProbeTarget(listener.target), timeout: .seconds(20)) {
      lines.all.append($0)
    }
    let isAnswered = try await sender.send(["ping", "get_channel cid=a:b", "pong"], opens: true, in: StoreFrames())
    #expect(isAnswered)
    #expect(lines.all.filter { $0.hasPrefix("←") }.count == 4)
    let impatient = ProbeRunner(target: try ProbeTarget(listener.target), timeout: .seconds(3)) {
      lines.all.append($0)
    }
    // The listener does not answer this request.
    #expect(try await !impatient.send(["list_channel_types"], opens: true, in: StoreFrames()))
    #expect(lines.all.last?.hasPrefix("1 answers are missing") == true)
    #expect(try await !impatient.send(["hex:00000007"], opens: false, in: StoreFrames()))
    #expect(lines.all.last == "the connection was closed")
    try await listener.stop()
  }

  @Test func invalidTargetsAreRefused() async {
    for target in ["", "localhost", "localhost:", ":7410", "localhost:0", "localhost:65536", "127.0.0.1:1"] {
      await #expect(throws: ProbeError.self, "\(target)") {
        _ = try await ProbeConnection.connect(to: ProbeTarget(target), timeout: .seconds(5))
      }
    }
  }
}

/// A transcript.
private final class Lines {
  var all: [String] = []
}

/// The part of a store that the scripts need: the handshake, pongs, events before and after a subscribe reply, and
/// `channel_not_found` for get_channel. Other or broken frames before the handshake close the connection.
private struct Listener {
  let channel: any Channel
  var target: String { "127.0.0.1:\(channel.localAddress!.port!)" }

  static func start(secret: [UInt8]?) async throws -> Listener {
    Listener(
      channel: try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
        .childChannelInitializer { channel in
          channel.eventLoop.makeCompletedFuture {
            try channel.pipeline.syncOperations.addHandler(Handler(secret: secret))
          }
        }
        .bind(host: "127.0.0.1", port: 0).get()
    )
  }

  func stop() async throws { try await channel.close() }

  private final class Handler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer
    private let secret: [UInt8]?
    private var bytes: [UInt8] = []
    private var isOpen = false
    private let frames = StoreFrames(fillsIn: false)

    init(secret: [UInt8]?) { self.secret = secret }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
      bytes += unwrapInboundIn(data).readableBytesView
      while true {
        switch StoreFrames.boundary(in: bytes) {
        case .incomplete: return
        case .broken: return context.close(promise: nil)
        case .unit(let count):
          let unit = Array(bytes.prefix(count))
          bytes.removeFirst(count)
          answer(unit, context)
        }
      }
    }

    private func answer(_ unit: [UInt8], _ context: ChannelHandlerContext) {
      let line = frames.text(unit)
      let fields = frames.values(of: unit)
      switch line.split(separator: " ").first.map(String.init) {
      case "hello":
        guard case .bytes(let nonce)? = fields["nonce"], case .bytes(let session)? = fields["session"] else {
          return
        }
        let mine = [UInt8](repeating: 9, count: 32)
        let proof = secret.map {
          Array(
            HMAC<SHA256>.authenticationCode(
              for: Array("tidemark store 1".utf8) + nonce + mine + session,
              using: SymmetricKey(data: $0)
            )
          )
        }
        send("challenge nonce=\(Hex.text(mine)) proof=\(Hex.text(proof ?? []))", context)
        isResumed = fields["session_age"] != FieldValue.none
      case "proof":
        isOpen = true
        send("ready session=\(isResumed ? "resumed" : "new")", context)
      case _ where !isOpen: context.close(promise: nil)
      case "ping": send(line.replacing("ping", with: "pong"), context)
      case "get_channel":
        let correlation = unit[8..<12].reduce(0) { $0 << 8 | UInt32($1) }
        send("error channel_not_found @correlation=\(correlation)", context)
      case "subscribe":
        let correlation = unit[8..<12].reduce(0) { $0 << 8 | UInt32($1) }
        send("events through=1", context)
        send("subscribe_reply @correlation=\(correlation) through=1 complete=1", context)
        send("events through=2 channels=[{cid=a:b events=[{event=truncated sequence=3}]}]", context)
      default: break
      }
    }

    private var isResumed = false

    private func send(_ line: String, _ context: ChannelHandlerContext) {
      var frames = frames
      guard let bytes = try? frames.encode(line) else { return }
      context.writeAndFlush(wrapOutboundOut(ByteBuffer(bytes: bytes)), promise: nil)
    }
  }
}
