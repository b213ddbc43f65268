import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine

/// Storage in memory, open to be damaged.
///
/// `@unchecked Sendable`: a test has one thread.
final class MemoryStorage: StorageEngine, @unchecked Sendable {
  var log: [ShardID: [UInt64: ByteBuffer]] = [:]
  var pages: [PageKey: ByteBuffer] = [:]
  var directory: [[UInt8]: ChannelNumber] = [:]
  /// Called before pages are read one by one: what happens between them.
  var beforePages: (PageSelection) -> Void = { _ in }

  func commit(_ group: CommitGroup) throws(StorageError) {
    for batch in group.batches { log[batch.shard, default: [:]][batch.index.rawValue] = batch.bytes }
    for drop in group.drops {
      for key in pages.keys where key.shard == drop.shard && key.channel == drop.channel { pages[key] = nil }
      if directory[drop.cid] == drop.channel { directory[drop.cid] = nil }
    }
    for page in group.pages {
      pages[page.key] = page.bytes
      if let cid = page.cid { directory[cid] = page.key.channel }
    }
    for cut in group.cuts { log[cut.shard] = log[cut.shard]?.filter { $0.key > cut.through.rawValue } }
    for trim in group.trims {
      for segment in pages.keys.filter({ $0.shard == trim.shard && $0.channel == trim.channel }) {
        if case .steps(trim.rowPage, let number) = segment.page, number < trim.before { pages[segment] = nil }
      }
    }
  }

  func read(_ shard: ShardID, _ channel: ChannelReference) throws(StorageError) -> StoredChannel? {
    var number = ChannelNumber(0)
    switch channel {
    case .number(let asked), .head(let asked): number = asked
    case .cid(let cid):
      guard let found = directory[cid] else { return nil }
      number = found
    }
    if case .head = channel {
      let head = pages[PageKey(shard: shard, channel: number, page: .head)]
      return head.map { StoredChannel(number: number, pages: [(page: .head, bytes: $0)]) }
    }
    let found = pages.filter { $0.key.shard == shard && $0.key.channel == number && !$0.key.page.isOfSteps }
      .sorted { $0.key.page.sortKey < $1.key.page.sortKey }
    if found.isEmpty { return nil }
    return StoredChannel(number: number, pages: found.map { (page: $0.key.page, bytes: $0.value) })
  }

  func readPages(
    _ shard: ShardID,
    _ channel: ChannelReference,
    _ selection: PageSelection
  ) throws(StorageError) -> StoredChannel? {
    beforePages(selection)
    var number = ChannelNumber(0)
    switch channel {
    case .number(let asked), .head(let asked): number = asked
    case .cid(let cid):
      guard let found = directory[cid] else { return nil }
      number = found
    }
    switch selection {
    case .pages(let asked):
      let found = asked.compactMap { page in
        pages[PageKey(shard: shard, channel: number, page: page)].map { (page: page, bytes: $0) }
      }
      return StoredChannel(number: number, pages: found)
    case .threads(let pagesMax):
      let found = pages.filter {
        $0.key.shard == shard && $0.key.channel == number && $0.key.page.isOfThread
      }
      .sorted { $0.key.page.sortKey < $1.key.page.sortKey }
      .prefix(pagesMax)
      return StoredChannel(number: number, pages: found.map { (page: $0.key.page, bytes: $0.value) })
    }
  }

  func readSteps(
    _ shard: ShardID,
    _ channel: ChannelNumber,
    rowPage: UInt32,
    segments: Range<UInt32>
  ) throws(StorageError) -> [StoredSegment] {
    segments.compactMap { segment in
      let key = PageKey(shard: shard, channel: channel, page: .steps(rowPage, segment))
      return pages[key].map { StoredSegment(rowPage: rowPage, segment: segment, bytes: $0) }
    }
  }

  /// Purges so far.
  private(set) var purges = 0
  func purge() throws(StorageError) { purges += 1 }

  func recover(_ shard: ShardID) throws(StorageError) -> StoredShard {
    let own = pages.filter { $0.key.shard == shard && $0.key.channel == ChannelNumber(0) }
      .sorted { $0.key.page.sortKey < $1.key.page.sortKey }
    let batches = log[shard, default: [:]].sorted { $0.key < $1.key }
    return StoredShard(
      pages: own.map { (page: $0.key.page, bytes: $0.value) },
      log: batches.map { (index: LogIndex($0.key), bytes: $0.value) }
    )
  }
}

/// One store loop whose commits and reads are done, and whose changes of memberships arrive, when a test says so.
final class EngineWorld: StoreLoopDriver {
  let storage: MemoryStorage
  private(set) var loop: StoreLoop!
  /// Asked for and not answered.
  var commits: [CommitGroup] = []
  var loads: [(request: LoadRequest, reference: ChannelReference)] = []
  /// Reads of steps, asked for and not answered.
  var stepReads: [StepRequest] = []
  /// Purges of the storage, asked for and not carried out.
  private(set) var purges = 0
  /// Changes of memberships and acknowledgements that have left and not arrived.
  var deliveries: [MembershipDelivery] = []
  var acknowledgements: [MembershipAcknowledgement] = []
  /// Peeks, asked for and not answered.
  var peeks: [StorageReadRequest] = []
  /// Users whom the ledger of erasures is to note, asked for and not answered; nil: there is no ledger.
  var erasures: [ErasureRequest]?
  /// Slices, asked for and not carried out.
  private(set) var slices = 0
  private(set) var reports: [StorageError] = []
  private(set) var halts: [StorageError] = []
  /// Every commit that was asked for, in words.
  private(set) var asked: [String] = []
  var clock: Int64 = 1_000

  init(
    _ storage: MemoryStorage = MemoryStorage(),
    shards: [UInt16] = [0],
    of shardCount: Int = 1,
    configure: (inout StoreLoopConfiguration) -> Void = { _ in }
  ) throws(StorageError) {
    self.storage = storage
    var configuration = StoreLoopConfiguration()
    // Replies wait for the index only in tests of the index.
    configuration.indexWaitMilliseconds = 0
    // And requests for a slice only in tests of that.
    configuration.entriesPerTurn = .max
    configure(&configuration)
    var stored: [(shard: ShardID, state: StoredShard)] = []
    for shard in shards { stored.append((ShardID(shard), try storage.recover(ShardID(shard)))) }
    loop = try StoreLoop(configuration: configuration, shardCount: shardCount, stored: stored, driver: self)
    loop.clock = Timestamp(milliseconds: clock)
  }

  func commit(_ group: CommitGroup) {
    commits.append(group)
    let indices = group.batches.map { "\($0.index.rawValue)" }.joined(separator: ",")
    let cuts = group.cuts.map { " cut \($0.through.rawValue)" }.joined()
    let drops = group.drops.map { " drop \($0.channel.rawValue)" }.joined()
    asked.append("batches [\(indices)] pages \(group.pages.count)\(cuts)\(drops)")
  }

  func load(_ request: LoadRequest, as reference: ChannelReference) { loads.append((request, reference)) }
  func readSteps(_ request: StepRequest) { stepReads.append(request) }
  func deliver(_ deliveries: [MembershipDelivery]) { self.deliveries += deliveries }
  func acknowledge(_ acknowledgements: [MembershipAcknowledgement]) {
    self.acknowledgements += acknowledgements
  }
  func peek(_ request: StorageReadRequest) { peeks.append(request) }
  func sliceLater() { slices += 1 }
  var keepsErasureLedger: Bool { erasures != nil }
  func recordErasure(_ request: ErasureRequest) { erasures?.append(request) }
  func purge() { purges += 1 }
  func reports(_ error: StorageError) { reports.append(error) }
  func halted(_ error: StorageError) { halts.append(error) }

  // MARK: What a test does

  /// The oldest commit is on storage.
  func persist() throws {
    let group = commits.removeFirst()
    try storage.commit(group)
    loop.committed(.success(()))
  }

  func persistAll() throws { while !commits.isEmpty { try persist() } }

  func fail() {
    commits.removeFirst()
    loop.committed(.failure(.failed("no space")))
  }

  /// Answers the oldest read, or the one with this reference.
  func answerLoad(_ reference: ChannelReference? = nil, failing: Bool = false) throws {
    let place = reference.map { wanted in loads.firstIndex { $0.reference == wanted }! } ?? 0
    let (request, asked) = loads.remove(at: place)
    if failing {
      loop.loaded(request, as: asked, .failure(.failed("bad sector")))
    } else {
      loop.loaded(request, as: asked, .success(try storage.read(request.shard, request.channel)))
    }
  }

  func answerLoads() throws { while !loads.isEmpty { try answerLoad() } }

  /// Answers the oldest read of steps.
  func answerSteps(failing: Bool = false) throws {
    let request = stepReads.removeFirst()
    var found: [StoredSegment] = []
    for range in request.ranges {
      found += try storage.readSteps(
        request.shard,
        request.channel,
        rowPage: range.rowPage,
        segments: range.segments
      )
    }
    loop.stepsRead(request, failing ? .failure(.failed("bad sector")) : .success(found))
  }

  /// The ledger has noted the oldest user, or could not.
  func answerErasure(fault: String? = nil) {
    guard let request = erasures?.first else { return }
    erasures?.removeFirst()
    loop.erasureRecorded(request, fault: fault)
  }

  /// Carries out the purge of the storage that was asked for.
  func purgeStorage(failing: Bool = false) throws {
    purges -= 1
    if !failing { try storage.purge() }
    loop.purged(failing ? .failure(.failed("bad sector")) : .success(()))
  }

  /// The place in storage of everything that names a user: log batches and pages of shard 0, decoded.
  func traces(_ user: String) throws -> [String] {
    var found: [String] = []
    for (index, bytes) in storage.log[ShardID(0), default: [:]] {
      let batch = try LogBatch(bytes.readableBytesSpan)
      if "\(batch.effects)".contains("\"\(user)\"") { found.append("log \(index)") }
    }
    for (key, bytes) in storage.pages {
      let page = try Page(bytes.readableBytesSpan)
      if "\(page.effects)".contains("\"\(user)\"") { found.append("\(key.page) of \(key.channel.rawValue)") }
    }
    return found.sorted()
  }

  /// What has left for shards of this loop arrives, in order.
  func arrive() {
    let (changes, taken) = (deliveries, acknowledgements)
    deliveries = []
    acknowledgements = []
    if !changes.isEmpty { loop.receive(changes) }
    if !taken.isEmpty { loop.acknowledged(taken) }
  }

  /// Until everything is on storage and in the indexes, and nothing waits.
  func settle() throws {
    while !commits.isEmpty || !loads.isEmpty || !deliveries.isEmpty || !acknowledgements.isEmpty || slices > 0
    {
      try persistAll()
      try answerLoads()
      arrive()
      if slices > 0 { slice() }
    }
  }

  /// Answers the oldest peek.
  func answerPeek() {
    let request = peeks.removeFirst()
    loop.peeked(request, request.perform(on: storage))
  }

  /// Carries out the slice that was asked for.
  func slice() {
    slices -= 1
    loop.slice()
  }

  func pass(_ milliseconds: Int64) {
    clock += milliseconds
    loop.clock = Timestamp(milliseconds: clock)
  }

  /// Until nothing is left to write, and the log is cut.
  func checkpoint() throws {
    for _ in 0..<20 {
      pass(10_000)
      loop.tick()
      try answerLoads()
      try persistAll()
    }
  }

  func connect(session: UInt64 = 1, serial: UInt64 = 0) -> Gateway {
    Gateway(self, session: SessionID(high: 0, low: session), serial: serial)
  }
}

/// A connection, its requests, and its replies in words.
final class Gateway {
  unowned let world: EngineWorld
  private(set) var lane: ReplyLane!
  var counter: UInt64 = 0
  private var correlation: UInt32 = 0
  /// The correlation of the request sent last.
  var sent: UInt32 { correlation }
  private(set) var replies: [String] = []
  private(set) var ended: [WireError] = []
  /// The fields of the reply that came last.
  private(set) var lastPayload = ByteBuffer()

  init(_ world: EngineWorld, session: SessionID, serial: UInt64) {
    self.world = world
    lane = ReplyLane(
      session: session,
      serial: serial,
      shards: world.loop.shardCount,
      deliver: { [unowned self] bytes, _ in self.delivered(bytes) },
      end: { [unowned self] error in self.ended.append(error) }
    )
  }

  /// What came since the last look, in words.
  func take() -> [String] {
    defer { replies = [] }
    return replies
  }

  /// Called when replies are handed over, as a failing write calls back.
  var whenDelivered: () -> Void = {}

  /// Its socket takes nothing.
  var isSlow = false

  private func delivered(_ bytes: ByteBuffer) {
    whenDelivered()
    if !isSlow { lane.account.wrote(bytes.readableBytes) }
    let decoder = FrameDecoder()
    var offset = 0
    while case .frame(let header, let count)? = try? decoder.next(bytes.readableBytesSpan, at: offset) {
      let start = offset + FrameHeader.byteCount
      offset = start + count
      lastPayload = bytes.getSlice(at: bytes.readerIndex + start, length: count)!
      if header.kind == .events {
        replies.append(EventWords.frame(bytes.readableBytesSpan.extracting(start..<offset)))
        continue
      }
      replies.append(
        "\(header.correlation) \(Self.words(header, bytes.readableBytesSpan.extracting(start..<offset)))"
      )
    }
  }

  private static func words(_ header: FrameHeader, _ payload: RawSpan) -> String {
    var reader = FieldReader(payload)
    do {
      switch header.kind {
      case .error:
        let error = try ErrorFrame(payload)
        return error.code?.name ?? "code \(error.rawCode)"
      case .markReadReply, .markUnreadReply, .markDeliveredReply:
        let row = try RowFields(&reader)
        let uncounted = reader.remaining > 0 ? " uncounted \(try reader.byte())" : ""
        return "row read \(row.lastReadSequence.rawValue) unread \(row.unreadMessages)\(uncounted)"
      case .registerMessageReply:
        let isNew = try reader.byte() == 1
        let sequence = try reader.sequence().rawValue
        _ = try reader.byte()
        let refusal = ["", " over the limit", " not allowed"][Int(try reader.byte())]
        return "message \(sequence)\(isNew ? " new" : "")\(refusal)"
      case .acknowledgeReply:
        let codes = try (0..<(try reader.count())).map { _ in try reader.varint() }
        return "acknowledged "
          + codes.map { ErrorCode(rawValue: UInt16($0))?.name ?? "ok" }.joined(separator: " ")
      case .deleteMessageReply:
        return "deleted \(try reader.sequence().rawValue)"
      case .putChannelReply:
        let isNew = try reader.byte() == 1
        return "channel of \(try ChannelFields(&reader).memberCount)\(isNew ? " new" : "")"
      case .deleteChannelReply:
        return try reader.byte() == 1 ? "channel deleted" : "no channel"
      case .eraseMemberReply:
        return try reader.byte() == 1 ? "erased" : "not known"
      case .purgeReply:
        let round = try reader.varint()
        try reader.end()
        return round == 0 ? "purged" : "round \(round)"
      case .changeMembersReply, .getChannelReply, .truncateChannelReply:
        return "channel of \(try ChannelFields(&reader).memberCount)"
      case .setMemberReply:
        let hasJoined = try reader.byte() == 1
        let member = try SetMemberFields(&reader)
        return "member\(hasJoined ? " joined" : "")\(member.isMuted ? " muted" : "")"
      case .patchChannelTypeReply, .assignChannelTypeReply, .getChannelTypeReply:
        let type = try reader.channelTypeRecord()
        return
          "type \(type.name) version \(type.version)\(type.options.readEvents ? "" : " without read events")"
      case .patchUserReply, .assignUserReply, .getUserReply:
        return "user \(try userWords(&reader))"
      case .settleReply:
        return try reader.byte() == 1 ? "settled" : "not settled"
      case .listUnsettledReply:
        var types: [String] = []
        for _ in 0..<(try reader.count()) { types.append(try reader.channelTypeRecord().name) }
        var users: [String] = []
        for _ in 0..<(try reader.count()) { users.append(try reader.userSettings().user) }
        return "unsettled types \(types) users \(users)"
      case .listChannelTypesReply:
        return "\(try reader.count()) types"
      case .readStateReply:
        return "\(try reader.count()) rows"
      case .statusesReply:
        let count = try reader.count()
        var receipts: [String] = []
        for _ in 0..<count where try reader.byte() == 0 { receipts.append("\(try reader.status().receipt)") }
        let tells = receipts.contains { $0 != "none" }
        return tells ? "receipts \(receipts.joined(separator: " "))" : "\(count) statuses"
      case .listMembersReply:
        return try listWords(&reader)
      case .memberStatusesReply:
        return try memberWords(&reader)
      case .unreadCountsReply:
        var words: [String] = []
        for _ in 0..<(try reader.count()) {
          switch try UnreadCountFields(&reader) {
          case .found(let counts):
            let flags = (counts.isFlagged ? " flagged" : "") + (counts.isMuted ? " muted" : "")
            let mentions = counts.mentions == 0 ? "" : " mentions \(counts.mentions)"
            words.append("\(counts.messages)/\(counts.threads)\(mentions)\(flags)")
          case .refused(let code): words.append(code.name)
          }
        }
        try reader.end()
        return "unread \(words.joined(separator: " "))"
      case .listChannelsReply:
        return try channelWords(&reader)
      case .rebuildIndexReply:
        let fields = try RebuildFields(&reader)
        return
          "rebuild \(fields.phase) epoch \(fields.epoch), \(fields.channelsDone) of \(fields.channels), \(fields.entries) entries"
      case .subscribeReply:
        return EventWords.subscribed(payload)
      case .unsubscribeReply, .announceRowReply:
        try reader.end()
        return header.kind == .unsubscribeReply ? "unsubscribed" : "announced"
      case .ticketPlaceReply:
        let place = try reader.ticketPlace()
        try reader.end()
        let parent = place.parent.map { " of a reply to \($0.rawValue)" } ?? ""
        return
          "ticket channel \(place.channel.rawValue) row \(place.row.rawValue) message \(place.sequence.rawValue)\(parent)"
      case .acknowledgePushReply, .redeemTicketReply:
        return try deliveryWords(&reader)
      case .webhookKnownReply:
        return try reader.byte() == 1 ? "known" : "not known"
      case .noteWebhookReply:
        return try reader.byte() == 1 ? "noted" : "was known"
      case .revokeTokenReply, .getTokenReply:
        let state = try TokenStateFields(&reader)
        try reader.end()
        return state.until == .none ? "not revoked" : "revoked until \(state.until.milliseconds)"
      case .listRevokedTokensReply:
        let list = try RevokedTokenListFields(&reader)
        try reader.end()
        let ids = list.revocations.map { " \($0.id)" }.joined()
        return
          "tokens\(ids) of version \(list.version)\(list.isAnew ? " anew" : "")\(list.hasMore ? " and more" : "")"
      case .subscribeUserReply:
        let through = try reader.time().milliseconds
        try reader.end()
        return "user subscribed through \(through)"
      default:
        return "kind \(header.kind.rawValue)"
      }
    } catch {
      return "does not parse: \(error)"
    }
  }

  private static func deliveryWords(_ reader: inout FieldReader) throws(WireError) -> String {
    let delivery = try DeliveryFields(&reader)
    let names = [
      delivery.cid.withUnsafeBytes { String(decoding: $0, as: UTF8.self) },
      delivery.user.withUnsafeBytes { String(decoding: $0, as: UTF8.self) },
      delivery.message.withUnsafeBytes { String(decoding: $0, as: UTF8.self) },
    ]
    let times = "sent \(delivery.sent.milliseconds) delivered \(delivery.delivered.milliseconds)"
    try reader.end()
    return ([delivery.moved ? "moved" : "same", times] + names.filter { !$0.isEmpty })
      .joined(separator: " ")
  }

  private static func userWords(_ reader: inout FieldReader) throws(WireError) -> String {
    let settings = try reader.userSettings()
    var words = "\(settings.user) version \(settings.version)"
    if settings.hidesRead { words += " hides read" }
    if settings.hidesDelivered { words += " hides delivered" }
    if settings.isErasing { words += " erasing" }
    if settings.isErased { words += " erased" }
    if settings.readShownSince != .none { words += " since \(settings.readShownSince.milliseconds)" }
    if settings.tokensRevokedBefore != .none {
      words += " revoked \(settings.tokensRevokedBefore.milliseconds)"
    }
    return words
  }

  private static func listWords(_ reader: inout FieldReader) throws(WireError) -> String {
    var words: [String] = []
    for _ in 0..<(try reader.count()) {
      let entry = try ListEntryFields(&reader)
      let user = entry.user.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
      words.append(user + (entry.at == .none ? "" : "@\(entry.at.milliseconds)"))
    }
    let next = try reader.text()
    // The first page says how many there are.
    let total = reader.remaining > 0 ? Int(try reader.varint()) : words.count
    try reader.end()
    if words.isEmpty { words = ["nobody"] }
    if total != words.count, words != ["nobody"] || total > 0 { words.append("of \(total)") }
    return (words + (next.isEmpty ? [] : ["+ \(next)"])).joined(separator: " ")
  }

  private static func channelWords(_ reader: inout FieldReader) throws(WireError) -> String {
    var words: [String] = []
    for _ in 0..<(try reader.count()) {
      let entry = try ChannelEntryFields(&reader)
      let isGone = entry.row == nil && entry.deletedAt != .none
      var word = entry.cid + (entry.isMember || isGone ? "" : entry.row == nil ? " (sent)" : " (left)")
      if entry.deletedAt != .none {
        word += " (\(isGone ? "" : "new since ")deleted \(entry.deletedAt.milliseconds))"
      }
      words.append(word)
    }
    let next = try reader.optional32()
    try reader.end()
    return (words.isEmpty ? "no channels" : words.joined(separator: ", ")) + (next.map { " + \($0)" } ?? "")
  }

  private static func memberWords(_ reader: inout FieldReader) throws(WireError) -> String {
    var words: [String] = []
    for _ in 0..<(try reader.count()) {
      let member = try MemberStatusFields(&reader)
      let user = member.user.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
      let code = ErrorCode(rawValue: UInt16(member.code))?.name ?? ""
      words.append("\(user) \(member.status.map { "\($0.status)" } ?? code)")
    }
    try reader.end()
    return words.joined(separator: ", ")
  }

  // MARK: Requests

  /// Sends one request with the next correlation, and the next counter unless one is given. The turn goes on.
  func send(
    _ kind: FrameKind,
    _ name: String?,
    counter given: UInt64? = nil,
    shard: UInt16 = 0,
    issued: UInt32? = nil,
    thread: String? = nil,
    hasThreadFlag: Bool = false,
    _ fields: (inout ByteBuffer) -> Void = { _ in }
  ) {
    correlation += 1
    var payload = ByteBuffer()
    if let name { payload.writeField(name) }
    if kind.isCommand {
      if given == nil { counter += 1 }
      payload.writeVarint(given ?? counter)
    }
    fields(&payload)
    if let thread { payload.writeField(thread) }
    if let issued { payload.writeInteger(issued) }
    var flags: FrameHeader.Flags = []
    if issued != nil { flags.insert(.issued) }
    if thread != nil || hasThreadFlag { flags.insert(.thread) }
    let header = FrameHeader(
      kind,
      flags: flags,
      shard: ShardID(shard),
      correlation: correlation
    )
    do {
      try world.loop.receive(header, payload.readableBytesSpan, lane: lane)
    } catch {
      lane.fail(error)
    }
  }

  func put(_ cid: String, _ users: [String] = [], counter: UInt64? = nil, shard: UInt16 = 0) {
    send(.putChannel, cid, counter: counter, shard: shard) { payload in
      payload.writeOptionPatch(OptionPatch())
      Self.write(users, into: &payload)
    }
  }

  func change(
    _ cid: String,
    add: [String] = [],
    remove: [String] = [],
    counter: UInt64? = nil,
    shard: UInt16 = 0
  ) {
    send(.changeMembers, cid, counter: counter, shard: shard) { payload in
      Self.write(add, into: &payload)
      payload.writeVarint(remove.count)
      for user in remove { payload.writeField(user) }
    }
  }

  private static func write(_ users: [String], into payload: inout ByteBuffer) {
    payload.writeVarint(users.count)
    for user in users {
      payload.writeField(user)
      payload.writeEmptyField()
    }
  }

  func post(
    _ cid: String,
    _ id: String,
    by sender: String = "",
    flags: UInt64 = 0,
    mentions: [String] = [],
    counter: UInt64? = nil,
    shard: UInt16 = 0
  ) {
    send(.registerMessage, cid, counter: counter, shard: shard) { payload in
      payload.writeField(id)
      payload.writeField(sender)
      payload.writeTime(.none)
      payload.writeVarint(flags)
      guard flags & 24 == 16 else { return }
      payload.writeVarint(mentions.count)
      for user in mentions { payload.writeField(user) }
    }
  }

  func read(_ cid: String, _ user: String, _ message: String = "", counter: UInt64? = nil) {
    send(.markRead, cid, counter: counter) { payload in
      payload.writeField(user)
      payload.writeField(message)
      payload.writeVarint(0)
    }
  }

  func list(
    _ user: String,
    flags: UInt64 = 1,
    limit: UInt64 = 1_000,
    from cursor: UInt64? = nil,
    since: Int64? = nil,
    shard: UInt16 = 0
  ) {
    send(.listChannels, user, shard: shard) { payload in
      payload.writeVarint(flags)
      payload.writeVarint(limit)
      payload.writeOptional(cursor)
      if let since { payload.writeTime(Timestamp(milliseconds: since)) }
    }
  }

  func rebuild(_ phase: UInt8, epoch: UInt64, shard: UInt16 = 0) {
    send(.rebuildIndex, nil, shard: shard) { payload in
      payload.writeInteger(phase)
      payload.writeVarint(epoch)
    }
  }

  func look(_ cid: String) { send(.getChannel, cid) }

  func delete(_ cid: String, _ id: String) { send(.deleteMessage, cid) { $0.writeField(id) } }
  func end(_ cid: String, counter: UInt64? = nil, shard: UInt16 = 0) {
    send(.deleteChannel, cid, counter: counter, shard: shard)
  }
  func truncate(_ cid: String, before message: String = "", counter: UInt64? = nil) {
    send(.truncateChannel, cid, counter: counter) { $0.writeField(message) }
  }
  func erase(_ cid: String, _ user: String, counter: UInt64? = nil, shard: UInt16 = 0) {
    send(.eraseMember, cid, counter: counter, shard: shard) { $0.writeField(user) }
  }
  func purge(_ round: UInt64 = 0, shard: UInt16 = 0) {
    send(.purge, nil, shard: shard) { $0.writeVarint(round) }
  }

  /// Begins erasing a user.
  func patchErasing(_ user: String, counter: UInt64? = nil) {
    send(.patchUser, user, counter: counter) { payload in
      payload.writeVarint(UInt64(8))
      payload.writeVarint(UInt64(0))
      payload.writeTime(.none)
    }
  }

  /// 4 in `flags`: the user is being erased; 8: is erased.
  func assign(user: String, version: UInt64, flags: UInt64, shard: UInt16 = 0) {
    send(.assignUser, user, shard: shard) { payload in
      payload.writeVarint(version)
      payload.writeVarint(flags)
      for _ in 0..<3 { payload.writeTime(.none) }
    }
  }

  func patch(_ type: String, readEvents: Bool, counter: UInt64? = nil) {
    var patch = OptionPatch()
    patch.readEvents = readEvents
    send(.patchChannelType, type, counter: counter) { $0.writeOptionPatch(patch) }
  }

  func assign(_ type: String, version: UInt64, readEvents: Bool) {
    send(.assignChannelType, type) { payload in
      payload.writeVarint(version)
      var options = ChannelTypeOptions()
      options.readEvents = readEvents
      payload.writeOptions(options)
    }
  }
}

/// A world with one channel `team:a` of alice and bob, everything on storage, and the gateway that made it.
func settledWorld(
  configure: (inout StoreLoopConfiguration) -> Void = { _ in }
) throws -> (world: EngineWorld, gateway: Gateway) {
  let world = try EngineWorld(configure: configure)
  let gateway = world.connect()
  gateway.put("team:a", ["alice", "bob"])
  world.loop.endTurn()
  try world.answerLoads()
  try world.persistAll()
  _ = gateway.take()
  return (world, gateway)
}
