import Foundation
import NIOCore
import TestSupport
import Testing

@testable import Gateway

/// `GET /sdk/{name}`: the files for apps that are in the program.
@Suite struct SDKFileTests {
  /// The program contains the files of this source tree, not of an earlier build.
  @Test(arguments: ["tidemark.js", "tidemark.d.ts"])
  func servedFilesEqualRepositoryFiles(name: String) async throws {
    let file = try Data(contentsOf: packageRoot.appendingPathComponent("SDK/js/\(name)"))
    let served = try #require(EmbeddedFile.sdk[name])
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

  /// Goal: 20 KB.
  @Test func moduleIsSmall() throws {
    let module = try #require(EmbeddedFile.sdk["tidemark.js"])
    let compressed = try #require(module.gzip)
    #expect(compressed.isCompressed && compressed.tag != module.plain.tag)
    #expect(compressed.body.readableBytes < 20_000)
    #expect(Array(compressed.body.readableBytesView.prefix(2)) == [0x1F, 0x8B])
  }

  @Test func otherNamesAreRefused() async throws {
    try await TestGateway.run { gateway in
      let notBuilt = try await gateway.client.get("/sdk/tidemark-sw.js", token: nil)
      let unknown = try await gateway.client.get("/sdk/other.js", token: nil)
      let posted = try await gateway.client.post("/sdk/tidemark.js", nil, token: nil)
      #expect([notBuilt, unknown, posted].map(\.status) == [501, 404, 405])
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
}
