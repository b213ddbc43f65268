internal import LocalStack

/// Process ids of the measured services.
struct ServiceProcesses: Sendable {
  var gateway: Int32
  var store: Int32

  /// The processes with their names in reports.
  var named: [(name: String, processID: Int32)] { [("gateway", gateway), ("store", store)] }
}

extension LocalStack {
  /// Process ids of the last gateway and of the store.
  func measuredProcesses() throws(LoadError) -> ServiceProcesses {
    guard let gateway = gatewayProcesses.last, let store = storeProcess else {
      throw LoadError("the services are not running")
    }
    return ServiceProcesses(gateway: gateway.processID, store: store.processID)
  }
}

/// Meter of the CPU time of a client, which is this process, and of the services, with their descendants.
struct ServiceCPUMeter: Sendable {
  /// CPU times of a measurement in seconds.
  struct Seconds: Sendable {
    var client: Double
    var gateway: Double
    var store: Double
  }

  /// Times at the start of a measurement.
  struct Start: Sendable { fileprivate var sample: [Double?] }

  private let meter: ProcessCPUMeter

  /// Descendants are those that exist now.
  init(_ processes: ServiceProcesses) {
    meter = ProcessCPUMeter(processIDs: [processes.gateway, processes.store])
  }

  /// Start a measurement.
  func start() -> Start { Start(sample: meter.sample()) }

  /// Return the CPU times since the start of a measurement.
  ///
  /// - Throws: ``LoadError`` if a service has exited.
  func seconds(since start: Start) throws(LoadError) -> Seconds {
    let times = meter.seconds(since: start.sample)
    func time(_ index: Int, of process: String) throws(LoadError) -> Double {
      guard let time = times[index] else { throw LoadError("the \(process) has exited") }
      return time
    }
    return Seconds(
      client: try time(0, of: "client"),
      gateway: try time(1, of: "gateway"),
      store: try time(2, of: "store")
    )
  }
}
