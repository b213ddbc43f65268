import NIOCore
import Operations
import ReceiptWire
import Testing

@testable import Backup

/// Requests of a backup to a store whose connection breaks.
@Suite struct StoreConnectionTests {
  /// The store resets the connection between the making of a request and its write, so that the write itself fails.
  @Test func requestFailsWhenItsWriteFails() async throws {
    let store = try await FakeBackupStore.start()
    let connection = try await StoreConnection.open(store.endpoint, secrets: [], tls: nil)
    await #expect(throws: BackupFailure("the connection to the store was lost; run this again")) {
      // The closure runs on the connection's event loop, before the write.
      _ = try await connection.request(.backupBegin, timeout: .seconds(30)) { _ in store.reset() }
    }
    await connection.close()
    try await store.stop()
  }
}
