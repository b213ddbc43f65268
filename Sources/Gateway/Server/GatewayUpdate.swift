internal import LinkSecurity
internal import NIOCore
package import Operations
internal import TLSSession

/// What a reload brings to every event loop, checked as a whole before.
struct GatewayUpdate: Sendable {
  /// Other keys or another policy of tokens.
  struct Tokens: Sendable {
    var verifier: TokenVerifier
    /// Tokens that callers have shown lately, with what the new verifier says of them.
    var verified: [(token: [UInt8], caller: Caller)]
  }

  var configuration: GatewayConfiguration
  /// Nil: keys and policy are what they were.
  var tokens: Tokens?
}

extension GatewayServer {
  /// Time limit for verifying cached tokens with the new keys before the switch; the others are verified on next use.
  private static let verificationMax = Duration.seconds(2)

  /// Takes what was read again, for connections and requests from now on. No connection ends.
  ///
  /// Only what ``GatewayConfiguration/reloadedKeys`` say is looked at.
  ///
  /// - Throws: what cannot be used, by its setting; then nothing is taken.
  package func reload(_ configuration: GatewayConfiguration) async throws(SettingsError) {
    var loadedTLS: TLSContext.Loaded?
    if let tls, let files = configuration.tls { loadedTLS = try Self.load(files, tls) }
    var loadedStoreTLS: TLSContext.Loaded?
    if let storeTLS, let files = configuration.storeTLS { loadedStoreTLS = try storeTLS.load(files) }
    var update = GatewayUpdate(configuration: configuration)
    // As many as there are, whatever the settings say now.
    update.configuration.divideMemory(among: eventLoops.count)
    let keys = configuration.tokenKeys
    if keys != tokenKeys {
      let verifier = try await Self.verifier(keys, logger)
      update.tokens = GatewayUpdate.Tokens(verifier: verifier, verified: await verified(by: verifier))
    }
    // Nothing can fail any more.
    if let tls, let loadedTLS { tls.take(loadedTLS) }
    if let storeTLS, let loadedStoreTLS { storeTLS.take(loadedStoreTLS) }
    gate.limits = configuration.connections
    rates.update(configuration.rates)
    for (loop, eventLoop) in zip(loops, eventLoops) {
      try? await eventLoop.submit { [update] in loop.value.take(update) }.get()
    }
    tokenKeys = keys
  }

  /// Settings that a reload would change and cannot.
  package func settingsForARestart(_ configuration: GatewayConfiguration) -> [String] {
    (storeTLS == nil) == (configuration.storeTLS == nil) ? [] : ["tls-ca"]
  }

  private static func load(_ files: TLSServerConfiguration, _ context: TLSContext) throws(SettingsError)
    -> TLSContext.Loaded
  {
    do {
      return try context.load(server: files)
    } catch {
      throw listenerError(error)
    }
  }

  /// The tokens that the loops remember, as far as there is time, so that their callers need not all wait at once.
  private func verified(by verifier: TokenVerifier) async -> [(token: [UInt8], caller: Caller)] {
    var tokens: Set<[UInt8]> = []
    for (loop, eventLoop) in zip(loops, eventLoops) {
      tokens.formUnion((try? await eventLoop.submit { loop.value.cachedTokens }.get()) ?? [])
    }
    let deadline = ContinuousClock.now + Self.verificationMax
    var verified: [(token: [UInt8], caller: Caller)] = []
    for token in tokens {
      guard ContinuousClock.now < deadline else { break }
      if case .success(let caller) = await verifier.verify(token) { verified.append((token, caller)) }
    }
    return verified
  }
}
