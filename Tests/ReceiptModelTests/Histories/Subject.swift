import TestSupport

@testable import NaiveReceiptModel

/// The subject that a random history compares with the naive model: one or several shards that together hold
/// everything. ``ShardHarness`` has the real ones; ``NaiveSubject`` is the model itself, to test the comparison.
protocol Subject: AnyObject {
  init(shards: Int)

  func perform(_ command: Command, clock: Int) -> Outcome
  /// The number of effects of the last command.
  var lastEffectCount: Int { get }
  /// Violations that no answer shows.
  var faults: [String] { get }

  // MARK: Queries

  func has(_ cid: String) -> Bool
  func ownRow(_ cid: String, _ user: String) -> RowView?
  /// nil: the user has no row in the thread.
  func threadRow(_ cid: String, _ parent: String, _ user: String) -> RowView?
  /// nil: the user is no member.
  func unread(_ cid: String, _ user: String) -> UnreadView?
  /// The acknowledgement requests that the user is asked for or has acknowledged, and their threads, a line each; nil
  /// if they are no member.
  func ownLists(_ cid: String, _ user: String) -> [String]?
  func status(_ cid: String, _ id: String, _ viewer: Viewer) -> StatusResult
  func statuses(_ cid: String, _ ids: [String], _ viewer: Viewer) -> [StatusResult]
  func list(
    _ cid: String,
    _ id: String,
    _ viewer: Viewer,
    _ list: ListName,
    _ order: OrderName,
    limit: Int
  ) -> Result<[[EntryView]], NamedRefusal>
  /// The number of entries in a list that the viewer may see.
  func listTotal(_ cid: String, _ id: String, _ viewer: Viewer, _ list: ListName) -> Result<Int, NamedRefusal>
  func memberStatuses(_ cid: String, _ id: String, _ viewer: Viewer, _ users: [String])
    -> Result<[MemberStatusResult], NamedRefusal>
  func readState(_ cid: String, _ viewer: Viewer, limit: Int) -> Result<[[RowView]], NamedRefusal>
  func stepTime(_ cid: String, _ user: String, isRead: Bool, _ n: Int, seesHidden: Bool) -> NaiveModel.Moment
  /// All pages of a channel's members: user, role and join time.
  func roster(_ cid: String, limit: Int) -> [String]
  /// All pages of a channel's messages: id, number, sender, parent, time and flags.
  func registered(_ cid: String, limit: Int) -> [String]
  func settings(of user: String) -> UserView
  func isRevoked(_ user: String, issuedSeconds: Int) -> Bool
  /// In the order of the cids, not in that of the index.
  func index(of user: String) -> [MembershipView]

  // MARK: Maintenance

  /// The times in threads that storage dropped with the last command.
  func takeDroppedTimes() -> [DroppedTimes]
  /// End the current batches.
  func seal()
  /// Check all invariants.
  func checkAll()
  /// Deliver some membership changes one step further.
  func deliver(_ random: inout SplitMix64)
  /// Deliver all membership changes.
  func deliverAllChanges()
  /// Sometimes writes pages, evicts and loads channels, or crashes; returns what it did.
  func runMaintenance(_ random: inout SplitMix64) -> [String: Int]
  /// Replay the log alone, and pages with the log's tail; return a difference from memory, or nil.
  func replayDifference(_ random: inout SplitMix64) -> String?
}

/// The rows of a thread whose moves so far have lost their times (R15).
struct DroppedTimes: Hashable, Sendable {
  var cid: String
  /// The parent's sequence number.
  var parent: Int
  var rows: Range<Int>
}

extension Subject {
  /// The totals over the channels in the user's index, computed as a gateway does.
  func totals(_ user: String) -> TotalsView {
    var totals = TotalsView()
    for entry in index(of: user) where entry.isMember {
      guard let unread = unread(entry.cid, user), !unread.isMuted else { continue }
      totals.messages += unread.messages
      totals.channels += unread.messages > 0 || unread.isFlagged ? 1 : 0
      totals.threads += unread.threads
      totals.mentions += unread.mentions
    }
    return totals
  }
}

/// The naive model as its own subject: histories run, cover everything, and notice faults.
class NaiveSubject: Subject {
  fileprivate(set) var model = NaiveModel()
  private(set) var lastEffectCount = 0
  let faults: [String] = []

  required init(shards: Int) {}

  func perform(_ command: Command, clock: Int) -> Outcome {
    let outcome = model.perform(command, clock: clock)
    // Sometimes one and sometimes none, for the tally.
    lastEffectCount = clock % 2
    return outcome
  }

  func has(_ cid: String) -> Bool { model.channels[cid] != nil }
  func ownRow(_ cid: String, _ user: String) -> RowView? { model.answers(cid).ownRow(user) }
  func threadRow(_ cid: String, _ parent: String, _ user: String) -> RowView? {
    model.thread(cid, of: model.channels[cid]!.main.places[parent]!).flatMap {
      model.answers($0).ownRow(user)
    }
  }
  func unread(_ cid: String, _ user: String) -> UnreadView? { model.unread(cid, user) }
  func ownLists(_ cid: String, _ user: String) -> [String]? { model.ownLists(cid, user) }
  func status(_ cid: String, _ id: String, _ viewer: Viewer) -> StatusResult {
    model.answers(cid).status(id, viewer)
  }
  func statuses(_ cid: String, _ ids: [String], _ viewer: Viewer) -> [StatusResult] {
    ids.map { status(cid, $0, viewer) }
  }
  func list(
    _ cid: String,
    _ id: String,
    _ viewer: Viewer,
    _ list: ListName,
    _ order: OrderName,
    limit: Int
  ) -> Result<[[EntryView]], NamedRefusal> {
    model.answers(cid).list(id, viewer, list, order).map { Self.pages($0, limit) }
  }
  func listTotal(_ cid: String, _ id: String, _ viewer: Viewer, _ list: ListName) -> Result<Int, NamedRefusal> {
    model.answers(cid).list(id, viewer, list, .joined).map(\.count)
  }
  func memberStatuses(_ cid: String, _ id: String, _ viewer: Viewer, _ users: [String])
    -> Result<[MemberStatusResult], NamedRefusal>
  {
    model.answers(cid).memberStatuses(id, viewer, users)
  }
  func readState(_ cid: String, _ viewer: Viewer, limit: Int) -> Result<[[RowView]], NamedRefusal> {
    model.answers(cid).readState(viewer).map { Self.pages($0, limit) }
  }
  func stepTime(_ cid: String, _ user: String, isRead: Bool, _ n: Int, seesHidden: Bool) -> NaiveModel.Moment {
    model.answers(cid).stepTime(user, isRead: isRead, n, seesHidden: seesHidden)!
  }
  func roster(_ cid: String, limit: Int) -> [String] { model.roster(cid) }
  func registered(_ cid: String, limit: Int) -> [String] { model.registered(cid) }
  func settings(of user: String) -> UserView { model.settings(of: user) }
  func isRevoked(_ user: String, issuedSeconds: Int) -> Bool {
    model.isRevoked(user, issuedSeconds: issuedSeconds)
  }
  func index(of user: String) -> [MembershipView] { model.index(of: user) }

  func takeDroppedTimes() -> [DroppedTimes] { [] }
  func seal() {}
  func checkAll() {}
  func deliver(_ random: inout SplitMix64) {}
  func deliverAllChanges() {}
  func runMaintenance(_ random: inout SplitMix64) -> [String: Int] { [:] }
  func replayDifference(_ random: inout SplitMix64) -> String? { nil }

  private static func pages<Entry>(_ entries: [Entry], _ limit: Int) -> [[Entry]] {
    if entries.isEmpty { return [[]] }
    return stride(from: 0, to: entries.count, by: limit).map {
      Array(entries[$0..<min($0 + limit, entries.count)])
    }
  }
}

// MARK: Faults that a history must notice

final class IgnoresTruncation: NaiveSubject {
  override func perform(_ command: Command, clock: Int) -> Outcome {
    guard case .truncate = command else { return super.perform(command, clock: clock) }
    let before = model
    let outcome = super.perform(command, clock: clock)
    model = before
    model.pass(to: clock)
    return outcome
  }
}

final class LeavesInsteadOfErasing: NaiveSubject {
  override func perform(_ command: Command, clock: Int) -> Outcome {
    guard case .eraseMember(let cid, let user) = command, model.channels[cid] != nil else {
      return super.perform(command, clock: clock)
    }
    let isKnown = model.knows(cid, user)
    _ = super.perform(.change(cid: cid, add: [], remove: [user]), clock: clock)
    return .done(isKnown)
  }
}

final class OmitsFormerMembers: NaiveSubject {
  override func index(of user: String) -> [MembershipView] { super.index(of: user).filter(\.isMember) }
}

final class StoresDeliveryOnRead: NaiveSubject {
  override func perform(_ command: Command, clock: Int) -> Outcome {
    let outcome = super.perform(command, clock: clock)
    if case .inThread(let parent, .read(let cid, let user, let message, _)) = command {
      _ = super.perform(
        .inThread(parent, .delivered(cid: cid, user: user, message: message)),
        clock: clock
      )
    }
    return outcome
  }
}

final class CountsThreadsAsMessages: NaiveSubject {
  override func unread(_ cid: String, _ user: String) -> UnreadView? {
    super.unread(cid, user).map { unread in
      var counted = unread
      counted.messages += unread.threads
      return counted
    }
  }
}
