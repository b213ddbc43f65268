import ArgumentParser
import LinkSecurity
import LocalStack
import Logging
import Operations

/// Address of a store, the secret shared with it, and TLS.
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

/// TLS options for connections to a store.
struct StoreTLSOptions: ParsableArguments {
  @Option(
    help: ArgumentHelp(
      "CA for TLS to the store; it must have issued the store's certificate, PEM.",
      valueName: "file"
    )
  )
  var tlsCa: String?
  @Option(
    help: ArgumentHelp("Client certificate for the store, PEM, such as a gateway's.", valueName: "file")
  )
  var tlsCert: String?
  @Option(help: ArgumentHelp("Private key of --tls-cert, PEM.", valueName: "file"))
  var tlsKey: String?

  /// Nil: the connection is not encrypted.
  var tls: LinkTLS? {
    get throws {
      let files = try LinkTLSFiles(certificate: tlsCert, privateKey: tlsKey, authority: tlsCa)
      // Standard output is reserved for the result.
      let logger = Logger(label: "tidemark") { StreamLogHandler.standardError(label: $0) }
      return try files.map { try LinkTLS($0, end: .gateway, logger: logger) }
    }
  }
}
