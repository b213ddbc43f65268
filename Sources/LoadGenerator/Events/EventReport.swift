/// Measurements of an ``EventBench`` by round, and tables of their medians.
struct EventReport: Sendable, Codable {
  /// Load on the services while latencies are measured.
  enum Load: String, Sendable, CaseIterable, Codable {
    case none
    case unwatched
    /// A member's stream receives an event for every mark.
    case watched

    var title: String {
      switch self {
      case .none: "nothing else"
      case .unwatched: "marks that nobody watches"
      case .watched: "marks that a member's stream watches"
      }
    }
  }

  /// Latencies of one row in microseconds, from the mark's request.
  struct Latency: Sendable, Codable {
    var load: Load
    var marks: Int
    var answerP50: Double
    var answerP99: Double
    var eventP50: Double
    var eventP99: Double
    var eventMax: Double
    /// Marks per second of the load; nil without load.
    var loadRate: Double?
  }

  /// Resident memory of the gateway with idle streams.
  struct Idle: Sendable, Codable {
    var streams: Int
    var connections: Int
    /// Time until every stream was live.
    var openSeconds: Double
    var bytesBefore: Int
    var bytesOpen: Int
    /// Nil if it was not measured.
    var bytesAfterHeartbeat: Int?

    var bytesPerStream: Double { Double(bytesOpen - bytesBefore) / Double(streams) }
    var bytesPerStreamAfterHeartbeat: Double? {
      bytesAfterHeartbeat.map { Double($0 - bytesBefore) / Double(streams) }
    }
  }

  /// Times from a message's request until a viewer receives its event, in microseconds: medians over the events. CPU
  /// time is per event.
  struct FanOut: Sendable, Codable {
    var viewers: Int
    var events: Int
    var firstMicroseconds: Double
    var medianMicroseconds: Double
    var lastMicroseconds: Double
    var lastMaxMicroseconds: Double
    var clientMicroseconds: Double
    var gatewayMicroseconds: Double
    var storeMicroseconds: Double
  }

  /// Streams that are open while CPU time is measured.
  enum Watched: String, Sendable, CaseIterable, Codable {
    case none = "nobody"
    /// One stream watches another channel.
    case otherChannel = "others"
    /// The stream of a member watches all of the marked channels.
    case markedChannels = "these"

    var title: String {
      switch self {
      case .none: "nobody watches anything"
      case .otherChannel: "another channel is watched"
      case .markedChannels: "a member's stream watches all channels"
      }
    }
  }

  /// CPU time per mark in microseconds.
  struct Cost: Sendable, Codable {
    var watched: Watched
    var marks: Int
    var marksPerSecond: Double
    var gatewayMicroseconds: Double
    var storeMicroseconds: Double
    /// Events that the stream received, those of the warm-up included.
    var events: Int
  }

  var rounds: Int
  /// Intended marks per second of the load.
  var rate: Double
  var latencies: [Latency] = []
  var idle: [Idle] = []
  var fanOuts: [FanOut] = []
  var costs: [Cost] = []

  /// Share of the intended rate below which a row says that the rate was not reached.
  private static let reachedShare = 0.98

  // MARK: Tables

  /// Medians over the rounds, as Markdown.
  var markdown: String {
    [
      latencyTable.markdown(Self.rounds(latencies, by: \.load)), Self.idleTable.markdown(idle.isEmpty ? [] : [idle]),
      Self.fanOutTable.markdown(fanOuts.isEmpty ? [] : [fanOuts]),
      Self.costTable.markdown(Self.rounds(costs, by: \.watched)),
    ].compactMap(\.self).joined(separator: "\n\n")
  }

  /// Return the measurements of each case, in the order of the cases.
  private static func rounds<Row, Case: CaseIterable & Equatable>(_ rows: [Row], by key: (Row) -> Case) -> [[Row]] {
    Case.allCases.map { value in rows.filter { key($0) == value } }.filter { !$0.isEmpty }
  }

  private var latencyTable: ReportTable<[Latency]> {
    ReportTable(columns: [
      .text("beside") { $0[0].load.title + rateText($0) }, .count("marks") { $0.reduce(0) { $0 + $1.marks } },
      .time("answer p50") { $0.median(\.answerP50) }, .time("answer p99") { $0.median(\.answerP99) },
      .time("event p50") { $0.median(\.eventP50) }, .time("event p99") { $0.median(\.eventP99) },
      .time("longest") { $0.median(\.eventMax) },
    ])
  }

  private func rateText(_ rows: [Latency]) -> String {
    guard let reached = rows.compactMap(\.loadRate).medianValue(\.self) else { return "" }
    let text = ", \(Figures.count(Int(reached.rounded()))) a second"
    return reached >= rate * Self.reachedShare ? text : text + " (of \(Figures.count(Int(rate))): not reached)"
  }

  private static func kibibytes(_ bytes: Double) -> String {
    "\(Figures.decimal(bytes / 1_024, digits: 2)) KiB"
  }

  private static var idleTable: ReportTable<[Idle]> {
    ReportTable(columns: [
      .count("idle streams") { $0[0].streams }, .count("connections") { $0[0].connections },
      .time("open after") { $0.median { $0.openSeconds * 1e6 } },
      .number("gateway, each") { kibibytes($0.median(\.bytesPerStream)) },
      .number("after a heartbeat") {
        $0.compactMap(\.bytesPerStreamAfterHeartbeat).medianValue(\.self).map(kibibytes) ?? ""
      }, .number("gateway before") { kibibytes($0.median { Double($0.bytesBefore) }) },
    ])
  }

  private static var fanOutTable: ReportTable<[FanOut]> {
    ReportTable(columns: [
      .count("viewers") { $0[0].viewers }, .time("first has it") { $0.median(\.firstMicroseconds) },
      .time("half have it") { $0.median(\.medianMicroseconds) },
      .time("all have it") { $0.median(\.lastMicroseconds) },
      .time("longest") { $0.median(\.lastMaxMicroseconds) },
      .time("gateway CPU") { $0.median(\.gatewayMicroseconds) },
      .time("store CPU") { $0.median(\.storeMicroseconds) },
      .time("viewers' CPU") { $0.median(\.clientMicroseconds) },
    ])
  }

  private static var costTable: ReportTable<[Cost]> {
    ReportTable(columns: [
      .text("who watches") { $0[0].watched.title }, .count("marks") { Int($0.median { Double($0.marks) }) },
      .count("marks/s") { Int($0.median(\.marksPerSecond)) },
      .microseconds("gateway, a mark") { $0.median(\.gatewayMicroseconds) },
      .microseconds("store, a mark") { $0.median(\.storeMicroseconds) },
      .count("events sent") { Int($0.median { Double($0.events) }) },
    ])
  }
}

extension EventReport.Latency {
  init(_ load: EventReport.Load, _ outcome: EventLatency.Outcome, loadRate: Double?) {
    self.init(
      load: load,
      marks: outcome.events.count,
      answerP50: outcome.responses.p50,
      answerP99: outcome.responses.p99,
      eventP50: outcome.events.p50,
      eventP99: outcome.events.p99,
      eventMax: outcome.events.max,
      loadRate: loadRate
    )
  }
}

extension EventReport.Cost {
  init(_ watched: EventReport.Watched, _ report: LoadReport, events: Int) {
    func cpu(_ process: String) -> Double { report.cpu.first { $0.process == process }?.perRequest ?? 0 }
    self.init(
      watched: watched,
      marks: report.requests,
      marksPerSecond: report.rate,
      gatewayMicroseconds: cpu("gateway"),
      storeMicroseconds: cpu("store"),
      events: events
    )
  }
}
