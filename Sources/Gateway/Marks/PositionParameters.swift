/// The query parameters of position routes.
struct PositionParameters: ~Escapable {
  /// Empty for none.
  private(set) var message: RawSpan
  /// Empty for none.
  private(set) var user: RawSpan
  /// Empty for none.
  private(set) var thread: RawSpan
  /// Nil where it is neither `true` nor `false`.
  private(set) var wantsTotals: Bool? = false
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
        let isTrue = parameter.value.equals("true")
        wantsTotals = isTrue || parameter.value.isEmpty || parameter.value.equals("false") ? isTrue : nil
      } else {
        needsCheck = true
      }
    }
  }
}
