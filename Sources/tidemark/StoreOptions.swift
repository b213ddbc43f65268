import ArgumentParser
import LinkSecurity
import LocalStack
import Logging
import Operations

/// Where a store is, the secret that it shares, and TLS with it.
struct StoreOptions: ParsableArguments {
  @Option(
    help: ArgumentHelp("The store's address for gateways, an IPv6 one in brackets.", valueName: "host:port")
  )
  var store: String
  @Option(
    help: ArgumentHelp(
      "File whose first line is the secret shared with the store; a second line is the previous one.",
      valueName: "file"
    )
  )
  var secretFile: String?
  @OptionGroup var tlsFiles: StoreTLSOptions

  func validate() throws {
    guard let endpoint = Endpoint(store), endpoint.port > 0 else {
      throw ValidationError("--store \"\(store)\": give HOST:PORT, such as 10.0.0.5:7410 or [::1]:7410")
    }
  }

  var endpoint: Endpoint {
    get throws {
      guard let endpoint = Endpoint(store) else { throw ExitCode.validationFailure }
      return endpoint
    }
  }

  var secrets: [[UInt8]] {
    get throws {
      try secretFile.map { try SecretFile.load($0, key: "secret-file", warn: Terminal.printError).all } ?? []
    }
  }

  var tls: LinkTLS? { get throws { try tlsFiles.tls } }
}

/// What a gateway is given for TLS with its store.
struct StoreTLSOptions: ParsableArguments {
  @Option(
    help: ArgumentHelp(
      "Speak TLS to the store, whose certificate has to be by this authority, PEM.",
      valueName: "file"
    )
  )
  var tlsCa: String?
  @Option(
    help: ArgumentHelp("Certificate to show the store, PEM: that of a gateway will do.", valueName: "file")
  )
  var tlsCert: String?
  @Option(help: ArgumentHelp("Its private key, PEM.", valueName: "file"))
  var tlsKey: String?

  /// Nil: the store is spoken to in the clear.
  var tls: LinkTLS? {
    get throws {
      let files = try LinkTLSFiles(certificate: tlsCert, privateKey: tlsKey, authority: tlsCa)
      // Standard output is for the result alone.
      let logger = Logger(label: "tidemark") { StreamLogHandler.standardError(label: $0) }
      return try files.map { try LinkTLS($0, end: .gateway, logger: logger) }
    }
  }
}
