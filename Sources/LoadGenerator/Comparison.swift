internal import Foundation
package import LocalStack
internal import Operations

/// The bench that `make bench` runs: mark-reads through the real gateway and store, and nghttpd answering a static
/// file, by the same generator, in turn.
package struct Comparison: Sendable {
  /// What is measured.
  package enum Row: String, Sendable, CaseIterable, Codable {
    case query = "mark-read, query"
    case body = "mark-read, JSON body"
    case peer = "nghttpd, static file"
  }

  /// One run's figures.
  package struct Measurement: Sendable {
    package var row: Row
    package var streams: Int
    package var round: Int
    package var report: LoadReport
  }

  package var connections = 16
  package var streams = [1, 10, 100]
  package var rounds = 3
  /// Answers of each run, by streams: some seconds each.
  package var requests: @Sendable (_ streams: Int) -> Int = {
    $0 >= 50 ? 1_000_000 : $0 >= 5 ? 500_000 : 150_000
  }
  package var logLevel = "warning"

  package init() {}

  /// A run of well under a minute, to see that it works: its figures are rough.
  package static var quick: Comparison {
    var comparison = Comparison()
    comparison.rounds = 1
    comparison.requests = { $0 >= 50 ? 150_000 : $0 >= 5 ? 80_000 : 20_000 }
    return comparison
  }

  /// Starts the servers, measures, ends the servers.
  ///
  /// - Parameters:
  ///   - directory: made for this, on disk, and removed at the end.
  ///   - note: told of each step, for the line that shows it.
  ///   - measured: told of each run.
  /// - Throws: ``LoadError`` where a mark did not move its watermark, a server did not start, and so on.
  package func run(
    executables: Executables,
    directory: String,
    note: @escaping @Sendable (String) -> Void,
    measured: @escaping @Sendable (Measurement) -> Void
  ) async throws -> [Measurement] {
    let files = StackFiles(directory: directory)
    try files.prepare()
    defer { files.remove() }
    note("starting tidemark-store, tidemark-gateway --h2c and nghttpd")
    let stack = LocalStack(
      plan: try .onFreePorts(usesTLS: false, logLevel: logLevel),
      files: files,
      executables: executables
    )
    var peer: PeerServer?
    let outcome: Result<[Measurement], any Error>
    do {
      let started = try await PeerServer.start(directory: directory)
      peer = started
      try await stack.start()
      outcome = .success(try await measure(stack, started, note, measured))
    } catch {
      outcome = .failure(error)
    }
    await peer?.process.stop()
    await stack.stop()
    return try outcome.get()
  }

  private func measure(
    _ stack: LocalStack,
    _ peer: PeerServer,
    _ note: @escaping @Sendable (String) -> Void,
    _ measured: @Sendable (Measurement) -> Void
  ) async throws -> [Measurement] {
    let mint = try await TokenMint(secretFile: stack.files.jwtSecret)
    var measurements: [Measurement] = []
    for round in 1...rounds {
      for streams in streams {
        for row in Row.allCases {
          let title = "round \(round) of \(rounds), \(connections) × \(streams), \(row.rawValue)"
          let report: LoadReport
          switch row {
          case .query: report = try await marks(.query, streams, stack, mint, title, note)
          case .body: report = try await marks(.body, streams, stack, mint, title, note)
          case .peer: report = try await file(streams, peer, title, note)
          }
          let measurement = Measurement(row: row, streams: streams, round: round, report: report)
          measured(measurement)
          measurements.append(measurement)
        }
      }
    }
    return measurements
  }

  private func marks(
    _ form: MarkForm,
    _ streams: Int,
    _ stack: LocalStack,
    _ mint: TokenMint,
    _ title: String,
    _ note: @escaping @Sendable (String) -> Void
  ) async throws -> LoadReport {
    let requests = requests(streams)
    var bench = try MarkBench(
      endpoint: stack.plan.gateways[0].listen,
      mint: mint,
      form: form,
      connections: connections,
      streams: streams,
      requests: requests,
      warmup: requests / 10
    )
    if let gateway = await stack.gatewayProcesses.first, let store = await stack.storeProcess {
      bench.processes = [("gateway", gateway.processID), ("store", store.processID)]
    }
    let plan = try await bench.prepare { registered, total in
      note("\(title): \(Figures.count(registered)) of \(Figures.count(total)) messages registered")
    }
    let report = try await run(plan, title, note)
    note("\(title): checking every watermark")
    let problems = try await bench.verify(report)
    guard problems.isEmpty else {
      throw LoadError(
        "\(title): not every mark moved its watermark:\n  " + problems.joined(separator: "\n  ")
      )
    }
    return report
  }

  private func file(
    _ streams: Int,
    _ peer: PeerServer,
    _ title: String,
    _ note: @escaping @Sendable (String) -> Void
  ) async throws -> LoadReport {
    let requests = requests(streams)
    var plan = LoadPlan(
      endpoint: peer.endpoint,
      connections: Array(repeating: .init(work: .get(path: PeerServer.path)), count: connections),
      streams: streams,
      requests: requests,
      warmup: requests / 10
    )
    plan.processes = [(PeerServer.name, peer.process.processID)]
    let report = try await run(plan, title, note)
    guard report.problems.isEmpty else {
      throw LoadError("\(title): " + report.problems.joined(separator: "; "))
    }
    return report
  }

  private func run(
    _ plan: LoadPlan,
    _ title: String,
    _ note: @escaping @Sendable (String) -> Void
  ) async throws -> LoadReport {
    note("\(title): under load")
    return try await LoadGenerator.run(plan) { answers, seconds in
      note("\(title): \(Figures.count(answers)) answers in \(Figures.decimal(seconds, digits: 0)) s")
    }
  }
}
