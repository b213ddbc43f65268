internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// Removal of channels and messages (R16), for servers only. For users see Erasures.
extension ChannelRoutes {
  /// Handle `DELETE /v1/channels/{cid}`: succeed also where the channel does not exist.
  func deleteChannel(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    let response = EchoingResponse.deletedChannel(cid: match.subject.bytes)
    try loop.echoingResponses.send(
      .deleteChannel,
      to: .channel(match.subject),
      context,
      route: match.route,
      response: response
    ) {
      _ in
    }
  }

  /// Handle `POST /v1/channels/{cid}/truncate`: remove the messages before the named one; all messages with
  /// `{"all":true}`, or without either field.
  func truncateChannel(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    var before = match.query.extracting(0..<0)
    let body = try loop.object(request, .truncateChannel)
    let all = try body.optionalTrue("all")
    if let given = try body.optionalNonNullString("before") {
      guard !all else {
        throw Problem(.invalidField, "the body may have one of \"before\" and \"all\"")
      }
      guard Identifier.isMessage(given) else { throw Problem(.invalidMessageID) }
      before = given
    }
    try loop.send(.truncateChannel, to: .channel(match.subject), context, route: match.route) {
      $0.writeMessageRequest(before)
    }
  }
}

extension KnownFields {
  static let truncateChannel: KnownFields = ["before", "all"]
}
