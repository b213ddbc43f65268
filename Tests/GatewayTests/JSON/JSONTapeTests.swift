import Foundation
import TestSupport
import Testing

@testable import Gateway

@Suite struct JSONTapeTests {
  private func parse(
    _ text: String,
    _ limits: JSONLimits = JSONLimits(),
    _ inspect: (JSONValue) throws -> Void
  )
    throws
  {
    try parse(Array(text.utf8), limits, inspect)
  }

  private func parse(
    _ bytes: [UInt8],
    _ limits: JSONLimits = JSONLimits(),
    _ inspect: (JSONValue) throws -> Void
  ) throws {
    let tape = JSONTape(limits: limits)
    try inspect(try tape.parse(bytes.span.bytes))
  }

  // MARK: Lifetime

  #if DEBUG
    /// In a child process: the use traps.
    @Test func valueIsNotUsedAfterTheNextParse() async {
      await #expect(processExitsWith: .failure) {
        let tape = JSONTape()
        let (first, second) = (Array(#"{"a":1}"#.utf8), Array("[2]".utf8))
        let value = try tape.parse(first.span.bytes)
        guard value.member("a")?.integer == 1 else { return }
        _ = try tape.parse(second.span.bytes).count
        _ = value.kind
      }
    }
  #endif

  // MARK: Syntax

  /// Edge cases of RFC 8259, and whether they are valid.
  private static let verdicts: [(String, Bool)] = [
    ("{}", true), ("[]", true), ("null", true), ("true", true), ("\"\"", true), ("0", true), ("-0", true),
    ("-1.5e-3", true), ("  {\t\"a\" :\r\n1 } ", true), ("[1,2,3]", true), ("{\"a\":{\"b\":[{}]}}", true),
    ("\"\\u0041\\n\\\\\\/\\b\\f\\r\\t\\\"\"", true), ("\"\\uD83D\\uDE00\"", true), ("\"é😀\"", true),
    ("843089.3E311", false), ("[1,\n\t\r 2]", true), ("9223372036854775807", true),
    ("-9223372036854775808", true), ("18446744073709551615", true), ("1e30", true),
    ("", false), (" ", false), ("{", false), ("}", false), ("[1,]", false), ("{\"a\":1,}", false),
    ("{a:1}", false),
    ("{'a':1}", false), ("[1 2]", false), ("01", false), ("1.", false), (".5", false), ("+1", false),
    ("- 1", false),
    ("1e", false), ("nul", false), ("TRUE", false), ("NaN", false), ("Infinity", false), ("\"a", false),
    ("\"\\x\"", false), ("\"\\u12\"", false), ("\"\\u12G4\"", false), ("\"\\uD83D\"", false),
    ("\"\\uD83Dx\"", false), ("\"\\uDE00\"", false), ("\"\\uD83D\\u0041\"", false), ("\"a\nb\"", false),
    ("\"a\tb\"", false), ("{} {}", false), ("{}x", false), ("[1]//c", false), ("/* c */ {}", false),
    ("{\"a\"}", false), ("{\"a\":}", false), ("{:1}", false), ("{\"a\":1 \"b\":2}", false), ("[,1]", false),
    ("\u{FEFF}{}", false), ("1e400", false), ("{1:2}", false), ("[\"a\":1]", false),
  ]

  @Test func onlyRFC8259TextsAreAccepted() {
    for (text, isValid) in Self.verdicts {
      let accepted = (try? parse(text) { _ in }) != nil
      #expect(accepted == isValid, "\(text.debugDescription)")
    }
  }

  @Test(
    arguments: [
      [0x22, 0x80, 0x22], [0x22, 0xC3, 0x22], [0x22, 0xC0, 0xAF, 0x22], [0x22, 0xE0, 0x80, 0x80, 0x22],
      [0x22, 0xED, 0xA0, 0x80, 0x22], [0x22, 0xED, 0xB0, 0x80, 0x22], [0x22, 0xF5, 0x80, 0x80, 0x80, 0x22],
      [0x22, 0xF4, 0x90, 0x80, 0x80, 0x22], [0xFF], [0x7B, 0x7D, 0x00], [0x7B, 0x7D, 0x00, 0x7B, 0x7D],
      [0x22, 0x61, 0x00, 0x62, 0x22], [0x00], [0x31, 0x00],
    ] as [[UInt8]]
  )
  func invalidUTF8AndZeroBytesAreRefused(_ bytes: [UInt8]) {
    #expect(throws: JSONSyntaxError.self) { try parse(bytes) { _ in } }
  }

  /// Positions include those that the reader scans sixteen bytes at a time.
  @Test func controlCharactersInStringsAreRefused() {
    for code in UInt8(0)..<0x20 {
      for index in [1, 7, 16, 30, 47] {
        var bytes = [UInt8](repeating: UInt8(ascii: "a"), count: 50)
        (bytes[0], bytes[49], bytes[index]) = (UInt8(ascii: "\""), UInt8(ascii: "\""), code)
        #expect(throws: JSONSyntaxError.self, "\(code) at \(index)") { try parse(bytes) { _ in } }
      }
    }
  }

  @Test func syntaxErrorHasByteOffset() {
    #expect(throws: JSONSyntaxError.malformed(byteOffset: 5)) { try parse("{\"a\":}") { _ in } }
  }

  @Test func depthAndTokensAreBounded() throws {
    let limits = JSONLimits(depthMax: 32, tokenMax: 100)
    let nested = { (depth: Int) in String(repeating: "[", count: depth) + String(repeating: "]", count: depth)
    }
    try parse(nested(32), limits) { _ in }
    #expect(throws: JSONSyntaxError.tooDeep) { try parse(nested(33), limits) { _ in } }
    // The parser is iterative: nesting cannot overflow the stack.
    #expect(throws: JSONSyntaxError.tooDeep) {
      try parse(String(repeating: "[", count: 1_000_000), limits) { _ in }
    }
    let list = { (count: Int) in "[" + Array(repeating: "1", count: count).joined(separator: ",") + "]" }
    try parse(list(99), limits) { _ in }
    #expect(throws: JSONSyntaxError.tooManyTokens) { try parse(list(100), limits) { _ in } }
  }

  // MARK: Access

  @Test func fieldsAreReadByName() throws {
    let text =
      #"{"s":"a\u0062c","i":-7,"d":1.5,"t":true,"f":false,"n":null,"a":[1,"x",{}],"o":{"k":"v"},"s":"last"}"#
    try parse(text) { body in
      #expect(body.kind == .object && body.count == 9)
      #expect(body.member("s")?.string?.text == "last")
      #expect(body.member("i")?.integer == -7 && body.member("i")?.number == -7)
      #expect(body.member("d")?.integer == nil && body.member("d")?.number == 1.5)
      #expect(body.member("t")?.bool == true && body.member("f")?.bool == false)
      #expect(body.member("n")?.isNull == true && body.optional("n") == nil ? true : false)
      #expect(body.member("x") == nil ? true : false)
      #expect(body.member("o")?.member("k")?.string?.text == "v")
      var kinds: [JSONKind] = []
      var elements = body.member("a")!.elements
      while let element = elements.next() { kinds.append(element.kind) }
      #expect(kinds == [.integer, .string, .object])
      var names: [String] = []
      var members = body.members
      while let member = members.next() { names.append(member.name.text) }
      #expect(names == ["s", "i", "d", "t", "f", "n", "a", "o", "s"])
    }
  }

  @Test func accessToWrongKindReturnsNil() throws {
    try parse("[1]") { body in
      #expect(body.member("a") == nil ? true : false)
      #expect(body.string == nil ? true : false)
      var members = body.members
      #expect(members.next() == nil ? true : false)
    }
  }

  private func detail(_ text: String, _ inspect: (JSONValue) throws(Problem) -> Void) throws -> String {
    let tape = JSONTape()
    let bytes = Array(text.utf8)
    let body = try tape.parse(bytes.span.bytes)
    do throws(Problem) { try inspect(body) } catch {
      #expect(error.code == .invalidField)
      return error.detail
    }
    return "none"
  }

  @Test func fieldErrorHasPath() throws {
    let text = #"{"members":["a",{"user_id":"b","role":7}],"n":null,"t":1,"deep":{"list":[[0,1]]}}"#
    #expect(
      try detail(text) { body throws(Problem) in _ = try body.requiredString("x") }
        == "field \"x\" is required"
    )
    #expect(
      try detail(text) { body throws(Problem) in _ = try body.requiredString("n") }
        == "field \"n\" is required"
    )
    #expect(
      try detail(text) { body throws(Problem) in _ = try body.optionalBool("t") }
        == "field \"t\" must be true or false"
    )
    #expect(
      try detail(text) { body throws(Problem) in _ = try body.optionalInteger("t", in: 2...3) }
        == "field \"t\" must be a whole number from 2 to 3"
    )
    #expect(
      try detail(text) { body throws(Problem) in _ = try body.requiredArray("members", countMax: 1) }
        == "field \"members\" may have at most 1 entries"
    )
    #expect(
      try detail(text) { body throws(Problem) in _ = try body.requiredArray("deep", countMax: 1) }
        == "field \"deep\" must be an array"
    )
    #expect(
      try detail(text) { body throws(Problem) in
        var members = try body.requiredArray("members", countMax: 9).elements
        _ = members.next()
        _ = try members.next()!.optionalString("role")
      } == "field \"members[1].role\" must be a string"
    )
    #expect(
      try detail(text) { body throws(Problem) in
        var members = try body.requiredArray("members", countMax: 9).elements
        _ = members.next()
        _ = try members.next()!.requiredString("cid")
      } == "field \"members[1].cid\" is required"
    )
    #expect(
      try detail(text) { body throws(Problem) in
        var lists = body.member("deep")!.member("list")!.elements
        var numbers = lists.next()!.elements
        _ = numbers.next()
        _ = try numbers.next()!.asString()
      } == "field \"deep.list[0][1]\" must be a string"
    )
    #expect(
      try detail("[]") { body throws(Problem) in _ = try body.object() } == "the body must be an object"
    )
  }

  @Test func tapeIsReusableAndShrinks() throws {
    let tape = JSONTape(limits: JSONLimits(keptByteMax: 1_024))
    let large = Array(
      ("[" + Array(repeating: "\"abcdefgh\"", count: 5_000).joined(separator: ",") + "]").utf8
    )
    for round in 0..<3 {
      #expect(try tape.parse(large.span.bytes).count == 5_000)
      tape.shrink()
      let small = Array("{\"round\":\(round)}".utf8)
      #expect(try tape.parse(small.span.bytes).member("round")?.integer == Int64(round))
      let broken = Array("{".utf8)
      #expect(throws: JSONSyntaxError.self) { _ = try tape.parse(broken.span.bytes).kind }
    }
  }

  // MARK: Against Foundation

  /// The same value through `JSONSerialization`'s types.
  private func foundation(_ value: JSONValue) -> Any {
    switch value.kind {
    case .null: return NSNull()
    case .bool: return value.bool!
    case .integer: return NSNumber(value: value.integer!)
    case .double: return NSNumber(value: value.number!)
    case .string: return value.string!.text
    case .array:
      var list: [Any] = []
      var elements = value.elements
      while let element = elements.next() { list.append(foundation(element)) }
      return list
    case .object:
      var object: [String: Any] = [:]
      var members = value.members
      while let member = members.next() { object[member.name.text] = foundation(member.value) }
      return object
    }
  }

  private func isEqual(_ a: Any, _ b: Any) -> Bool {
    switch (a, b) {
    case (is NSNull, is NSNull): return true
    case (let a as [Any], let b as [Any]):
      return a.count == b.count && zip(a, b).allSatisfy { isEqual($0, $1) }
    case (let a as [String: Any], let b as [String: Any]):
      return a.count == b.count && a.allSatisfy { key, value in b[key].map { isEqual(value, $0) } ?? false }
    case (let a as String, let b as String): return Array(a.utf8) == Array(b.utf8)
    case (let a as Bool, let b as Bool): return a == b
    case (let a as NSNumber, let b as NSNumber):
      // The reader's doubles may differ in the last bit.
      let (x, y) = (a.doubleValue, b.doubleValue)
      return x == y || abs(x - y) <= abs(x) * 1e-15
    default: return false
    }
  }

  private func randomText(_ generator: inout SplitMix64, depth: Int) -> String {
    let blank = generator.pick(["", "", "", " ", "\n", "\t "])
    switch generator.below(depth > 5 ? 6 : 9) {
    case 0: return blank + generator.pick(["null", "true", "false"])
    case 1: return blank + "\(generator.number(in: Int64.min...Int64.max))"
    case 2: return blank + "\(generator.number(in: -100...100))"
    case 3: return blank + "\(generator.fraction() * 2e6 - 1e6)"
    case 4, 5: return blank + randomString(&generator)
    case 6, 7:
      let count = generator.number(in: 0...5)
      let members = (0..<count).map { "\"k\($0)\"\(blank): " + randomText(&generator, depth: depth + 1) }
      return blank + "{" + members.joined(separator: ",") + blank + "}"
    default:
      let count = generator.number(in: 0...5)
      return blank + "["
        + (0..<count).map { _ in randomText(&generator, depth: depth + 1) }.joined(separator: ",") + "]"
    }
  }

  private func randomString(_ generator: inout SplitMix64) -> String {
    var text = "\""
    for _ in 0..<generator.number(in: 0...30) {
      switch generator.below(12) {
      case 0: text += generator.pick(["\\n", "\\\\", "\\\"", "\\/", "\\t"])
      case 1:
        let digits = String(generator.number(in: 1...0xD7FF), radix: 16)
        text += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
      case 2: text += generator.pick(["é", "世", "😀", "\u{7F}", "\u{2028}"])
      case 3: text += "\\ud83d\\ude0\(generator.number(in: 0...9))"
      default: text += String(UnicodeScalar(UInt8(generator.number(in: 0x61...0x7A))))
      }
    }
    return text + "\""
  }

  @Test func randomTextsParseAsInFoundation() throws {
    var generator = SplitMix64(printingSeedOf: "JSON texts compared with Foundation")
    let tape = JSONTape()
    for round in 0..<3_000 {
      let text = randomText(&generator, depth: 0)
      let bytes = Array(text.utf8)
      let theirs = try JSONSerialization.jsonObject(with: Data(bytes), options: .fragmentsAllowed)
      let ours = foundation(try tape.parse(bytes.span.bytes))
      #expect(isEqual(ours, theirs), "seed \(generator.seed) round \(round): \(text)")
    }
  }

  /// A text with one changed byte is accepted by both parsers or by neither, except where Foundation is known to be
  /// lenient.
  @Test func corruptedTextsAreRefusedAsInFoundation() throws {
    var generator = SplitMix64(printingSeedOf: "corrupted JSON texts compared with Foundation")
    let tape = JSONTape()
    var refused = 0
    for round in 0..<20_000 {
      var bytes = Array(randomText(&generator, depth: 3).utf8)
      let index = generator.below(bytes.count)
      bytes[index] = generator.number(in: 1...255)
      let theirs = (try? JSONSerialization.jsonObject(with: Data(bytes), options: .fragmentsAllowed)) != nil
      let ours = (try? tape.parse(bytes.span.bytes).kind) != nil
      if !ours { refused += 1 }
      // Foundation has to accept what we accept. It also accepts UTF-16 and a byte order mark.
      #expect(
        !ours || theirs,
        "seed \(generator.seed) round \(round): \(String(decoding: bytes, as: UTF8.self).debugDescription)"
      )
    }
    #expect(refused > 500)
  }
}
