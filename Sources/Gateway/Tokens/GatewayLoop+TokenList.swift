internal import HTTP2Session
internal import NIOCore
internal import Operations
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// What a loop has to do with revoked tokens beside checking its callers: it ends their streams, and one loop reads the
/// list.
struct TokenWatch {
  var listing: TokenListing
  /// Nil where another loop reads the list, or this one has ended.
  var ticker: RepeatedTask?
  /// The loop's streams will be looked through.
  var isSweepDue = false
  var sweptAt = NIODeadline.distantPast

  init(_ tokens: RevokedTokens) { listing = TokenListing(tokens) }
}

extension GatewayLoop {
  /// Begins to watch for revocations, and to read the list where that is this loop's.
  func startTokens() {
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    let eventLoop = eventLoop
    authenticator.revokedTokens.observe(self) { eventLoop.execute { bound.value.tokensRevoked() } }
    guard let interval = limits.tokenListInterval else { return }
    tokenWatch.ticker = eventLoop.scheduleRepeatedTask(initialDelay: interval, delay: interval) { _ in
      bound.value.readTokenList()
    }
  }

  func stopTokens() {
    authenticator.revokedTokens.stopObserving(self)
    tokenWatch.ticker?.cancel()
    tokenWatch.ticker = nil
  }

  // MARK: The list

  /// The store is reached again: the list is read from its beginning.
  func readTokenListAnew() {
    guard tokenWatch.ticker != nil else { return }
    ask(tokenWatch.listing.reconnected())
    endTurnSoon()
  }

  private func readTokenList() {
    guard let question = tokenWatch.listing.roundIsDue(canAsk: store.isReady) else { return }
    ask(question)
    endTurnSoon()
  }

  private func ask(_ question: TokenListing.Question) {
    // It belongs to no stream: what it says of one is not looked at.
    let request = PendingRequest(
      stream: HTTP2StreamHandle(slot: 0, generation: 0),
      connection: 0,
      entry: question.round,
      shape: .tokenList,
      route: .getToken,
      isServer: true
    )
    let token = pending.insert(request)
    let isSent = store.send(.listRevokedTokens, shard: ShardState.tokenShard, name: nil, token: token) {
      $0.writeVarint(question.known)
      $0.writeVarint(question.after)
    }
    if isSent { return }
    _ = pending.remove(token)
    tokenWatch.listing.failed(round: question.round)
  }

  func tokenListReplied(_ request: PendingRequest, _ kind: FrameKind, _ payload: RawSpan) {
    do throws(WireError) {
      var reader = FieldReader(payload)
      let answer = try RevokedTokenListFields(&reader)
      try reader.end()
      if let question = tokenWatch.listing.answered(answer, round: request.entry) {
        ask(question)
        endTurnSoon()
      }
    } catch {
      storeIsMistaken(error, kind)
      tokenListFailed(request)
    }
  }

  func tokenListFailed(_ request: PendingRequest) { tokenWatch.listing.failed(round: request.entry) }

  // MARK: Streams

  /// Between two looks through all streams, where many tokens are revoked one after the other.
  private static let sweepInterval = TimeAmount.milliseconds(100)

  private func tokensRevoked() {
    guard !tokenWatch.isSweepDue, !isClosed else { return }
    tokenWatch.isSweepDue = true
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    eventLoop.scheduleTask(deadline: max(.now(), tokenWatch.sweptAt + Self.sweepInterval)) {
      bound.value.sweepStreams()
    }
  }

  /// Ends the streams whose tokens are revoked.
  private func sweepStreams() {
    tokenWatch.isSweepDue = false
    tokenWatch.sweptAt = .now()
    let tokens = authenticator.revokedTokens
    func isRevoked(_ caller: Caller) -> Bool { caller.tokenID.map { tokens.isRevoked($0) } ?? false }
    for case let stream? in events.streams where isRevoked(stream.caller) { expire(stream, .tokenRevoked) }
    performEvents()
    for case let stream? in requestStreams.streams where isRevoked(stream.caller) {
      stream.end(.tokenRevoked)
      touch(stream)
    }
    endTurnSoon()
  }

  // MARK: Metrics

  func collectTokens(into samples: inout MetricSamples) {
    guard tokenWatch.ticker != nil else { return }
    samples.gauge(
      "tidemark_gateway_tokens_revoked",
      help: "Tokens that are revoked by their ids, as this gateway knows them.",
      Double(authenticator.revokedTokens.count)
    )
  }
}
