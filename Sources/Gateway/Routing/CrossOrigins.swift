internal import HTTP2Session
package import Operations

/// The web origins of `--cors-origin` that may call the API (the Fetch standard, "HTTP CORS protocol"). Tokens are sent
/// in headers or the query, so a page gets no access beyond the tokens that it has.
package struct CrossOrigins: Sendable, Equatable {
  /// As browsers send them: scheme, host, and the port unless it is the scheme's default.
  private var origins: [[UInt8]] = []
  private var isAnybody = false

  /// No origins.
  package init() {}

  /// - Throws: where a text is no origin.
  package init(_ texts: [String]) throws(SettingsError) {
    for text in texts {
      if text == "*" {
        isAnybody = true
        continue
      }
      guard let origin = Self.origin(text) else {
        throw SettingsError(
          "cors-origin",
          "\"\(text)\": give origins such as https://chat.example.org, without a path, or *"
        )
      }
      origins.append(Array(origin.utf8))
    }
  }

  package var isEmpty: Bool { origins.isEmpty && !isAnybody }

  /// Normalise an origin to the form that browsers send; nil where it is none.
  private static func origin(_ text: String) -> String? {
    let text = text.lowercased()
    guard let scheme = ["https://", "http://"].first(where: { text.hasPrefix($0) }) else { return nil }
    var host = text.dropFirst(scheme.utf8.count)
    let own = scheme == "https://" ? ":443" : ":80"
    if host.hasSuffix(own) { host = host.dropLast(own.utf8.count) }
    let isClean = host.utf8.allSatisfy { byte in
      switch byte {
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."),
        UInt8(ascii: "-"), UInt8(ascii: ":"), UInt8(ascii: "["), UInt8(ascii: "]"), UInt8(ascii: "_"):
        true
      default: false
      }
    }
    return isClean && !host.isEmpty ? scheme + host : nil
  }

  func allow(_ origin: RawSpan) -> Bool {
    guard !origin.isEmpty else { return false }
    return isAnybody || origins.contains { origin.equals($0.span.bytes) }
  }

  /// Add the CORS headers of every response. `vary` tells caches that responses depend on the origin, also for requests
  /// without one.
  func addHeaders(for request: borrowing HTTP2Request, to fields: inout ResponseFields) {
    fields.add("vary")
    fields.append("origin")
    guard allow(request.origin) else { return }
    fields.add("access-control-allow-origin")
    fields.append(request.origin)
    fields.add("access-control-expose-headers")
    fields.append("x-request-id, retry-after, etag, ratelimit, ratelimit-policy")
  }

  /// Return whether the request is a CORS preflight.
  func isPreflight(_ request: borrowing HTTP2Request) -> Bool {
    request.method == .options && request.header("access-control-request-method") != nil && allow(request.origin)
  }

  /// The preflight headers, the same for all routes. A browser caches them for ten minutes.
  static let preflightHeaders = [
    HTTP2Header("access-control-allow-methods", "GET, HEAD, POST, PUT, DELETE"),
    HTTP2Header("access-control-allow-headers", "authorization, content-type, last-event-id"),
    HTTP2Header("access-control-max-age", "600"),
  ]
}
