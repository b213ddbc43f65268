internal import Foundation
internal import HTTP2Session
internal import LocalStack
internal import Operations

/// Marks in Redis over webdis, as a self-made service would keep them: a hash for each channel, a field for each user,
/// set to the number of the read message. All values are checked after the run.
struct WebdisBench: Sendable {
  let service: Peers.Service
  let connections: Int
  let streams: Int
  let channelCount: Int
  private let names = BenchNames.random()

  init(service: Peers.Service, connections: Int, streams: Int, channels: Int) {
    self.service = service
    self.connections = connections
    self.streams = streams
    channelCount = (max(channels, streams) + streams - 1) / streams * streams
  }

  /// Return the plan of a run, without set-up, because Redis creates a hash with the first write.
  func plan(requests: Int, warmup: Int) -> LoadPlan {
    let plans = (0..<connections).map { connection in
      let walk = RequestWalk(
        names: names,
        form: .hashSet,
        connection: connection,
        channelCount: channelCount,
        messageCount: BenchNames.messagesMax,
        streams: streams
      )
      return LoadPlan.Connection(work: .walk(walk))
    }
    var plan = LoadPlan(
      endpoint: service.endpoint,
      connections: plans,
      streams: streams,
      requests: requests,
      warmup: warmup
    )
    plan.processes = service.processes
    return plan
  }

  /// Check that every response was 200 and every field has the last value.
  ///
  /// - Returns: the problems.
  func verify(_ report: LoadReport) async throws -> [String] {
    var problems = report.problems
    let check = ResponseCheck(names: names, form: .hashSet, positions: nil)
    for (connection, samples) in report.samples.enumerated() {
      problems += samples.compactMap { check.problem($0, of: connection) }
    }
    let caller = try await AsyncHTTP2Client.connect(to: service.endpoint)
    try await withCleanup {
      for channel in 0..<channelCount where problems.count <= 20 {
        let key = names.redisKey(channel)
        let response = try await caller.call(.get, "/HGETALL/\(key)")
        let hash = try? JSONDecoder().decode([String: [String: String]].self, from: Data(response.body))
        for (connection, walk) in report.walks.enumerated() {
          let acknowledged = Int(walk?.acknowledged[channel] ?? 0)
          let expected =
            acknowledged > 0
            ? BenchNames.digits(acknowledged - 1, width: DigitTemplate.messageWidth) : nil
          let actual = hash?["HGETALL"]?[names.user(connection)]
          if actual != expected {
            problems.append(
              "\(key): \(names.user(connection)) is \(actual ?? "missing"), expected \(expected ?? "none")"
            )
          }
        }
      }
    } cleanUp: {
      await caller.close()
    }
    return problems
  }
}
