package import HTTP2Session
internal import ReceiptModel

/// Finds the route for a method and a path, among the endpoints of ``RouteSpec`` in the order of ``Route``.
package struct Router {
  private enum Part: Equatable {
    case literal(LiteralPart)
    case cid, channelType, user, message, name, tokenID
    /// A user as a member of a channel.
    case member

    /// - Parameter text: a part of a path of ``RouteSpec``.
    init(_ text: UnsafeRawBufferPointer) {
      switch String(decoding: text, as: UTF8.self) {
      case "{cid}": self = .cid
      case "{type}": self = .channelType
      case "{user}": self = .user
      case "{message}": self = .message
      case "{name}": self = .name
      case "{jti}": self = .tokenID
      case "{member}": self = .member
      case let other:
        precondition(!other.hasPrefix("{"), "unknown parameter \(other) in RouteSpec")
        self = .literal(LiteralPart(bytes: text))
      }
    }
  }

  /// A part that matches itself only; bytes of a `StaticString`, which exist permanently.
  private struct LiteralPart: Equatable {
    let bytes: UnsafeRawBufferPointer

    static func == (one: LiteralPart, other: LiteralPart) -> Bool { one.bytes.elementsEqual(other.bytes) }
  }

  private struct Pattern {
    var parts: [Part]
    var routes: [(method: HTTP2Method, route: Route)]
    var allow = Problem.AllowedMethods("")
  }

  /// Patterns by their number of parts.
  private let patterns: [[Pattern]]
  private static let partCountMax = 6

  package init() {
    var patterns: [[Pattern]] = Array(repeating: [], count: Self.partCountMax + 1)
    for route in Route.allCases {
      for (method, path) in route.spec.endpoints {
        let parts = Self.parts(of: path)
        if let known = patterns[parts.count].firstIndex(where: { $0.parts == parts }) {
          patterns[parts.count][known].routes.append((method, route))
        } else {
          patterns[parts.count].append(Pattern(parts: parts, routes: [(method, route)]))
        }
      }
    }
    for count in patterns.indices {
      for index in patterns[count].indices {
        let methods = patterns[count][index].routes.map(\.method)
        let names = Self.methodsInOrder.filter(methods.contains).flatMap { method in
          method == .get ? ["GET", "HEAD"] : [Self.name(method)]
        }
        patterns[count][index].allow = Problem.AllowedMethods(names.joined(separator: ", "))
      }
    }
    self.patterns = patterns
  }

  private static let methodsInOrder: [HTTP2Method] = [.post, .get, .put, .delete]

  private static func parts(of path: StaticString) -> [Part] {
    let bytes = UnsafeRawBufferPointer(start: path.utf8Start, count: path.utf8CodeUnitCount)
    return bytes.split(separator: UInt8(ascii: "/")).map { Part(UnsafeRawBufferPointer(rebasing: $0)) }
  }

  /// Find the route of a request.
  ///
  /// - Throws: `route_not_found`, `method_not_allowed`, or the code of a malformed part, in this order.
  @_lifetime(copy path)
  package func match(_ method: HTTP2Method, _ path: RawSpan, _ scratch: PathScratch) throws(Problem) -> RouteMatch {
    scratch.clear()
    let pathEnd = path.firstOffset(of: UInt8(ascii: "?"), from: 0) ?? path.byteCount
    let query = path.extracting(Swift.min(pathEnd + 1, path.byteCount)..<path.byteCount)
    guard pathEnd > 0, path.unsafeLoad(fromByteOffset: 0, as: UInt8.self) == UInt8(ascii: "/") else {
      throw Problem(.routeNotFound)
    }
    // Part n lies between the slashes at ends[n] and ends[n + 1].
    var ends = InlineArray<8, Int>(repeating: 0)
    var count = 0
    var slash = 0
    while true {
      let next = path.firstOffset(of: UInt8(ascii: "/"), from: slash + 1) ?? pathEnd
      let end = Swift.min(next, pathEnd)
      guard count < Self.partCountMax else { throw Problem(.routeNotFound) }
      count += 1
      ends[count] = end
      if end == pathEnd { break }
      slash = end
    }
    for index in patterns[count].indices where Self.fits(patterns[count][index], path, ends) {
      return try routed(patterns[count][index], method, path: path, ends: ends, query: query, scratch: scratch)
    }
    throw Problem(.routeNotFound)
  }

  private static func fits(_ pattern: borrowing Pattern, _ path: RawSpan, _ ends: InlineArray<8, Int>) -> Bool {
    for index in 0..<pattern.parts.count {
      let part = path.extracting((ends[index] + 1)..<ends[index + 1])
      switch pattern.parts[index] {
      case .literal(let literal): if !part.equals(literal.bytes) { return false }
      case .cid, .channelType, .user, .message, .name, .member, .tokenID: if part.isEmpty { return false }
      }
    }
    return true
  }

  @_lifetime(copy query)
  private func routed(
    _ pattern: Pattern,
    _ method: HTTP2Method,
    path: RawSpan,
    ends: InlineArray<8, Int>,
    query: RawSpan,
    scratch: PathScratch
  ) throws(Problem) -> RouteMatch {
    let wanted = method == .head ? .get : method
    guard let route = pattern.routes.first(where: { $0.method == wanted })?.route else {
      var problem = Problem(.methodNotAllowed)
      problem.allow = pattern.allow
      throw problem
    }
    let empty = path.extracting(0..<0)
    var subject = empty
    var message = empty
    var member = empty
    for index in 0..<pattern.parts.count {
      let raw = path.extracting((ends[index] + 1)..<ends[index + 1])
      switch pattern.parts[index] {
      case .literal: continue
      case .name: subject = raw
      case .cid:
        guard let part = scratch.decoded(raw), Identifier.isCID(part) else { throw Problem(.invalidCID) }
        subject = part
      case .channelType:
        guard let part = scratch.decoded(raw), Identifier.isType(part) else {
          throw Problem(.invalidChannelType)
        }
        subject = part
      case .user:
        guard let part = scratch.decoded(raw), Identifier.isUser(part) else { throw Problem(.invalidUserID) }
        guard !Self.isDots(part) else { throw Problem(.invalidUserID, Self.dots) }
        subject = part
      case .message:
        guard let part = scratch.decoded(raw), Identifier.isMessage(part) else {
          throw Problem(.invalidMessageID)
        }
        guard !Self.isDots(part) else { throw Problem(.invalidMessageID, Self.dots) }
        message = part
      case .member:
        guard let part = scratch.decoded(raw), Identifier.isUser(part) else { throw Problem(.invalidUserID) }
        guard !Self.isDots(part) else { throw Problem(.invalidUserID, Self.dots) }
        member = part
      case .tokenID:
        guard let part = scratch.decoded(raw), Identifier.isID(part) else { throw Problem(.invalidTokenID) }
        guard !Self.isDots(part) else { throw Problem(.invalidTokenID, Self.dots) }
        subject = part
      }
    }
    return RouteMatch(route, subject: subject, message: message, member: member, query: query)
  }

  private static let dots =
    "\".\" and \"..\" are not allowed in a path: clients and proxies resolve them, escaped or not"

  private static func isDots(_ part: RawSpan) -> Bool { part.equals(".") || part.equals("..") }

  private static func name(_ method: HTTP2Method) -> String {
    switch method {
    case .get: "GET"
    case .put: "PUT"
    case .post: "POST"
    case .delete: "DELETE"
    case .patch: "PATCH"
    case .head: "HEAD"
    case .options: "OPTIONS"
    case .other: "OTHER"
    }
  }
}
