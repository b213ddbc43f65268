import DequeModule
import NIOCore
import ReceiptModel
import ReceiptWire

/// A request that does much at once and waits for a slice, or one to the same channel that came behind it.
struct PostponedRequest {
  /// Empty: it is about no one channel.
  var cid: [UInt8]
  var header: FrameHeader
  var payload: ByteBuffer
  var lane: ReplyLane
  /// The command's; nil for a query.
  var counter: UInt64?
}

/// Requests that name a thousand members or channels are a millisecond of work each. Where many come together they are
/// spread over slices, and the others are answered between; each channel's own are carried out in the order in which
/// they came.
extension ShardEngine {
  /// Bytes of a request that is carried out at once, whatever was done before it.
  private static let shortBytes = 1_024

  /// Lets a request wait where ``StoreLoopConfiguration/entriesPerTurn`` is used up, or where another one waits for
  /// whose channel it is.
  ///
  /// - Returns: whether it waits now, or was refused as one too many.
  @inline(__always)
  func postpones(
    _ header: FrameHeader,
    _ payload: RawSpan,
    _ lane: ReplyLane
  ) throws(WireError) -> Bool {
    guard !postponed.isEmpty || loop.entriesLeft <= 0 else { return false }
    return try postponesNow(header, payload, lane)
  }

  private func postponesNow(
    _ header: FrameHeader,
    _ payload: RawSpan,
    _ lane: ReplyLane
  ) throws(WireError) -> Bool {
    let isWide = header.kind.isWide && payload.byteCount > Self.shortBytes && loop.entriesLeft <= 0
    guard isWide || !postponed.isEmpty && header.kind.namesChannel else { return false }
    var cid: [UInt8] = []
    var counter: UInt64?
    if header.kind == .redeemTicket {
      let asked = try ticket(FieldReader(payload.extracting(first: try takeIssued(header, payload))))
      guard let slot = state.slot(numbered: asked.place.channel) else { return false }
      cid = state[slot].cid
      guard postponed.contains(where: { $0.cid == cid }) else { return false }
      counter = asked.counter
    } else if header.kind.namesChannel {
      var reader = FieldReader(payload.extracting(first: try takeIssued(header, payload)))
      let name = try reader.string()
      guard isWide || postponed.contains(where: { name.isSame(as: $0.cid) }) else { return false }
      cid = name.withUnsafeBytes { Array($0) }
      if header.kind.isCommand { counter = try Self.counter(&reader) }
    }
    guard postponed.count < configuration.postponedMax else {
      refuseUndecided(header, counter, .busy, 100, "too many long requests", lane)
      return true
    }
    if let counter {
      let session = sessionPosition(lane)
      if !sessions.covers(counter, at: session) { sessions.waits(counter, at: session) }
    }
    var bytes = ByteBuffer()
    bytes.writeRaw(payload)
    if postponed.isEmpty { loop.postpones(self) }
    postponed.append(
      PostponedRequest(cid: cid, header: header, payload: bytes, lane: lane, counter: counter)
    )
    return true
  }

  /// Carries out the one that has waited longest.
  func goOnWithPostponed() {
    guard let next = postponed.popFirst() else { return }
    // Its connection is gone: it is sent again on another.
    guard !next.lane.isClosed else {
      if let counter = next.counter { sessions.refused(counter, at: sessionPosition(next.lane)) }
      return
    }
    do {
      try receiveNow(next.header, next.payload.readableBytesSpan, next.lane)
    } catch {
      next.lane.fail(error)
    }
  }
}

extension FrameKind {
  /// Whether one request may name very many members or channels.
  fileprivate var isWide: Bool {
    switch self {
    case .putChannel, .changeMembers, .unreadCounts: true
    default: false
    }
  }

  /// Whether it is about one channel, which is its first field but in a ticket's.
  fileprivate var namesChannel: Bool {
    switch self {
    case .patchChannelType, .assignChannelType, .getChannelType, .listChannelTypes, .patchUser, .assignUser,
      .getUser, .settle, .listUnsettled, .purge, .listChannels, .rebuildIndex, .unreadCounts,
      .webhookKnown, .noteWebhook, .presentTicket, .getToken, .listRevokedTokens, .revokeToken:
      false
    default: true
    }
  }
}
