// swift-tools-version: 6.2
import PackageDescription

let strict: [SwiftSetting] = [
  .enableUpcomingFeature("ExistentialAny"),
  .enableUpcomingFeature("InternalImportsByDefault"),
  .enableUpcomingFeature("MemberImportVisibility"),
  // RawSpan inside a non-escapable reader; the same flag swift-nio and swift-collections build with.
  .enableExperimentalFeature("Lifetimes"),
  .treatAllWarnings(as: .error),
]

/// Apps resolve TidemarkClient with the compilers of their platforms, so it has no experimental feature.
let client: [SwiftSetting] = [
  .enableUpcomingFeature("ExistentialAny"),
  .enableUpcomingFeature("InternalImportsByDefault"),
  .enableUpcomingFeature("MemberImportVisibility"),
  .treatAllWarnings(as: .error),
]

let nioCore: Target.Dependency = .product(name: "NIOCore", package: "swift-nio")
let nioPosix: Target.Dependency = .product(name: "NIOPosix", package: "swift-nio")
let nioConcurrency: Target.Dependency = .product(name: "NIOConcurrencyHelpers", package: "swift-nio")
let nioEmbedded: Target.Dependency = .product(name: "NIOEmbedded", package: "swift-nio")
let crypto: Target.Dependency = .product(name: "Crypto", package: "swift-crypto")
let cryptoExtras: Target.Dependency = .product(name: "CryptoExtras", package: "swift-crypto")
let heap: Target.Dependency = .product(name: "HeapModule", package: "swift-collections")
let deque: Target.Dependency = .product(name: "DequeModule", package: "swift-collections")
let nioHTTP1: Target.Dependency = .product(name: "NIOHTTP1", package: "swift-nio")
let system: Target.Dependency = .product(name: "SystemPackage", package: "swift-system")
let arguments: Target.Dependency = .product(name: "ArgumentParser", package: "swift-argument-parser")
let configuration: Target.Dependency = .product(name: "Configuration", package: "swift-configuration")
let lifecycle: Target.Dependency = .product(name: "ServiceLifecycle", package: "swift-service-lifecycle")
let signals: Target.Dependency = .product(name: "UnixSignals", package: "swift-service-lifecycle")
let jwt: Target.Dependency = .product(name: "JWTKit", package: "jwt-kit")
let x509: Target.Dependency = .product(name: "X509", package: "swift-certificates")
let asn1: Target.Dependency = .product(name: "SwiftASN1", package: "swift-asn1")
let histogram: Target.Dependency = .product(name: "Histogram", package: "hdrhistogram-swift")
let yams: Target.Dependency = .product(name: "Yams", package: "Yams")
let logging: Target.Dependency = .product(name: "Logging", package: "swift-log")
let asyncHTTPClient: Target.Dependency = .product(name: "AsyncHTTPClient", package: "async-http-client")
let nioSSL: Target.Dependency = .product(name: "NIOSSL", package: "swift-nio-ssl")
let nioHTTP2: Target.Dependency = .product(name: "NIOHTTP2", package: "swift-nio-http2")

let package = Package(
  name: "tidemark",
  // What TidemarkClient needs. The services run on Linux.
  platforms: [.iOS(.v16), .macOS(.v13)],
  products: [
    .library(name: "TidemarkClient", targets: ["TidemarkClient"]),
    .executable(name: "tidemark-store", targets: ["tidemark-store"]),
    .executable(name: "tidemark-gateway", targets: ["tidemark-gateway"]),
    .executable(name: "tidemark-worker", targets: ["tidemark-worker"]),
    .executable(name: "tidemark", targets: ["tidemark"]),
  ],
  dependencies: [
    .package(url: "https://github.com/apple/swift-nio", from: "2.101.0"),
    .package(url: "https://github.com/apple/swift-crypto", from: "4.5.0"),
    .package(url: "https://github.com/apple/swift-collections", from: "1.6.0"),
    .package(url: "https://github.com/apple/swift-log", from: "1.16.0"),
    .package(url: "https://github.com/apple/swift-system", from: "1.8.0"),
    .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.0"),
    .package(
      url: "https://github.com/apple/swift-configuration",
      from: "1.4.0",
      traits: [.defaults, "YAML", "CommandLineArguments"]
    ),
    .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.13.0"),
    .package(url: "https://github.com/HdrHistogram/hdrhistogram-swift", from: "0.2.0"),
    .package(url: "https://github.com/apple/swift-certificates", from: "1.21.0"),
    .package(url: "https://github.com/apple/swift-asn1", from: "1.7.0"),
    .package(url: "https://github.com/vapor/jwt-kit", from: "5.7.0"),
    // For configuration files, the gateway's hooks file and tests; swift-configuration depends on it anyway.
    .package(url: "https://github.com/jpsim/Yams", from: "6.2.0"),
    // The worker's client of the gateway and of webhooks' endpoints.
    .package(url: "https://github.com/swift-server/async-http-client", from: "1.37.0"),
    // The server of the push sandbox; async-http-client depends on it anyway.
    .package(url: "https://github.com/apple/swift-nio-http2", from: "1.46.0"),
    // The TLS settings of that client.
    .package(url: "https://github.com/apple/swift-nio-ssl", from: "2.36.0"),
  ],
  targets: [
    // MARK: Libraries of C, and files embedded as bytes

    .systemLibrary(name: "CNghttp2", pkgConfig: "libnghttp2", providers: [.apt(["libnghttp2-dev"])]),
    .systemLibrary(name: "COpenSSL", pkgConfig: "openssl", providers: [.apt(["libssl-dev"])]),
    .systemLibrary(name: "CRocksDB", pkgConfig: "rocksdb", providers: [.apt(["librocksdb-dev"])]),
    .systemLibrary(name: "CSpawn"),
    .systemLibrary(name: "CMalloc"),
    .target(name: "CRapidJSON"),
    // Files that the gateway serves, as bytes of the program.
    .target(name: "CEmbeddedFiles", exclude: ["console", "demo"], linkerSettings: [.linkedLibrary("z")]),

    // MARK: Model and wire

    .target(
      name: "ReceiptModel",
      dependencies: [
        .product(name: "BasicContainers", package: "swift-collections")
      ],
      swiftSettings: strict
    ),
    .target(name: "ReceiptWire", dependencies: ["ReceiptModel", nioCore], swiftSettings: strict),

    // MARK: Connections and operations of all services

    .target(name: "HTTP2Session", dependencies: ["CNghttp2", nioCore], swiftSettings: strict),
    .target(name: "TLSSession", dependencies: ["COpenSSL", nioCore], swiftSettings: strict),
    .target(
      name: "LinkSecurity",
      dependencies: ["TLSSession", "Operations", nioCore, logging, nioConcurrency],
      swiftSettings: strict
    ),
    .target(
      name: "Operations",
      dependencies: [
        nioCore, nioPosix, nioHTTP1, logging, system, configuration, lifecycle, signals, yams, nioConcurrency,
      ],
      swiftSettings: strict
    ),
    .target(
      name: "StoreClient",
      dependencies: ["LinkSecurity", "ReceiptModel", "ReceiptWire", "TLSSession", nioCore, nioPosix, crypto, logging],
      swiftSettings: strict
    ),

    // MARK: Store

    .target(
      name: "StoreEngine",
      dependencies: ["ReceiptModel", "ReceiptWire", nioCore, deque, heap, crypto],
      swiftSettings: strict
    ),
    .target(
      name: "StoreRocksDB",
      dependencies: ["StoreEngine", "ReceiptModel", "ReceiptWire", "CRocksDB", nioCore, nioConcurrency],
      swiftSettings: strict
    ),
    .target(
      name: "StoreEtcd",
      dependencies: [
        "HTTP2Session", "Operations", "ReceiptModel", "ReceiptWire", "StoreEngine", "TLSSession", nioCore, nioPosix,
      ],
      swiftSettings: strict
    ),
    .target(
      name: "ErasureLedger",
      dependencies: [crypto, nioConcurrency],
      swiftSettings: strict
    ),
    .target(
      name: "StoreServer",
      dependencies: [
        "ErasureLedger", "LinkSecurity", "Operations", "StoreClient", "StoreEngine", "ReceiptModel", "ReceiptWire",
        "TLSSession", nioCore, nioPosix, crypto, logging, deque, nioConcurrency,
      ],
      swiftSettings: strict
    ),
    .executableTarget(
      name: "tidemark-store",
      dependencies: [
        "ErasureLedger", "LinkSecurity", "StoreServer", "StoreEtcd", "StoreRocksDB", "StoreEngine", "ReceiptModel",
        "Operations", "TLSSession", arguments, logging, lifecycle, nioCore, nioPosix, nioConcurrency,
      ],
      swiftSettings: strict
    ),

    // MARK: Gateway

    .target(
      name: "Gateway",
      dependencies: [
        "CEmbeddedFiles", "CMalloc", "CRapidJSON", "HTTP2Session", "LinkSecurity", "TLSSession", "Operations",
        "ReceiptModel", "ReceiptWire", "StoreClient", nioCore, nioPosix, logging, crypto, jwt, lifecycle, deque, yams,
      ],
      swiftSettings: strict
    ),
    .executableTarget(
      name: "tidemark-gateway",
      dependencies: ["Gateway", "Operations", nioCore, nioPosix, arguments, logging],
      swiftSettings: strict
    ),

    // MARK: Worker

    // A client of the change feed, for tidemark-worker and `tidemark feed`.
    .target(
      name: "FeedClient",
      dependencies: ["HTTP2Session", "CommandOutput", "GatewayClient", "Operations", "TLSSession", nioCore, nioPosix],
      swiftSettings: strict
    ),
    .target(
      name: "Worker",
      dependencies: [
        "FeedClient", "HTTP2Session", "GatewayClient", "Operations", "TLSSession", asyncHTTPClient, crypto, jwt,
        lifecycle, logging, nioCore, nioHTTP1, nioPosix, nioSSL, yams,
      ],
      swiftSettings: strict
    ),
    .target(
      name: "PushSandbox",
      dependencies: [
        "FeedClient", "HTTP2Session", "GatewayClient", "LocalStack", "Operations", "TLSSession", "Worker", crypto,
        cryptoExtras, jwt, lifecycle, nioCore, nioHTTP1, nioHTTP2, nioPosix, nioSSL,
      ],
      swiftSettings: strict
    ),
    .executableTarget(
      name: "tidemark-worker",
      dependencies: ["FeedClient", "PushSandbox", "Worker", "Operations", arguments, logging, nioPosix],
      swiftSettings: strict
    ),

    // MARK: Tools

    // What commands print, and how an interrupt ends them.
    .target(name: "CommandOutput", dependencies: ["Operations", signals], swiftSettings: strict),
    // Option values and error output that the subcommands share.
    .target(
      name: "CommandSupport",
      dependencies: ["LinkSecurity", "CommandOutput", "Operations", arguments, logging, signals],
      swiftSettings: strict
    ),
    // Calls of a gateway, and the tokens for them.
    .target(
      name: "GatewayClient",
      dependencies: ["HTTP2Session", "TLSSession", "Operations", nioCore, nioPosix, jwt],
      swiftSettings: strict
    ),
    // Starts the services on this machine: their files, ports and processes.
    .target(
      name: "LocalStack",
      dependencies: ["CSpawn", "Operations", nioCore, crypto, x509, asn1],
      swiftSettings: strict
    ),
    .target(
      name: "Demo",
      dependencies: [
        "CommandOutput", "GatewayClient", "LocalStack", "HTTP2Session", "TLSSession", "Operations", "Watch",
      ],
      swiftSettings: strict
    ),
    .target(
      name: "Watch",
      dependencies: ["CommandOutput", "GatewayClient", "HTTP2Session", "TLSSession", "Operations", nioCore],
      swiftSettings: strict
    ),
    .target(
      name: "Transfer",
      dependencies: ["GatewayClient", "HTTP2Session", "TLSSession", "Operations", nioCore],
      swiftSettings: strict
    ),
    // Converts dumps of other products to lines of an import.
    .target(name: "DumpReaders", dependencies: ["ReceiptModel"], swiftSettings: strict),
    .target(
      name: "TicketPost",
      dependencies: ["GatewayClient", "LocalStack", "HTTP2Session", "TLSSession", "Operations"],
      swiftSettings: strict
    ),
    .target(
      name: "Probe",
      dependencies: [
        "ReceiptModel", "ReceiptWire", "HTTP2Session", "TLSSession", nioCore, nioPosix, crypto, arguments,
      ],
      swiftSettings: strict
    ),
    .target(
      name: "LoadGenerator",
      dependencies: [
        "CommandSupport", "CommandOutput", "GatewayClient", "LocalStack", "HTTP2Session", "LinkSecurity", "TLSSession",
        "Operations", "ReceiptModel", "ReceiptWire", "StoreClient", "IndexRebuild", "Transfer", nioCore, nioPosix,
        logging, histogram, arguments,
      ],
      swiftSettings: strict
    ),
    .target(
      name: "IndexRebuild",
      dependencies: [
        "LinkSecurity", "StoreClient", "Operations", "ReceiptModel", "ReceiptWire", nioCore, nioPosix, logging,
      ],
      swiftSettings: strict
    ),
    .target(
      name: "ClusterControl",
      dependencies: ["CommandOutput", "Operations", "StoreEngine", "StoreEtcd", nioCore, nioPosix],
      swiftSettings: strict
    ),
    .target(
      name: "Backup",
      dependencies: [
        "ErasureLedger", "HTTP2Session", "LinkSecurity", "CommandOutput", "GatewayClient", "LocalStack", "Operations",
        "ReceiptModel", "ReceiptWire", "StoreClient", "StoreEngine", "StoreRocksDB", "TLSSession", nioCore, nioPosix,
        crypto, logging,
      ],
      swiftSettings: strict
    ),
    .executableTarget(
      name: "tidemark",
      dependencies: [
        "Backup", "ClusterControl", "CommandSupport", "DumpReaders", "LinkSecurity", "CommandOutput", "GatewayClient",
        "LocalStack", "LoadGenerator", "Demo", "Watch", "TicketPost", "Transfer", "Probe", "IndexRebuild", "FeedClient",
        "HTTP2Session", "Operations", "StoreEngine", "StoreEtcd", "TLSSession", "Worker", arguments, logging, nioCore,
        signals,
      ],
      swiftSettings: strict
    ),

    // MARK: SDK

    // The SDK for apps on iOS and macOS, and for Swift servers. It has no dependencies.
    .target(name: "TidemarkClient", swiftSettings: client),
    // Plays SDK/scenario.json with TidemarkClient.
    .executableTarget(
      name: "SwiftScenarioPlayer",
      dependencies: ["TidemarkClient", crypto],
      path: "Tests/SwiftScenarioPlayer",
      swiftSettings: client
    ),

    // MARK: Support of tests

    // Shared by tests of several modules: waiting and taking turns; storage and stores in memory; programs and servers.
    .target(name: "TestSupport", path: "Tests/TestSupport", swiftSettings: strict),
    .target(
      name: "StoreTestSupport",
      dependencies: ["StoreEngine", "ReceiptModel", "ReceiptWire", "TestSupport", nioCore, nioPosix],
      path: "Tests/StoreTestSupport",
      swiftSettings: strict
    ),
    .target(
      name: "TestPrograms",
      dependencies: ["LocalStack", "HTTP2Session", "Operations", "TestSupport", nioCore, nioPosix],
      path: "Tests/TestPrograms",
      swiftSettings: strict
    ),
    // The oracle of ReceiptModelTests, which does not see the model, and is optimised without the tests around it.
    .target(name: "NaiveReceiptModel", path: "Tests/NaiveReceiptModel", swiftSettings: strict),

    // MARK: Tests of model and wire

    .testTarget(
      name: "ReceiptModelTests",
      dependencies: ["ReceiptModel", "NaiveReceiptModel", "TestSupport"],
      swiftSettings: strict
    ),
    .testTarget(
      name: "ReceiptWireTests",
      dependencies: ["ReceiptModel", "ReceiptWire", "TestSupport", nioCore],
      swiftSettings: strict
    ),

    // MARK: Tests of connections and operations

    .testTarget(
      name: "HTTP2SessionTests",
      dependencies: ["HTTP2Session", "TestSupport", nioCore, nioEmbedded],
      swiftSettings: strict
    ),
    .testTarget(
      name: "TLSSessionTests",
      dependencies: ["TLSSession", "COpenSSL", "TestPrograms", nioCore, nioEmbedded, nioPosix, nioConcurrency],
      swiftSettings: strict
    ),
    .testTarget(
      name: "OperationsTests",
      dependencies: ["Operations", "TestPrograms", "TestSupport", nioCore, nioPosix, logging, lifecycle],
      swiftSettings: strict
    ),
    .testTarget(
      name: "StoreClientTests",
      dependencies: [
        "StoreClient", "ReceiptModel", "ReceiptWire", "TestSupport", nioCore, nioEmbedded, nioPosix, crypto, logging,
      ],
      swiftSettings: strict
    ),

    // MARK: Tests of the store

    .testTarget(
      name: "StoreEngineTests",
      dependencies: ["StoreEngine", "ReceiptModel", "ReceiptWire", "StoreTestSupport", "TestSupport", nioCore],
      swiftSettings: strict
    ),
    .testTarget(
      name: "SimulationTests",
      dependencies: ["StoreEngine", "ReceiptModel", "ReceiptWire", "StoreTestSupport", "TestSupport", nioCore, deque],
      swiftSettings: strict
    ),
    .testTarget(
      name: "ClusterTests",
      dependencies: [
        "StoreEngine", "StoreClient", "StoreTestSupport", "ReceiptModel", "ReceiptWire", "TestSupport", deque, heap,
        nioCore, nioEmbedded, logging,
      ],
      swiftSettings: strict
    ),
    .testTarget(
      name: "StoreRocksDBTests",
      dependencies: ["StoreRocksDB", "StoreEngine", "ReceiptModel", "ReceiptWire", "TestSupport", nioCore],
      swiftSettings: strict
    ),
    .testTarget(
      name: "StoreEtcdTests",
      dependencies: [
        "LocalStack", "Operations", "ReceiptWire", "StoreEngine", "StoreEtcd", "StoreTestSupport", "TLSSession",
        "TestPrograms", "TestSupport", nioCore, nioPosix,
      ],
      swiftSettings: strict
    ),
    .testTarget(
      name: "ErasureLedgerTests",
      dependencies: ["ErasureLedger"],
      swiftSettings: strict
    ),
    .testTarget(
      name: "StoreServerTests",
      dependencies: [
        "StoreServer", "StoreClient", "StoreEngine", "StoreTestSupport", "Operations", "ReceiptModel", "ReceiptWire",
        "TestSupport", crypto, logging, nioCore, nioEmbedded, nioPosix,
      ],
      swiftSettings: strict
    ),

    // MARK: Tests of gateway and worker

    .testTarget(
      name: "GatewayTests",
      dependencies: [
        "Gateway", "LinkSecurity", "Operations", "HTTP2Session", "TLSSession", "StoreClient", "ReceiptModel",
        "ReceiptWire", "StoreEngine", "StoreTestSupport", "TestSupport", nioCore, nioPosix, crypto, cryptoExtras, jwt,
        logging, lifecycle, yams,
      ],
      swiftSettings: strict
    ),
    .testTarget(
      name: "WorkerTests",
      dependencies: [
        "FeedClient", "PushSandbox", "Worker", "HTTP2Session", "GatewayClient", "LocalStack", "Operations",
        "TLSSession", "TestPrograms", "TestSupport", crypto, logging, nioCore, nioHTTP1, nioPosix,
      ],
      swiftSettings: strict
    ),

    // MARK: Tests of tools and SDK

    .testTarget(
      name: "LocalStackTests",
      dependencies: [
        "CommandOutput", "GatewayClient", "LocalStack", "HTTP2Session", "Operations", "TLSSession", "TestSupport",
        nioCore, nioPosix, jwt,
      ],
      swiftSettings: strict
    ),
    .testTarget(
      name: "DemoTests",
      dependencies: ["Demo", "LocalStack", "Operations", "Watch"],
      swiftSettings: strict
    ),
    .testTarget(
      name: "WatchTests",
      dependencies: ["Watch", "GatewayClient", "HTTP2Session", "Operations", "TestPrograms", "TestSupport", nioCore],
      swiftSettings: strict
    ),
    .testTarget(
      name: "DumpReadersTests",
      dependencies: ["DumpReaders", "TestSupport"],
      exclude: ["Fixtures"],
      swiftSettings: strict
    ),
    .testTarget(
      name: "TransferTests",
      dependencies: ["Transfer", nioCore],
      swiftSettings: strict
    ),
    .testTarget(
      name: "TicketPostTests",
      dependencies: [
        "TicketPost", "GatewayClient", "LocalStack", "HTTP2Session", "Operations", "TestPrograms", nioCore,
      ],
      swiftSettings: strict
    ),
    .testTarget(
      name: "ProbeTests",
      dependencies: ["Probe", "HTTP2Session", "ReceiptModel", "ReceiptWire", "TestSupport", nioCore, nioPosix, crypto],
      swiftSettings: strict
    ),
    .testTarget(
      name: "LoadGeneratorTests",
      dependencies: [
        "LoadGenerator", "GatewayClient", "LocalStack", "HTTP2Session", "Operations", "ReceiptModel", "ReceiptWire",
        "TestPrograms", "TestSupport", arguments, nioCore, nioEmbedded, nioPosix,
      ],
      swiftSettings: strict
    ),
    .testTarget(
      name: "IndexRebuildTests",
      dependencies: [
        "IndexRebuild", "Operations", "ReceiptModel", "ReceiptWire", "StoreTestSupport", "TestSupport", nioCore,
        nioPosix,
      ],
      swiftSettings: strict
    ),
    .testTarget(
      name: "ClusterControlTests",
      dependencies: [
        "ClusterControl", "LocalStack", "Operations", "StoreEngine", "StoreEtcd", "StoreTestSupport", "TestPrograms",
        "TestSupport", nioCore, nioPosix,
      ],
      swiftSettings: strict
    ),
    .testTarget(
      name: "BackupTests",
      dependencies: [
        "Backup", "ErasureLedger", "Operations", "ReceiptModel", "ReceiptWire", "StoreEngine", "StoreRocksDB",
        "StoreTestSupport", "TestSupport", nioCore, nioPosix,
      ],
      swiftSettings: strict
    ),
    .testTarget(
      name: "TidemarkClientTests",
      dependencies: ["TidemarkClient", "TestSupport"],
      swiftSettings: client
    ),

    // MARK: Tests of the real programs and of the repository

    .testTarget(
      name: "IntegrationTests",
      // The store's own engine and pages too: to break by hand what a store that stands still has written.
      dependencies: [
        "HTTP2Session", "GatewayClient", "LocalStack", "Operations", "ReceiptModel", "ReceiptWire", "StoreEngine",
        "StoreRocksDB", "TLSSession", "TestPrograms", "TestSupport", nioCore, nioPosix, nioConcurrency,
      ],
      exclude: ["Clients", "Fixtures"],
      swiftSettings: strict
    ),
    // The texts of the repository: documents, comments, names of tests.
    .testTarget(name: "RepositoryTests", dependencies: ["TestSupport"], swiftSettings: strict),
  ],
  swiftLanguageModes: [.v6],
  cxxLanguageStandard: .cxx17
)

// The Makefile's debug builds compile what computes for minutes in tests with optimisation and with assertions. Test
// targets that take longer to optimise than they then save are not among them. Only the Makefile asks for it: unsafe
// flags stay out of the manifest that users of the package resolve.
if Context.environment["TIDEMARK_OPTIMIZED_ENGINE"] == "1" {
  let computing: Set = [
    "ReceiptModel", "ReceiptWire", "StoreEngine", "TestSupport", "NaiveReceiptModel", "SimulationTests", "ClusterTests",
  ]
  for target in package.targets where computing.contains(target.name) {
    target.swiftSettings = (target.swiftSettings ?? []) + [.unsafeFlags(["-O", "-assert-config", "Debug"])]
  }
}

// Continuous integration compiles the product as release builds do, without checks of exclusive access at run time.
// Tests on a developer's machine run with them.
if Context.environment["TIDEMARK_UNCHECKED_EXCLUSIVITY"] == "1" {
  for target in package.targets where [.regular, .executable].contains(target.type) && target.path == nil {
    target.swiftSettings = (target.swiftSettings ?? []) + [.unsafeFlags(["-enforce-exclusivity=unchecked"])]
  }
}

// `make test-target TARGET=ReceiptModelTests` builds and runs some test targets without compiling the others.
if let names = Context.environment["TIDEMARK_TEST_TARGETS"]?.split(separator: ",") {
  package.targets.removeAll { target in target.type == .test && !names.contains { $0 == target.name } }
}
