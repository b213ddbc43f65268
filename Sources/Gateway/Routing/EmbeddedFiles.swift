internal import CEmbeddedFiles
internal import HTTP2Session
internal import NIOCore
internal import Operations
internal import ReceiptModel

/// Routes of the files in the program. They are public, since the files contain no user data.
struct FileRoutes {
  let loop: GatewayLoop

  /// Handle `GET /v1/openapi.yaml`: this gateway's API in OpenAPI 3.1.
  func apiDocument(_ match: borrowing RouteMatch, _ context: RequestContext, _ request: borrowing HTTP2Request) {
    serve(.apiDocument, match, context, request)
  }

  /// Handle `GET /sdk/{name}`.
  func sdkFile(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let name = match.subject.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
    guard let file = EmbeddedFile.sdk[name] else {
      throw EmbeddedFile.notBuilt.contains(name)
        ? Problem(.notImplemented, "this file is not built yet") : Problem(.routeNotFound)
    }
    serve(file, match, context, request)
  }

  private func serve(
    _ file: EmbeddedFile,
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) {
    guard let connection = loop.connections.connection(context.connection) else { return }
    loop.connections.markDirty(context.connection)
    var form = file.plain
    if let gzip = file.gzip, let accepted = request.header("accept-encoding"), EmbeddedFile.allowsGzip(accepted) {
      form = gzip
    }
    var headers = [HTTP2Header("etag", form.tag), HTTP2Header("vary", "accept-encoding")]
    if let caching = file.caching { headers.append(HTTP2Header("cache-control", caching)) }
    if let known = request.header("if-none-match"), form.isAmong(known) {
      connection.respond(context.stream, status: 304, headers: headers)
      return loop.counters.answered(match.route, status: 304)
    }
    if form.isCompressed { headers.append(HTTP2Header("content-encoding", "gzip")) }
    connection.respond(
      context.stream,
      status: 200,
      contentType: file.contentType,
      headers: headers,
      body: form.body,
      isKept: true
    )
    loop.counters.answered(match.route, status: 200)
  }
}

/// A file in the program: one copy for all loops.
struct EmbeddedFile: Sendable {
  /// One form of a file's bytes.
  struct Form: Sendable {
    let body: ByteBuffer
    let isCompressed: Bool
    /// A strong entity tag, equal for the same bytes on every gateway (RFC 9110 section 8.8.3).
    let tag: String

    init(_ body: ByteBuffer, isCompressed: Bool = false) {
      self.body = body
      self.isCompressed = isCompressed
      tag = "\"" + String(StableHash.hash(body.readableBytesSpan), radix: 16) + "\""
    }

    /// Return whether an `if-none-match` matches (RFC 9110 section 13.1.2): one of its tags, weak or not, is this one,
    /// or it is `*`.
    func isAmong(_ tags: RawSpan) -> Bool {
      let text = tags.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
      return text.split(separator: ",").contains { given in
        var given = given.drop { $0 == " " }
        while given.last == " " { given.removeLast() }
        if given.hasPrefix("W/") { given.removeFirst(2) }
        return given == tag || given == "*"
      }
    }
  }

  let contentType: HTTP2ContentType
  /// `cache-control`; nil: none.
  let caching: String?
  let plain: Form
  /// Nil: the file cannot be compressed.
  let gzip: Form?

  static let apiDocument = EmbeddedFile(tm_api_document(), .yaml, caching: nil)
  /// What `/sdk/` serves, by name. An app loads a new version within five minutes.
  static let sdk: [String: EmbeddedFile] = [
    "tidemark.js": EmbeddedFile(tm_sdk_module(), .javaScript, caching: "public, max-age=300"),
    "tidemark.d.ts": EmbeddedFile(tm_sdk_types(), .text, caching: "public, max-age=300"),
  ]
  /// Files of the public API that this version does not have.
  static let notBuilt: Set = [
    "tidemark-components.js", "tidemark-components.d.ts", "tidemark-sw.js", "tidemark-sw.d.ts",
  ]

  private init(_ bytes: tm_bytes, _ contentType: HTTP2ContentType, caching: String?) {
    self.contentType = contentType
    self.caching = caching
    plain = Form(ByteBuffer(bytes: UnsafeRawBufferPointer(start: bytes.start, count: bytes.count)))
    var compressed = ByteBuffer()
    compressed.writeWithUnsafeMutableBytes(minimumWritableBytes: bytes.count) { space in
      tm_gzip(bytes, space.baseAddress!, space.count)
    }
    gzip = compressed.readableBytes > 0 ? Form(compressed, isCompressed: true) : nil
  }

  /// Return whether an `accept-encoding` allows gzip (RFC 9110 section 12.5.3): it is named, and not with weight 0.
  static func allowsGzip(_ header: RawSpan) -> Bool {
    let text = header.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }.lowercased()
    return text.split(separator: ",").contains { entry in
      let parts = entry.split(separator: ";").map { $0.filter { $0 != " " } }
      guard parts.first == "gzip" || parts.first == "*" else { return false }
      return !parts.dropFirst().contains { $0.hasPrefix("q=0") && !$0.contains { ("1"..."9").contains($0) } }
    }
  }
}
