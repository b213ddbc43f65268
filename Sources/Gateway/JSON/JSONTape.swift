internal import CRapidJSON

/// Limits on a JSON text, so that a small body cannot cost much memory or time.
package struct JSONLimits: Sendable {
  /// Maximum nesting depth of containers.
  package var depthMax: Int
  /// Maximum number of values and keys in one text. A batch of 1,000 messages with every field has 14,000.
  package var tokenMax: Int
  /// Bytes that each buffer of the parser keeps between bodies.
  package var keptByteMax: Int

  package init(depthMax: Int = 32, tokenMax: Int = 65_536, keptByteMax: Int = 256 * 1024) {
    self.depthMax = depthMax
    self.tokenMax = tokenMax
    self.keptByteMax = keptByteMax
  }
}

/// Why a text was refused as a whole.
package enum JSONSyntaxError: Error, Equatable {
  /// Not JSON (RFC 8259), not UTF-8, or a surrogate escape without its partner.
  case malformed(byteOffset: Int)
  /// The nesting is deeper than ``JSONLimits/depthMax``.
  case tooDeep
  /// More values and keys than ``JSONLimits/tokenMax``.
  case tooManyTokens

  /// A sentence for the `detail` of a problem.
  package var detail: String {
    switch self {
    case .malformed(let byteOffset): "the body is not valid JSON (at byte \(byteOffset))"
    case .tooDeep: "the body nests arrays and objects too deeply"
    case .tooManyTokens: "the body has too many values"
    }
  }
}

/// The gateway's only JSON decoder: parses a text into a flat tape whose memory the next parse reuses.
///
/// One per event loop. A parse allocates nothing once the buffers have grown to the size of the usual bodies.
///
/// Debug builds trap where a value is used after the parse, or the ``shrink()``, that has overwritten it.
package final class JSONTape {
  private let parser: OpaquePointer
  private let keptByteMax: Int
  #if DEBUG
    private let generation = JSONGeneration()
  #endif

  /// Trap where there is no memory for an empty parser.
  package init(limits: JSONLimits = JSONLimits()) {
    guard let parser = tm_json_parser_new(UInt32(limits.depthMax), UInt32(limits.tokenMax)) else {
      preconditionFailure("no memory for a JSON parser")
    }
    self.parser = parser
    self.keptByteMax = limits.keptByteMax
  }

  deinit { tm_json_parser_free(parser) }

  /// Parse a whole text, whose bytes are copied.
  ///
  /// The value, and every value and span derived from it, is valid until the next `parse` or `shrink`. Of duplicate
  /// keys in an object the last counts.
  @_lifetime(borrow self)
  package func parse(_ bytes: RawSpan) throws(JSONSyntaxError) -> JSONValue {
    invalidateValues()
    let result = bytes.withUnsafeBytes { tm_json_parse(parser, $0.baseAddress, $0.count) }
    switch result {
    case TM_JSON_OK: break
    case TM_JSON_TOO_DEEP: throw .tooDeep
    case TM_JSON_TOO_MANY_TOKENS: throw .tooManyTokens
    default: throw .malformed(byteOffset: tm_json_error_offset(parser))
    }
    #if DEBUG
      let document = JSONDocument(tm_json_tape(parser)!, tm_json_text(parser)!, generation)
    #else
      let document = JSONDocument(tm_json_tape(parser)!, tm_json_text(parser)!)
    #endif
    return _overrideLifetime(JSONValue(document, index: 0), borrowing: self)
  }

  /// Free buffer memory that a large body has claimed. Call it between bodies, not while a value is in use.
  package func shrink() {
    invalidateValues()
    tm_json_shrink(parser, keptByteMax)
  }

  @inline(__always)
  private func invalidateValues() {
    #if DEBUG
      generation.number += 1
    #endif
  }
}

#if DEBUG
  /// How often a tape's values have become invalid.
  private final class JSONGeneration {
    var number = 0
  }
#endif

/// The tokens and the text of one parse.
private struct JSONDocument {
  private let tokens: UnsafePointer<tm_json_token>
  private let text: UnsafePointer<UInt8>
  #if DEBUG
    private let generation: JSONGeneration
    /// The generation of this parse.
    private let number: Int

    init(_ tokens: UnsafePointer<tm_json_token>, _ text: UnsafePointer<UInt8>, _ generation: JSONGeneration) {
      self.tokens = tokens
      self.text = text
      self.generation = generation
      number = generation.number
    }
  #else
    init(_ tokens: UnsafePointer<tm_json_token>, _ text: UnsafePointer<UInt8>) {
      self.tokens = tokens
      self.text = text
    }
  #endif

  @inline(__always)
  subscript(index: UInt32) -> tm_json_token {
    #if DEBUG
      precondition(number == generation.number, "a JSON value is used after the next parse")
    #endif
    return tokens[Int(index)]
  }

  /// Return the bytes of a token that is known to be a string.
  @inline(__always)
  func string(_ index: UInt32) -> UnsafeRawBufferPointer {
    let payload = self[index].payload
    return UnsafeRawBufferPointer(start: text + Int(UInt32(truncatingIfNeeded: payload)), count: Int(payload >> 32))
  }
}

/// The type of a JSON value.
package enum JSONKind: Equatable, Sendable {
  case null, bool, integer, double, string, array, object
}

/// One value of a parsed text: a reference into the tape, three words wide in release builds, cheap to copy.
package struct JSONValue: ~Escapable {
  fileprivate let document: JSONDocument
  fileprivate let index: UInt32

  @_lifetime(immortal)
  fileprivate init(_ document: JSONDocument, index: UInt32) {
    self.document = document
    self.index = index
  }

  private var token: tm_json_token { document[index] }

  /// The type of this value. An integer beyond `Int64` is a double.
  package var kind: JSONKind {
    switch tm_json_kind(token.kind) {
    case TM_JSON_NULL: .null
    case TM_JSON_FALSE, TM_JSON_TRUE: .bool
    case TM_JSON_INTEGER: .integer
    case TM_JSON_DOUBLE: .double
    case TM_JSON_STRING: .string
    case TM_JSON_ARRAY: .array
    default: .object
    }
  }

  /// Whether this is `null`.
  package var isNull: Bool { token.kind == TM_JSON_NULL.rawValue }

  /// The boolean, if it is one.
  package var bool: Bool? {
    switch tm_json_kind(token.kind) {
    case TM_JSON_TRUE: true
    case TM_JSON_FALSE: false
    default: nil
    }
  }

  /// The integer, if it is one within `Int64`. `1.0` and `1e3` are not integers.
  package var integer: Int64? {
    token.kind == TM_JSON_INTEGER.rawValue ? Int64(bitPattern: token.payload) : nil
  }

  /// The number, if it is one; the last bit may be off (rapidjson's fast path).
  package var number: Double? {
    switch tm_json_kind(token.kind) {
    case TM_JSON_INTEGER: Double(Int64(bitPattern: token.payload))
    case TM_JSON_DOUBLE: Double(bitPattern: token.payload)
    default: nil
    }
  }

  /// The unescaped bytes of the string, valid UTF-8, if it is one.
  package var string: RawSpan? {
    @_lifetime(copy self)
    get {
      guard token.kind == TM_JSON_STRING.rawValue else { return nil }
      return stringBytes
    }
  }

  /// The number of elements of an array, or of members of an object with duplicates; 0 for anything else.
  package var count: Int {
    switch tm_json_kind(token.kind) {
    case TM_JSON_ARRAY, TM_JSON_OBJECT: Int(token.payload)
    default: 0
    }
  }

  /// Return the member of that name, the last of duplicates; nil if there is none or this is no object.
  @_lifetime(copy self)
  package func member(_ name: StaticString) -> JSONValue? {
    let found = member(at: name.utf8Start, name.utf8CodeUnitCount)
    guard found != 0 else { return nil }
    return _overrideLifetime(JSONValue(document, index: found), copying: self)
  }

  /// Return the same, for a name that is read from a setting.
  @_lifetime(copy self)
  package func member(_ name: [UInt8]) -> JSONValue? {
    let found = name.withUnsafeBufferPointer { name in name.baseAddress.map { member(at: $0, name.count) } ?? 0 }
    guard found != 0 else { return nil }
    return _overrideLifetime(JSONValue(document, index: found), copying: self)
  }

  /// Return the token of a member's value; 0: none.
  @inline(__always)
  private func member(at name: UnsafePointer<UInt8>, _ count: Int) -> UInt32 {
    guard token.kind == TM_JSON_OBJECT.rawValue else { return 0 }
    var found: UInt32 = 0
    var at = index + 1
    let end = token.next
    while at < end {
      if isString(at, equalTo: name, count) { found = at + 1 }
      at = document[at + 1].next
    }
    return found
  }

  /// The elements of an array in order; none for anything else.
  package var elements: JSONElements {
    @_lifetime(copy self)
    get {
      let isArray = token.kind == TM_JSON_ARRAY.rawValue
      return _overrideLifetime(JSONElements(of: self, end: isArray ? token.next : index), copying: self)
    }
  }

  /// The members of an object in order, including duplicates; none for anything else.
  package var members: JSONMembers {
    @_lifetime(copy self)
    get {
      let isObject = token.kind == TM_JSON_OBJECT.rawValue
      return _overrideLifetime(JSONMembers(of: self, end: isObject ? token.next : index), copying: self)
    }
  }

  /// The bytes of a token that is known to be a string.
  var stringBytes: RawSpan {
    @_lifetime(copy self)
    get {
      _overrideLifetime(RawSpan(_unsafeBytes: document.string(index)), copying: self)
    }
  }

  @inline(__always)
  private func isString(_ at: UInt32, equalTo wanted: UnsafePointer<UInt8>, _ count: Int) -> Bool {
    let bytes = document.string(at)
    guard bytes.count == count else { return false }
    var offset = 0
    while offset < count {
      if bytes[offset] != wanted[offset] { return false }
      offset += 1
    }
    return true
  }

  /// The path of this value in its text, as in `members[3].role`; empty for the root. Walks the tape from the root: use
  /// it for messages only.
  package var path: String {
    var path = ""
    var container: UInt32 = 0
    while container != index {
      let token = document[container]
      var child = container + 1
      var position = 0
      let isObject = token.kind == TM_JSON_OBJECT.rawValue
      while child < token.next {
        let value = isObject ? child + 1 : child
        if index >= value && index < document[value].next {
          if isObject {
            let name = JSONValue(document, index: child).stringBytes
            if !path.isEmpty { path += "." }
            path += String(decoding: Array(name.prefix(64)), as: UTF8.self)
          } else {
            path += "[\(position)]"
          }
          container = value
          break
        }
        child = document[value].next
        position += 1
      }
    }
    return path
  }
}

/// Iterator over the elements of an array: `while let element = elements.next()`.
package struct JSONElements: ~Escapable {
  private let document: JSONDocument
  private var at: UInt32
  private let end: UInt32

  @_lifetime(copy array)
  fileprivate init(of array: JSONValue, end: UInt32) {
    document = array.document
    self.at = array.index + 1
    self.end = end
  }

  /// Return the next element; nil after the last.
  @_lifetime(copy self)
  package mutating func next() -> JSONValue? {
    guard at < end else { return nil }
    let value = JSONValue(document, index: at)
    at = document[at].next
    return _overrideLifetime(value, copying: self)
  }
}

/// A member of an object.
package struct JSONMember: ~Escapable {
  private let key: JSONValue
  package let value: JSONValue

  @_lifetime(copy key)
  fileprivate init(key: JSONValue, value: JSONValue) {
    self.key = key
    self.value = _overrideLifetime(value, copying: key)
  }

  /// The unescaped bytes of the member's name.
  package var name: RawSpan {
    @_lifetime(copy self)
    get { key.stringBytes }
  }
}

/// Iterator over the members of an object: `while let member = members.next()`.
package struct JSONMembers: ~Escapable {
  private let document: JSONDocument
  private var at: UInt32
  private let end: UInt32

  @_lifetime(copy object)
  fileprivate init(of object: JSONValue, end: UInt32) {
    document = object.document
    self.at = object.index + 1
    self.end = end
  }

  /// Return the next member; nil after the last.
  @_lifetime(copy self)
  package mutating func next() -> JSONMember? {
    guard at < end else { return nil }
    let key = JSONValue(document, index: at)
    let value = JSONValue(document, index: at + 1)
    at = document[at + 1].next
    return _overrideLifetime(JSONMember(key: key, value: value), copying: self)
  }
}

extension RawSpan {
  fileprivate func prefix(_ count: Int) -> [UInt8] {
    withUnsafeBytes { Array($0.prefix(count)) }
  }
}
