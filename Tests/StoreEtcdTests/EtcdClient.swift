import StoreEngine
import StoreEtcd
import StoreTestSupport
import Synchronization

extension AsyncGroupLog {
  /// Use a client of etcd. `failures` gets what it reports.
  static func with<Value>(
    _ configuration: EtcdConfiguration,
    failures: FailureList = FailureList(),
    body: (AsyncGroupLog) async throws -> Value
  ) async throws -> Value {
    try await with(
      { eventLoop in
        let log = EtcdGroupLog(configuration: configuration, eventLoop: eventLoop) { failure, _ in
          failures.append(failure)
        }
        return (log, { log.close() })
      },
      body: body
    )
  }
}

/// What a client of etcd has reported.
final class FailureList: Sendable {
  private let list = Mutex<[EtcdFailure]>([])
  var failures: [EtcdFailure] { list.withLock { $0 } }
  func append(_ failure: EtcdFailure) { list.withLock { $0.append(failure) } }

  func contains(status text: String) -> Bool {
    failures.contains { failure in
      if case .status(let status) = failure { status.message.contains(text) } else { false }
    }
  }
}
