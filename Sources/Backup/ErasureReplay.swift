internal import CommandOutput
internal import ErasureLedger
internal import Foundation
internal import GatewayClient
internal import HTTP2Session
internal import LocalStack
internal import Operations
internal import ReceiptModel

/// Repeated erasure of users in a restored store that is not yet in service. It covers users who were erased after the
/// backup was made.
struct ErasureReplay {
  /// Merged records of the backup's ledger and the outside one.
  let records: ErasureRecords
  /// Margin before the backup from which erasures are repeated: they may have been in progress when it began.
  static let marginMilliseconds: Int64 = 600_000

  /// - Parameters:
  ///   - data: the restored data directory, with the backup's ledger if it had one.
  ///   - path: a ledger that was kept outside.
  init(data: String, outside path: String?) throws(BackupFailure) {
    var records = ErasureRecords()
    let inside = data + "/" + ErasureLedger.fileName
    for path in [LocalFiles.exists(inside) ? inside : nil, path].compactMap({ $0 }) {
      let read: ErasureRecords
      do throws(ErasureRecords.Fault) { read = try ErasureRecords(file: path) } catch {
        throw BackupFailure("\(error)")
      }
      // A store writes the key when it opens its ledger, so a ledger without a key is truncated.
      guard read.hasKey else {
        throw BackupFailure("\(path): is empty or truncated; use a complete copy of the ledger")
      }
      guard records.isOfSameStore(as: read) else {
        throw BackupFailure("\(path): is the ledger of another store than the backup's: it names none of its users")
      }
      records = records.union(read)
    }
    self.records = records
  }

  /// Write the ledger of the restored store, with all known records.
  func write(to data: String, through time: Int64) throws(BackupFailure) {
    try LocalFiles.writeWhole(records.document(through: time), to: data + "/" + ErasureLedger.fileName)
  }

  /// Erase users with the real store and a gateway. Returns when they are gone from every page and log.
  ///
  /// - Parameter directory: contains the data directory as `data`.
  static func erase(
    _ users: [String],
    in directory: String,
    _ executables: Executables,
    _ note: (String) -> Void
  ) async throws {
    let files = StackFiles(directory: directory)
    let stack = LocalStack(plan: try .onFreePorts(usesTLS: false), files: files, executables: executables)
    try await withCleanup {
      note("erasing: the restored store is started, for this command alone")
      try await stack.start()
      let token = try await TokenIssuer(secretFile: files.jwtSecret).server(lifetime: .seconds(24 * 3_600))
      let caller = try await AsyncHTTP2Client.connect(to: stack.plan.gateways[0].listen)
      for (index, user) in users.enumerated() {
        note("erasing: \(index) of \(users.count) users")
        try await erase(user, caller, token)
      }
      await caller.close()
    } cleanUp: {
      await stack.stop()
    }
  }

  /// Request the erasure until it succeeds: it has to visit all the user's channels.
  private static func erase(_ user: String, _ caller: AsyncHTTP2Client, _ token: String) async throws {
    let path = "/v1/users/" + user.utf8.map { "%" + ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    let deadline = ContinuousClock.now + .seconds(600)
    while true {
      try Task.checkCancellation()
      let response = try? await caller.call(.delete, path, token: token)
      if let response, (200..<300).contains(response.status) { return }
      if let response, response.status < 500 {
        throw BackupFailure("a user of the erasure ledger cannot be erased: \(response.status) \(response.text)")
      }
      guard ContinuousClock.now < deadline else {
        throw BackupFailure("a user of the erasure ledger was not erased in 10 minutes: run this again")
      }
      try await Task.sleep(for: .milliseconds(200))
    }
  }
}

/// Search for the users of a ledger in a store.
final class ErasureSearch {
  private let search: ErasureRecords.Search
  private(set) var found: Set<String> = []
  /// Recently checked users: a user occurs many times.
  private var seen: Set<String> = []
  private static let seenMax = 1 << 20

  init(_ search: ErasureRecords.Search) { self.search = search }

  func visit(_ effect: Effect) {
    guard !search.isEmpty else { return }
    examine(effect.user)
  }

  private func examine(_ user: String) {
    guard !user.isEmpty, seen.insert(user).inserted else { return }
    if seen.count > Self.seenMax { seen = [] }
    if search.contains(user) { found.insert(user) }
  }
}
