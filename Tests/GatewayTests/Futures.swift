import NIOCore
import TestSupport
import Testing

extension EventLoopFuture where Value: Sendable {
  /// Its value, which has to come within ``waitLimit``; `awaited` says what a test that fails had waited for.
  func value(_ awaited: String) async throws -> Value {
    try await within(awaited) { try await self.get() }
  }
}
