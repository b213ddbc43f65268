import Foundation
import Testing

/// Comments and documents name files that exist, so that a reader can follow them.
@Suite struct DocumentReferenceTests {
  private static let root = URL(fileURLWithPath: #filePath)
    .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()

  /// The text files of the repository, by their paths.
  private static func texts() throws -> [String: String] {
    var texts: [String: String] = [:]
    let kinds = [".swift", ".md", ".py", ".sh", ".yaml", ".yml", ".cfg", ".probe"]
    for folder in ["Sources", "Tests", "Proto", "Deploy", "docs"] {
      for path in try FileManager.default.subpathsOfDirectory(
        atPath: root.appendingPathComponent(folder).path
      )
      where kinds.contains(where: path.hasSuffix) {
        let file = folder + "/" + path
        texts[file] = String(decoding: try Data(contentsOf: root.appendingPathComponent(file)), as: UTF8.self)
      }
    }
    return texts
  }

  private static func exists(_ path: String) -> Bool {
    FileManager.default.fileExists(atPath: root.appendingPathComponent(path).path)
  }

  @Test func referencedPathsExist() throws {
    var count = 0
    for (file, text) in try Self.texts() {
      let paths = text.matches(
        of: /(?:^|[\s`("])((?:docs|Proto|Deploy|Tests|Sources)\/[\w.\/-]+\.(?:md|yaml|py|swift|sh))/
      )
      for path in paths {
        count += 1
        #expect(Self.exists(String(path.1)), "\(file) names \(path.1)")
      }
    }
    #expect(count > 100)
  }

  @Test func documentsInCommentsExist() throws {
    var count = 0
    for (file, text) in try Self.texts() where file.hasSuffix(".swift") {
      for name in text.matches(of: /\b([\w-]+\.md)\b/) {
        count += 1
        let isThere = ["", "docs/", "Proto/"].contains { Self.exists($0 + name.1) }
        #expect(isThere, "\(file) names \(name.1)")
      }
    }
    #expect(count > 100)
  }
}
