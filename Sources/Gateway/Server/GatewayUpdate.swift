internal import NIOCore
package import Operations

/// A reloaded configuration for every event loop, fully validated beforehand.
struct GatewayUpdate: Sendable {
  /// Changed token keys or policy.
  struct Tokens: Sendable {
    var verifier: TokenVerifier
    /// Recently used tokens with their callers, verified with the new keys.
    var verified: [(token: [UInt8], caller: Caller)]
  }

  var configuration: GatewayConfiguration
  /// Nil: keys and policy have not changed.
  var tokens: Tokens?
}

extension GatewayServer {
  /// Time limit for verifying cached tokens with the new keys before the switch; the others are verified on next use.
  private static let verificationMax = Duration.seconds(2)

  /// Apply a reloaded configuration to new connections and requests. No connection is closed.
  ///
  /// Only the settings in ``GatewayConfiguration/reloadedKeys`` are applied.
  ///
  /// - Throws: the setting that cannot be used; then nothing is applied.
  package func reload(_ configuration: GatewayConfiguration) async throws(SettingsError) {
    let certificates = try tls.load(configuration)
    var update = GatewayUpdate(configuration: configuration)
    // The running number of loops, whatever the new settings say.
    update.configuration.divideMemory(among: loops.count)
    let keys = configuration.tokenKeys
    if keys != tokenKeys {
      let verifier = try await Self.verifier(keys, shared.logger)
      update.tokens = GatewayUpdate.Tokens(verifier: verifier, verified: await verified(by: verifier))
    }
    // Nothing below can fail.
    tls.apply(certificates)
    shared.gate?.limits = configuration.connections
    shared.rates.update(configuration.rates)
    for loop in loops { try? await loop.submit { [update] in $0.apply(update) }.get() }
    tokenKeys = keys
  }

  /// Return the settings that have changed in a way that needs a restart.
  package func settingsNeedingRestart(_ configuration: GatewayConfiguration) -> [String] {
    (tls.store == nil) == (configuration.storeTLS == nil) ? [] : ["tls-ca"]
  }

  /// Verify the loops' cached tokens, as far as time allows, so that not all callers wait for verification at once.
  private func verified(by verifier: TokenVerifier) async -> [(token: [UInt8], caller: Caller)] {
    var tokens: Set<[UInt8]> = []
    for loop in loops { tokens.formUnion((try? await loop.submit { $0.authentication.cachedTokens }.get()) ?? []) }
    let deadline = ContinuousClock.now + Self.verificationMax
    var verified: [(token: [UInt8], caller: Caller)] = []
    for token in tokens {
      guard ContinuousClock.now < deadline else { break }
      if case .success(let caller) = await verifier.verify(token) { verified.append((token, caller)) }
    }
    return verified
  }
}
