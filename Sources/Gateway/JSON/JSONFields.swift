/// Typed access to fields by name. `null` counts as absent in an optional field, except with
/// ``optionalNonNullString(_:)`` and ``optionalTrue(_:)``. ``check(_:)`` checks the names.
extension JSONValue {
  /// Return a problem with this value, as in `field "members[3].role" must be a string`.
  package func error(_ complaint: String, _ code: ProblemCode = .invalidField) -> Problem {
    let path = path
    return Problem(code, path.isEmpty ? "the body \(complaint)" : "field \"\(path)\" \(complaint)")
  }

  /// Return this value, which must be an object.
  @_lifetime(copy self)
  package func object() throws(Problem) -> JSONValue {
    guard kind == .object else { throw error("must be an object") }
    return self
  }

  /// Return this value's bytes, which must be a string.
  @_lifetime(copy self)
  package func asString() throws(Problem) -> RawSpan {
    guard let string else { throw error("must be a string") }
    return string
  }

  /// Return a required field, with any value but `null`.
  @_lifetime(copy self)
  package func required(_ name: StaticString) throws(Problem) -> JSONValue {
    guard let value = optional(name) else { throw missing(name) }
    return value
  }

  /// Return a field that may be absent or `null`.
  @_lifetime(copy self)
  package func optional(_ name: StaticString) -> JSONValue? {
    guard let value = member(name), !value.isNull else { return nil }
    return value
  }

  /// Return a required string.
  @_lifetime(copy self)
  package func requiredString(_ name: StaticString) throws(Problem) -> RawSpan {
    try required(name).asString()
  }

  /// Return an optional string.
  @_lifetime(copy self)
  package func optionalString(_ name: StaticString) throws(Problem) -> RawSpan? {
    guard let value = optional(name) else { return nil }
    return try value.asString()
  }

  /// Return an optional string that must not be `null`. For fields whose absence means *all*, *newest* or another view,
  /// so that a missing variable cannot widen a request.
  @_lifetime(copy self)
  package func optionalNonNullString(_ name: StaticString) throws(Problem) -> RawSpan? {
    guard let value = member(name) else { return nil }
    guard !value.isNull else { throw value.error("must be a string, or left out") }
    return try value.asString()
  }

  /// Return whether an optional field that must be `true` is present. Such a field widens a request, so `null` and
  /// `false` are refused.
  package func optionalTrue(_ name: StaticString) throws(Problem) -> Bool {
    guard let value = member(name) else { return false }
    guard value.bool == true else { throw value.error("must be true, or left out") }
    return true
  }

  /// Return an optional boolean.
  package func optionalBool(_ name: StaticString) throws(Problem) -> Bool? {
    guard let value = optional(name) else { return nil }
    guard let bool = value.bool else { throw value.error("must be true or false") }
    return bool
  }

  /// Return an optional integer in `range`.
  package func optionalInteger(_ name: StaticString, in range: ClosedRange<Int64>) throws(Problem) -> Int64? {
    guard let value = optional(name) else { return nil }
    guard let integer = value.integer, range.contains(integer) else {
      throw value.error("must be a whole number from \(range.lowerBound) to \(range.upperBound)")
    }
    return integer
  }

  /// Return a required array of at most `countMax` elements.
  @_lifetime(copy self)
  package func requiredArray(_ name: StaticString, countMax: Int) throws(Problem) -> JSONValue {
    let value = try required(name)
    return try value.asArray(countMax: countMax)
  }

  /// Return an optional array of at most `countMax` elements.
  @_lifetime(copy self)
  package func optionalArray(_ name: StaticString, countMax: Int) throws(Problem) -> JSONValue? {
    guard let value = optional(name) else { return nil }
    return try value.asArray(countMax: countMax)
  }

  /// Return an optional object.
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

  /// Return a problem with a missing field of this object.
  package func missing(_ name: StaticString) -> Problem {
    let path = path
    return Problem(.invalidField, "field \"\(path.isEmpty ? "\(name)" : "\(path).\(name)")\" is required")
  }
}
