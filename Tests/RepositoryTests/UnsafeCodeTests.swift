import Foundation
import TestSupport
import Testing

/// docs/contribute/unsafe.md names every file of the services and of TidemarkClient that uses one of these constructs.
@Suite struct UnsafeCodeTests {
  private static let modules = [
    "Gateway", "HTTP2Session", "TLSSession", "Operations", "LinkSecurity", "StoreClient", "ReceiptWire",
    "ReceiptModel", "StoreEngine", "StoreServer", "StoreRocksDB", "StoreEtcd", "ErasureLedger", "Worker",
    "TidemarkClient",
  ]

  private static let constructs = [
    "_overrideLifetime", "unsafeLoad", "unowned(unsafe)", "@unchecked Sendable", "unsafeAddress",
    "UnsafePointer", "UnsafeRawPointer", "UnsafeBufferPointer", "UnsafeRawBufferPointer", "OpaquePointer",
    "UnsafeMutablePointer", "UnsafeMutableRawPointer", "UnsafeMutableBufferPointer",
    "UnsafeMutableRawBufferPointer", "withUnsafe", "_unsafeBytes", "_unsafeStart",
    "unsafeUninitializedCapacity", "unsafelyUnwrapped", "unsafeBitCast", "nonisolated(unsafe)", "Unmanaged",
    "withMemoryRebound", "assumingMemoryBound", "bindMemory",
  ]

  /// A copy of a span's bytes to an array or a string. The standard library has no checked form, and the pointer ends
  /// with the copy.
  private static func withoutCopies(_ source: String) -> String {
    let copy = /withUnsafeBytes ?\(?\{ (Array|String)\(([a-z]+: )?\$0(\.prefix\(\w+\))?(, as: UTF8\.self)?\) \}/
    return source.replacing(copy, with: "")
  }

  @Test(arguments: constructs)
  func documentListsEveryUse(_ construct: String) throws {
    let page = packageRoot.appendingPathComponent("docs/contribute/unsafe.md")
    let document = try String(contentsOf: page, encoding: .utf8)
    let rows = document.split(separator: "\n").filter { $0.hasPrefix("|") && $0.contains("`\(construct)`") }
    let named = rows.flatMap { $0.split(separator: "|")[1].split(separator: "`") }.map(String.init)
    var uses = 0
    for module in Self.modules {
      let folder = packageRoot.appendingPathComponent("Sources/\(module)")
      let paths = try FileManager.default.subpathsOfDirectory(atPath: folder.path)
      for path in paths where path.hasSuffix(".swift") {
        let source = try String(contentsOf: folder.appendingPathComponent(path), encoding: .utf8)
        guard Self.withoutCopies(source).contains(construct) else { continue }
        uses += 1
        let file = "\(module)/\(path)"
        let isNamed = named.contains { file == $0 || file.hasPrefix($0 + "/") || file.hasSuffix("/" + $0) }
        #expect(isNamed, "\(file) has \(construct)")
      }
    }
    #expect((uses > 0) == !named.isEmpty, "\(construct) is named and not used, or used and not named")
  }
}
