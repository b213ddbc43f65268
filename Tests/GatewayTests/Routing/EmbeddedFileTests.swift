import Foundation
import NIOCore
import Operations
import TestSupport
import Testing

@testable import Gateway

/// The files in the program: `GET /sdk/{name}` and the demo page.
@Suite struct EmbeddedFileTests {
  private static let sdk = [
    "tidemark.js", "tidemark.d.ts", "tidemark-components.js", "tidemark-components.d.ts", "tidemark-sw.js",
    "tidemark-sw.d.ts",
  ]

  /// The program contains the files of this source tree, not of an earlier build.
  @Test(arguments: sdk) func servedFilesEqualRepositoryFiles(name: String) async throws {
    let file = try Data(contentsOf: packageRoot.appendingPathComponent("SDK/js/\(name)"))
    let served = try #require(EmbeddedFile.all["sdk/\(name)"])
    #expect(file == Data(served.plain.body.readableBytesView))
    let type = name.hasSuffix(".js") ? "text/javascript; charset=utf-8" : "text/plain; charset=utf-8"
    try await TestGateway.run { gateway in
      let response = try await gateway.client.get("/sdk/\(name)", token: nil)
      #expect(response.status == 200 && response.contentType == type)
      #expect(response.body == String(decoding: file, as: UTF8.self))
      #expect(response.headers["etag"] == served.plain.tag && response.headers["vary"] == "accept-encoding")
      #expect(response.headers["cache-control"] == "public, max-age=300")
      #expect(response.headers["content-encoding"] == nil)
      let query = try await gateway.client.get("/sdk/\(name)?v=1", token: nil)
      #expect(query.status == 400)
    }
  }

  /// Every file of the repository's folders is in the program.
  @Test func noFileIsMissing() throws {
    for (folder, prefix) in [("SDK/js", "sdk/"), ("Sources/CEmbeddedFiles/demo", "demo/")] {
      let names = try FileManager.default.contentsOfDirectory(
        atPath: packageRoot.appendingPathComponent(folder).path
      )
      let served = EmbeddedFile.all.keys.filter { $0.hasPrefix(prefix) }.map { String($0.dropFirst(prefix.count)) }
      #expect(Set(served) == Set(names.filter { $0.contains(".") }), "\(folder)")
    }
  }

  /// Goals: 20 KB and 15 KB.
  @Test(arguments: [("tidemark.js", 20_000), ("tidemark-components.js", 15_000)])
  func modulesAreSmall(name: String, byteCountMax: Int) throws {
    let module = try #require(EmbeddedFile.all["sdk/\(name)"])
    let compressed = try #require(module.gzip)
    #expect(compressed.isCompressed && compressed.tag != module.plain.tag)
    #expect(compressed.body.readableBytes < byteCountMax)
    #expect(Array(compressed.body.readableBytesView.prefix(2)) == [0x1F, 0x8B])
  }

  @Test func otherNamesAreRefused() async throws {
    try await TestGateway.run { gateway in
      let unknown = try await gateway.client.get("/sdk/other.js", token: nil)
      let outside = try await gateway.client.get("/sdk/..%2Fopenapi.yaml", token: nil)
      let posted = try await gateway.client.post("/sdk/tidemark.js", nil, token: nil)
      #expect([unknown, outside, posted].map(\.status) == [404, 404, 405])
    }
  }

  @Test(arguments: [
    ("gzip", true), ("br, gzip", true), ("GZIP;q=0.5", true), ("*", true), ("gzip;q=0", false), ("gzip; q=0.0", false),
    ("br", false), ("", false), ("identity", false),
  ])
  func compressionIsNegotiated(header: String, isAllowed: Bool) {
    let bytes = Array(header.utf8)
    #expect(EmbeddedFile.allowsGzip(bytes.span.bytes) == isAllowed)
  }

  // MARK: Demo page

  private static let code = "0123456789abcdefghijkl"

  /// Without `--demo-file` there is no page.
  @Test func demoIsOffByDefault() async throws {
    try await TestGateway.run { gateway in
      for path in ["/demo", "/demo/demo.js", "/demo/session"] {
        let response = try await gateway.client.get(path, token: nil)
        #expect(response.verdict == "404 route_not_found", "\(path)")
      }
    }
  }

  @Test func pageHasAStrictPolicyAndTokensForItsCodeOnly() async throws {
    let content = #"{"code":"\#(Self.code)","tokens":{"alice":"a","server":"s"}}"#
    let demo = try DemoSession(Array(content.utf8), path: "demo.json")
    try await TestGateway.run(demo: demo) { gateway in
      let page = try await gateway.client.get("/demo", token: nil)
      #expect(page.status == 200 && page.contentType == "text/html; charset=utf-8")
      let policy = try #require(page.headers["content-security-policy"])
      #expect(policy.hasPrefix("default-src 'none';") && !policy.contains("unsafe"))
      #expect(page.headers["x-content-type-options"] == "nosniff")
      let style = try await gateway.client.get("/demo/demo.css", token: nil)
      #expect(style.status == 200 && style.contentType == "text/css; charset=utf-8")

      let tokens = try await gateway.client.get("/demo/session", token: Self.code)
      #expect(tokens.status == 200 && tokens.headers["cache-control"] == "no-store")
      let answer = try JSONDecoder().decode([String: String].self, from: Data(tokens.body.utf8))
      #expect(answer == ["alice": "a", "server": "s"])
      for wrong in [nil, "", "x", String(Self.code.dropLast()), Self.code + "m"] {
        let refused = try await gateway.client.get("/demo/session", token: wrong)
        #expect(refused.status == 401 && !refused.body.contains("alice"), "\(wrong ?? "none")")
      }
    }
  }

  @Test(arguments: [
    "", "[]", #"{"tokens":{}}"#, #"{"code":"short","tokens":{}}"#, #"{"code":"\#(code)","tokens":{"a":1}}"#,
  ])
  func damagedFilesAreRefusedByName(content: String) {
    let error = #expect(throws: SettingsError.self) { try DemoSession(Array(content.utf8), path: "demo.json") }
    #expect(error?.description.contains("demo.json") == true)
  }
}
