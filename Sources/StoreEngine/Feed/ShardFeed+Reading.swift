internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Reading the feed (Proto/frames.md, 0x3D): records get their names when they are sent.
extension ShardFeed {
  private static let recordsMax = 10_000
  /// Size at which an answer ends.
  private static let replyBytes = 192 << 10

  /// Read records for a consumer, or wait until there are some.
  ///
  /// - Parameters:
  ///   - mayWait: whether to wait if there is no record.
  ///   - isLookedUp: the look-up that the request waited for has ended.
  func readFeed(_ request: inout Request, mayWait: Bool = true, isLookedUp: Bool = false) throws(WireError) -> Outcome {
    let name = try request.fields.text()
    let fields = try ReadFeedRequest(&request.fields)
    guard isOn else { return Self.refusedOff }
    guard fields.partition.isValid(shardCount: shard.shardCount), fields.partition.contains(shard.state.id) else {
      return .refused(.wrongShard, "the partition does not have this shard")
    }
    guard (1...Self.recordsMax).contains(fields.limit) else {
      return .refused(.invalidField, "limit: 1 to \(Self.recordsMax)")
    }
    let consumer: FeedConsumer
    do throws(FeedConsumerTable.Refusal) {
      if fields.epoch == 0 {
        guard let known = shard.state.consumers[name] else { throw .notFound }
        consumer = known
      } else {
        consumer = try shard.state.consumers.reader(name, fields.partition, epoch: fields.epoch)
      }
    } catch {
      return shard.consumers.refused(error)
    }
    var page = FeedPage(number: fields.number)
    // A store that was restored may have fewer records than the consumer has seen.
    if page.number > durableEnd || page.number == 0 { page.number = page.number == 0 ? first : durableEnd }
    if page.number < first {
      page.gapTo = firstTime
      page.number = first
    }
    if page.number == durableEnd {
      let isIdle = page.gapTo == .none && mayWait && fields.flags & ReadFeedRequest.answersAtOnce == 0
      if isIdle { return shard.waiting.add(request, for: .feed) }
      return reply(request, page)
    }
    let blocks = blocks(from: page.number)
    guard let begin = blocks.first else {
      read(from: page.number)
      return shard.waiting.add(request, for: .feedRead(page.number))
    }
    if begin.first > page.number {
      page.gapTo = begin.time
      page.number = begin.first
    }
    let lookedUp: ChannelNumber? =
      if isLookedUp, case .feedLookup(let number)? = request.attempt?.progress { number } else { nil }
    let (limit, isRange) = (fields.limit, fields.epoch == 0)
    if let missing = try fill(&page, from: blocks, for: consumer, limit: limit, isRange: isRange, gone: lookedUp) {
      if let outcome = lookUp(missing, &request) { return outcome }
      // The channel is gone: continue as if it were looked up.
      _ = try fill(&page, from: blocks, for: consumer, limit: limit, isRange: isRange, gone: missing)
    }
    addLost(to: &page)
    return reply(request, page)
  }

  static var refusedOff: Outcome { .refused(.feedOff, "the store was started without --feed-retention") }

  private func reply(_ request: borrowing Request, _ page: borrowing FeedPage) -> Outcome {
    let isAtEnd = page.number >= durableEnd
    let header = ReadFeedReply(
      number: page.number,
      end: durableEnd,
      through: isAtEnd ? max(page.through, shard.log.durableTime) : page.through,
      gapTo: page.gapTo
    )
    let (count, records) = (page.count, page.records)
    return shard.reply(request, .now) { buffer in
      header.write(into: &buffer)
      buffer.writeVarint(count)
      buffer.writeImmutableBuffer(records)
    }
  }

  /// Add records with their names, in order.
  ///
  /// - Parameter gone: a channel that does not exist any more, if it is not in memory.
  /// - Returns: the channel of the first record, if it is not in memory. A later one ends the page.
  private func fill(
    _ page: inout FeedPage,
    from blocks: ArraySlice<FeedBlock>,
    for consumer: FeedConsumer,
    limit: Int,
    isRange: Bool,
    gone: ChannelNumber?
  ) throws(WireError) -> ChannelNumber? {
    var examined = 0
    defer { shard.loop.budget.useRows(examined) }
    for block in blocks where block.end > page.number {
      var reader = FieldReader(block.bytes.readableBytesSpan)
      let header = try FeedBlockHeader(&reader)
      for number in block.first..<block.end {
        let record = try reader.feedRecord(base: header.time)
        examined += 1
        guard number >= page.number else { continue }
        let count = page.count + (page.lost == nil ? 0 : 1)
        if count >= limit || page.records.readableBytes >= Self.replyBytes { return nil }
        if consumer.kinds.contains(record.kind), record.at >= consumer.since || record.kind == .gap {
          var slot: ChannelSlot?
          if needsChannel(record) {
            slot = shard.state.slot(numbered: record.channel)
            if slot == nil, record.channel != gone, record.channel < shard.state.nextChannel {
              return page.hasExamined ? nil : record.channel
            }
          }
          if let slot { shard.recordUse(of: slot) }
          // A range is read after its records were committed, when nothing holds their channels any more.
          if slot == nil, needsChannel(record), isRange || number < shard.state.consumers.namesLostBefore {
            page.lost = (number, page.lost?.since ?? record.at, record.at)
          } else if wants(record, slot, consumer) {
            add(record, number, slot, to: &page)
          }
        }
        page.number = number + 1
        page.through = max(page.through, record.at)
        page.hasExamined = true
      }
    }
    return nil
  }

  private func needsChannel(_ record: FeedRecord) -> Bool {
    !record.kind.isAboutNoChannel && record.kind != .channelDeleted
  }

  private func wants(_ record: FeedRecord, _ slot: ChannelSlot?, _ consumer: FeedConsumer) -> Bool {
    if record.kind.isAboutNoChannel { return true }
    if record.kind == .channelDeleted { return consumer.wantsChannel(Array(record.text.utf8)) }
    guard let slot else { return false }
    return consumer.wantsChannel(shard.state[slot].cid)
  }

  private func add(_ record: FeedRecord, _ number: UInt64, _ slot: ChannelSlot?, to page: inout FeedPage) {
    guard let names = shard.feedNames(of: record, in: slot) else { return }
    addLost(to: &page)
    page.count += 1
    page.records.writeNamedFeedRecord(record, number, names, slot, in: shard.state)
  }

  /// Add a gap for the records before that have lost their names.
  private func addLost(to page: inout FeedPage) {
    guard let lost = page.lost else { return }
    page.lost = nil
    var record = FeedRecord(.gap, at: lost.until)
    record.first = UInt64(max(0, lost.since.milliseconds))
    guard let names = shard.feedNames(of: record, in: nil) else { return }
    page.count += 1
    page.records.writeNamedFeedRecord(record, lost.number, names, nil, in: shard.state)
  }

  // MARK: Channels that are not in memory

  /// Load the channel of a record, by its number: its name is looked up first.
  ///
  /// - Returns: nil if there is no such channel any more.
  private func lookUp(_ number: ChannelNumber, _ request: inout Request) -> Outcome? {
    guard let head = shard.tail.head(of: number) else {
      return shard.loads.wait(request, for: .head(number), progress: .feedLookup(number))
    }
    return load(number, Array(head.cid.utf8), request)
  }

  private func load(_ number: ChannelNumber, _ cid: [UInt8], _ request: borrowing Request) -> Outcome? {
    guard shard.loads.mayLoad(lookedUp: cid) else { return nil }
    return shard.loads.wait(request, for: .cid(cid), progress: .feedLookup(number))
  }

  /// Continue a request whose channel's name was looked up.
  func readFeed(_ request: inout Request, _ name: LookedUpName) throws(WireError) -> Outcome {
    if case .named(let cid) = name, case .feedLookup(let number)? = request.attempt?.progress,
      shard.state.slot(numbered: number) == nil, let outcome = load(number, cid, request)
    {
      return outcome
    }
    return try readFeed(&request, isLookedUp: true)
  }
}

/// The answer to a read of the feed, while it is collected.
private struct FeedPage {
  /// Number of the first record that is not read yet.
  var number: UInt64
  var gapTo = Timestamp.none
  var count = 0
  var records = ByteBuffer()
  /// Time of the last record that was read.
  var through = Timestamp.none
  /// Whether a record was read, be it added or left out.
  var hasExamined = false
  /// Records without names since the last one that was added: number of the last of them, and their times.
  var lost: (number: UInt64, since: Timestamp, until: Timestamp)?

  init(number: UInt64) { self.number = number }
}

extension ByteBuffer {
  /// Write *record* of Proto/frames.md, "The feed".
  fileprivate mutating func writeNamedFeedRecord(
    _ record: FeedRecord,
    _ number: UInt64,
    _ names: ShardState.FeedNames,
    _ slot: ChannelSlot?,
    in state: borrowing ShardState
  ) {
    writeByte(record.kind.rawValue)
    writeVarint(number)
    writeTime(record.at)
    if let slot {
      writeField(state[slot].cid.span.bytes)
    } else {
      writeField(record.kind.isAboutNoChannel ? "" : record.text)
    }
    if record.kind == .userErased {
      writeField(record.text)
    } else if record.kind.namesSender {
      if let target = names.slot, names.message != .zero {
        state.withSender(target, of: names.message) { writeField($0) }
      } else {
        writeEmptyField()
      }
    } else {
      state.withUser(names) { writeField($0) }
    }
    if let target = names.slot {
      state.withMessage(target, names.message) { writeField($0) }
    } else {
      writeEmptyField()
    }
    writeSequence(record.sequence)
    if let slot { state.withMessage(slot, record.thread) { writeField($0) } } else { writeEmptyField() }
    if let shown = names.shown, let target = names.slot {
      writeSequence(shown.lastReadSequence)
      writeSequence(shown.lastDeliveredSequence)
      state.withMessage(target, shown.named(shown.lastReadSequence)) { writeField($0) }
      state.withMessage(target, shown.named(shown.lastDeliveredSequence)) { writeField($0) }
      return
    }
    if let user = names.user {
      let shows = state.shows(user)
      writeVarint(UInt64((shows.read ? 1 : 0) | (shows.delivered ? 2 : 0)))
    } else {
      writeVarint(record.kind == .messageRegistered ? UInt64(names.moves.rawValue) : record.first)
    }
    writeVarint(record.kind == .status ? UInt64(names.status.rawValue) : record.second)
    writeField(record.kind == .delivered ? record.text : "")
    writeField(record.kind == .delivered ? record.detail : "")
    guard record.kind == .reminderDue else { return }
    writeVarint(names.members.count)
    if let target = names.slot {
      for row in names.members { state.withUser(target, row) { writeField($0) } }
    }
  }
}
