internal import HTTP2Session
internal import Logging
internal import NIOCore
internal import Operations
package import ReceiptModel
package import ReceiptWire
package import StoreClient

// MARK: - From the store

extension GatewayLoop: StoreClientDelegate {
  /// Pass the store's reply to the request or part that sent it.
  package func storeReplied(_ token: UInt64, kind: FrameKind, payload: RawSpan) {
    guard let pending = takePending(token) else { return }
    if pending.sentAt > 0 { recordRoundTrip(pending.sentAt) }
    switch pending.target {
    case .response(let stream, let index):
      guard let connection = connections.connection(index) else { return }
      connections.markDirty(index)
      do throws(WireError) {
        try writeResponse(to: pending, kind: kind, payload: payload, stream: stream, connection: connection)
      } catch {
        logMalformedReply(error, kind)
        answer(Problem(.internalError), route: pending.route, stream: stream, connection: connection)
      }
    case .echoingResponse(let index, let stream, let connection):
      echoingResponses.replied(
        index,
        pending,
        kind: kind,
        payload: payload,
        stream: stream,
        connection: connection
      )
    case .fanOut(let index, let entry): fanOuts.replied(index, entry, kind: kind, payload: payload)
    case .valueChange(let index, let request):
      valueChanges.replied(index, request, kind: kind, payload: payload)
    case .ackBatch(let index, let entry, _): push.replied(index, entry, kind: kind, payload: payload)
    case .hook(let index, let request): hooks.replied(index, request, kind: kind, payload: payload)
    case .userJob(let index, let request): userJobs.replied(index, request, kind: kind, payload: payload)
    case .userList(let index, let request): userLists.replied(index, request, kind: kind, payload: payload)
    case .erasure(let index, let request): erasures.replied(index, request, kind: kind, payload: payload)
    case .replication(let request): replication.replied(request, kind: kind, payload: payload)
    case .tokenList(let round): tokens.replied(round, kind: kind, payload: payload)
    case .events(let request): events.replied(request, kind: kind, payload: payload)
    case .stream(let index, let request): streams.replied(index, request, kind: kind, payload: payload)
    }
  }

  /// Pass the failure of a store request to the request or part that sent it.
  package func storeFailed(_ token: UInt64, _ failure: StoreFailure) {
    guard let pending = takePending(token) else { return }
    let problem = { Problem(failure, route: pending.route, isServer: pending.isServer) }
    switch pending.target {
    case .response(let stream, let connection):
      answer(problem(), route: pending.route, stream: stream, connection: connection)
    case .echoingResponse(let index, let stream, let connection):
      echoingResponses.failed(index)
      answer(problem(), route: pending.route, stream: stream, connection: connection)
    case .fanOut(let index, let entry): fanOuts.failed(index, entry, problem())
    case .valueChange(let index, let request): valueChanges.failed(index, request, problem())
    case .ackBatch(let index, let entry, let isByName): push.failed(index, entry, failure, isByName: isByName)
    case .hook(let index, _): hooks.failed(index, problem())
    case .userJob(let index, let request): userJobs.failed(index, request, problem())
    case .userList(let index, let request): userLists.failed(index, request, problem())
    case .erasure(let index, let request): erasures.failed(index, request, problem())
    case .replication(let request): replication.failed(request)
    case .tokenList(let round): tokens.failed(round)
    case .events(let request): events.failed(request, problem())
    case .stream(let index, let request): streams.failed(index, request, failure)
    }
  }

  /// Answer a request with a problem, unless its client has disconnected.
  private func answer(
    _ problem: Problem,
    route: Route,
    stream: HTTP2StreamHandle,
    connection index: ConnectionIndex
  ) {
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
    if batches.waitingCount > 0 { batches.beginWaiting() }
    if queries.waitingCount > 0 { queries.beginWaiting() }
    endTurn()
  }

  /// Report the change to the process, and resubscribe once connected.
  package func storeReadinessChanged(_ isReady: Bool) {
    storeConnectivityChanged(isReady ? .connected : .cutOff(since: store.disconnectedSince ?? .now()))
    if isReady {
      if let name = store.storeID { push.bind(to: name) }
      events.connected()
      replication.startRound()
      tokens.restartList()
    }
  }

  private func recordRoundTrip(_ sentAt: UInt64) {
    let nanoseconds = NIODeadline.now().uptimeNanoseconds &- sentAt
    counters.storeRoundTrips.record(Double(nanoseconds) / 1_000_000_000)
  }

  func logMalformedReply(_ error: WireError, _ kind: FrameKind) {
    logger.error(
      "Malformed reply from the store",
      metadata: ["kind": "\(kind)", "error": "\(error)"]
    )
  }
}
