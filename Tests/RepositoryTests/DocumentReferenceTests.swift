import Foundation
import Testing
import TestSupport

/// Comments and documents name files and declarations that exist, so that a reader can follow them.
@Suite struct DocumentReferenceTests {
  /// The text files of the repository, by their paths.
  private static func texts() throws -> [String: String] {
    var texts: [String: String] = [:]
    let kinds = [".swift", ".md", ".py", ".sh", ".yaml", ".yml", ".cfg", ".probe"]
    for folder in ["Sources", "Tests", "Proto", "Deploy", "Tools", "docs"] {
      for path in try FileManager.default.subpathsOfDirectory(atPath: packageRoot.appendingPathComponent(folder).path)
      where kinds.contains(where: path.hasSuffix) {
        let file = folder + "/" + path
        texts[file] = String(decoding: try Data(contentsOf: packageRoot.appendingPathComponent(file)), as: UTF8.self)
      }
    }
    return texts
  }

  /// The documents of the repository, by their paths.
  private static func documents() throws -> [String: String] {
    let texts = try Self.texts().filter { $0.key.hasSuffix(".md") }
    return try ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].reduce(into: texts) { pages, file in
      pages[file] = try String(contentsOf: packageRoot.appendingPathComponent(file), encoding: .utf8)
    }
  }

  /// The targets of the package, which are the folders of Sources.
  private static func modules() throws -> Set<String> {
    Set(try FileManager.default.contentsOfDirectory(atPath: packageRoot.appendingPathComponent("Sources").path))
  }

  /// The Makefile, with each filter of tests on one line.
  private static func makefile() throws -> String {
    try String(contentsOf: packageRoot.appendingPathComponent("Makefile"), encoding: .utf8)
      .replacing("$\\\n  ", with: "")
  }

  private static func exists(_ path: String) -> Bool {
    FileManager.default.fileExists(atPath: packageRoot.appendingPathComponent(path).path)
  }

  @Test func referencedPathsExist() throws {
    var count = 0
    for (file, text) in try Self.texts() {
      let paths = text.matches(
        of: /(?:^|[\s`("])((?:docs|Proto|Deploy|Tests|Sources|Tools)\/[\w.\/-]+\.(?:md|yaml|py|swift|sh))/
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
        let folders = ["", "docs/", "docs/api/", "docs/contribute/", "docs/guides/", "docs/operate/", "Proto/"]
        let isThere = folders.contains { Self.exists($0 + name.1) }
        #expect(isThere, "\(file) names \(name.1)")
      }
    }
    #expect(count > 100)
  }

  /// Documents and comments have at most 120 columns. Tables, code and links cannot be wrapped.
  @Test func linesFitIntoColumns() throws {
    let texts = try Self.texts().merging(try Self.documents()) { text, _ in text }
    for (file, text) in texts where file.hasSuffix(".md") || file.hasSuffix(".swift") {
      let isDocument = file.hasSuffix(".md")
      var isCode = false
      for (index, line) in text.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
        if isDocument, line.hasPrefix("```") { isCode.toggle() }
        guard line.count > 120, !isCode, !line.contains(/^(\/\/\/ )?\||https?:\/\//) else { continue }
        let isText = isDocument || line.contains(/^ *\/\//)
        if isText { Issue.record("\(file):\(index + 1) has \(line.count) columns") }
      }
    }
  }

  /// Each name in the Makefile's filters of tests is a target or a suite.
  @Test func filtersOfMakefileNameSuites() throws {
    let filters = try Self.makefile().matches(of: /_TESTS := .*/)
    let tests = try Self.texts().filter { $0.key.hasPrefix("Tests/") && $0.key.hasSuffix(".swift") }.values
    var count = 0
    for group in filters.flatMap({ $0.output.matches(of: /\(([\w|.*]+)\)/) }) {
      for name in group.1.split(separator: "|") {
        count += 1
        let pattern = try Regex("@Suite[^\n]*\\n?[^\n]*(struct|enum|class) \(name.replacing(".*", with: "\\w*"))\\b")
        let isSuite = tests.contains { $0.contains(pattern) }
        #expect(isSuite || Self.exists("Tests/\(name)"), "the Makefile's filters name \(name)")
      }
    }
    #expect(count > 10)
  }

  /// Suites of the real programs, which have deadlines, run apart from those that compute.
  @Test func suitesOfRealProgramsRunApart() throws {
    let filter = try Regex(String(try #require(try Self.makefile().firstMatch(of: /\nPROCESS_TESTS := (.*)/)).1))
    var count = 0
    for (path, text) in try Self.texts() where path.hasPrefix("Tests/") && !#filePath.hasSuffix(path) {
      guard text.contains(/TIDEMARK_BIN|TestServices\.binaries|Executables\(/) else { continue }
      let target = path.split(separator: "/")[1]
      for suite in text.matches(of: /@Suite[^\n]*\n?[^\n]*\b(?:struct|enum|class) (\w+)/) {
        count += 1
        let isApart = "\(target).\(suite.1)/".contains(filter)
        #expect(isApart, "\(path): the Makefile's PROCESS_TESTS leaves out \(suite.1)")
      }
    }
    #expect(count > 10)
  }

  /// Each relative link of a document leads to a file, and its anchor to a heading of that file.
  @Test func linksResolve() throws {
    let pages = try Self.documents()
    let anchors = pages.mapValues(Self.anchors)
    var count = 0
    for (file, text) in pages {
      for link in text.matches(of: /\]\(([^)\s#:]*)(?:#([^)\s:]*))?\)/) {
        count += 1
        let folder = packageRoot.appendingPathComponent(file).deletingLastPathComponent()
        let target = link.1.isEmpty ? file : Self.path(of: folder.appendingPathComponent(String(link.1)))
        #expect(Self.exists(target), "\(file) links to \(link.1)")
        guard let anchor = link.2, let known = anchors[target] else { continue }
        #expect(known.contains(String(anchor)), "\(file) links to \(link.1)#\(anchor)")
      }
      for link in text.matches(of: /\]\[([a-z-]+)\]/) {
        #expect(text.contains("\n[\(link.1)]: http"), "\(file) does not define [\(link.1)]")
      }
    }
    #expect(count > 100)
  }

  /// The path of a file, relative to the repository.
  private static func path(of url: URL) -> String {
    String(url.standardizedFileURL.path.dropFirst(packageRoot.standardizedFileURL.path.count + 1))
  }

  /// The anchors of a document's headings, as GitHub forms them.
  private static func anchors(_ text: String) -> Set<String> {
    var anchors: Set<String> = []
    var isCode = false
    for line in text.split(separator: "\n") {
      if line.hasPrefix("```") { isCode.toggle() }
      guard !isCode, line.hasPrefix("#") else { continue }
      let heading = line.drop { $0 == "#" }.dropFirst().lowercased()
      anchors.insert(
        String(
          heading.compactMap { character in
            if character == " " { return "-" }
            return character.isLetter || character.isNumber || "-_".contains(character) ? character : nil
          }
        )
      )
    }
    return anchors
  }

  /// All documents name only source files, and suites or targets of tests, that exist.
  @Test func filesAndSuitesThatAreNamedExist() throws {
    let texts = try Self.texts().filter { $0.key.hasSuffix(".swift") }
    let code = SourceCode(texts, modules: try Self.modules())
    let targets = Set(texts.keys.filter { $0.hasPrefix("Tests/") }.map { $0.split(separator: "/")[1] })
    var count = 0
    for (document, text) in try Self.documents() {
      // Files below `my-…` are the reader's.
      for file in text.matches(of: /[\w+][\w+\/-]*\.swift\b/) where !file.output.hasPrefix("my-") {
        count += 1
        #expect(code.resolves(String(file.output)) == true, "\(document) names \(file.output)")
      }
      for suite in text.matches(of: /\b[A-Z]\w*Tests\b/) {
        count += 1
        let exists = code.declares(String(suite.output)) || targets.contains(suite.output)
        #expect(exists, "\(document) names \(suite.output)")
      }
    }
    #expect(count > 100)
  }

  /// The documents that describe the code name only types, members and source files that exist.
  @Test(arguments: ["docs/contribute/architecture.md", "CONTRIBUTING.md"])
  func declarationsThatAreNamedExist(_ document: String) throws {
    // This file is left out: its own examples are not declarations.
    let code = SourceCode(
      try Self.texts().filter { $0.key.hasSuffix(".swift") && !#filePath.hasSuffix($0.key) },
      modules: try Self.modules()
    )
    let text = try String(contentsOf: packageRoot.appendingPathComponent(document), encoding: .utf8)
    var count = 0
    for span in text.matches(of: /`([^`\n]+)`/) {
      guard let isThere = code.resolves(String(span.1)) else { continue }
      count += 1
      #expect(isThere, "\(document) names \(span.1)")
    }
    #expect(count > 8)
  }

  /// The manuals that name tests as `Suite.test` name only tests that exist.
  @Test func testsThatAreNamedExist() throws {
    let manual = packageRoot.appendingPathComponent("docs/operate/reliability.md")
    let document = try String(contentsOf: manual, encoding: .utf8)
    let tests = try Self.texts().filter { $0.key.hasPrefix("Tests/") && $0.key.hasSuffix(".swift") }.values
    var count = 0
    for name in document.matches(of: /`([A-Z]\w+)\.([a-z]\w+)`/) {
      let (suite, test) = (String(name.1), String(name.2))
      let exists = tests.contains {
        $0.contains("func \(test)(") && $0.contains(" \(suite) ")
      }
      count += 1
      #expect(exists, "docs/operate/reliability.md names \(suite).\(test)")
    }
    #expect(count > 20)
  }

  private static func architecture() throws -> String {
    try String(contentsOf: packageRoot.appendingPathComponent("docs/contribute/architecture.md"), encoding: .utf8)
  }

  /// The last column of the table of targets names each target of this package that the target imports.
  @Test func targetsNameTheirImports() throws {
    let modules = try Self.modules()
    let texts = try Self.texts()
    let document = try Self.architecture()
    let table = try #require(document.split(separator: "\n## The targets\n").last)
    var described: Set<String> = []
    for row in table.split(separator: "\n") where row.hasPrefix("| ") {
      let cells = row.split(separator: "|").map(String.init)
      let names = cells[0].matches(of: /[\w-]+/).map { String($0.output) }.filter(modules.contains)
      let named = Set(cells[2].matches(of: /[\w-]+/).map { String($0.output) }).intersection(modules)
      guard !names.isEmpty else { continue }
      described.formUnion(names)
      var imported: Set<String> = []
      for (path, text) in texts where names.contains(where: { path.hasPrefix("Sources/\($0)/") }) {
        imported.formUnion(text.matches(of: /\bimport (\w+)/).map { String($0.1) })
      }
      #expect(named == imported.intersection(modules).subtracting(names), "\(names)")
    }
    #expect(modules.subtracting(described).allSatisfy { $0.hasPrefix("C") }, "\(modules.subtracting(described))")
  }

  /// The table of the gateway's parts has each subclass of GatewayPart once, with the folder of its file.
  @Test func gatewayPartsAreListedWithTheirFolders() throws {
    var folders: [String: String] = [:]
    for (path, text) in try Self.texts() where path.hasPrefix("Sources/Gateway/") {
      for part in text.matches(of: /class (\w+): GatewayPart\b/) {
        folders[String(part.1)] = String(path.split(separator: "/")[2])
      }
    }
    let document = try Self.architecture()
    let start = try #require(document.range(of: "| part | folder | work |\n")).upperBound
    var described: [String: String] = [:]
    let rows = document[start...].components(separatedBy: "\n").dropFirst()
    for row in rows.prefix(while: { $0.hasPrefix("| ") }) {
      let cells = row.split(separator: "|")
      let folder = try #require(cells[1].firstMatch(of: /`(\w+)`/)).1
      for part in cells[0].matches(of: /`(\w+)`/) {
        let earlier = described.updateValue(String(folder), forKey: String(part.1))
        #expect(earlier == nil, "\(part.1) is listed twice")
      }
    }
    #expect(described == folders)
    #expect(folders.count > 10)
  }

  /// The tests of a target all have display strings, or none has one (CONTRIBUTING.md).
  @Test func testNamesOfATargetHaveOneForm() throws {
    var targets: [String: (bare: Int, displayed: Int)] = [:]
    for (path, text) in try Self.texts() where path.hasPrefix("Tests/") && path.hasSuffix(".swift") {
      let target = String(path.split(separator: "/")[1])
      for test in text.matches(of: /(?m)^ *@Test\b(\(\s*")?/) {
        if test.1 == nil {
          targets[target, default: (0, 0)].bare += 1
        } else {
          targets[target, default: (0, 0)].displayed += 1
        }
      }
    }
    for (target, forms) in targets {
      #expect(forms.bare == 0 || forms.displayed == 0, "\(target): \(forms)")
    }
    #expect(targets.count > 15)
  }

  /// The function name of a test has several words, and begins with no article (CONTRIBUTING.md).
  @Test func testNamesAreStatements() throws {
    var count = 0
    for (path, text) in try Self.texts() where path.hasPrefix("Tests/") && path.hasSuffix(".swift") {
      for test in text.split(separator: /(?m)^ *@Test\b/).dropFirst() {
        let name = try #require(test.firstMatch(of: /\bfunc (\w+)/), "\(path)").1
        count += 1
        let hasSeveralWords = name.contains { $0.isUppercase }
        #expect(hasSeveralWords, "\(path): \(name) is one word")
        #expect(name.prefixMatch(of: /(a|an|the)[A-Z]/) == nil, "\(path): \(name) begins with an article")
      }
    }
    #expect(count > 1_000)
  }

  @Test func unknownDeclarationsAreDetected() throws {
    let sources = [
      "Sources/Gateway/Loop/GatewayLoop.swift": """
      /// Whoever calls ask is answered.
      package final class GatewayLoop {
        func trySend() -> Bool { ask }
      }
      """, "Sources/Gateway/Loop/GatewayLoop+Callers.swift": "extension GatewayLoop { var callers: Int { 0 } }",
      "Sources/Gateway/Loop/FanOutPart.swift": "struct FanOutPart { func ask() {} }",
    ]
    let code = SourceCode(sources, modules: ["CNghttp2"])
    for name in [
      "GatewayLoop", "GatewayLoop.trySend", "GatewayLoop.callers", "GatewayLoop+Callers.swift",
      "Loop/FanOutPart.swift", "Loop", "FanOutPart.ask()", "CNghttp2",
    ] {
      #expect(code.resolves(name) == true, "\(name)")
    }
    for name in [
      "GatewayLoop.ask", "FanOutPart.trySend", "EventHub", "EventHub.swift", "Events/FanOutPart.swift", ".quick",
    ] {
      #expect(code.resolves(name) == false, "\(name)")
    }
    for name in ["make test", "--memory", "backup", "Proto/frames.md", "TEST_MINUTES", "POST /v1/frames"] {
      #expect(code.resolves(name) == nil, "\(name)")
    }
  }
}

/// The declarations and files of Swift sources, by name.
private struct SourceCode {
  /// Types of other packages that documents name.
  private static let foreignTypes: Set<String> = ["UniqueArray"]

  private static let typeKeywords: Set<String> = [
    "class", "struct", "enum", "protocol", "actor", "extension", "typealias",
  ]
  private static let memberKeywords: Set<String> = ["func", "var", "let", "case"]

  /// Paths of the files.
  private let paths: [String]
  /// Names of the targets, of the folders that contain the files, and of the files.
  private let names: Set<String>
  /// Files that declare or extend a type, by its name.
  private let typeFiles: [String: Set<String>]
  /// Files that declare a function, a variable, a constant or a case, by its name.
  private let memberFiles: [String: Set<String>]

  init(_ texts: [String: String], modules: Set<String>) {
    var typeFiles: [String: Set<String>] = [:]
    var memberFiles: [String: Set<String>] = [:]
    var names = modules
    for (path, text) in texts {
      names.formUnion(path.dropLast(".swift".count).split(separator: "/").map(String.init))
      for line in text.utf8.split(separator: UInt8(ascii: "\n")) {
        guard !line.drop(while: { $0 == UInt8(ascii: " ") }).starts(with: "//".utf8) else { continue }
        let words = line.split { !Self.isWordByte($0) }
        for (keyword, name) in zip(words, words.dropFirst()) {
          let keyword = String(decoding: keyword, as: UTF8.self)
          if Self.typeKeywords.contains(keyword) {
            typeFiles[String(decoding: name, as: UTF8.self), default: []].insert(path)
          } else if Self.memberKeywords.contains(keyword) {
            memberFiles[String(decoding: name, as: UTF8.self), default: []].insert(path)
          }
        }
      }
    }
    paths = Array(texts.keys)
    self.names = names
    self.typeFiles = typeFiles
    self.memberFiles = memberFiles
  }

  /// Whether a type of this name is declared or extended.
  func declares(_ type: String) -> Bool { typeFiles[type] != nil }

  /// Whether a code span of a document names something that exists; nil if it names no file, type or member.
  func resolves(_ span: String) -> Bool? {
    if span.wholeMatch(of: /[\w+\/-]+\.swift/) != nil {
      return paths.contains { ("/" + $0).hasSuffix("/" + span) }
    }
    if let member = span.wholeMatch(of: /([A-Z]\w*)\.([a-z]\w*)(?:\([\w:]*\))?/), !Self.isFile(span) {
      let files = typeFiles[String(member.1)] ?? []
      return !files.isDisjoint(with: memberFiles[String(member.2)] ?? [])
    }
    if let member = span.wholeMatch(of: /\.([a-z]\w*)/) {
      return memberFiles[String(member.1)] != nil
    }
    if span.wholeMatch(of: /[A-Z]\w*[a-z]\w*/) != nil {
      return typeFiles[span] != nil || names.contains(span) || Self.foreignTypes.contains(span)
    }
    return nil
  }

  private static func isWordByte(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"): true
    case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"): true
    default: false
    }
  }

  private static func isFile(_ span: String) -> Bool {
    [".md", ".yaml", ".yml", ".py", ".sh", ".json"].contains(where: span.hasSuffix)
  }
}
