internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// The store requests of a ``ValueChange``.
enum ValueChangeStoreRequest {
  /// To the home shard, which decides the change.
  case patch
  case assign
  case settle
}

/// A change of a channel type or of a user's settings, from the request to its response.
final class ValueChange {
  /// Where the result goes.
  enum Response {
    /// To the client of a request of its own: the value, or a problem.
    case value
    /// To an entry of a batch.
    case entry(of: SlotIndex, at: Int)
    /// To a line of an import.
    case imported(ImportedSettings)
  }

  let connection: ConnectionIndex
  let stream: HTTP2StreamHandle
  let route: Route
  let isServer: Bool
  let response: Response
  /// Whether the request changes what a user hides, so that others see the user's rows differently.
  let changesPrivacy: Bool
  /// Nil until the home shard has made the change.
  var settlement: ValueSettlement?

  init(_ context: RequestContext, _ route: Route, _ response: Response, changesPrivacy: Bool) {
    connection = context.connection
    stream = context.stream
    isServer = context.caller.isServer
    self.route = route
    self.response = response
    self.changesPrivacy = changesPrivacy
  }
}

/// The changes of channel types and users in progress: the home shard makes the change, and ``ValueSettlement`` brings
/// it to every other shard before the response.
final class ValueChangesPart: GatewayPart {
  private var changes = SlotTable<ValueChange>()

  /// Start a change.
  ///
  /// - Parameters:
  ///   - kind: patch_channel_type, patch_user or assign_user, with `fields` after the name and the counter.
  ///   - changesPrivacy: as in ``ValueChange``.
  func begin(
    _ kind: FrameKind,
    at destination: StoreDestination,
    _ context: RequestContext,
    route: Route,
    as response: ValueChange.Response = .value,
    changesPrivacy: Bool = false,
    _ fields: (inout ByteBuffer) -> Void
  ) {
    let change = ValueChange(context, route, response, changesPrivacy: changesPrivacy)
    let index = changes.insert(change)
    let request = pending(change, index, .patch)
    let isSent = loop.trySend(kind, to: destination, request, issued: context.caller.issued, fields)
    if !isSent { end(change, index, with: Problem(.storeBusy)) }
  }

  func completed(_ index: SlotIndex, _ request: ValueChangeStoreRequest, with result: StoreResult) {
    guard let change = changes[index] else { return }
    switch request {
    case .patch:
      switch result {
      case .reply(let kind, let payload): patched(change, index, kind: kind, payload: payload)
      case .failure(let failure): end(change, index, with: failure.problem)
      }
    case .assign: perform(change.settlement?.assigned(isDone: result.isReply), change, index)
    case .settle: perform(change.settlement?.settled(isDone: result.isReply), change, index)
    }
  }

  private func patched(_ change: ValueChange, _ index: SlotIndex, kind: FrameKind, payload: RawSpan) {
    do throws(WireError) {
      var reader = FieldReader(payload)
      let value: SharedValue =
        kind != .patchChannelType
        ? .user(try reader.userSettings()) : .channelType(try reader.channelTypeRecord())
      var settlement = ValueSettlement(
        value,
        shardCount: loop.store.shardCount,
        isAnnounced: change.changesPrivacy
      )
      let action = settlement.start()
      change.settlement = settlement
      perform(action, change, index)
    } catch {
      loop.logMalformedReply(error, kind)
      end(change, index, with: Problem(.internalError))
    }
  }

  /// Handle the end of an announcement.
  func announced(_ index: SlotIndex, _ problem: Problem?) {
    guard let change = changes[index] else { return }
    perform(change.settlement?.announced(isDone: problem == nil), change, index)
  }

  private func perform(_ action: ValueSettlement.Action?, _ change: ValueChange, _ index: SlotIndex) {
    guard let action, let settlement = change.settlement else { return }
    let value = settlement.value
    let home = value.home(shardCount: settlement.shardCount)
    switch action {
    case .assign:
      for shard in 0..<settlement.shardCount where shard != Int(home.rawValue) {
        let isSent = send(
          value.assignKind,
          .assign,
          shard: ShardID(UInt16(shard)),
          value: value,
          change: change,
          index: index
        ) {
          value.writeAssignment(into: &$0)
        }
        if !isSent { perform(change.settlement?.assigned(isDone: false), change, index) }
      }
    case .announce:
      let scan = UserChannelScan(.announce, users: [Array(value.name.utf8)], shardCount: settlement.shardCount)
      loop.userScans.begin(UserScanJob(.announcement(change: index), scan))
    case .settle:
      let isSent = send(.settle, .settle, shard: home, value: value, change: change, index: index) {
        value.writeSettle(into: &$0)
      }
      if !isSent { perform(change.settlement?.settled(isDone: false), change, index) }
    case .end(.settled), .end(.unsettled): end(change, index, with: nil)
    case .end(.incomplete): end(change, index, with: Self.incomplete)
    }
  }

  /// Send the gateway's own request about a value. It has no caller, so no time of issue.
  private func send(
    _ kind: FrameKind,
    _ request: ValueChangeStoreRequest,
    shard: ShardID,
    value: SharedValue,
    change: ValueChange,
    index: SlotIndex,
    _ fields: (inout ByteBuffer) -> Void
  ) -> Bool {
    let name = Array(value.name.utf8)
    return loop.trySend(kind, to: .shard(shard, name: name.span.bytes), pending(change, index, request), fields)
  }

  private func pending(_ change: ValueChange, _ index: SlotIndex, _ request: ValueChangeStoreRequest) -> PendingRequest
  {
    PendingRequest(.valueChange(index, request), route: change.route, isServer: change.isServer, isPageQuery: false)
  }

  // MARK: Responses

  /// The code must not be one whose title says that nothing was changed.
  private static var incomplete: Problem {
    Problem(
      .outcomeUnknown,
      """
      the change was made but has not reached every shard yet; it will reach them in the background, or repeat the \
      request
      """
    )
  }

  /// Answer a change that has ended.
  ///
  /// - Parameter problem: nil: every shard has the value.
  private func end(_ change: ValueChange, _ index: SlotIndex, with problem: Problem?) {
    changes.remove(index)
    if case .entry(let batch, let entry) = change.response {
      return loop.fanOuts.recordResult(of: entry, in: batch, code: problem?.code)
    }
    if case .imported(let line) = change.response {
      var user: UserSettings?
      if case .user(let settings)? = change.settlement?.value { user = settings }
      return loop.streams.settled(line, problem, user)
    }
    guard let connection = loop.connections.answering(change.stream, on: change.connection) else { return }
    guard problem == nil, let value = change.settlement?.value else {
      return loop.answer(
        problem ?? Problem(.internalError),
        route: change.route,
        stream: change.stream,
        connection: connection
      )
    }
    loop.respond(change.route, stream: change.stream, connection: connection) { buffer in
      switch value {
      case .channelType(let record): ChannelJSON.write(record, into: &buffer)
      case .user(let settings): UserJSON.write(settings, into: &buffer)
      }
    }
  }
}
