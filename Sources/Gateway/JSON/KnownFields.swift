/// The fields that an object in a body may have. Any other name is refused: where omitting a field means *all* or
/// *newest*, a misspelt name must not widen the request.
///
/// A table is written as an array of names:
///
///     static let message: KnownFields = ["id", "user_id", .object("options", ["enabled"])]
///
/// A route's table stands beside its handler and in its ``RouteSpec``, by which APIDocumentTests compare it with
/// Proto/openapi.yaml.
package struct KnownFields: Sendable, ExpressibleByArrayLiteral {
  /// The content of a field's value.
  package enum Content: Sendable {
    /// A scalar, an array of scalars, or an object with names of the caller's choice, which are not checked.
    case value
    /// An object.
    indirect case object(KnownFields)
    /// An array; its elements that are objects have these fields.
    indirect case objects(KnownFields)
  }

  package struct Field: Sendable, ExpressibleByStringLiteral {
    package let name: StaticString
    package let content: Content

    package init(_ name: StaticString, _ content: Content) {
      self.name = name
      self.content = content
    }

    package init(stringLiteral name: StaticString) { self.init(name, .value) }

    package static func object(_ name: StaticString, _ fields: KnownFields) -> Field {
      Field(name, .object(fields))
    }

    package static func objects(_ name: StaticString, _ fields: KnownFields) -> Field {
      Field(name, .objects(fields))
    }
  }

  /// Stored apart from ``contents``, so that a search for a name counts no references.
  package let names: [StaticString]
  package let contents: [Content]

  package init(arrayLiteral fields: Field...) { self.init(fields) }

  package init(_ fields: [Field]) {
    names = fields.map(\.name)
    contents = fields.map(\.content)
  }

  package static func + (fields: KnownFields, others: KnownFields) -> KnownFields {
    KnownFields(fields.fields + others.fields)
  }

  private var fields: [Field] { zip(names, contents).map { Field($0, $1) } }

  /// Return the index of a name in the table; nil where it is unknown.
  func index(of name: RawSpan) -> Int? {
    var index = 0
    while index < names.count {
      if name.equals(names[index]) { return index }
      index += 1
    }
    return nil
  }
}

extension JSONValue {
  /// Check the field names of this object, and of nested objects that the table describes. Values are not checked.
  ///
  /// - Throws: `unknown_field`.
  package func check(_ known: KnownFields) throws(Problem) {
    var members = self.members
    while let member = members.next() {
      guard let index = known.index(of: member.name) else {
        throw Problem(unknown: "field", member.value.path, NearestName.of(member.name, among: known.names))
      }
      switch known.contents[index] {
      case .value: continue
      case .object(let fields): try member.value.check(fields)
      case .objects(let fields):
        var elements = member.value.elements
        while let element = elements.next() { try element.check(fields) }
      }
    }
  }
}

extension Problem {
  /// An unknown name, as in `there is no field "messageId"; did you mean "message_id"?`
  init(unknown what: String, _ name: String, _ nearest: StaticString?) {
    let hint = nearest.map { "; did you mean \"\($0)\"?" } ?? ""
    self.init(.unknownField, "there is no \(what) \"\(name)\"" + hint)
  }
}

/// Search for the known name that a caller most likely meant: the one with the least edit distance, ignoring letter
/// case, `_` and `-`, so that `messageId` is near `message_id`.
enum NearestName {
  /// Longer names match no known one, which bounds the work.
  private static let byteCountMax = 64

  /// Return the nearest known name; nil where none is within one edit per three characters.
  static func of(_ name: RawSpan, among known: [StaticString]) -> StaticString? {
    guard name.byteCount <= byteCountMax else { return nil }
    let given = name.withUnsafeBytes { folded($0) }
    var nearest: StaticString?
    var least = Int.max
    for candidate in known {
      let wanted = candidate.withUTF8Buffer { folded($0) }
      let distance = editDistance(given, wanted)
      guard distance <= max(1, min(given.count, wanted.count) / 3), distance < least else { continue }
      least = distance
      nearest = candidate
    }
    return nearest
  }

  private static func folded(_ bytes: some Sequence<UInt8>) -> [UInt8] {
    bytes.filter { $0 != UInt8(ascii: "_") && $0 != UInt8(ascii: "-") }
      .map { (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains($0) ? $0 | 0x20 : $0 }
  }

  /// Return the Levenshtein distance: insertions, deletions and substitutions of one byte.
  private static func editDistance(_ a: [UInt8], _ b: [UInt8]) -> Int {
    var row = Array(0...b.count)
    for (i, left) in a.enumerated() {
      var diagonal = row[0]
      row[0] = i + 1
      for (j, right) in b.enumerated() {
        let substituted = diagonal + (left == right ? 0 : 1)
        diagonal = row[j + 1]
        row[j + 1] = min(substituted, row[j] + 1, row[j + 1] + 1)
      }
    }
    return row[b.count]
  }
}
