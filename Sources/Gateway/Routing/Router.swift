package import HTTP2Session
internal import ReceiptModel

/// Finds the route for a method and a path, among those of ``RouteSpec`` in the order of ``Route``.
package struct Router {
  private enum PathPiece: Equatable {
    case literal(LiteralPiece)
    case cid, channelType, user, message, name, tokenID
    /// A user as a member of a channel.
    case member

    /// - Parameter text: a piece of a path of ``RouteSpec``.
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
        self = .literal(LiteralPiece(bytes: text))
      }
    }
  }

  /// A piece that matches itself only; bytes of a `StaticString`, which exist permanently.
  private struct LiteralPiece: Equatable {
    let bytes: UnsafeRawBufferPointer

    static func == (one: LiteralPiece, other: LiteralPiece) -> Bool { one.bytes.elementsEqual(other.bytes) }
  }

  private struct Pattern {
    var pieces: [PathPiece]
    var routes: [(method: HTTP2Method, route: Route)]
    var allow = Problem.AllowedMethods("")
  }

  /// Patterns by their number of pieces.
  private let patterns: [[Pattern]]
  private static let pieceCountMax = 6

  package init() {
    var patterns: [[Pattern]] = Array(repeating: [], count: Self.pieceCountMax + 1)
    for route in Route.allCases {
      let method = route.spec.method
      let pieces = Self.pieces(of: route.spec.path)
      if let known = patterns[pieces.count].firstIndex(where: { $0.pieces == pieces }) {
        patterns[pieces.count][known].routes.append((method, route))
      } else {
        patterns[pieces.count].append(Pattern(pieces: pieces, routes: [(method, route)]))
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

  private static func pieces(of path: StaticString) -> [PathPiece] {
    let bytes = UnsafeRawBufferPointer(start: path.utf8Start, count: path.utf8CodeUnitCount)
    return bytes.split(separator: UInt8(ascii: "/")).map { PathPiece(UnsafeRawBufferPointer(rebasing: $0)) }
  }

  /// Find the route of a request.
  ///
  /// - Throws: `route_not_found`, `method_not_allowed`, or the code of a malformed piece, in this order.
  @_lifetime(copy path)
  package func match(_ method: HTTP2Method, _ path: RawSpan, _ scratch: PathScratch) throws(Problem) -> RouteMatch {
    scratch.clear()
    let pathEnd = path.firstOffset(of: UInt8(ascii: "?"), from: 0) ?? path.byteCount
    let query = path.extracting(Swift.min(pathEnd + 1, path.byteCount)..<path.byteCount)
    guard pathEnd > 0, path.unsafeLoad(fromByteOffset: 0, as: UInt8.self) == UInt8(ascii: "/") else {
      throw Problem(.routeNotFound)
    }
    // Piece n lies between the slashes at ends[n] and ends[n + 1].
    var ends = InlineArray<8, Int>(repeating: 0)
    var count = 0
    var slash = 0
    while true {
      let next = path.firstOffset(of: UInt8(ascii: "/"), from: slash + 1) ?? pathEnd
      let end = Swift.min(next, pathEnd)
      guard count < Self.pieceCountMax else { throw Problem(.routeNotFound) }
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
    for index in 0..<pattern.pieces.count {
      let piece = path.extracting((ends[index] + 1)..<ends[index + 1])
      switch pattern.pieces[index] {
      case .literal(let literal): if !piece.equals(literal.bytes) { return false }
      case .cid, .channelType, .user, .message, .name, .member, .tokenID: if piece.isEmpty { return false }
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
    for index in 0..<pattern.pieces.count {
      let raw = path.extracting((ends[index] + 1)..<ends[index + 1])
      switch pattern.pieces[index] {
      case .literal: continue
      case .name: subject = raw
      case .cid:
        guard let piece = scratch.decoded(raw), Identifier.isCID(piece) else { throw Problem(.invalidCID) }
        subject = piece
      case .channelType:
        guard let piece = scratch.decoded(raw), Identifier.isType(piece) else {
          throw Problem(.invalidChannelType)
        }
        subject = piece
      case .user:
        guard let piece = scratch.decoded(raw), Identifier.isUser(piece) else { throw Problem(.invalidUserID) }
        guard !Self.isDots(piece) else { throw Problem(.invalidUserID, Self.dots) }
        subject = piece
      case .message:
        guard let piece = scratch.decoded(raw), Identifier.isMessage(piece) else {
          throw Problem(.invalidMessageID)
        }
        guard !Self.isDots(piece) else { throw Problem(.invalidMessageID, Self.dots) }
        message = piece
      case .member:
        guard let piece = scratch.decoded(raw), Identifier.isUser(piece) else { throw Problem(.invalidUserID) }
        guard !Self.isDots(piece) else { throw Problem(.invalidUserID, Self.dots) }
        member = piece
      case .tokenID:
        guard let piece = scratch.decoded(raw), Identifier.isID(piece) else { throw Problem(.invalidTokenID) }
        guard !Self.isDots(piece) else { throw Problem(.invalidTokenID, Self.dots) }
        subject = piece
      }
    }
    return RouteMatch(route, subject: subject, message: message, member: member, query: query)
  }

  private static let dots =
    "\".\" and \"..\" are not allowed in a path: clients and proxies resolve them, escaped or not"

  private static func isDots(_ piece: RawSpan) -> Bool { piece.equals(".") || piece.equals("..") }

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
