internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Requests for channel types and users' settings. Every shard has this state; a home shard versions it
/// (Proto/frames.md, "Requests") and keeps which of its users the other shards may not have yet.
final class ShardSettings: ShardPart {
  /// Numbers of the users of this home shard whose latest settings may be missing in other shards.
  private var unsettledUsers: Set<UInt32> = []
  /// Id of the last erasure that the ledger was asked to record.
  private var lastErasureID: UInt32 = 0

  /// Highest version that a request may assign. Versions rise by one, so the largest integer would leave none for the
  /// next change.
  private static let versionMax = UInt64(1) << 62
  private static let versionRange = "version: at most \(versionMax)"

  // MARK: Channel types

  func listChannelTypes(_ request: inout Request) throws(WireError) -> Outcome {
    try request.fields.end()
    let records = shard.state.types.setRecords.sorted { $0.name < $1.name }
    return shard.reply(request, shard.replyTiming(shard.dirty.typesLast)) {
      $0.writeChannelTypeRecords(records)
    }
  }

  func getChannelType(_ request: inout Request) throws(WireError) -> Outcome {
    guard let name = try Self.typeName(&request) else { return Self.refusedTypeName }
    try request.fields.end()
    return replyType(request, name)
  }

  func patchChannelType(_ request: inout Request) throws(WireError) -> Outcome {
    guard let name = try Self.typeName(&request) else { return Self.refusedTypeName }
    try shard.begin(&request)
    let patch = try request.fields.optionPatch()
    try request.fields.end()
    guard shard.state.types.record(name).version > 0 || shard.state.types.hasRoom else {
      return shard.refused(.limitReached(.channelTypes), nil)
    }
    shard.state.types.decidePatch(name, patch, at: shard.advanceTime(), into: &request.effects)
    shard.applyCommand(nil, request)
    return replyType(request, name)
  }

  func assignChannelType(_ request: inout Request) throws(WireError) -> Outcome {
    guard let name = try Self.typeName(&request) else { return Self.refusedTypeName }
    try shard.begin(&request)
    let fields = try AssignChannelTypeRequest(&request.fields)
    guard fields.version <= Self.versionMax else {
      return .refused(.invalidField, Self.versionRange)
    }
    let record = ChannelTypeRecord(name: name, version: fields.version, options: fields.options)
    shard.state.types.decideAssign(record, at: shard.advanceTime(), into: &request.effects)
    shard.applyCommand(nil, request)
    return replyType(request, name)
  }

  /// Read the name of a channel type; nil if it is not valid.
  private static func typeName(_ request: inout Request) throws(WireError) -> String? {
    let name = try request.fields.text()
    return ShardEngine.isValid(name, Identifier.isType) ? name : nil
  }

  private static var refusedTypeName: Outcome { .refused(.invalidField, typeRange) }
  private static let typeRange = "type: 1 to 64 of A-Z a-z 0-9 _ -"

  private func replyType(_ request: borrowing Request, _ name: String) -> Outcome {
    shard.reply(request, shard.replyTiming(shard.dirty.typesLast)) {
      $0.writeChannelTypeRecord(shard.state.types.record(name))
    }
  }

  // MARK: Users' settings

  func patchUser(_ request: inout Request) throws(WireError) -> Outcome {
    let name = try request.fields.string()
    try shard.begin(&request)
    let fields = try PatchUserRequest(&request.fields)
    let (given, values) = (fields.given, fields.values)
    var fault: String?
    if !Identifier.isUser(name) {
      fault = "\(Identifier.userRange)"
    } else if given > PatchUserRequest.erase {
      fault = "given: 1 (read receipts), 2 (delivery receipts), 4 (tokens revoked before) and their sums, or 8 (erase)"
    } else if values & ~(given & (PatchUserRequest.readReceipts | PatchUserRequest.deliveryReceipts)) != 0 {
      fault = "values: only bits that are set in given"
    } else if given & PatchUserRequest.tokensRevoked == 0, fields.tokensRevokedBefore != .none {
      fault = "tokens revoked before: must be 0 unless given includes 4"
    }
    if let fault { return .refused(.invalidField, fault) }
    guard shard.isHome(name) else { return Self.refusedElsewhere }
    guard !shard.isRevoked(name, request) else { return shard.refused(.tokenRevoked, nil) }
    let user = ShardEngine.text(name)
    guard given != PatchUserRequest.erase else {
      if request.isDuplicate || !shard.loop.driver.keepsErasureLedger {
        return beginErasing(&request, user)
      }
      return recordErasure(request, user)
    }
    guard !shard.state.settings.isErasing(name) else { return shard.refused(.userErased, nil) }
    let patch = UserSettingsPatch(
      showsRead: fields.shows(PatchUserRequest.readReceipts),
      showsDelivered: fields.shows(PatchUserRequest.deliveryReceipts),
      tokensRevokedBefore: given & PatchUserRequest.tokensRevoked == 0 ? nil : fields.tokensRevokedBefore
    )
    shard.state.settings.decidePatch(user, patch, at: shard.advanceTime(), into: &request.effects)
    shard.applyCommand(nil, request)
    recordUnsettled(user)
    return replySettings(request, user)
  }

  /// Begin to erase a user.
  private func beginErasing(_ request: inout Request, _ user: String) -> Outcome {
    shard.state.settings.decideBeginErasure(user, at: shard.advanceTime(), into: &request.effects)
    shard.state.pushJobs.decideErase(Array(user.utf8), into: &request.effects)
    shard.applyCommand(nil, request)
    recordUnsettled(user)
    return replySettings(request, user, isErasing: true)
  }

  func assignUser(_ request: inout Request) throws(WireError) -> Outcome {
    let name = try request.fields.string()
    try shard.begin(&request)
    let fields = try AssignUserRequest(&request.fields)
    let (version, flags) = (fields.version, fields.flags)
    var fault: String?
    if !Identifier.isUser(name) {
      fault = "\(Identifier.userRange)"
    } else if version > Self.versionMax {
      fault = Self.versionRange
    } else if !flags.isValid {
      fault =
        "flags: 1 (hides read receipts), 2 (hides delivery receipts), 4 (is being erased) and their sums, "
        + "or 8 (is erased)"
    }
    if let fault { return .refused(.invalidField, fault) }
    let user = ShardEngine.text(name)
    let time = shard.advanceTime()
    guard flags != .erased else {
      let number = shard.state.settings.find(user)
      shard.state.settings.decideFinishErasure(user, version: version, at: time, into: &request.effects)
      shard.applyCommand(nil, request)
      // They still have the user's id.
      if !request.isDuplicate { shard.deletions.endAllHolds() }
      if let number, shard.state.settings.isNameless(number) { unsettledUsers.remove(number) }
      return replySettings(request, user)
    }
    let settings = UserSettings(
      user: user,
      version: version,
      hidesRead: flags.contains(.hidesRead),
      hidesDelivered: flags.contains(.hidesDelivered),
      readShownSince: fields.readShownSince,
      deliveredShownSince: fields.deliveredShownSince,
      tokensRevokedBefore: fields.tokensRevokedBefore,
      isErasing: flags.contains(.erasing)
    )
    shard.state.settings.decideAssign(settings, at: time, into: &request.effects)
    // Not by an assignment that is older than the settings.
    if settings.isErasing, !request.effects.isEmpty {
      shard.state.pushJobs.decideErase(Array(user.utf8), into: &request.effects)
    }
    shard.applyCommand(nil, request)
    if shard.isHome(name) { recordUnsettled(user) }
    return replySettings(request, user, isErasing: shard.state.settings.isErasing(name))
  }

  func getUser(_ request: inout Request) throws(WireError) -> Outcome {
    let name = try request.fields.string()
    try request.fields.end()
    guard Identifier.isUser(name) else {
      return .refused(.invalidField, "\(Identifier.userRange)")
    }
    guard !shard.isRevoked(name, request) else { return shard.refused(.tokenRevoked, nil) }
    let user = ShardEngine.text(name)
    return replySettings(request, user, isErasing: shard.state.settings.isErasing(name))
  }

  /// Answer with a user's settings. While a user is being erased, the reply waits until the user's index holds all
  /// channels that knew them before: these channels must erase the user too.
  private func replySettings(_ request: borrowing Request, _ user: String, isErasing: Bool = false) -> Outcome {
    let last = shard.dirty.usersLast
    if isErasing {
      return shard.outgoing.replyWhenAllIndexed(request, last) {
        $0.writeUserSettings(shard.state.settings[user])
      }
    }
    return shard.reply(request, shard.replyTiming(last)) {
      $0.writeUserSettings(shard.state.settings[user])
    }
  }

  // MARK: Settlement

  func settle(_ request: inout Request) throws(WireError) -> Outcome {
    let name = try request.fields.string()
    try shard.begin(&request)
    let fields = try SettleRequest(&request.fields)
    let version = fields.version
    let isUser = fields.subject == SettleRequest.user
    var fault: String?
    if fields.subject > SettleRequest.user {
      fault = "what: 0 (channel type) or 1 (user)"
    } else if isUser, !Identifier.isUser(name) {
      fault = "\(Identifier.userRange)"
    } else if !isUser, !Identifier.isType(name) {
      fault = Self.typeRange
    } else if version > Self.versionMax {
      fault = Self.versionRange
    }
    if let fault { return .refused(.invalidField, fault) }
    guard shard.isHome(name) else { return Self.refusedElsewhere }
    let text = ShardEngine.text(name)
    let isSettled =
      isUser
      ? shard.state.settings.decideSettle(text, version: version, into: &request.effects)
      : shard.state.types.decideSettle(text, version: version, into: &request.effects)
    shard.applyCommand(nil, request)
    if isUser, isSettled, let number = shard.state.settings.find(text) { unsettledUsers.remove(number) }
    return shard.reply(request, shard.replyTiming(isUser ? shard.dirty.usersLast : shard.dirty.typesLast)) {
      $0.writeFlag(isSettled)
    }
  }

  /// List the types and users of this home shard that may not have reached all other shards. The caller settles
  /// them.
  func listUnsettled(_ request: inout Request) throws(WireError) -> Outcome {
    try request.fields.end()
    let types = shard.state.types.setRecords.filter { type in
      guard !type.isSettled else { return false }
      return ShardEngine.isValid(type.name) { shard.isHome($0) }
    }
    .sorted { $0.name < $1.name }.prefix(Self.unsettledMax)
    let users = unsettledUsers.sorted().prefix(Self.unsettledMax)
    let unsettled = UnsettledReply(types: Array(types), users: users.map { shard.state.settings[$0] })
    return shard.reply(request, shard.replyTiming(max(shard.dirty.typesLast, shard.dirty.usersLast))) {
      unsettled.write(into: &$0)
    }
  }

  /// Maximum number of types, and of users, in one reply.
  private static let unsettledMax = 256

  /// Record that a change of a user's settings has not reached all shards yet.
  private func recordUnsettled(_ user: String) {
    guard let number = shard.state.settings.find(user), !shard.state.settings.isSettled(number) else {
      return
    }
    unsettledUsers.insert(number)
  }

  /// Collect the users of this home shard whose settings have not reached all shards.
  override func beginToServe() {
    for number in 0..<UInt32(shard.state.settings.count) where !shard.state.settings.isSettled(number) {
      if shard.state.settings.withUser(number, { shard.isHome($0) }) { unsettledUsers.insert(number) }
    }
  }

  private static var refusedElsewhere: Outcome {
    .refused(.wrongShard, "another shard is the home of this name")
  }

  // MARK: Erasure ledger

  /// Record a user in the ledger before the command to erase them is decided (R16). Other commands may be decided
  /// first.
  private func recordErasure(_ request: borrowing Request, _ user: String) -> Outcome {
    lastErasureID &+= 1
    let outcome = shard.waiting.add(request, for: .ledger(lastErasureID))
    guard case .waits = outcome else { return outcome }
    let erasure = ErasureRequest(shard: shard.state.id, requestID: lastErasureID, user: Array(user.utf8))
    shard.loop.driver.recordErasure(erasure)
    return outcome
  }

  /// Resume the command once the ledger has recorded the user; refuse it if the ledger failed.
  func erasureRecorded(_ erasure: ErasureRequest, fault: String?) {
    for waiting in shard.waiting.take(.ledger(erasure.requestID)) {
      shard.resume(waiting, .recorded(String(decoding: erasure.user, as: UTF8.self), fault: fault))
    }
  }

  /// Perform a command to erase a user that the ledger has recorded, or could not.
  func erase(_ request: inout Request, _ user: String, fault: String?) throws(WireError) -> Outcome {
    guard let counter = try request.counterAhead() else { throw .unknownKind(request.kind.rawValue) }
    shard.begin(&request, counter)
    if let fault {
      let detail = "the erasure ledger cannot be written: \(fault)"
      return .refused(.unavailable, retryAfterMilliseconds: 1_000, detail)
    }
    return beginErasing(&request, user)
  }
}
