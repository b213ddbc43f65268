internal import HTTP2Session

/// The facts about a route, besides its handler: method and path, name, callers, answer, cost, query parameters
/// and fields of the body.
package struct RouteSpec: Sendable {
  /// The name in metrics and logs.
  package let name: StaticString
  /// The route's method and path. Parts in braces are parameters. Only routes that are not implemented have several.
  let endpoints: [(method: HTTP2Method, path: StaticString)]
  package let caller: Caller
  let response: ResponseSize
  /// The cost of a request against ``RateLimits``: roughly its work relative to marking one channel read. Each frame or
  /// line of a streamed body costs one more; so do four acknowledgements of a JSON body, and of a scan over a user's
  /// channels five that are listed or marked or twenty that are counted.
  let cost: Int
  /// The known query parameters; nil: any, because a provider may add its own to its hook's URL.
  package let queryParameters: [StaticString]?
  /// The fields of the body; nil: no body, or one of another form than a JSON object.
  package let body: KnownFields?

  /// The callers that a route admits.
  package enum Caller: Sendable {
    /// Servers only.
    case server
    /// Servers, and users for themselves.
    case user
    /// All clients. A credential, if any, is in the body.
    case credentialInBody
    /// All clients. A credential is ignored.
    case unauthenticated
  }

  /// The approximate size of a response in bytes, where it is more than small. It counts as held memory from the
  /// request on, so that clients which request much and read nothing are refused early
  /// (``HTTP2Limits/memoryBytesMax``).
  enum ResponseSize: Int, Sendable {
    case small = 0
    /// Up to a page of rows, which the store reads. Requests for pages take turns (``QueryQueue``).
    case page = 12_288
    /// Many entries, or many pages.
    case batch = 49_152
  }

  init(
    _ name: StaticString,
    _ method: HTTP2Method,
    _ path: StaticString,
    _ caller: Caller,
    response: ResponseSize = .small,
    cost: Int = 1,
    query: [StaticString]? = [],
    body: KnownFields? = nil
  ) {
    self.init(name, [(method, path)], caller, response: response, cost: cost, query: query, body: body)
  }

  init(
    _ name: StaticString,
    _ endpoints: [(method: HTTP2Method, path: StaticString)],
    _ caller: Caller,
    response: ResponseSize = .small,
    cost: Int = 1,
    query: [StaticString]? = [],
    body: KnownFields? = nil
  ) {
    self.name = name
    self.endpoints = endpoints
    self.caller = caller
    self.response = response
    self.cost = cost
    queryParameters = query
    self.body = body
  }
}
