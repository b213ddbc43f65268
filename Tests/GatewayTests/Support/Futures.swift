import NIOCore
import TestSupport
import Testing

extension EventLoopFuture where Value: Sendable {
  /// The future's value, awaited for at most ``waitLimit``. `awaited` names it in the failure message.
  func value(_ awaited: String) async throws -> Value {
    try await within(awaited) { try await self.get() }
  }
}
