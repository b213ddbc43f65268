internal import ErasureLedger
internal import Foundation
internal import HTTP2Session
internal import LocalStack
internal import Operations
internal import ReceiptModel

/// Erases again, in a restored store that nobody is served by yet, who was erased after the backup was made.
struct ErasureReplay {
  /// What backup and ledgers know together.
  let records: ErasureRecords
  /// Erasures from this long before the backup on are looked for: they may have been under way while it was begun.
  static let marginMilliseconds: Int64 = 600_000

  /// - Parameters:
  ///   - data: the restored data directory, with the ledger of the backup, if it had one.
  ///   - path: a ledger that was kept outside.
  init(data: String, outside path: String?) throws(BackupFailure) {
    var records = ErasureRecords()
    let inside = data + "/" + ErasureLedger.fileName
    for path in [LocalFiles.exists(inside) ? inside : nil, path].compactMap({ $0 }) {
      let read: ErasureRecords
      do throws(ErasureRecords.Fault) { read = try ErasureRecords(file: path) } catch {
        throw BackupFailure("\(error)")
      }
      // A store writes the key as it opens its ledger, so without one there was more.
      guard read.isWhole else {
        throw BackupFailure("\(path): is empty or cut off; use a whole copy of the ledger")
      }
      guard records.isOfSameStore(as: read) else {
        throw BackupFailure(
          "\(path): is the ledger of another store than the backup's: it names none of its users"
        )
      }
      records = records.union(read)
    }
    self.records = records
  }

  /// Writes the ledger of the restored store: all that is known.
  func write(to data: String, through time: Int64) throws(BackupFailure) {
    try LocalFiles.writeWhole(records.document(through: time), to: data + "/" + ErasureLedger.fileName)
  }

  /// Has the real store and a gateway erase users, and returns when they are gone from every page and log.
  ///
  /// - Parameter directory: `data` in it is the data directory.
  static func erase(
    _ users: [String],
    in directory: String,
    _ executables: Executables,
    _ note: (String) -> Void
  ) async throws {
    let files = StackFiles(directory: directory)
    let stack = LocalStack(plan: try .onFreePorts(usesTLS: false), files: files, executables: executables)
    do {
      note("erasing: the restored store is started, for this command alone")
      try await stack.start()
      let token = try await TokenMint(secretFile: files.jwtSecret).server(lifetime: .seconds(24 * 3_600))
      let caller = try await HTTP2Caller.connect(to: stack.plan.gateways[0].listen)
      for (place, user) in users.enumerated() {
        note("erasing: \(place) of \(users.count) users")
        try await erase(user, caller, token)
      }
      await caller.close()
    } catch {
      await stack.stop()
      throw error
    }
    await stack.stop()
  }

  /// Asks until the user is erased: an erasure goes over all their channels.
  private static func erase(_ user: String, _ caller: HTTP2Caller, _ token: String) async throws {
    let path = "/v1/users/" + user.utf8.map { "%" + ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    let deadline = ContinuousClock.now + .seconds(600)
    while true {
      try Task.checkCancellation()
      let answer = try? await caller.call(.delete, path, token: token)
      if let answer, (200..<300).contains(answer.status) { return }
      if let answer, answer.status < 500 {
        throw BackupFailure("a user of the erasure ledger cannot be erased: \(answer.status) \(answer.text)")
      }
      guard ContinuousClock.now < deadline else {
        throw BackupFailure("a user of the erasure ledger was not erased in 10 minutes: run this again")
      }
      try await Task.sleep(for: .milliseconds(200))
    }
  }
}

/// Finds the users in a store who are in a ledger.
final class ErasureSearch {
  private let search: ErasureRecords.Search
  private(set) var found: Set<String> = []
  /// Who was looked at lately: a user is in many places.
  private var seen: Set<String> = []
  private static let seenMax = 1 << 20

  init(_ search: ErasureRecords.Search) { self.search = search }

  func visit(_ effect: Effect) {
    guard !search.isEmpty else { return }
    switch effect {
    case .rowAssigned(_, _, let row): look(row.user)
    case .messageAssigned(_, _, let message): look(message.sender)
    case .userAssigned(_, let settings): look(settings.user)
    case .membershipQueued(_, let change): look(change.user)
    // A user's index is kept as a channel is, under the user's id.
    case .channelAssigned(_, let cid, _, _): look(cid)
    case .inThread(_, let effect): visit(effect)
    default: break
    }
  }

  private func look(_ user: String) {
    guard !user.isEmpty, seen.insert(user).inserted else { return }
    if seen.count > Self.seenMax { seen = [] }
    if search.contains(user) { found.insert(user) }
  }
}
