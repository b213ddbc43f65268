internal import LocalStack
internal import Operations

extension LocalStack {
  /// Return a metric of the store; nil if the store does not answer.
  func storeMetric(_ name: String) async -> Double? {
    await Self.metric(name, at: plan.storeAdmin)
  }

  /// Bytes that the channels occupy in the store's memory; 0 if the store does not answer.
  var storeResidentBytes: Int {
    get async { Int(await storeMetric("tidemark_store_resident_bytes") ?? 0) }
  }

  /// Return a metric of an operations listener; nil if it does not answer.
  static func metric(_ name: String, at endpoint: Endpoint) async -> Double? {
    let response = await HealthCheck.get("http://\(endpoint)/metrics")
    return response.flatMap { MetricText.value(name, in: $0.body) }
  }

  /// Process ids of the last gateway and of the store.
  func measuredProcesses() throws(LoadError) -> [(name: String, processID: Int32)] {
    guard let gateway = gatewayProcesses.last, let store = storeProcess else {
      throw LoadError("the services are not running")
    }
    return [("gateway", gateway.processID), ("store", store.processID)]
  }

  /// Restart the store with a memory budget.
  func restartStore(memoryBytes: Int) async throws {
    await stopStore()
    setStoreFlags(["--memory", String(memoryBytes)])
    try await startStore(within: .seconds(120))
    try await waitUntilGatewaysAreReady()
  }

  /// Wait until the store has loaded all channels that only its log had and has written its dirty pages.
  ///
  /// - Parameter dirtyPagesMax: pages that may stay dirty.
  func waitUntilIdle(dirtyPagesMax: Int = 0, within seconds: Int, _ note: ProgressHandler) async throws {
    let deadline = MonotonicClock.now + UInt64(seconds) * 1_000_000_000
    while MonotonicClock.now < deadline {
      if let dirty = await storeMetric("tidemark_store_dirty_pages"),
        let tail = await storeMetric("tidemark_store_tail_channels")
      {
        if Int(dirty) <= dirtyPagesMax, tail == 0 { return }
        note(
          "\(Figures.count(Int(dirty))) pages to write, \(Figures.count(Int(tail))) channels of the log to load"
        )
      }
      try await Task.sleep(for: .milliseconds(100))
    }
    throw LoadError("timed out after \(seconds) s waiting for the store to write its pages")
  }
}
