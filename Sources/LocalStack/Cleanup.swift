/// Run `body`, then `cleanUp`, whether `body` returns or throws.
package func withCleanup<Outcome>(
  _ body: () async throws -> Outcome,
  cleanUp: () async -> Void
) async throws -> Outcome {
  do {
    let outcome = try await body()
    await cleanUp()
    return outcome
  } catch {
    await cleanUp()
    throw error
  }
}
