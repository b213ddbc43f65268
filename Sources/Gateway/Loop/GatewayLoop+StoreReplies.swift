internal import HTTP2Session
internal import Logging
internal import NIOCore
package import ReceiptModel
package import ReceiptWire
package import StoreClient

// MARK: - From the store

extension GatewayLoop: StoreClientDelegate {
  package func storeReplied(_ tag: UInt64, kind: FrameKind, payload: RawSpan) {
    guard let pending = takePending(tag) else { return }
    if pending.sentAt > 0 { recordRoundTrip(pending.sentAt) }
    complete(pending, with: .reply(kind: kind, payload: payload))
  }

  package func storeFailed(_ tag: UInt64, _ failure: StoreFailure) {
    guard let pending = takePending(tag) else { return }
    complete(
      pending,
      with: .failure(StoreRequestFailure(reason: failure, route: pending.route, isServer: pending.isServer))
    )
  }

  /// Pass a store request's result to the request or part that sent it. Inlined into both callers, so that a mark's
  /// reply takes the first case without a test of the result.
  @inline(__always)
  private func complete(_ pending: PendingRequest, with result: StoreResult) {
    switch pending.target {
    case .response(let stream, let index):
      switch result {
      case .reply(let kind, let payload):
        guard let connection = connections.connection(index) else { return }
        connections.markDirty(index)
        do throws(WireError) {
          try writeResponse(to: pending, kind: kind, payload: payload, stream: stream, connection: connection)
        } catch {
          logMalformedReply(error, kind)
          answer(Problem(.internalError), route: pending.route, stream: stream, connection: connection)
        }
      case .failure(let failure): answer(failure.problem, route: pending.route, stream: stream, connection: index)
      }
    case .echoingResponse(let index, let stream, let connection):
      echoingResponses.completed(index, pending, with: result, stream: stream, connection: connection)
    case .fanOut(let index, let entry): fanOuts.completed(index, entry, with: result)
    case .valueChange(let index, let request): valueChanges.completed(index, request, with: result)
    case .ackBatch(let index, let entry, let isByName): push.completed(index, entry, isByName: isByName, with: result)
    case .hook(let index, let request): hooks.completed(index, request, with: result)
    case .userScan(let index, let request): userScans.completed(index, request, with: result)
    case .userList(let index, let request): userLists.completed(index, request, with: result)
    case .erasure(let index, let request): erasures.completed(index, request, with: result)
    case .settlement(let request): settlement.completed(request, with: result)
    case .tokenList(let round): tokens.completed(round, with: result)
    case .events(let request): events.completed(request, with: result)
    case .consumer(let index, let shard): consumers.completed(index, shard, with: result)
    case .pushJob(let index, let shard): pushJobs.completed(index, shard, with: result)
    case .feed(let index, let request): feedStreams.completed(index, request, with: result)
    case .export(let index, let request): exports.completed(index, request, with: result)
    case .stream(let index, let request): streams.completed(index, request, with: result)
    }
  }

  /// Answer a request with a problem, unless its client has disconnected.
  func answer(_ problem: Problem, route: Route, stream: HTTP2StreamHandle, connection index: ConnectionIndex) {
    guard let connection = connections.answering(stream, on: index) else { return }
    answer(problem, route: route, stream: stream, connection: connection)
  }

  /// Deliver the events of a shard.
  package func storeEvents(_ shard: ShardID, _ payload: RawSpan) throws(WireError) {
    try events.deliver(shard, payload)
  }

  /// Flush the responses of one read of the store's connection.
  package func storeReadComplete() {
    // Replies have made room in the window.
    waitingRequests.beginWaiting()
    endTurn()
  }

  /// Report the change to the process, and resubscribe once connected.
  package func storeReadinessChanged(_ isReady: Bool) {
    reportReadiness()
    if isReady {
      if let name = store.storeID { push.bind(to: name) }
      if !store.isCluster { events.connected() }
      settlement.startRound()
      tokens.restartList()
    }
  }

  /// Report the change to the process, and resubscribe in the shards that are served again.
  package func storeShardsChanged(reopened: [ShardID]) {
    reportReadiness()
    if !reopened.isEmpty { events.connected(reopened) }
  }

  private func reportReadiness() {
    if store.isReady { return reportStoreReadiness(.connected) }
    let lacking = store.unservedShards
    if let since = store.disconnectedSince {
      reportStoreReadiness(.cutOff(since: since, lacking: lacking))
    } else {
      reportStoreReadiness(.starting(lacking: lacking))
    }
  }

  private func recordRoundTrip(_ sentAt: UInt64) {
    let nanoseconds = NIODeadline.now().uptimeNanoseconds &- sentAt
    counters.storeReplied(after: Double(nanoseconds) / 1_000_000_000)
  }

  func logMalformedReply(_ error: WireError, _ kind: FrameKind) {
    shared.logger.error("Malformed reply from the store", metadata: ["kind": "\(kind)", "error": "\(error)"])
  }
}

/// Responses to requests. Each is counted where it is written.
extension GatewayLoop {
  /// Write a response, and count it.
  func respond(
    _ route: Route,
    stream: HTTP2StreamHandle,
    connection: HTTP2ServerConnection<GatewayLoop>,
    status: Int = 200,
    contentType: HTTP2ContentType = .json,
    body: (inout ByteBuffer) -> Void
  ) {
    connection.respond(stream, status: status, contentType: contentType, body: body)
    counters.answered(route, status: status)
  }

  /// Write the response to a request, unless its client has disconnected.
  func respond(to context: RequestContext, contentType: HTTP2ContentType = .json, body: (inout ByteBuffer) -> Void) {
    guard let connection = connections.answering(context.stream, on: context.connection) else { return }
    respond(context.route, stream: context.stream, connection: connection, contentType: contentType, body: body)
  }

  /// Answer where a bug of the gateway leaves no response: 500 with a log line, never an empty success. Traps in debug
  /// builds.
  func respondInternalError(
    _ what: StaticString,
    route: Route,
    stream: HTTP2StreamHandle,
    connection: HTTP2ServerConnection<GatewayLoop>
  ) {
    assertionFailure("\(what)")
    shared.logger.error("No answer could be written", metadata: ["bug": "\(what)", "route": "\(route.name)"])
    answer(Problem(.internalError), route: route, stream: stream, connection: connection)
  }

  /// Answer with a problem.
  func answer(
    _ problem: Problem,
    route: Route?,
    stream: HTTP2StreamHandle,
    connection: HTTP2ServerConnection<GatewayLoop>
  ) {
    let id = requestID(stream, connection)
    let status = problem.status
    let headers = problem.headers(requestID: id)
    connection.respond(stream, status: status, contentType: .problem, headers: headers) {
      problem.write(requestID: id, into: &$0)
    }
    counters.answered(route, status: status)
    if status >= 500 && problem.code != .notImplemented {
      shared.logger.debug("Request not served", metadata: ["code": "\(problem.code.rawValue)", "request_id": "\(id)"])
    }
  }
}
