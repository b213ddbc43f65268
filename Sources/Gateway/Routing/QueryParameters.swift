extension RouteMatch {
  /// Parameters that Stream's clients send with every request; ignored.
  private static let ignoredParameters: [StaticString] = ["api_key", "connection_id"]

  /// Parameters whose absence means everything, the newest, or another view. An empty value is refused, as `null` is in
  /// a body, so that a missing variable cannot widen a request.
  private static let ids: [StaticString] = ["message_id", "thread_id", "user_id"]

  /// Parameters that may be repeated.
  private static let lists: [StaticString] = ["channels", "user_ids"]

  /// - Parameters:
  ///   - name: the parameter's name in the route's list, at this index.
  ///   - seen: bit set of the parameters seen so far.
  private static func check(
    _ parameter: borrowing QueryParameter,
    _ name: StaticString,
    at index: Int,
    _ seen: inout UInt64
  ) throws(Problem) {
    if parameter.value.isEmpty, ids.contains(where: { parameter.name.equals($0) }) {
      throw Problem(.invalidQuery, "\(name) is empty: leave it out, or give an id")
    }
    guard seen & 1 << UInt64(index) == 0 || lists.contains(where: { parameter.name.equals($0) }) else {
      throw Problem(.invalidQuery, "\(name) is given twice")
    }
    seen |= 1 << UInt64(index)
  }

  /// Check the names of a query's parameters. Every user route accepts the user's own id, which Stream's clients send
  /// with each request.
  ///
  /// - Throws: `invalid_query`, `unknown_field`, `user_id_mismatch`.
  func checkQuery(_ caller: Caller, _ scratch: PathScratch) throws(Problem) {
    guard !query.isEmpty, let known = route.spec.queryParameters else { return }
    // The route decodes the values again.
    let mark = scratch.mark
    defer { scratch.forget(to: mark) }
    var seen: UInt64 = 0
    var reader = QueryReader(query, scratch)
    while let parameter = try reader.next() {
      if let index = known.firstIndex(where: { parameter.name.equals($0) }) {
        try Self.check(parameter, known[index], at: index, &seen)
        continue
      }
      if Self.ignoredParameters.contains(where: { parameter.name.equals($0) }) { continue }
      if parameter.name.equals("user_id"), route.caller == .user, !caller.isServer {
        guard parameter.value.isEmpty || parameter.value.equals(caller.user) else {
          throw Problem(.userIDMismatch)
        }
      } else {
        let name = parameter.name.withUnsafeBytes { String(decoding: $0.prefix(64), as: UTF8.self) }
        throw Problem(unknown: "query parameter", name, NearestName.of(parameter.name, among: known))
      }
    }
  }
}
