internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Acknowledging messages that were registered with a receipt (R9).
extension GatewayLoop {
  /// `POST /v1/channels/{cid}/receipts`: one request to the store for all ids that are of their form.
  func acknowledgeReceipts(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let parameters = try PositionParameters(match.query, scratch)
    let body = try object(request, .acknowledgeReceipts)
    let messages = try body.requiredArray("message_ids", countMax: limits.entriesPerRequest)
    guard messages.count > 0 else {
      throw messages.error("must have 1 to \(limits.entriesPerRequest) entries")
    }
    let note = try body.optionalString("note")
    if let note, note.byteCount > limits.noteBytes {
      throw try body.required("note").error("may have at most \(limits.noteBytes) bytes of UTF-8")
    }
    let user = try actingUser(body, parameters, context)
    var count = 0
    var checked = messages.elements
    while let message = checked.next() {
      if Self.refusal(of: message) == nil { count += 1 }
    }
    guard count > 0 else { return answerRefused(match, context, messages) }
    try send(.acknowledge, cid: match.subject, context, match.route, .acknowledged) { buffer in
      buffer.writeField(user)
      if let note { buffer.writeField(note) } else { buffer.writeEmptyField() }
      buffer.writeVarint(count)
      var written = messages.elements
      while let message = written.next() {
        if Self.refusal(of: message) == nil, let id = message.string { buffer.writeField(id) }
      }
    }
  }

  /// No id was one that the store could be asked about.
  private func answerRefused(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ messages: JSONValue
  ) {
    guard let connection = connections.connection(context.connection) else { return }
    var body = ByteBuffer()
    Self.writeAcknowledged([], messages, into: &body)
    connections.markDirty(context.connection)
    connection.respond(context.stream, status: 200, body: body)
    counters.answered(match.route.rawValue, status: 200)
  }

  /// Makes the answer out of the codes of the ids that were sent.
  func replyAcknowledged(
    _ request: PendingRequest,
    _ reader: inout FieldReader,
    _ connection: HTTP2ServerConnection<GatewayLoop>
  ) throws(WireError) {
    var codes: [ProblemCode?] = []
    for _ in 0..<(try reader.count()) {
      codes.append(try Self.problemCode(try reader.varint(), isServer: request.isServer))
    }
    try reader.end()
    connection.respond(request.stream, status: 200) { buffer in
      connection.withRequest(request.stream) { received in
        let tape = self.tape
        guard let messages = (try? tape.parse(received.body))?.member("message_ids") else { return }
        Self.writeAcknowledged(codes, messages, into: &buffer)
      }
    }
  }

  /// An error code of one of several, nil for 0.
  static func problemCode(_ code: UInt64, isServer: Bool) throws(WireError) -> ProblemCode? {
    if code == 0 { return nil }
    guard let code = UInt16(exactly: code).flatMap(ErrorCode.init) else { throw .badValue(.status) }
    return Problem.code(of: code, isServer: isServer)
  }

  /// Writes `{"acknowledged": […], "errors": […]}`, each in the order of the request: what became of the ids that the
  /// store was asked about, in their places.
  private static func writeAcknowledged(
    _ codes: [ProblemCode?],
    _ messages: JSONValue,
    into buffer: inout ByteBuffer
  ) {
    buffer.writeStaticString("{\"acknowledged\":[")
    var isFirst = true
    var given = codes.makeIterator()
    var elements = messages.elements
    while let message = elements.next() {
      guard code(message, &given) == nil else { continue }
      if !isFirst { buffer.writeStaticString(",") }
      isFirst = false
      writeID(message, into: &buffer)
    }
    buffer.writeStaticString("],\"errors\":[")
    isFirst = true
    given = codes.makeIterator()
    elements = messages.elements
    while let message = elements.next() {
      guard let code = code(message, &given) else { continue }
      if !isFirst { buffer.writeStaticString(",") }
      isFirst = false
      StatusJSON.write(code, message: message.string, into: &buffer)
    }
    buffer.writeStaticString("]}")
  }

  /// What became of one id; nil: it is acknowledged.
  private static func code(
    _ message: JSONValue,
    _ given: inout IndexingIterator<[ProblemCode?]>
  ) -> ProblemCode? {
    if let refusal = refusal(of: message) { return refusal }
    // A store that answers for fewer than it was asked about has not acknowledged the rest.
    return given.next() ?? .internalError
  }

  private static func writeID(_ message: JSONValue, into buffer: inout ByteBuffer) {
    guard let id = message.string else { return }
    buffer.writeWithOutputRawSpan(minimumWritableBytes: OutputRawSpan.jsonStringByteMax(id.byteCount)) {
      $0.jsonString(id)
    }
  }
}
