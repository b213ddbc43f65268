internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// Acknowledgements of messages with an acknowledgement request (R9).
extension MessageRoutes {
  /// Handle `POST /v1/channels/{cid}/receipts`: send all valid ids in one request to the store.
  func acknowledgeReceipts(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let parameters = try PositionParameters(match.query, loop.scratch)
    let body = try loop.object(request, .acknowledgeReceipts)
    let messages = try body.requiredArray("message_ids", countMax: loop.limits.entriesPerRequest)
    guard messages.count > 0 else {
      throw messages.error("must have 1 to \(loop.limits.entriesPerRequest) entries")
    }
    let note = try body.optionalString("note")
    if let note, note.byteCount > loop.limits.noteBytes {
      throw try body.required("note").error("may have at most \(loop.limits.noteBytes) bytes of UTF-8")
    }
    let user = try context.actingUser(body, parameters)
    var count = 0
    var names = BatchEntryNames()
    var checked = messages.elements
    while let message = checked.next() {
      names.append(id: message.string)
      if Self.refusal(of: message.string) == nil { count += 1 }
    }
    guard count > 0 else {
      return loop.respond(to: context) { Self.writeAcknowledged([], names, into: &$0) }
    }
    let response = EchoingResponse.acknowledged(names)
    try loop.echoingResponses.send(.acknowledge, to: .channel(match.subject), context, response: response) { buffer in
      buffer.writeAcknowledge(user: user, note: note, messageCount: count)
      var written = messages.elements
      while let message = written.next() {
        if Self.refusal(of: message.string) == nil, let id = message.string { buffer.writeField(id) }
      }
    }
  }

  /// Write `{"acknowledged": […], "errors": […]}`, each in the order of the request. Ids that were sent to the store
  /// take its codes in turn.
  static func writeAcknowledged(_ codes: [ProblemCode?], _ messages: BatchEntryNames, into buffer: inout ByteBuffer) {
    let codes = self.codes(codes, for: messages)
    buffer.writeStaticString("{\"acknowledged\":[")
    var isFirst = true
    for (entry, code) in codes.enumerated() where code == nil {
      guard let id = messages.id(entry) else { continue }
      if !isFirst { buffer.writeStaticString(",") }
      isFirst = false
      buffer.writeJSONString(id)
    }
    buffer.writeStaticString("],\"errors\":[")
    isFirst = true
    for (entry, code) in codes.enumerated() {
      guard let code else { continue }
      if !isFirst { buffer.writeStaticString(",") }
      isFirst = false
      StatusJSON.write(code, message: messages.id(entry), into: &buffer)
    }
    buffer.writeStaticString("]}")
  }

  /// Return the error code of each id; nil: it is acknowledged.
  private static func codes(_ codes: [ProblemCode?], for messages: BatchEntryNames) -> [ProblemCode?] {
    var given = codes.makeIterator()
    return (0..<messages.count).map { entry in
      if let refusal = refusal(of: messages.id(entry)) { return refusal }
      // An id for which the store returned no code is not acknowledged.
      return given.next() ?? .internalError
    }
  }
}

extension KnownFields {
  static let acknowledgeReceipts: KnownFields = ["message_ids", "note", "user_id"]
}
