internal import Logging
internal import NIOConcurrencyHelpers
internal import StoreEngine
internal import Synchronization

/// Checks whether the storage is still where it was opened. While it is not, commands are refused, because anything
/// acknowledged would be lost. Commands are accepted again when the storage is back.
package final class DataDirectoryMonitor: Sendable {
  private let source: any ReopenableStorage
  private let logger: Logger
  private let fault = NIOLockedValueBox<String?>(nil)
  private let lost = Atomic(false)

  init(source: any ReopenableStorage, logger: Logger) {
    self.source = source
    self.logger = logger
  }

  /// Check the directory; blocks. Call periodically, never concurrently.
  package func check() {
    let found = source.locationFault
    let before = fault.withLockedValue { fault in
      defer { fault = found }
      return fault
    }
    guard found != before else { return }
    lost.store(found != nil, ordering: .relaxed)
    if let found {
      logger.critical(
        "The data directory is gone: commands are refused, and what was acknowledged in the last second may be lost",
        metadata: ["fault": "\(found)"]
      )
    } else {
      logger.notice("The data directory is back: commands are accepted again")
    }
  }

  /// Whether the directory was lost at the last check.
  var isLost: Bool { lost.load(ordering: .relaxed) }

  /// Why commands are refused and what to do, for operators; nil if they are not.
  package var lostReason: String? {
    fault.withLockedValue { $0 }.map {
      "\($0); commands are refused: stop the store, put the directory back or restore it, and start the store again"
    }
  }
}
