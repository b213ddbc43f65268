internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// `POST /v1/import` (Proto/openapi.yaml): each line is imported while further lines arrive.
///
/// Consecutive lines of one channel and kind go to the store as one request. ``ImportOrder`` bounds what is in flight;
/// beyond it the body is not read further, and HTTP/2's window stops the client.
final class ImportStream: RequestStreamState, RequestStream {
  private enum State {
    case reading
    /// No line is read any more. Lines in flight are answered, then comes the end, with this code if it is early.
    case ending(ProblemCode?)
  }

  /// Lines of one channel and kind, which are sent together.
  private struct Batch {
    let kind: FrameKind
    let cid: [UInt8]
    let group: ImportOrder.GroupID
    var lineCount = 0
    var records = ByteBuffer()

    var isFull: Bool { lineCount >= ImportStream.batchLinesMax || records.readableBytes >= ImportStream.batchBytesMax }
  }

  /// Lines and bytes of a batch.
  fileprivate static let batchLinesMax = 256
  fileprivate static let batchBytesMax = 96 << 10

  private let context: RequestContext
  /// Whether lines are only checked.
  private let isDryRun: Bool
  private var state = State.reading
  private var lines = BodyLines(byteCountMax: ImportLine.byteCountMax)
  private var order = ImportOrder()
  private var batch: Batch?
  /// Lines with settings in flight. Lines of channels wait for them, since all shards have to know them.
  private var settingsInFlight = 0
  /// Lines that are in the metrics.
  private var counted = (lines: 0, refused: 0)

  init(_ context: RequestContext, isDryRun: Bool) {
    self.context = context
    self.isDryRun = isDryRun
    super.init(context)
  }

  var isReading: Bool {
    if case .reading = state { true } else { false }
  }

  /// A batch that is not sent yet gets no reply.
  var hasRequestsInFlight: Bool { order.inFlight > (batch == nil ? 0 : 1) }

  func end(_ reason: StreamEnd) {
    guard case .reading = state else { return }
    switch reason {
    case .tokenExpired: state = .ending(.tokenExpired)
    case .tokenRevoked: state = .ending(.tokenRevoked)
    case .draining: state = .ending(.storeUnavailable)
    }
  }

  // MARK: Lines

  func read(_ loop: GatewayLoop) {
    loop.streams.readBody(self) { bytes, isEnd in
      var taken = 0
      while hasRoom(loop) {
        switch lines.next(bytes, from: taken, isEnd: isEnd) {
        case .line(let line, let end):
          itemsRead += 1
          loop.rates.chargeStream(self)
          guard handle(bytes.extracting(line), loop) else {
            lines.takeBack()
            lacksRoom = true
            return line.lowerBound
          }
          taken = end
        case .tooLong(let end):
          itemsRead += 1
          refuse(Problem(.lineTooLong, "a line may have at most \(ImportLine.byteCountMax) bytes"), loop)
          taken = end
        case .needsMore(let end):
          if !sendBatch(loop) {
            lacksRoom = true
          } else if isEnd {
            state = .ending(nil)
          }
          hasPartialItem = end < bytes.byteCount
          return end
        }
      }
      return taken
    }
  }

  private func hasRoom(_ loop: GatewayLoop) -> Bool {
    lacksRoom = isTurnOver || !order.hasRoom
    guard !lacksRoom, order.failure == nil, loop.streams.canSend(self) else { return false }
    if batch?.isFull == true, !sendBatch(loop) {
      lacksRoom = true
      return false
    }
    return true
  }

  /// - Returns: false if the line has to be read again later.
  private func handle(_ bytes: RawSpan, _ loop: GatewayLoop) -> Bool {
    let tape = loop.tape
    let line: ImportLine
    do throws(JSONSyntaxError) {
      let value = try tape.parse(bytes)
      do throws(Problem) { line = try ImportLine(value) } catch {
        refuse(error, loop)
        return true
      }
    } catch {
      refuse(Problem(error), loop)
      return true
    }
    if isDryRun {
      order.skip(lines.number)
      return true
    }
    switch line {
    case .channelType(let name, let options):
      return begin(.patchChannelType, name: name, loop) { $0.writeOptionPatch(options) }
    case .user(let settings):
      // A user without settings needs no record.
      guard settings != UserSettings(user: settings.user, version: settings.version) else {
        order.skip(lines.number)
        return true
      }
      return begin(.assignUser, name: settings.user, imported: settings, loop) { $0.writeAssignUser(settings) }
    case .channel(let cid, let channel):
      return add(.importChannel, cid, loop) { $0.writeImportChannel(created: channel.created, channel.options) }
    case .message(let cid, let message): return add(.importMessages, cid, loop) { message.write(into: &$0) }
    case .member(let cid, let member): return add(.importMembers, cid, loop) { member.write(into: &$0) }
    case .acknowledgement(let cid, let record):
      return add(.importAcknowledgements, cid, loop) { record.write(into: &$0) }
    }
  }

  private func refuse(_ problem: Problem, _ loop: GatewayLoop) {
    // Lines after this one begin another batch, so that answers are in the order of the lines.
    _ = sendBatch(loop)
    order.refuse(lines.number, ImportOrder.Refusal(problem.code, problem.detail))
  }

  // MARK: Store requests

  /// Add a line to the batch, which is sent first if the line is of another channel or kind.
  private func add(_ kind: FrameKind, _ cid: String, _ loop: GatewayLoop, _ write: (inout ByteBuffer) -> Void) -> Bool {
    guard settingsInFlight == 0 else { return false }
    let name = Array(cid.utf8)
    if let batch, batch.kind != kind || batch.cid != name || kind == .importChannel {
      guard sendBatch(loop) else { return false }
    }
    var open = batch ?? Batch(kind: kind, cid: name, group: order.begin())
    batch = nil
    order.add(lines.number, to: open.group)
    open.lineCount += 1
    write(&open.records)
    batch = open
    return true
  }

  /// Send the batch.
  ///
  /// - Returns: false if the store takes no more now.
  private func sendBatch(_ loop: GatewayLoop) -> Bool {
    guard let batch else { return true }
    let isSent = loop.trySend(
      batch.kind,
      to: .channel(batch.cid.span.bytes),
      pendingRequest(.imported(batch.group)),
      issued: caller.issued
    ) { buffer in
      if batch.kind != .importChannel { buffer.writeVarint(batch.lineCount) }
      buffer.writeImmutableBuffer(batch.records)
    }
    guard isSent else { return false }
    loop.streams.recordSent()
    self.batch = nil
    return true
  }

  /// Begin a change of settings, which every shard gets.
  ///
  /// - Parameter imported: the settings of a user, which apply only to a user who has none.
  private func begin(
    _ kind: FrameKind,
    name: String,
    imported: UserSettings? = nil,
    _ loop: GatewayLoop,
    _ fields: (inout ByteBuffer) -> Void
  ) -> Bool {
    guard let index, sendBatch(loop) else { return false }
    let bytes = Array(name.utf8)
    let group = order.begin()
    order.add(lines.number, to: group)
    let home: ShardID
    do { home = try loop.homeShard(of: bytes.span.bytes) } catch {
      order.fail(group, ImportOrder.Refusal(error.code))
      return true
    }
    settingsInFlight += 1
    let line = ImportedSettings(stream: index, group: group, settings: imported)
    loop.valueChanges.begin(
      kind,
      at: .shard(home, name: bytes.span.bytes),
      context,
      route: route,
      as: .imported(line),
      fields
    )
    return true
  }

  /// Handle the end of a change of settings.
  ///
  /// - Parameter value: the value that every shard has now.
  func settled(_ line: ImportedSettings, _ problem: Problem?, _ value: UserSettings?) {
    settingsInFlight -= 1
    if let problem {
      conclude(line.group, problem)
    } else if let wanted = line.settings, let value, !value.hasSettings(of: wanted) {
      order.finish(line.group, refused: ImportOrder.Refusal(.importConflict, "the user has other settings already"))
    } else {
      order.finish(line.group, [nil])
    }
  }

  func completed(_ request: StreamStoreRequest, with result: StoreResult, on loop: GatewayLoop) {
    guard case .imported(let group) = request else { preconditionFailure("a reply to another stream") }
    switch result {
    case .reply(.importChannel, _): order.finish(group, [nil])
    case .reply(let kind, let payload):
      do throws(WireError) {
        let codes = try ImportReply(payload).codes
        guard codes.count == order.lineCount(of: group) else { throw .badValue(.count) }
        order.finish(group, codes.map { Self.refusal($0) })
      } catch {
        loop.logMalformedReply(error, kind)
        order.fail(group, ImportOrder.Refusal(.internalError))
      }
    case .failure(let failure): conclude(group, failure.problem)
    }
  }

  private static func refusal(_ code: UInt16) -> ImportOrder.Refusal? {
    guard code > 0 else { return nil }
    guard let known = ErrorCode(rawValue: code) else { return ImportOrder.Refusal(.internalError) }
    return ImportOrder.Refusal(Problem.code(of: known, isServer: true))
  }

  /// Record why the lines of a group were not imported: because of what they say, or because the store has failed.
  private func conclude(_ group: ImportOrder.GroupID, _ problem: Problem) {
    let refusal = ImportOrder.Refusal(problem.code, problem.detail)
    if problem.status >= 500 { order.fail(group, refusal) } else { order.finish(group, refused: refusal) }
  }

  // MARK: Responses

  func write(_ loop: GatewayLoop) {
    loop.streams.recordImported(order.linesDone - counted.lines, refused: order.refused - counted.refused)
    counted = (order.linesDone, order.refused)
    guard order.answers.readableBytes > 0 else { return }
    isFull = !loop.streams.write(self, order.answers)
    if !isFull { order.clearAnswers() }
  }

  func finish(_ loop: GatewayLoop) {
    if isReading, order.failure != nil { state = .ending(nil) }
    guard case .ending(let code) = state else { return }
    if let unsent = batch {
      // Reading has ended early, so these lines are not imported.
      batch = nil
      order.fail(unsent.group, order.failure ?? ImportOrder.Refusal(code ?? .storeUnavailable))
    }
    guard order.isEmpty, order.answers.readableBytes == 0, !isFull else { return }
    var line = ByteBuffer()
    let failure = order.failure ?? code.map { ImportOrder.Refusal($0) }
    ImportJSON.writeEnd(lines: order.linesDone, refused: order.refused, failure, into: &line)
    guard loop.streams.write(self, line) else {
      isFull = true
      return
    }
    loop.streams.finish(self)
  }
}

/// A line of an import with a channel type or a user's settings.
struct ImportedSettings {
  let stream: SlotIndex
  let group: ImportOrder.GroupID
  /// The settings of the line; nil: a channel type's.
  let settings: UserSettings?
}

extension UserSettings {
  /// Return whether these have the values of others, whatever their version.
  fileprivate func hasSettings(of other: UserSettings) -> Bool {
    hidesRead == other.hidesRead && hidesDelivered == other.hidesDelivered
      && readShownSince == other.readShownSince && deliveredShownSince == other.deliveredShownSince
      && tokensRevokedBefore == other.tokensRevokedBefore
  }
}

extension RequestStreamsPart {
  /// Handle `POST /v1/import`.
  ///
  /// - Throws: `content_type_not_supported`, `store_busy`.
  func openImport(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    guard match.route.streams(request.contentType) else { throw Problem(.contentTypeNotSupported) }
    var isDryRun = false
    var reader = QueryReader(match.query, loop.scratch)
    while let parameter = try reader.next() {
      guard parameter.name.equals("dry_run") else { continue }
      isDryRun = parameter.value.equals("true")
      guard isDryRun || parameter.value.equals("false") else {
        throw Problem(.invalidQuery, "dry_run has to be true or false")
      }
    }
    guard request.bodyStreams else {
      return loop.respond(to: context, contentType: .ndjson) {
        ImportJSON.writeEnd(lines: 0, refused: 0, nil, into: &$0)
      }
    }
    try open(ImportStream(context, isDryRun: isDryRun), contentType: .ndjson)
  }
}
