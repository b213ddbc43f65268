internal import Foundation
internal import LocalStack

/// Channels of a ``ReminderBench`` and their messages, each with one reminder or none.
struct ReminderDataset: Sendable {
  /// Requests in flight while channels are made and read, and while messages are registered.
  private static let inFlight = 64
  private static let registering = 8
  /// Channels whose two members are the same.
  private static let groupSize = 100

  let services: BenchServices
  let channels: Int
  /// Messages of all channels.
  let count: Int

  private static func cid(_ channel: Int) -> String { "messaging:reminding-\(channel)" }

  /// Create the channels and register their messages.
  ///
  /// - Parameter due: time in seconds since 1970 of the second in which every reminder is due; nil: no reminders.
  func make(dueAt due: Int?) async throws {
    try await inParallel(channels, atOnce: Self.inFlight, progress: (services.note, "channels made")) { channel in
      let group = channel / Self.groupSize
      try await services.client.putChannel(Self.cid(channel), members: ["user-\(group)-0", "user-\(group)-1"])
    }
    let batches = (count + BenchClient.batchSize - 1) / BenchClient.batchSize
    let what = "batches of \(Figures.count(BenchClient.batchSize)) messages registered"
    try await inParallel(batches, atOnce: Self.registering, progress: (services.note, what)) { batch in
      let start = batch * BenchClient.batchSize
      let numbers = start..<min(start + BenchClient.batchSize, count)
      try await services.client.register(numbers, fields: { try Self.reminders(dueAt: due) }) { number in
        (Self.cid(number % channels), "m\(number)")
      }
    }
  }

  /// Return a message's reminder of members who have not read it, as a member of its JSON. `after` is in seconds from
  /// the registration, so the reminder is due within the second after `due`.
  private static func reminders(dueAt due: Int?) throws(LoadError) -> String {
    guard let due else { return "" }
    let after = Int((Double(due) - Date().timeIntervalSince1970).rounded(.up))
    guard after >= 1 else { throw LoadError("reminders were due before all messages were registered") }
    return #","reminders":[{"after":\#(after),"when":"unread"}]"#
  }

  /// Load every channel into the store's memory.
  func load() async throws {
    try await inParallel(channels, atOnce: Self.inFlight, progress: (services.note, "channels loaded")) { channel in
      let _: ReadStateResponse = try await services.client.get("/v1/channels/\(Self.cid(channel))/read-state")
    }
  }
}
