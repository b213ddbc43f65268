import Foundation
import LocalStack
import Operations
import Testing

@testable import Demo

/// The addresses of etcd, which `tidemark run --nodes` keeps in its directory.
struct RunClusterTests {
  private func with(_ contents: String? = nil, _ body: (StackFiles) throws -> Void) throws {
    let files = StackFiles(directory: NSTemporaryDirectory() + "tidemark-test-\(UUID().uuidString)")
    try FileManager.default.createDirectory(atPath: files.directory, withIntermediateDirectories: true)
    defer { files.remove() }
    if let contents { try files.write(contents, to: files.etcdAddresses) }
    try body(files)
  }

  private func ports(_ files: StackFiles, taken: Int = 0) throws -> [Int] {
    try RunSession.etcdAddresses(files, isFree: { $0 != taken }).flatMap { [$0.client.port, $0.peer.port] }
  }

  @Test func addressesAreChosenOnce() throws {
    try with { files in
      let chosen = try ports(files)
      #expect(Set(chosen).count == 6)
      #expect(try ports(files) == chosen)
      let error = #expect(throws: StackError.self) { _ = try ports(files, taken: chosen[3]) }
      #expect(error.map { "\($0)" }?.contains("127.0.0.1:\(chosen[3])") == true)
    }
  }

  @Test(arguments: ["", "127.0.0.1:1 127.0.0.1:2\n", String(repeating: "127.0.0.1:1\n", count: 3)])
  func otherContentsAreRefused(_ contents: String) throws {
    try with(contents) { files in
      let error = #expect(throws: StackError.self) { _ = try ports(files) }
      #expect(error.map { "\($0)" }?.contains("etcd-addresses") == true)
    }
  }
}
