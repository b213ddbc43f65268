/// Typed access by name. `null` counts as absent in an optional field, but for those read with
/// ``stringUnlessMissing(_:)`` and ``trueUnlessMissing(_:)``. Names are checked by ``check(_:)``.
extension JSONValue {
  /// A problem with this value, as in `field "members[3].role" must be a string`.
  package func error(_ complaint: String, _ code: ProblemCode = .invalidField) -> Problem {
    let path = path
    return Problem(code, path.isEmpty ? "the body \(complaint)" : "field \"\(path)\" \(complaint)")
  }

  /// This value, which must be an object.
  @_lifetime(copy self)
  package func object() throws(Problem) -> JSONValue {
    guard kind == .object else { throw error("must be an object") }
    return self
  }

  /// This value's bytes, which must be a string.
  @_lifetime(copy self)
  package func asString() throws(Problem) -> RawSpan {
    guard let string else { throw error("must be a string") }
    return string
  }

  /// A field that must be there, with any value but `null`.
  @_lifetime(copy self)
  package func required(_ name: StaticString) throws(Problem) -> JSONValue {
    guard let value = optional(name) else { throw missing(name) }
    return value
  }

  /// A field that may be missing or `null`.
  @_lifetime(copy self)
  package func optional(_ name: StaticString) -> JSONValue? {
    guard let value = member(name), !value.isNull else { return nil }
    return value
  }

  /// A string that must be there.
  @_lifetime(copy self)
  package func requiredString(_ name: StaticString) throws(Problem) -> RawSpan {
    try required(name).asString()
  }

  /// A string that may be missing.
  @_lifetime(copy self)
  package func optionalString(_ name: StaticString) throws(Problem) -> RawSpan? {
    guard let value = optional(name) else { return nil }
    return try value.asString()
  }

  /// A string that may be missing, but not `null`: for fields without which all is meant, the newest, or somebody
  /// else's view, so that a value that the caller did not have does more than they meant.
  @_lifetime(copy self)
  package func stringUnlessMissing(_ name: StaticString) throws(Problem) -> RawSpan? {
    guard let value = member(name) else { return nil }
    guard !value.isNull else { throw value.error("must be a string, or left out") }
    return try value.asString()
  }

  /// Whether a field that can only be `true` is there: one that widens a request, so `null` and `false` are refused.
  package func trueUnlessMissing(_ name: StaticString) throws(Problem) -> Bool {
    guard let value = member(name) else { return false }
    guard value.bool == true else { throw value.error("must be true, or left out") }
    return true
  }

  /// A boolean that may be missing.
  package func optionalBool(_ name: StaticString) throws(Problem) -> Bool? {
    guard let value = optional(name) else { return nil }
    guard let bool = value.bool else { throw value.error("must be true or false") }
    return bool
  }

  /// An integer in `range` that may be missing.
  package func optionalInteger(
    _ name: StaticString,
    in range: ClosedRange<Int64>
  ) throws(Problem) -> Int64? {
    guard let value = optional(name) else { return nil }
    guard let integer = value.integer, range.contains(integer) else {
      throw value.error("must be a whole number from \(range.lowerBound) to \(range.upperBound)")
    }
    return integer
  }

  /// An array that must be there, of at most `countMax` elements.
  @_lifetime(copy self)
  package func requiredArray(_ name: StaticString, countMax: Int) throws(Problem) -> JSONValue {
    let value = try required(name)
    return try value.asArray(countMax: countMax)
  }

  /// An array that may be missing, of at most `countMax` elements.
  @_lifetime(copy self)
  package func optionalArray(_ name: StaticString, countMax: Int) throws(Problem) -> JSONValue? {
    guard let value = optional(name) else { return nil }
    return try value.asArray(countMax: countMax)
  }

  /// An object that may be missing.
  @_lifetime(copy self)
  package func optionalObject(_ name: StaticString) throws(Problem) -> JSONValue? {
    guard let value = optional(name) else { return nil }
    return try value.object()
  }

  @_lifetime(copy self)
  package func asArray(countMax: Int) throws(Problem) -> JSONValue {
    guard kind == .array else { throw error("must be an array") }
    guard count <= countMax else { throw error("may have at most \(countMax) entries") }
    return self
  }

  /// A problem with a field of this object that is not there.
  package func missing(_ name: StaticString) -> Problem {
    let path = path
    return Problem(.invalidField, "field \"\(path.isEmpty ? "\(name)" : "\(path).\(name)")\" is required")
  }
}
