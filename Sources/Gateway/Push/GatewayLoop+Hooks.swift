internal import HTTP2Session
internal import Logging
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// A webhook that is being taken: checked, found to be new, its deliveries acknowledged, then noted.
final class HookJob {
  let hook: PushHook
  let context: RequestContext
  /// What the store remembers it by.
  let key: [UInt8]
  /// How long, in milliseconds since 1970.
  let until: Int64
  /// What came of each delivery; nil: it was carried out.
  var codes: [ProblemCode?] = []
  /// Events that are no deliveries.
  var ignored = 0

  init(_ hook: PushHook, _ context: RequestContext, key: [UInt8], until: Int64) {
    self.hook = hook
    self.context = context
    self.key = key
    self.until = until
  }
}

/// The hooks of a loop, and the webhooks that it is taking.
struct HookTable {
  /// Each of another name.
  var hooks: [PushHook]
  private var jobs: [UInt32: HookJob] = [:]
  private var nextPlace: UInt32 = 0

  init(_ hooks: [PushHook]) { self.hooks = hooks }

  func hook(_ name: RawSpan) -> PushHook? {
    hooks.first { name.equals(Array($0.name.utf8).span.bytes) }
  }

  func job(_ place: UInt32) -> HookJob? { jobs[place] }

  mutating func insert(_ job: HookJob) -> UInt32 {
    repeat { nextPlace &+= 1 } while jobs[nextPlace] != nil
    jobs[nextPlace] = job
    return nextPlace
  }

  mutating func remove(_ place: UInt32) { jobs[place] = nil }
}

/// `POST /v1/push/hooks/{name}` (API.md, "Push").
extension GatewayLoop {
  /// Takes up a webhook: what it says is looked at once its signature is found good and the store does not know it.
  ///
  /// - Throws: `hook_not_found`, `webhook_signature_invalid`, `webhook_too_old`, `store_unavailable`, `store_busy`, and
  ///   what its body is not.
  func receiveHook(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    guard let hook = hooks.hook(match.subject) else { throw Problem(.hookNotFound) }
    let sent = try check(hook, request)
    guard Self.isJSON(request.contentType) else { throw Problem(.contentTypeNotSupported) }
    _ = try deliveries(request.body, hook)
    guard store.shardCount > 0 else { throw Problem(.storeUnavailable) }
    let id = Self.header("webhook-id", request).withUnsafeBytes { Array($0) }
    let job = HookJob(
      hook,
      context,
      key: Array("\(hook.name):".utf8) + id,
      until: (sent + Self.rememberedSeconds) * 1_000
    )
    let place = hooks.insert(job)
    if let code = ask(.webhookKnown, .hookKnown, place, job, { _ in }) {
      hooks.remove(place)
      throw Problem(code)
    }
  }

  /// From a webhook's own time on: one that is older is refused by every gateway, be its clock a little behind.
  private static let rememberedSeconds = HookSignature.toleranceSeconds + 60

  private func check(_ hook: PushHook, _ request: borrowing HTTP2Request) throws(Problem) -> Int64 {
    let id = Self.header("webhook-id", request)
    let timestamp = Self.header("webhook-timestamp", request)
    let signatures = Self.header("webhook-signature", request)
    do throws(HookSignature.Refusal) {
      return try hook.signature.check(
        id: id,
        timestamp: timestamp,
        signatures: signatures,
        body: request.body,
        now: now
      )
    } catch {
      switch error {
      case .header(let name):
        throw Problem(.webhookSignatureInvalid, "the header \(name.rawValue) is missing, or not of its form")
      case .signature: throw Problem(.webhookSignatureInvalid)
      case .time: throw Problem(.webhookTooOld)
      }
    }
  }

  /// Empty where there is none.
  @_lifetime(borrow request)
  private static func header(_ name: StaticString, _ request: borrowing HTTP2Request) -> RawSpan {
    if let value = request.header(name) { return value }
    return _overrideLifetime(RawSpan(), borrowing: request)
  }

  /// The list of a webhook's events, or its one event.
  @_lifetime(borrow self)
  private func deliveries(_ body: RawSpan, _ hook: PushHook) throws(Problem) -> JSONValue {
    let tape = self.tape
    let value: JSONValue
    do throws(JSONSyntaxError) { value = try tape.parse(body) } catch { throw Problem(error) }
    guard let events = value.value(at: hook.mapping.events), events.kind == .array || events.kind == .object
    else { throw Problem(.invalidField, "the body has no events where this hook's settings say") }
    if events.kind == .array { _ = try events.asArray(countMax: limits.pushesPerRequest) }
    return _overrideLifetime(events, borrowing: self)
  }

  /// Asks the store about a webhook's key. Not nil: why it could not be asked.
  private func ask(
    _ kind: FrameKind,
    _ shape: ReplyShape,
    _ place: UInt32,
    _ job: HookJob,
    _ fields: (inout ByteBuffer) -> Void
  ) -> ProblemCode? {
    let token = pending.insert(
      PendingRequest(
        stream: job.context.stream,
        connection: job.context.connection,
        gather: place,
        shape: shape,
        route: .receiveHook,
        isServer: true
      )
    )
    let key = job.key
    let shard = ShardID.owning(key.span.bytes, count: store.shardCount)
    if store.send(kind, shard: shard, name: key.span.bytes, token: token, fields) { return nil }
    _ = pending.remove(token)
    return .storeBusy
  }

  // MARK: From the store

  func hookReplied(_ request: PendingRequest, _ kind: FrameKind, _ payload: RawSpan) {
    guard let job = hooks.job(request.gather) else { return }
    do throws(WireError) {
      var reader = FieldReader(payload)
      let flag = try reader.byte()
      try reader.end()
      switch (request.shape, flag) {
      case (.hookKnown, 0): acknowledgeDeliveries(request.gather, job)
      case (.hookNoted, 1): answer(request.gather, job)
      case (.hookKnown, 1), (.hookNoted, 0): end(request.gather, job, Problem(.webhookReplayed))
      default: throw .badValue(.flags)
      }
    } catch {
      storeIsMistaken(error, kind)
      end(request.gather, job, Problem(.internalError))
    }
  }

  func hookFailed(_ request: PendingRequest, _ problem: Problem) {
    if let job = hooks.job(request.gather) { end(request.gather, job, problem) }
  }

  private func acknowledgeDeliveries(_ place: UInt32, _ job: HookJob) {
    guard let connection = connections.connection(job.context.connection),
      connection.isOpen(job.context.stream)
    else { return hooks.remove(place) }
    connection.withRequest(job.context.stream) { request in
      // It was found to be of its form before.
      guard let events = try? deliveries(request.body, job.hook) else { return }
      let batch = beginAcks(
        .closure { self.deliveriesAcknowledged(place, job, $0) },
        source: .hook,
        countMax: max(1, events.count)
      )
      if events.kind == .array {
        var elements = events.elements
        while let event = elements.next() { acknowledge(event, job, in: batch) }
      } else {
        acknowledge(events, job, in: batch)
      }
      endAcks(batch)
    }
  }

  private func acknowledge(_ event: JSONValue, _ job: HookJob, in batch: UInt32) {
    guard job.hook.mapping.isDelivery(event) else {
      job.ignored += 1
      return
    }
    do throws(ProblemCode) {
      let provider = job.hook.provider
      acknowledge(try job.hook.mapping.acknowledgement(event, provider: provider.span.bytes), in: batch)
    } catch {
      logger.debug(
        "A webhook's delivery is not one that can be acknowledged",
        metadata: [
          "hook": "\(job.hook.name)", "code": "\(error.rawValue)",
          "provider_message_id": "\(job.hook.mapping.providerMessage(event))",
        ]
      )
      refuseAck(error, .hook, in: batch)
    }
  }

  /// Notes the webhook, unless some of its deliveries are to be sent again.
  private func deliveriesAcknowledged(_ place: UInt32, _ job: HookJob, _ codes: [ProblemCode?]) {
    job.codes = codes
    if let code = codes.lazy.compactMap({ $0 }).first(where: \.isOfTheService) {
      return end(place, job, Problem(code))
    }
    let until = Timestamp(milliseconds: job.until)
    if let code = ask(.noteWebhook, .hookNoted, place, job, { $0.writeTime(until) }) {
      end(place, job, Problem(code))
    } else {
      endTurnSoon()
    }
  }

  // MARK: Answers

  private func answer(_ place: UInt32, _ job: HookJob) {
    hooks.remove(place)
    guard let connection = connections.connection(job.context.connection) else { return }
    connections.markDirty(job.context.connection)
    connection.respond(job.context.stream, status: 200) {
      PushJSON.writeResults(job.codes, ignored: job.ignored, into: &$0)
    }
    counters.answered(Route.receiveHook.rawValue, status: 200)
  }

  private func end(_ place: UInt32, _ job: HookJob, _ problem: Problem) {
    hooks.remove(place)
    guard let connection = connections.connection(job.context.connection),
      connection.isOpen(job.context.stream)
    else { return }
    connections.markDirty(job.context.connection)
    answer(problem, Route.receiveHook.rawValue, job.context.stream, connection)
    endTurnSoon()
  }
}
