import Foundation
import ReceiptWire
import Testing

@testable import Probe

/// The scripts of Proto/scripts: they parse, and together they cover every kind of frame.
struct ScriptFolderTests {
  struct Script {
    var name: String
    var script: ProbeScript
  }

  static let variables = ProbeVariables(given: ["SERVER": "s", "ALICE": "a", "BOB": "b", "NOW": "1"])

  static func scripts(_ folder: String) throws -> [Script] {
    let folder = FrameVectors.proto.appending(path: folder)
    return try FileManager.default.contentsOfDirectory(atPath: folder.path).filter { $0.hasSuffix(".probe") }
      .sorted().map { name in
        let text = String(decoding: try Data(contentsOf: folder.appending(path: name)), as: UTF8.self)
        return Script(name: name, script: try ProbeScript(text, variables: variables))
      }
  }

  /// The frames that scripts send and expect, one line each, without raw bytes.
  static func frames(_ scripts: [Script]) -> (sent: [String], expected: [String]) {
    var sent: [String] = []
    var expected: [String] = []
    for step in scripts.flatMap(\.script.steps) {
      switch step.action {
      case .send(let line), .sendMany(_, let line): sent += ProbeScript.sequence(line)
      case .expect(let line): expected += ProbeScript.alternatives(line)
      default: break
      }
    }
    return (sent.filter { !$0.hasPrefix("hex:") }, expected.filter { $0 != "close" })
  }

  static func kinds(_ lines: [String]) -> Set<String> { Set(lines.map { String($0.prefix { $0 != " " }) }) }

  @Test func scriptsCoverEveryStoreFrame() throws {
    let (sent, expected) = Self.frames(try Self.scripts("scripts"))
    let kinds = Self.kinds(sent + expected)
    for kind in FrameKind.allCases {
      let name = try #require(FrameTable.spec(numbered: kind.rawValue)?.name)
      #expect(kinds.contains(name), "\(name) is in no script")
    }
    // Every request is sent, and every reply is expected.
    for spec in FrameTable.all where StoreFrames.requests.contains(spec.number) {
      #expect(Self.kinds(sent).contains(spec.name), "\(spec.name) is sent by no script")
      #expect(Self.kinds(expected).contains(spec.name + "_reply"), "\(spec.name)_reply is expected by no script")
    }
  }

  /// Otherwise an invalid field name or value would be detected only when the script is played.
  @Test func storeScriptLinesAreValid() throws {
    for item in try Self.scripts("scripts") {
      let (sent, expected) = Self.frames([item])
      var wireProtocol = StoreFrames(fillsIn: false)
      for line in sent {
        #expect(throws: Never.self, "\(item.name): \(line)") { try wireProtocol.encode(line) }
      }
      for line in expected {
        // A line with a wildcard cannot be encoded, but its fields have to belong to the kind.
        let written = line.contains("*") ? String(line.prefix { $0 != " " }) : line.replacing("... ", with: "")
        #expect(throws: Never.self, "\(item.name): \(line)") {
          try wireProtocol.differences(line, from: try wireProtocol.encode(written))
        }
      }
    }
  }

  @Test func scriptsCoverEveryHTTP2Frame() throws {
    let (sent, expected) = Self.frames(try Self.scripts("scripts/http2"))
    for kind in HTTP2Kind.allCases {
      let isSent = Self.kinds(sent).contains(kind.name)
      #expect(isSent || kind == .headers && Self.kinds(sent).contains("request"), "\(kind) is sent by no script")
    }
    #expect(sent.contains { $0.hasPrefix("0x") }, "no frame of an unknown type")
    // The frames that a server may send.
    for kind: HTTP2Kind in [.data, .headers, .rst_stream, .settings, .ping, .goaway, .window_update] {
      #expect(Self.kinds(expected).contains(kind.name), "\(kind) is expected by no script")
    }
  }

  @Test func caseNamesAreUnique() throws {
    let cases = try Self.scripts("scripts/http2").flatMap(\.script.cases)
    #expect(cases.count >= 150)
    var seen: Set<String> = []
    for name in cases { #expect(seen.insert(name).inserted, "\(name) is not unique") }
  }

  @Test func everyCaseExpectsSomething() throws {
    for item in try Self.scripts("scripts/http2") {
      #expect(item.script.wireProtocol == .http2, "\(item.name)")
      var name: String?
      var expects = true
      for step in item.script.steps {
        switch step.action {
        case .newCase:
          #expect(expects, "\(item.name): \(name ?? "") expects nothing")
          (name, expects) = (step.text, false)
        case .expect, .expectClose, .alive: expects = true
        default: #expect(name != nil, "\(item.name): line \(step.line) belongs to no case")
        }
      }
      #expect(expects, "\(item.name): \(name ?? "") expects nothing")
    }
  }

  @Test func http2ScriptLinesAreValid() throws {
    for item in try Self.scripts("scripts/http2") {
      var wireProtocol = HTTP2Frames()
      let (sent, expected) = Self.frames([item])
      for line in sent {
        #expect(throws: Never.self, "\(item.name): \(line.prefix(100))") { try wireProtocol.encode(line) }
      }
      let unit = wireProtocol.read(try wireProtocol.encode("data stream=1"), .received)
      for line in expected {
        #expect(throws: Never.self, "\(item.name): \(line)") {
          try wireProtocol.differences(line, from: unit)
        }
      }
    }
  }
}
