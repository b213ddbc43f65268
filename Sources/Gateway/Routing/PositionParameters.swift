internal import ReceiptModel

/// The query parameters of position routes. A mark's body may override them.
struct PositionParameters: ~Escapable {
  /// Whether the response shows the user's unread totals.
  enum Totals {
    case omitted, requested
    /// Neither `true` nor `false`.
    case invalid

    /// - Parameter value: as in the query; empty counts as `false`.
    init(_ value: RawSpan) {
      if value.equals("true") {
        self = .requested
      } else if value.isEmpty || value.equals("false") {
        self = .omitted
      } else {
        self = .invalid
      }
    }
  }

  /// Empty for none.
  private(set) var message: RawSpan
  /// Empty for none.
  private(set) var user: RawSpan
  /// Empty for none.
  private(set) var thread: RawSpan
  private(set) var totals = Totals.omitted
  /// Whether a parameter is unknown, repeated or empty; ``RouteMatch/checkQuery(_:_:)`` then finds the problem.
  private(set) var needsCheck = false

  @_lifetime(copy query)
  init(_ query: RawSpan, _ scratch: PathScratch) throws(Problem) {
    message = query.extracting(0..<0)
    user = query.extracting(0..<0)
    thread = query.extracting(0..<0)
    guard !query.isEmpty else { return }
    var hasTotals = false
    var reader = QueryReader(query, scratch)
    while let parameter = try reader.next() {
      if parameter.name.equals("message_id") {
        needsCheck = needsCheck || !message.isEmpty || parameter.value.isEmpty
        message = parameter.value
      } else if parameter.name.equals("user_id") {
        needsCheck = needsCheck || !user.isEmpty || parameter.value.isEmpty
        user = parameter.value
      } else if parameter.name.equals("thread_id") {
        needsCheck = needsCheck || !thread.isEmpty || parameter.value.isEmpty
        thread = parameter.value
      } else if parameter.name.equals("totals") {
        needsCheck = needsCheck || hasTotals
        hasTotals = true
        totals = Totals(parameter.value)
      } else {
        needsCheck = true
      }
    }
  }

  /// Take the fields of a body, which override the query's.
  @_lifetime(self: copy self, copy body)
  mutating func override(by body: JSONValue, _ context: RequestContext) throws(Problem) {
    if let given = try body.optionalNonNullString("message_id") {
      guard !given.isEmpty else { throw Problem(.invalidMessageID) }
      message = given
    }
    if let given = try body.optionalNonNullString("user_id") {
      try context.check(given)
      user = given
    }
    if let given = try body.optionalNonNullString("thread_id") {
      guard !given.isEmpty else { throw Problem(.invalidMessageID) }
      thread = given
    }
  }

  /// Validate the ids of the messages.
  func checkIDs() throws(Problem) {
    if !message.isEmpty && !Identifier.isMessage(message) { throw Problem(.invalidMessageID) }
    if !thread.isEmpty && !Identifier.isMessage(thread) { throw Problem(.invalidMessageID) }
  }
}
