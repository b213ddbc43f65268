internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Removing channels and what is in them (R16); servers only. For users see GatewayLoop+Erasures.
extension GatewayLoop {
  /// `DELETE /v1/channels/{cid}`: one that is not there is deleted already.
  func deleteChannel(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    try send(.deleteChannel, cid: match.subject, context, match.route, .deletedChannel) { _ in }
  }

  /// `POST /v1/channels/{cid}/truncate`: the messages before the one that is named; all there are with `{"all":true}`,
  /// or without either.
  func truncateChannel(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    var before = match.query.extracting(0..<0)
    let body = try object(request, .truncateChannel)
    let all = try body.trueUnlessMissing("all")
    if let given = try body.stringUnlessMissing("before") {
      guard !all else {
        throw Problem(.invalidField, "the body may have one of \"before\" and \"all\"")
      }
      guard Identifier.isMessage(given) else { throw Problem(.invalidMessageID) }
      before = given
    }
    try send(.truncateChannel, cid: match.subject, context, match.route, .channel) { $0.writeField(before) }
  }
}
