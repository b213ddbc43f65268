import Logging
import NIOConcurrencyHelpers
import StoreEngine
import Synchronization

/// Whether the storage is still where it was opened. While it is not, commands are refused: what would be acknowledged
/// is lost. It ends when the storage is back.
package final class DirectoryWatch: Sendable {
  private let source: any ReopenableStorage
  private let logger: Logger
  private let fault = NIOLockedValueBox<String?>(nil)
  private let lost = Atomic(false)

  init(source: any ReopenableStorage, logger: Logger) {
    self.source = source
    self.logger = logger
  }

  /// Looks; blocks. To be called again and again, by one at a time.
  package func look() {
    let found = source.placeFault
    let before = fault.withLockedValue { fault in
      defer { fault = found }
      return fault
    }
    guard found != before else { return }
    lost.store(found != nil, ordering: .relaxed)
    if let found {
      logger.critical(
        "the data directory is gone: commands are refused, and what was acknowledged in the last second may be lost",
        metadata: ["fault": "\(found)"]
      )
    } else {
      logger.notice("the data directory is back: commands are taken again")
    }
  }

  /// Whether it was lost when it was looked at last.
  var isLost: Bool { lost.load(ordering: .relaxed) }

  /// Why commands are refused, and what to do; nil: they are not.
  package var lostReason: String? {
    fault.withLockedValue { $0 }.map {
      "\($0); commands are refused: stop the store, put the directory back or restore it, and start the store again"
    }
  }
}
