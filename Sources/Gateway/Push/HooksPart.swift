internal import HTTP2Session
internal import Logging
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// The store requests of a ``HookJob``.
enum HookStoreRequest: UInt8 {
  case isReplay
  case record
}

/// A webhook being processed: verified, checked for replay, its deliveries acknowledged, then recorded.
final class HookJob {
  let hook: PushHook
  let context: RequestContext
  /// The key under which the store records it.
  let key: [UInt8]
  /// Until when the store remembers it, in milliseconds since 1970.
  let until: Int64
  let events: [HookEvent]
  /// Result of each delivery; nil: it succeeded.
  var codes: [ProblemCode?] = []
  /// Number of events that are no deliveries.
  var ignored = 0

  init(_ hook: PushHook, _ context: RequestContext, key: [UInt8], until: Int64, events: [HookEvent]) {
    self.hook = hook
    self.context = context
    self.key = key
    self.until = until
    self.events = events
  }
}

/// `POST /v1/push/hooks/{name}` (Proto/openapi.yaml): the hooks, and the webhooks in progress.
final class HooksPart: GatewayPart {
  /// The hooks, with distinct names.
  private var hooks: [PushHook]
  private var jobs = SlotTable<HookJob>()

  init(_ hooks: [PushHook]) { self.hooks = hooks }

  /// Replace the hooks for later webhooks.
  func apply(_ hooks: [PushHook]) { self.hooks = hooks }

  /// Handle a webhook: verify its signature, parse its body, and ask the store whether it is a replay.
  ///
  /// - Throws: `hook_not_found`, `webhook_signature_invalid`, `webhook_too_old`, `store_unavailable`, `store_busy`, and
  ///   problems of its body.
  func receiveHook(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let name = match.subject
    guard let hook = hooks.first(where: { name.equals(Array($0.name.utf8).span.bytes) }) else {
      throw Problem(.hookNotFound)
    }
    let sent = try check(hook, request)
    guard GatewayLoop.isJSON(request.contentType) else { throw Problem(.contentTypeNotSupported) }
    let events = try events(request, hook)
    guard loop.store.shardCount > 0 else { throw Problem(.storeUnavailable) }
    let id = Self.header("webhook-id", request)
    let job = HookJob(
      hook,
      context,
      key: Array("\(hook.name):".utf8) + id,
      until: (sent + Self.rememberedSeconds) * 1_000,
      events: events
    )
    let index = jobs.insert(job)
    guard trySend(.webhookKnown, .isReplay, index: index, job: job, { _ in }) else {
      jobs.remove(index)
      throw Problem(.storeBusy)
    }
  }

  /// Seconds from a webhook's own timestamp; after them every gateway refuses it, even if its clock is slightly behind.
  private static let rememberedSeconds = HookSignature.toleranceSeconds + 60

  private func check(_ hook: PushHook, _ request: borrowing HTTP2Request) throws(Problem) -> Int64 {
    let id = Self.header("webhook-id", request)
    let timestamp = Self.header("webhook-timestamp", request)
    let signatures = Self.header("webhook-signature", request)
    do throws(HookSignature.Refusal) {
      return try hook.signature.check(
        id: id.span.bytes,
        timestamp: timestamp.span.bytes,
        signatures: signatures.span.bytes,
        body: request.body,
        now: loop.now
      )
    } catch {
      switch error {
      case .header(let name):
        throw Problem(.webhookSignatureInvalid, "the header \(name.rawValue) is missing or malformed")
      case .signature: throw Problem(.webhookSignatureInvalid)
      case .time: throw Problem(.webhookTooOld)
      }
    }
  }

  /// Return the value of a header; empty where it is missing.
  private static func header(_ name: StaticString, _ request: borrowing HTTP2Request) -> [UInt8] {
    request.header(name)?.bytes ?? []
  }

  private func events(_ request: borrowing HTTP2Request, _ hook: PushHook) throws(Problem) -> [HookEvent] {
    let tape = loop.tape
    let body: JSONValue
    do throws(JSONSyntaxError) { body = try tape.parse(request.body) } catch { throw Problem(error) }
    guard let events = try hook.mapping.decode(body, countMax: loop.limits.pushesPerRequest) else {
      throw Problem(.invalidField, "the body has no events at the path in this hook's settings")
    }
    return events
  }

  /// Ask the store about a webhook's key. False: the store takes no more requests.
  private func trySend(
    _ kind: FrameKind,
    _ request: HookStoreRequest,
    index: SlotIndex,
    job: HookJob,
    _ fields: (inout ByteBuffer) -> Void
  ) -> Bool {
    let key = job.key
    let shard = ShardID.owning(key.span.bytes, count: loop.store.shardCount)
    let pending = PendingRequest(.hook(index, request), route: .receiveHook, isServer: true, isPageQuery: false)
    return loop.trySend(kind, to: .shard(shard, name: key.span.bytes), pending, fields)
  }

  // MARK: Store replies

  func completed(_ index: SlotIndex, _ request: HookStoreRequest, with result: StoreResult) {
    guard let job = jobs[index] else { return }
    switch result {
    case .reply(let kind, let payload): reply(index, request, job, kind: kind, payload: payload)
    case .failure(let failure): end(index, job, failure.problem)
    }
  }

  private func reply(
    _ index: SlotIndex,
    _ request: HookStoreRequest,
    _ job: HookJob,
    kind: FrameKind,
    payload: RawSpan
  ) {
    do throws(WireError) {
      switch (request, try FlagReply(payload).isSet) {
      case (.isReplay, false): ackDeliveries(index, job)
      case (.record, true): answer(index, job)
      case (.isReplay, true), (.record, false): end(index, job, Problem(.webhookReplayed))
      }
    } catch {
      loop.logMalformedReply(error, kind)
      end(index, job, Problem(.internalError))
    }
  }

  private func ackDeliveries(_ index: SlotIndex, _ job: HookJob) {
    guard let connection = loop.connections.connection(job.context.connection), connection.isOpen(job.context.stream)
    else {
      jobs.remove(index)
      return
    }
    let batch = loop.push.begin(
      .closure { self.deliveriesAcked(index, job, $0) },
      source: .hook,
      countMax: max(1, job.events.count)
    )
    for event in job.events {
      switch event {
      case .ignored: job.ignored += 1
      case .malformed(let code, let id): refuse(code, id, job, in: batch)
      case .delivery(let delivery, let id): ack(delivery, id, job, in: batch)
      }
    }
    loop.push.end(batch)
  }

  private func ack(_ delivery: HookDelivery, _ id: String, _ job: HookJob, in batch: SlotIndex) {
    let (provider, device) = (job.hook.provider, delivery.device)
    do throws(ProblemCode) {
      switch delivery.mark {
      case .ticket(let ticket):
        let ack = try PushAck(
          ticket: ticket.span.bytes,
          provider: provider.span.bytes,
          device: device.span.bytes,
          ackedAt: delivery.ackedAt
        )
        loop.push.add(ack, in: batch)
      case .names(let cid, let message, let user):
        let ack = try PushAck(
          cid: cid.span.bytes,
          message: message.span.bytes,
          user: user.span.bytes,
          provider: provider.span.bytes,
          device: device.span.bytes,
          ackedAt: delivery.ackedAt
        )
        loop.push.add(ack, in: batch)
      }
    } catch {
      refuse(error, id, job, in: batch)
    }
  }

  /// - Parameter id: the provider's id of the message.
  private func refuse(_ code: ProblemCode, _ id: String, _ job: HookJob, in batch: SlotIndex) {
    loop.shared.logger.debug(
      "A webhook's delivery cannot be acknowledged",
      metadata: ["hook": "\(job.hook.name)", "code": "\(code.rawValue)", "provider_message_id": "\(id)"]
    )
    loop.push.refuse(code, .hook, in: batch)
  }

  /// Record the webhook, unless the sender should retry because deliveries failed temporarily.
  private func deliveriesAcked(_ index: SlotIndex, _ job: HookJob, _ codes: [ProblemCode?]) {
    job.codes = codes
    if let code = codes.lazy.compactMap({ $0 }).first(where: \.isServiceFailure) {
      return end(index, job, Problem(code))
    }
    let until = Timestamp(milliseconds: job.until)
    if trySend(.noteWebhook, .record, index: index, job: job, { $0.writeTime(until) }) {
      loop.endTurnSoon()
    } else {
      end(index, job, Problem(.storeBusy))
    }
  }

  // MARK: Responses

  private func answer(_ index: SlotIndex, _ job: HookJob) {
    jobs.remove(index)
    loop.respond(to: job.context) {
      PushJSON.writeResults(job.codes, ignored: job.ignored, into: &$0)
    }
  }

  private func end(_ index: SlotIndex, _ job: HookJob, _ problem: Problem) {
    jobs.remove(index)
    loop.answer(problem, route: .receiveHook, stream: job.context.stream, connection: job.context.connection)
    loop.endTurnSoon()
  }
}
