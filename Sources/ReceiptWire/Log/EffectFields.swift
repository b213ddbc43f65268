package import NIOCore
package import ReceiptModel

extension ByteBuffer {
  /// Write an effect: byte kind, varint length, fields.
  package mutating func writeEffect(_ effect: Effect) {
    switch effect {
    case .channel(let channel, let effect): writeEffect(effect, on: channel)
    case .shard(let effect): writeEffect(effect)
    }
  }

  private mutating func writeEffect(_ effect: ChannelEffect, on channel: ChannelNumber) {
    switch effect {
    case .readMoved(let row, let sequence, let time, let isHidden):
      writeMove(isHidden ? .readMovedHidden : .readMoved, channel: channel, row: row, sequence: sequence, time: time)
    case .deliveredMoved(let row, let sequence, let time, let isHidden):
      writeMove(
        isHidden ? .deliveredMovedHidden : .deliveredMoved,
        channel: channel,
        row: row,
        sequence: sequence,
        time: time
      )
    case .deliveredByPushAck(let row, let sequence, let time, let acked, let isHidden):
      writeEffect(isHidden ? .deliveredByPushAckHidden : .deliveredByPushAck, channel, row) { buffer in
        buffer.writeSequence(sequence)
        buffer.writeTime(time)
        buffer.writeTime(acked)
      }
    case .channelAssigned(let cid, let created, let own):
      writeEffect(.channelAssigned, channel) { buffer in
        buffer.writeField(cid)
        buffer.writeTime(created)
        buffer.writeOptionPatch(own)
      }
    case .optionsChanged(let time):
      writeEffect(.optionsChanged, channel) { $0.writeTime(time) }
    case .rowAssigned(let row, let record):
      writeEffect(.rowAssigned, channel, row) { $0.writeRow(record) }
    case .rowLeft(let row, let time):
      writeEffect(.rowLeft, channel, row) { $0.writeTime(time) }
    case .roleAssigned(let row, let role):
      writeEffect(.roleAssigned, channel, row) { $0.writeField(role) }
    case .markerAssigned(let row, let marker, let epoch, let time):
      writeEffect(.markerAssigned, channel, row) { buffer in
        buffer.writeOptional(marker.map { UInt64($0.rawValue) })
        buffer.writeVarint(epoch)
        buffer.writeTime(time)
      }
    case .muteAssigned(let row, let isMuted): writeEffect(.muteAssigned, channel, row) { $0.writeFlag(isMuted) }
    case .unreadFlagAssigned(let row, let isSet, let epoch, let time):
      writeEffect(.unreadFlagAssigned, channel, row) { buffer in
        buffer.writeFlag(isSet)
        buffer.writeVarint(epoch)
        buffer.writeTime(time)
      }
    case .messageAssigned(let sequence, let record):
      writeEffect(.messageAssigned, channel, sequence) { $0.writeMessageRecord(record) }
    case .messageDeleted(let sequence, let time): writeEffect(.messageDeleted, channel, sequence) { $0.writeTime(time) }
    case .acknowledged(let sequence, let acknowledgement):
      writeEffect(.acknowledged, channel, sequence) { buffer in
        buffer.writeVarint(acknowledgement.row.rawValue)
        buffer.writeVarint(UInt64(acknowledgement.isHidden ? 1 : 0))
        buffer.writeTime(acknowledgement.at)
        buffer.writeField(acknowledgement.note)
      }
    case .acknowledgementForgotten(let sequence, let row):
      writeEffect(.acknowledgementForgotten, channel, sequence) { $0.writeVarint(row.rawValue) }
    case .acknowledgedThrough(let row, let sequence):
      writeEffect(.acknowledgedThrough, channel, row) { $0.writeSequence(sequence) }
    case .stepsSealed(let rowPage, let segment, let bytes):
      writeEffect(.stepsSealed, channel) { buffer in
        buffer.writeVarint(rowPage)
        buffer.writeVarint(segment)
        buffer.writeField(bytes.span.bytes)
      }
    case .stepTailCut(let rowPage, let end):
      writeEffect(.stepTailCut, channel) { buffer in
        buffer.writeVarint(rowPage)
        buffer.writeTime(end)
      }
    case .stepsTrimmed(let rowPage, let first):
      writeEffect(.stepsTrimmed, channel) { buffer in
        buffer.writeVarint(rowPage)
        buffer.writeVarint(first)
      }
    case .stepTailAssigned(let rowPage, let record):
      writeEffect(.stepTailAssigned, channel) { buffer in
        buffer.writeVarint(rowPage)
        buffer.writeVarint(record.first)
        buffer.writeVarint(record.ends.count)
        for end in record.ends { buffer.writeTime(end) }
        buffer.writeField(record.tail.span.bytes)
      }
    case .mentionsAssigned(let sequence, let rows, let pending):
      writeEffect(.mentionsAssigned, channel, sequence) { buffer in
        buffer.writeVarint(rows.count)
        for row in rows { buffer.writeVarint(row) }
        buffer.writeVarint(pending.count)
        for hash in pending { buffer.writeInteger(hash) }
      }
    case .stepsImported(let rowPage, let bytes):
      writeEffect(.stepsImported, channel) { buffer in
        buffer.writeVarint(rowPage)
        buffer.writeField(bytes.span.bytes)
      }
    case .inThread(let parent, let effect):
      writeEffect(.inThread) { buffer in
        buffer.writeSequence(parent)
        buffer.writeEffect(effect, on: channel)
      }
    case .truncated(let sequence, let time):
      writeEffect(.truncated, channel, sequence) { $0.writeTime(time) }
    case .deletionBegun:
      writeEffect(.deletionBegun, channel) { _ in }
    case .channelDeleted(let cid):
      writeEffect(.channelDeleted, channel) { $0.writeField(cid) }
    case .rowErased(let row, let time):
      writeEffect(.rowErased, channel, row) { $0.writeTime(time) }
    case .senderErased(let sequence):
      writeEffect(.senderErased, channel, sequence) { _ in }
    case .messageCountsAssigned(let newest, let counts):
      writeEffect(.messageCountsAssigned, channel) { buffer in
        buffer.writeSequence(newest)
        buffer.writeVarint(counts.count)
        for count in counts { buffer.writeVarint(count) }
      }
    case .segmentFlagsAssigned(let list):
      writeEffect(.segmentFlagsAssigned, channel) { buffer in
        buffer.writeVarint(list.count)
        for flags in list {
          buffer.writeVarint(flags.segment)
          buffer.writeByte(flags.rawFlags)
        }
      }
    case .membershipAssigned(let position, let membership):
      writeEffect(.membershipAssigned, channel) { buffer in
        buffer.writeVarint(position)
        buffer.writeMembership(membership)
      }
    case .membershipRemoved(let position): writeEffect(.membershipRemoved, channel) { $0.writeVarint(position) }
    }
  }

  private mutating func writeEffect(_ effect: ShardEffect) {
    switch effect {
    case .typeSettled(let name, let version):
      writeEffect(.typeSettled) { buffer in
        buffer.writeField(name)
        buffer.writeVarint(version)
      }
    case .userAssigned(let number, let settings):
      writeEffect(.userAssigned) { buffer in
        buffer.writeVarint(number)
        buffer.writeUserSettings(settings)
        buffer.writeTime(settings.appliedAt)
      }
    case .userSettled(let number, let version):
      writeEffect(.userSettled) { buffer in
        buffer.writeVarint(number)
        buffer.writeVarint(version)
      }
    case .channelTypeAssigned(let record):
      writeEffect(.channelTypeAssigned) { buffer in
        buffer.writeChannelTypeRecord(record)
        buffer.writeTime(record.appliedAt)
      }
    case .countersAssigned(let next, let time):
      writeEffect(.countersAssigned) { buffer in
        buffer.writeVarint(next.rawValue)
        buffer.writeTime(time)
      }
    case .sessionAssigned(let record): writeEffect(.sessionAssigned) { $0.writeSessionRecord(record) }
    case .userErased(let number, let version, let hash, let time):
      writeEffect(.userErased) { buffer in
        buffer.writeVarint(number)
        buffer.writeVarint(version)
        buffer.writeInteger(hash)
        buffer.writeTime(time)
      }
    case .membershipQueued(let number, let change):
      writeEffect(.membershipQueued) { $0.writeQueuedChange(number, change) }
    case .membershipsConfirmed(let shard, let number):
      writeEffect(.membershipsConfirmed) { buffer in
        buffer.writeVarint(UInt64(shard.rawValue))
        buffer.writeVarint(number)
      }
    case .membershipsReceived(let shard, let number):
      writeEffect(.membershipsReceived) { buffer in
        buffer.writeVarint(UInt64(shard.rawValue))
        buffer.writeVarint(number)
      }
    case .idsWidened:
      writeEffect(.idsWidened) { _ in }
    case .indexEpochAssigned(let epoch):
      writeEffect(.indexEpochAssigned) { $0.writeVarint(epoch) }
    case .webhookNoted(let key, let until):
      writeEffect(.webhookNoted) { buffer in
        buffer.writeInteger(key)
        buffer.writeTime(until)
      }
    case .tokenRevoked(let revocation): writeEffect(.tokenRevoked) { $0.writeTokenRevocation(revocation) }
    case .consumer(let effect): writeEffect(effect.number) { $0.writeConsumerEffect(effect) }
    case .timerAssigned(let number, let timer):
      writeEffect(.timerAssigned) { buffer in
        buffer.writeVarint(number)
        buffer.writeTimer(timer)
      }
    case .timerRemoved(let number): writeEffect(.timerRemoved) { $0.writeVarint(number) }
    case .pushJob(.assigned(let number, let job)):
      writeEffect(.pushJobAssigned) { buffer in
        buffer.writeVarint(number)
        buffer.writePushJob(job)
      }
    case .pushJob(.removed(let number)): writeEffect(.pushJobRemoved) { $0.writeVarint(number) }
    }
  }

  /// Write a mark, the most frequent effect. Its fields take at most 36 bytes, so its length fits in one byte.
  private mutating func writeMove(
    _ number: EffectNumber,
    channel: ChannelNumber,
    row: MemberOrdinal,
    sequence: SequenceNumber,
    time: Timestamp
  ) {
    writeWithUnsafeMutableBytes(minimumWritableBytes: 40) { target in
      target[0] = number.rawValue
      var offset = 2
      Varint.store(channel.rawValue, in: target, at: &offset)
      Varint.store(UInt64(row.rawValue), in: target, at: &offset)
      Varint.store(UInt64(sequence.rawValue), in: target, at: &offset)
      Varint.store(UInt64(max(0, time.milliseconds)), in: target, at: &offset)
      target[1] = UInt8(offset - 2)
      return offset
    }
  }

  /// Write an effect on a channel: the channel's number comes first.
  private mutating func writeEffect(
    _ number: EffectNumber,
    _ channel: ChannelNumber,
    _ fields: (inout ByteBuffer) -> Void
  ) {
    writeEffect(number) { buffer in
      buffer.writeVarint(channel.rawValue)
      fields(&buffer)
    }
  }

  /// Write an effect on a member's row.
  private mutating func writeEffect(
    _ number: EffectNumber,
    _ channel: ChannelNumber,
    _ row: MemberOrdinal,
    _ fields: (inout ByteBuffer) -> Void
  ) {
    writeEffect(number, channel) { buffer in
      buffer.writeVarint(row.rawValue)
      fields(&buffer)
    }
  }

  /// Write an effect on a message.
  private mutating func writeEffect(
    _ number: EffectNumber,
    _ channel: ChannelNumber,
    _ sequence: SequenceNumber,
    _ fields: (inout ByteBuffer) -> Void
  ) {
    writeEffect(number, channel) { buffer in
      buffer.writeSequence(sequence)
      fields(&buffer)
    }
  }

  private mutating func writeEffect(_ number: EffectNumber, _ fields: (inout ByteBuffer) -> Void) {
    writeByte(number.rawValue)
    let lengthIndex = writerIndex
    writeByte(0)
    fields(&self)
    let length = writerIndex - lengthIndex - 1
    if length < 0x80 {
      overwrite(UInt8(length), at: lengthIndex)
      return
    }
    // A longer length needs more than its reserved byte: move the fields up.
    let bytes = getBytes(at: lengthIndex + 1, length: length) ?? []
    moveWriterIndex(to: lengthIndex)
    writeVarint(length)
    writeBytes(bytes)
  }
}

extension FieldReader {
  /// Read an effect. Throws ``WireError/badValue(_:)`` of `effect` for a kind that this version does not know.
  @_lifetime(self: copy self)
  package mutating func effect() throws(WireError) -> Effect { try effect(isInThread: false) }

  /// - Parameter isInThread: the effect is nested in an effect on a thread. Such an effect must not nest another one;
  ///   the check of the number bounds the recursion.
  @_lifetime(self: copy self)
  private mutating func effect(isInThread: Bool) throws(WireError) -> Effect {
    guard let number = EffectNumber(rawValue: try byte()), !isInThread || number != .inThread else {
      throw .badValue(.effect)
    }
    let length = try varint()
    guard length <= UInt64(remaining) else { throw .truncated }
    let end = offset + Int(length)
    let effect = try fields(of: number)
    guard offset == end else { throw .badValue(.effect) }
    return effect
  }

  @_lifetime(self: copy self)
  private mutating func fields(of number: EffectNumber) throws(WireError) -> Effect {
    switch number {
    case .channelAssigned:
      let channel = try channel()
      let cid = try text()
      let created = try time()
      return .channel(channel, .channelAssigned(cid: cid, created: created, own: try optionPatch()))
    case .optionsChanged:
      return .channel(try channel(), .optionsChanged(at: try time()))
    case .rowAssigned:
      return .channel(try channel(), .rowAssigned(try row(), try rowRecord()))
    case .rowLeft:
      return .channel(try channel(), .rowLeft(try row(), at: try time()))
    case .roleAssigned:
      return .channel(try channel(), .roleAssigned(try row(), role: try text()))
    case .readMoved, .readMovedHidden:
      let channel = try channel()
      let row = try row()
      let sequence = try sequence()
      return .channel(channel, .readMoved(row, to: sequence, at: try time(), isHidden: number == .readMovedHidden))
    case .deliveredMoved, .deliveredMovedHidden:
      let channel = try channel()
      let row = try row()
      let sequence = try sequence()
      let isHidden = number == .deliveredMovedHidden
      return .channel(channel, .deliveredMoved(row, to: sequence, at: try time(), isHidden: isHidden))
    case .deliveredByPushAck, .deliveredByPushAckHidden:
      let channel = try channel()
      let row = try row()
      let sequence = try sequence()
      let logged = try time()
      let acked = try time()
      // The time of the push ack is shown instead of the move's own, so it must exist and be earlier.
      guard acked > .none, acked < logged else { throw .badValue(.effect) }
      let isHidden = number == .deliveredByPushAckHidden
      return .channel(channel, .deliveredByPushAck(row, to: sequence, at: logged, ackedAt: acked, isHidden: isHidden))
    case .markerAssigned:
      let channel = try channel()
      let row = try row()
      let marker = try optional32().map(SequenceNumber.init)
      let epoch = try varint32()
      return .channel(channel, .markerAssigned(row, marker: marker, epoch: epoch, at: try time()))
    case .muteAssigned: return .channel(try channel(), .muteAssigned(try row(), isMuted: try flag()))
    case .unreadFlagAssigned:
      let channel = try channel()
      let row = try row()
      let isSet = try flag()
      let epoch = try varint32()
      return .channel(channel, .unreadFlagAssigned(row, isSet: isSet, epoch: epoch, at: try time()))
    case .messageAssigned:
      let channel = try channel()
      let sequence = try messageSequence()
      guard let flags = UInt8(exactly: try varint()), flags <= MessageRecord.Flags.known else {
        throw .badValue(.flags)
      }
      let id = try text()
      let sender = try text()
      let registered = try time()
      var record = MessageRecord(
        id: id,
        sender: sender,
        flags: MessageRecord.Flags(rawValue: flags),
        registeredAt: registered,
        createdAt: try time()
      )
      if record.flags.contains(.requestsAcknowledgement) { record.acknowledgementExpiresAt = try time() }
      if flags & MessageRecord.Flags.mentions.rawValue != 0 { record.mentions = try mentions() }
      return .channel(channel, .messageAssigned(sequence, record))
    case .messageDeleted: return .channel(try channel(), .messageDeleted(try messageSequence(), at: try time()))
    case .acknowledged:
      let channel = try channel()
      let sequence = try messageSequence()
      let row = try row()
      let flags = try varint()
      guard flags <= 1 else { throw .badValue(.flags) }
      let time = try time()
      let note = try text()
      guard note.utf8.count <= Acknowledgement.noteLengthMax else { throw .badValue(.text) }
      return .channel(
        channel,
        .acknowledged(sequence, Acknowledgement(row: row, at: time, isHidden: flags == 1, note: note))
      )
    case .acknowledgementForgotten:
      return .channel(try channel(), .acknowledgementForgotten(try messageSequence(), try row()))
    case .acknowledgedThrough: return .channel(try channel(), .acknowledgedThrough(try row(), to: try sequence()))
    case .stepsSealed:
      let channel = try channel()
      let rowPage = try rowPage()
      let segment = try varint32()
      let bytes = try string().withUnsafeBytes { Array($0) }
      return .channel(channel, .stepsSealed(rowPage: rowPage, segment: segment, bytes: bytes))
    case .stepTailCut:
      return .channel(try channel(), .stepTailCut(rowPage: try rowPage(), end: try time()))
    case .stepsTrimmed:
      return .channel(try channel(), .stepsTrimmed(rowPage: try rowPage(), first: try varint32()))
    case .stepTailAssigned:
      let channel = try channel()
      let rowPage = try rowPage()
      var record = StepTailRecord(first: try varint32())
      for _ in 0..<(try count()) { record.ends.append(try time()) }
      record.tail = try string().withUnsafeBytes { Array($0) }
      return .channel(channel, .stepTailAssigned(rowPage: rowPage, record))
    case .mentionsAssigned:
      let channel = try channel()
      let sequence = try messageSequence()
      let rows = try risingRows()
      var pending: [UInt64] = []
      for _ in 0..<(try count(elementBytesMin: 8)) {
        let hash = try fixed64()
        guard pending.last.map({ $0 < hash }) ?? true else { throw .badValue(.effect) }
        pending.append(hash)
      }
      return .channel(channel, .mentionsAssigned(sequence, rows: rows, pending: pending))
    case .stepsImported:
      let channel = try channel()
      let rowPage = try rowPage()
      return .channel(channel, .stepsImported(rowPage: rowPage, bytes: try string().withUnsafeBytes { Array($0) }))
    case .typeSettled: return .shard(.typeSettled(name: try text(), version: try varint()))
    case .userAssigned:
      let number = try varint32()
      var settings = try userSettings()
      guard !settings.isErased else { throw .badValue(.flags) }
      settings.appliedAt = try time()
      return .shard(.userAssigned(number, settings))
    case .userSettled: return .shard(.userSettled(try varint32(), version: try varint()))
    case .channelTypeAssigned:
      var record = try channelTypeRecord()
      record.appliedAt = try time()
      return .shard(.channelTypeAssigned(record))
    case .countersAssigned:
      return .shard(.countersAssigned(nextChannel: try channel(), time: try time()))
    case .sessionAssigned:
      return .shard(.sessionAssigned(try sessionRecord()))
    case .inThread:
      let parent = try messageSequence()
      guard case .channel(let channel, let effect) = try effect(isInThread: true), effect.traits.contains(.threadable)
      else { throw .badValue(.effect) }
      return .channel(channel, .inThread(parent, effect))
    case .truncated:
      return .channel(try channel(), .truncated(through: try messageSequence(), at: try time()))
    case .deletionBegun:
      return .channel(try channel(), .deletionBegun)
    case .channelDeleted:
      return .channel(try channel(), .channelDeleted(cid: try text()))
    case .rowErased:
      return .channel(try channel(), .rowErased(try row(), at: try time()))
    case .senderErased:
      return .channel(try channel(), .senderErased(try messageSequence()))
    case .messageCountsAssigned:
      let channel = try channel()
      let newest = try sequence()
      var counts: [UInt32] = []
      let segments = try count()
      let segmentLength = UInt64(PageID.messagesPerSegment)
      // Code that sums the counts relies on this.
      guard UInt64(segments) <= (UInt64(newest.rawValue) + segmentLength - 1) / segmentLength else {
        throw .badValue(.count)
      }
      for _ in 0..<segments {
        let count = try varint32()
        guard count <= PageID.messagesPerSegment else { throw .badValue(.count) }
        counts.append(count)
      }
      return .channel(channel, .messageCountsAssigned(newest: newest, counts))
    case .segmentFlagsAssigned: return .channel(try channel(), .segmentFlagsAssigned(try segmentFlags()))
    case .membershipAssigned:
      return .channel(try channel(), .membershipAssigned(position: try varint32(), try membership()))
    case .membershipRemoved: return .channel(try channel(), .membershipRemoved(position: try varint32()))
    case .userErased:
      let number = try varint32()
      let version = try varint()
      let hash = UInt64(bigEndian: try raw(8).unsafeLoadUnaligned(as: UInt64.self))
      return .shard(.userErased(number, version: version, hash: hash, at: try time()))
    case .membershipQueued:
      let queued = try queuedChange(refusedAs: .effect)
      return .shard(.membershipQueued(queued.number, queued.change))
    case .membershipsConfirmed:
      return .shard(.membershipsConfirmed(by: try shardID(), through: try varint()))
    case .membershipsReceived:
      return .shard(.membershipsReceived(from: try shardID(), through: try varint()))
    case .idsWidened:
      return .shard(.idsWidened)
    case .indexEpochAssigned:
      return .shard(.indexEpochAssigned(try varint()))
    case .webhookNoted:
      return .shard(.webhookNoted(try fixed64(), until: try time()))
    case .tokenRevoked:
      return .shard(.tokenRevoked(try tokenRevocation()))
    case .consumerAssigned, .consumerCommitted, .consumerOpened, .consumerStateAssigned, .consumerWorkersAssigned,
      .consumerRemoved, .feedSwitched, .deletionHeld, .deletionEnded, .namesLost:
      return .shard(.consumer(try consumerEffect(number)))
    case .timerAssigned: return .shard(.timerAssigned(try timerNumber(), try timer()))
    case .timerRemoved: return .shard(.timerRemoved(try timerNumber()))
    case .pushJobAssigned: return .shard(.pushJob(.assigned(try pushJobNumber(), try pushJob())))
    case .pushJobRemoved: return .shard(.pushJob(.removed(try pushJobNumber())))
    }
  }
}

/// The effect numbers of Proto/frames.md, "The log and the pages".
enum EffectNumber: UInt8 {
  case channelAssigned = 1
  case rowAssigned = 2
  case rowLeft = 3
  case roleAssigned = 4
  case readMoved = 5
  case deliveredMoved = 6
  case markerAssigned = 7
  case messageAssigned = 8
  case messageDeleted = 9
  case readMovedHidden = 10
  case deliveredMovedHidden = 11
  case optionsChanged = 12
  case deliveredByPushAck = 13
  case deliveredByPushAckHidden = 14
  case channelTypeAssigned = 16
  case countersAssigned = 17
  case sessionAssigned = 18
  case typeSettled = 19
  case webhookNoted = 20
  case idsWidened = 21
  case tokenRevoked = 22
  case consumerAssigned = 23
  case consumerCommitted = 24
  case consumerOpened = 25
  case consumerStateAssigned = 26
  case consumerWorkersAssigned = 27
  case consumerRemoved = 28
  case feedSwitched = 29
  case deletionHeld = 30
  case deletionEnded = 31
  case acknowledged = 32
  case acknowledgementForgotten = 33
  case acknowledgedThrough = 34
  case stepsSealed = 35
  case stepTailCut = 36
  case stepsTrimmed = 37
  case stepTailAssigned = 38
  case truncated = 39
  case channelDeleted = 40
  case inThread = 41
  case rowErased = 42
  case senderErased = 43
  case messageCountsAssigned = 44
  case membershipAssigned = 45
  case membershipRemoved = 46
  case deletionBegun = 47
  case userAssigned = 48
  case userSettled = 49
  case userErased = 50
  case timerAssigned = 51
  case timerRemoved = 52
  case pushJobAssigned = 53
  case pushJobRemoved = 54
  case namesLost = 55
  case segmentFlagsAssigned = 58
  case muteAssigned = 59
  case unreadFlagAssigned = 60
  case membershipQueued = 64
  case membershipsConfirmed = 65
  case membershipsReceived = 66
  case indexEpochAssigned = 67
  case mentionsAssigned = 70
  case stepsImported = 71
}
