import NIOCore
import NIOPosix
import Testing

@testable import Probe

/// HTTP/2 scripts, played against a scripted listener.
struct HTTP2ScriptTests {
  @Test func stepsAreParsed() throws {
    let script = try ProbeScript(
      """
      protocol http2
      case one
      open
      open initial_window_size=0
      repeat 3 send ping
      expect headers stream=1 :status=200 within 250ms
      expect close within 1s
      alive
      send data stream=1 text=$WORD
      """,
      variables: ProbeVariables(given: ["WORD": "hi"])
    )
    #expect(script.wireProtocol == .http2)
    #expect(script.cases == ["one"])
    #expect(
      script.steps.map(\.action) == [
        .newCase, .open, .openWith("initial_window_size=0"), .sendMany(3, "ping"),
        .expect("headers stream=1 :status=200"), .expectClose, .alive, .send("data stream=1 text=hi"),
      ]
    )
    #expect(script.steps.map(\.within) == [nil, nil, nil, nil, .milliseconds(250), .seconds(1), nil, nil])
    // The text keeps the variable's name, so that no token appears in a transcript.
    #expect(script.steps.last?.text == "send data stream=1 text=$WORD")
    for (line, error) in [
      ("protocol http3", "protocols are"), ("repeat 0 send ping", "repeat COUNT send"),
      ("repeat 3 ping", "repeat COUNT send"), ("send data stream=1 text=$NONE", "line 2: $NONE has no value"),
      ("expect close within soon", "a time such as"),
    ] {
      #expect { try ProbeScript("# a comment\n\(line)") } throws: { "\($0)".contains(error) }
    }
    #expect(throws: ProbeError.self) { try ProbeScript("open\nprotocol http2") }
  }

  @Test func variablesAreExpanded() throws {
    let variables = try ProbeVariables(settings: ["A=1", "B=x=y", "EMPTY="], environment: ["A": "no", "C": "3"])
    for (text, expanded) in [
      ("a=$A", "a=1"), ("${A}0", "10"), ("$B.$C$EMPTY", "x=y.3"), ("$$A", "$A"), ("5$ $", "5$ $"),
      ("$1", "$1"),
      ("${ab*3}", "ababab"), ("${x*0}", ""), ("${0*2}${1*2}", "0011"), ("plain", "plain"),
    ] {
      #expect(try variables.expand(text) == expanded)
    }
    let now = try #require(Int64(try variables.expand("$NOW")))
    #expect(now > 1_700_000_000_000)
    #expect(try ProbeVariables(settings: ["NOW=7"], environment: [:]).expand("$NOW") == "7")
    for text in ["$NONE", "${NONE}", "${A", "${x*}", "${x*-1}", "${x*99999999999}"] {
      #expect(throws: ProbeError.self, "\(text)") { try variables.expand(text) }
    }
    for setting in ["A", "=1", "A-B=1"] {
      #expect(throws: ProbeError.self) { try ProbeVariables(settings: [setting], environment: [:]) }
    }
  }

  @Test func linesAreSplitOutsideQuotes() {
    #expect(ProbeScript.alternatives("a x=1 or b or close") == ["a x=1", "b", "close"])
    #expect(
      ProbeScript.alternatives("a x='1 or 2' or b x=\"c \\\" or d\"") == [
        "a x='1 or 2'", "b x=\"c \\\" or d\"",
      ]
    )
    #expect(
      ProbeScript.sequence("ping then data text='a then b' then ping") == [
        "ping", "data text='a then b'", "ping",
      ]
    )
    #expect(ProbeScript.sequence("a=then x=or") == ["a=then x=or"])
  }

  struct ScriptCase: CustomTestStringConvertible {
    var script: String
    var holds: Bool
    /// Lines of the transcript.
    var transcript: [String]
    var testDescription: String { script.replacing("\n", with: " / ") }
  }

  /// The listener answers /ok with 200 and a body, /reset with RST_STREAM, /goaway with GOAWAY and a close, and /two
  /// with the interleaved answers of two streams. It acknowledges pings and SETTINGS.
  static let scriptCases = [
    ScriptCase(
      script:
        "open\nsend request :path=/ok\nexpect headers stream=1 :status=200\nexpect data stream=1 end_stream text=fine",
      holds: true,
      transcript: ["← headers stream=1 :status=200", "← data stream=1 end_stream text=fine"]
    ),
    ScriptCase(
      script: "open\nsend request :path=/ok\nexpect headers stream=last :status=404",
      holds: false,
      transcript: [
        "line 4: expect headers stream=last :status=404", "    :status: expected 404, received 200",
        "    received: headers stream=1 :status=200",
      ]
    ),
    ScriptCase(
      script: "open\nsend request :path=/ok\nexpect data stream=1",
      holds: false,
      transcript: ["    expected data, received headers"]
    ),
    ScriptCase(
      script: "open\nsend request :path=/reset\nexpect headers stream=1",
      holds: false,
      transcript: ["    expected headers, received rst_stream", "    received: rst_stream stream=1 code=CANCEL"]
    ),
    ScriptCase(
      script: "open\nsend request :path=/reset\nexpect headers stream=1 or rst_stream stream=1 code=CANCEL\nalive",
      holds: true,
      transcript: []
    ),
    ScriptCase(
      script: "open\nsend request :path=/reset\nexpect goaway code=CANCEL or rst_stream stream=1 code=NO_ERROR",
      holds: false,
      transcript: ["    not rst_stream stream=1 code=NO_ERROR:", "      code: expected NO_ERROR, received CANCEL"]
    ),
    ScriptCase(
      script: "open\nsend request :path=/reset\nalive",
      holds: false,
      transcript: ["    expected ping, received rst_stream"]
    ),
    ScriptCase(
      script: "open\nsend request :path=/goaway\nexpect headers stream=1",
      holds: false,
      transcript: ["    expected headers, received goaway"]
    ),
    ScriptCase(
      script: "open\nsend request :path=/goaway\nexpect goaway code=INTERNAL_ERROR debug=no\nexpect close",
      holds: true,
      transcript: ["← goaway last_stream=0 code=INTERNAL_ERROR debug=no"]
    ),
    ScriptCase(
      script: "open\nsend request :path=/goaway\nexpect close",
      holds: false,
      transcript: ["    expected the end of the connection, received a frame"]
    ),
    // Frames of other streams are kept for later expectations. Within a stream the order matters.
    ScriptCase(
      script: """
        open
        send request :path=/two then request :path=/ok
        expect headers stream=3
        expect headers stream=1 :status=200
        expect data stream=1 text=late
        expect data stream=3
        """,
      holds: true,
      transcript: []
    ),
    ScriptCase(
      script: """
        open
        send ping bytes=0000000000000001 then request :path=/ok
        expect headers stream=1
        expect ping ack bytes=0000000000000001
        """,
      holds: true,
      transcript: []
    ),
    ScriptCase(
      script: "open\nexpect headers within 20ms",
      holds: false,
      transcript: ["    expected headers, nothing came in time"]
    ), ScriptCase(script: "open\nsend-hex 000004\nsend ping", holds: true, transcript: ["→ 3 raw bytes"]),
    ScriptCase(
      script: "open\nsend ping @length=9 bytes=0102030405060708",
      holds: true,
      transcript: ["→ ping @length=9 bytes=0102030405060708 (17 raw bytes)"]
    ),
    ScriptCase(
      script: "open\nrepeat 5 send ping\nexpect ping ack\nexpect ping ack",
      holds: true,
      transcript: ["  … 5 times in all"]
    ),
    // Cases are independent.
    ScriptCase(
      script: """
        case a
        open
        send request :path=/goaway
        expect headers
        expect headers
        case b
        open
        alive
        case c
        expect close within 10ms
        case d
        open
        alive
        """,
      holds: false,
      transcript: [
        "line 5: expect headers (case a)", "line 11: expect close within 10ms (case c)", "2 of 4 cases held",
        "    failed: case a", "    failed: case c",
      ]
    ),
  ]

  @Test(arguments: scriptCases)
  func scriptGivesExpectedTranscript(_ scriptCase: ScriptCase) async throws {
    let listener = try await HTTP2Listener.start()
    let lines = Transcript()
    let runner = ProbeRunner(target: try ProbeTarget(listener.target), timeout: .seconds(20)) {
      lines.all.append($0)
    }
    let script = try ProbeScript("protocol http2\n" + scriptCase.script)
    let holds = try await runner.run(script, in: HTTP2Frames(authority: listener.target))
    #expect(holds == scriptCase.holds, "\(lines.all.joined(separator: "\n"))")
    for line in scriptCase.transcript {
      #expect(lines.all.contains(line), "\(line)\n\(lines.all.joined(separator: "\n"))")
    }
    // There is one line per frame, and bytes only with `showsHex`.
    #expect(!lines.all.contains { $0.hasPrefix("    000") })
    try await listener.stop()
  }

  @Test func bytesAreShownOnRequest() async throws {
    let listener = try await HTTP2Listener.start()
    let lines = Transcript()
    let runner = ProbeRunner(target: try ProbeTarget(listener.target), timeout: .seconds(20), showsHex: true) {
      lines.all.append($0)
    }
    #expect(try await runner.run(try ProbeScript("open\nsend ping bytes=0102030405060708"), in: HTTP2Frames()))
    #expect(lines.all.contains("    00000806 00000000 00010203 04050607 08"))
    try await listener.stop()
  }

  @Test func sendingEndsWithPing() async throws {
    let listener = try await HTTP2Listener.start()
    for (frames, isWell, last) in [
      (["request :path=/ok"], true, "← ping ack bytes="),
      (["window_update increment=1"], true, "← ping ack bytes="),
      (["request :path=/reset", "request :path=/ok"], true, "← ping ack bytes="),
      (["request :path=/goaway"], false, "    expected ping"),
    ] {
      let lines = Transcript()
      let sender = ProbeRunner(target: try ProbeTarget(listener.target), timeout: .seconds(20)) {
        lines.all.append($0)
      }
      #expect(try await sender.send(frames, opens: true, in: HTTP2Frames()) == isWell, "\(frames): \(lines.all)")
      #expect(lines.all.contains { $0.hasPrefix(last) }, "\(frames): \(lines.all)")
    }
    try await listener.stop()
  }
}

private final class Transcript {
  var all: [String] = []
}

/// The part of a gateway that the scripts need.
private struct HTTP2Listener {
  let channel: any Channel
  var target: String { "127.0.0.1:\(channel.localAddress!.port!)" }

  static func start() async throws -> HTTP2Listener {
    HTTP2Listener(
      channel: try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
        .childChannelInitializer { channel in
          channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(Handler()) }
        }
        .bind(host: "127.0.0.1", port: 0).get()
    )
  }

  func stop() async throws { try await channel.close() }

  private final class Handler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer
    private var bytes: [UInt8] = []
    private var frames = HTTP2Frames()

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
      bytes += unwrapInboundIn(data).readableBytesView
      while case .unit(let count) = HTTP2Frames.boundary(in: bytes) {
        let unit = frames.read(Array(bytes.prefix(count)), .received)
        bytes.removeFirst(count)
        answer(frames.text(unit), unit.frame, context)
      }
    }

    private func answer(_ line: String, _ frame: HTTP2Frame?, _ context: ChannelHandlerContext) {
      guard let frame else { return send("settings max_frame_size=16384", context) }
      let stream = frame.stream
      switch frame.kind {
      case .settings where !frame.has(1): send("settings ack then window_update increment=1", context)
      case .ping where !frame.has(1): send(line.replacing("ping", with: "ping ack"), context)
      case .headers where line.contains(":path=/ok"):
        send("headers stream=\(stream) :status=200 then data stream=\(stream) end_stream text=fine", context)
        if isCrossed {
          send("headers stream=1 :status=200 then data stream=1 end_stream text=late", context)
        }
      case .headers where line.contains(":path=/two"): isCrossed = true
      case .headers where line.contains(":path=/reset"): send("rst_stream stream=\(stream) code=CANCEL", context)
      case .headers where line.contains(":path=/goaway"):
        send("goaway code=INTERNAL_ERROR debug=no", context)
        context.close(promise: nil)
      default: break
      }
    }

    private var isCrossed = false

    private func send(_ line: String, _ context: ChannelHandlerContext) {
      for line in ProbeScript.sequence(line) {
        guard let bytes = try? frames.encode(line) else { continue }
        context.writeAndFlush(wrapOutboundOut(ByteBuffer(bytes: bytes)), promise: nil)
      }
    }
  }
}
