internal import Histogram

/// What an ``EventBench`` has measured, round by round, and as tables of medians.
package struct EventReport: Sendable, Codable {
  /// What else the services did while latencies were measured.
  package enum Load: String, Sendable, CaseIterable, Codable {
    case none
    case unwatched
    /// Every mark is an event for one stream, a member's.
    case watched

    package var title: String {
      switch self {
      case .none: "nothing else"
      case .unwatched: "marks that nobody watches"
      case .watched: "marks that a member's stream watches"
      }
    }
  }

  /// Of one row, in microseconds from the mark's request.
  package struct Latency: Sendable, Codable {
    package var load: Load
    package var marks: Int
    package var answerP50: Double
    package var answerP99: Double
    package var eventP50: Double
    package var eventP99: Double
    package var eventMax: Double
    /// Marks a second that were made beside; nil: none were to be.
    package var loadRate: Double?
  }

  /// The gateway's resident memory.
  package struct Idle: Sendable, Codable {
    package var streams: Int
    package var connections: Int
    /// Until every stream was told what happens from then on.
    package var openSeconds: Double
    package var bytesBefore: Int
    package var bytesOpen: Int
    /// Nil: it was not waited for.
    package var bytesAfterHeartbeat: Int?

    package var bytesPerStream: Double { Double(bytesOpen - bytesBefore) / Double(streams) }
    package var bytesPerStreamAfterHeartbeat: Double? {
      bytesAfterHeartbeat.map { Double($0 - bytesBefore) / Double(streams) }
    }
  }

  /// From the message's request until a viewer has its event: medians over the events, in microseconds. CPU time is of
  /// one event.
  package struct FanOut: Sendable, Codable {
    package var viewers: Int
    package var events: Int
    package var firstMicroseconds: Double
    package var medianMicroseconds: Double
    package var lastMicroseconds: Double
    package var lastMaxMicroseconds: Double
    package var clientMicroseconds: Double
    package var gatewayMicroseconds: Double
    package var storeMicroseconds: Double
  }

  /// Who watches where marks are counted.
  package enum Watched: String, Sendable, CaseIterable, Codable {
    case nobody
    /// One stream watches another channel.
    case others
    /// One stream watches all of the channels: a member's.
    case these

    package var title: String {
      switch self {
      case .nobody: "nobody watches anything"
      case .others: "another channel is watched"
      case .these: "a member's stream watches all channels"
      }
    }
  }

  /// CPU time of one mark, in microseconds.
  package struct Cost: Sendable, Codable {
    package var watched: Watched
    package var marks: Int
    package var marksPerSecond: Double
    package var gatewayMicroseconds: Double
    package var storeMicroseconds: Double
    /// Events that the stream was told, of the warm-up's marks too.
    package var events: Int
  }

  package var rounds: Int
  /// Marks a second that were to be made beside.
  package var rate: Double
  package var latencies: [Latency] = []
  package var idle: [Idle] = []
  package var fanOuts: [FanOut] = []
  package var costs: [Cost] = []

  init(rounds: Int, rate: Double) {
    self.rounds = rounds
    self.rate = rate
  }

  /// Below this part of the rate that was asked for a row says that it was not reached.
  private static let reachedShare = 0.98

  // MARK: Tables

  /// Medians over the rounds, as Markdown.
  package var markdown: String {
    [latencyTable, idleTable, fanOutTable, costTable].compactMap(\.self).joined(separator: "\n\n")
  }

  private static func time(_ microseconds: Double) -> String { Figures.time(microseconds: microseconds) }

  private static func median<Row>(_ rows: [Row], _ value: (Row) -> Double) -> Double {
    ComparisonTable.median(rows.map(value)) ?? 0
  }

  private var latencyTable: String? {
    let rows = Load.allCases.compactMap { load -> [String]? in
      let here = latencies.filter { $0.load == load }
      guard !here.isEmpty else { return nil }
      return [
        load.title + rateText(here),
        Figures.count(here.reduce(0) { $0 + $1.marks }),
        Self.time(Self.median(here, \.answerP50)), Self.time(Self.median(here, \.answerP99)),
        Self.time(Self.median(here, \.eventP50)), Self.time(Self.median(here, \.eventP99)),
        Self.time(Self.median(here, \.eventMax)),
      ]
    }
    guard !rows.isEmpty else { return nil }
    return ComparisonTable.table(
      head: ["beside", "marks", "answer p50", "answer p99", "event p50", "event p99", "longest"],
      rows: rows,
      leftAligned: [0]
    )
  }

  private func rateText(_ rows: [Latency]) -> String {
    guard let reached = ComparisonTable.median(rows.compactMap(\.loadRate)) else { return "" }
    let text = ", \(Figures.count(Int(reached.rounded()))) a second"
    return reached >= rate * Self.reachedShare
      ? text : text + " (of \(Figures.count(Int(rate))): not reached)"
  }

  private var idleTable: String? {
    guard let first = idle.first else { return nil }
    func kibibytes(_ bytes: Double) -> String { "\(Figures.decimal(bytes / 1_024, digits: 2)) KiB" }
    return ComparisonTable.table(
      head: [
        "idle streams", "connections", "open after", "gateway, each", "after a heartbeat", "gateway before",
      ],
      rows: [
        [
          Figures.count(first.streams), Figures.count(first.connections),
          Self.time(Self.median(idle) { $0.openSeconds * 1e6 }),
          kibibytes(Self.median(idle, \.bytesPerStream)),
          ComparisonTable.median(idle.compactMap(\.bytesPerStreamAfterHeartbeat)).map(kibibytes) ?? "",
          kibibytes(Self.median(idle) { Double($0.bytesBefore) }),
        ]
      ],
      leftAligned: []
    )
  }

  private var fanOutTable: String? {
    guard let first = fanOuts.first else { return nil }
    return ComparisonTable.table(
      head: [
        "viewers", "first has it", "half have it", "all have it", "longest", "gateway CPU", "store CPU",
        "viewers' CPU",
      ],
      rows: [
        [
          Figures.count(first.viewers), Self.time(Self.median(fanOuts, \.firstMicroseconds)),
          Self.time(Self.median(fanOuts, \.medianMicroseconds)),
          Self.time(Self.median(fanOuts, \.lastMicroseconds)),
          Self.time(Self.median(fanOuts, \.lastMaxMicroseconds)),
          Self.time(Self.median(fanOuts, \.gatewayMicroseconds)),
          Self.time(Self.median(fanOuts, \.storeMicroseconds)),
          Self.time(Self.median(fanOuts, \.clientMicroseconds)),
        ]
      ],
      leftAligned: []
    )
  }

  private var costTable: String? {
    let rows = Watched.allCases.compactMap { watched -> [String]? in
      let here = costs.filter { $0.watched == watched }
      guard !here.isEmpty else { return nil }
      func microseconds(_ value: Double) -> String { "\(Figures.decimal(value, digits: 2)) µs" }
      return [
        watched.title, Figures.count(Int(Self.median(here) { Double($0.marks) })),
        Figures.count(Int(Self.median(here, \.marksPerSecond))),
        microseconds(Self.median(here, \.gatewayMicroseconds)),
        microseconds(Self.median(here, \.storeMicroseconds)),
        Figures.count(Int(Self.median(here) { Double($0.events) })),
      ]
    }
    guard !rows.isEmpty else { return nil }
    return ComparisonTable.table(
      head: ["who watches", "marks", "marks/s", "gateway, a mark", "store, a mark", "events told"],
      rows: rows,
      leftAligned: [0]
    )
  }
}

extension EventReport.Latency {
  init(_ load: EventReport.Load, _ outcome: EventLatency.Outcome, loadRate: Double?) {
    let (answers, events) = (outcome.answers, outcome.events)
    self.init(
      load: load,
      marks: Int(events.totalCount),
      answerP50: Double(answers.valueAtPercentile(50)) / 1_000,
      answerP99: Double(answers.valueAtPercentile(99)) / 1_000,
      eventP50: Double(events.valueAtPercentile(50)) / 1_000,
      eventP99: Double(events.valueAtPercentile(99)) / 1_000,
      eventMax: Double(events.max) / 1_000,
      loadRate: loadRate
    )
  }
}

extension EventReport.Cost {
  init(_ watched: EventReport.Watched, _ report: LoadReport, events: Int) {
    func cpu(_ process: String) -> Double { report.cpu.first { $0.process == process }?.perRequest ?? 0 }
    self.init(
      watched: watched,
      marks: report.answers,
      marksPerSecond: report.rate,
      gatewayMicroseconds: cpu("gateway"),
      storeMicroseconds: cpu("store"),
      events: events
    )
  }
}
