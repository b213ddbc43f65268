internal import AsyncHTTPClient
internal import Foundation
internal import NIOCore
internal import NIOHTTP1
internal import NIOPosix
internal import NIOSSL
internal import Operations
internal import Synchronization

/// Response of an endpoint.
struct EndpointResponse: Sendable {
  /// Status, 100 to 599.
  var status: Int
  /// Headers with names in lower case; of a repeated name the first.
  var headers: [String: String]
  /// The beginning of the body: at most ``CheckedEndpoint/Settings/bodyByteCountMax`` bytes.
  var body: [UInt8]
}

/// HTTP client of one origin. It calls only addresses that the rules allow.
///
/// The host is resolved here, every address is checked, and the HTTP client connects to exactly the address that was
/// checked; the certificate is verified for the host. So a name that resolves to another address later (DNS rebinding)
/// has no effect before that address is checked too.
///
/// swift-nio-ssl accepts a certificate for the host, and also one for the connected address itself (an IP address among
/// its names), whatever the host is.
final class CheckedEndpoint: Sendable {
  /// Settings of the connections.
  struct Settings: Sendable {
    /// The origin; the path is not used.
    var url: EndpointURL
    /// Limit of a whole request, in milliseconds.
    var timeoutMilliseconds: Int64
    /// Maximum number of connections with HTTP/1.1.
    var connectionCountMax: Int
    /// Whether the host may have an address that is not public.
    var allowsPrivateAddresses: Bool
    /// File of an additional trust root, PEM.
    var authorityFile: String?
    /// HTTP versions that the endpoint is offered.
    var version = WebhookTask.Version.auto
    /// Bytes of a response's body that are read.
    var bodyByteCountMax = 4 * 1_024
  }

  /// How long a resolved address is used before the host is resolved again.
  private static let addressLifetime = Duration.seconds(30)
  private static let connectTimeoutMax = TimeAmount.seconds(10)

  /// A client for one address, with its requests in flight. It is shut down after the last.
  private struct Client: Sendable {
    var client: HTTPClient
    var address: SocketAddress?
    var resolvedAt: ContinuousClock.Instant
  }

  private struct State {
    var current: Client?
    /// Requests in flight, by the identity of their client.
    var uses: [ObjectIdentifier: Int] = [:]
    /// Clients that were replaced while they had requests in flight.
    var retired: [ObjectIdentifier: HTTPClient] = [:]
    /// Index of the address to try, after connections to others have failed.
    var rotation = 0
  }

  /// An address that may not be used.
  private struct AddressFault: Error {
    var detail: String
    /// Whether the rules refuse the address.
    var isRefused = false
  }

  private let settings: Settings
  private let lookup: HostResolver.Lookup
  private let state = Mutex(State())

  /// Create a client without connections.
  init(_ settings: Settings, lookup: @escaping HostResolver.Lookup) {
    self.settings = settings
    self.lookup = lookup
  }

  /// Post a body. The call ends within the timeout, and soon after its task is cancelled.
  ///
  /// - Parameter path: from "/".
  func post(
    _ path: String,
    headers: [(String, String)],
    body: [UInt8]
  ) async -> Result<EndpointResponse, DeliveryFailure> {
    let work = Task { await self.attempt(path, headers, body) }
    let timer = MultiThreadedEventLoopGroup.singleton.next()
      .scheduleTask(in: .milliseconds(settings.timeoutMilliseconds)) { work.cancel() }
    defer { timer.cancel() }
    return await withTaskCancellationHandler {
      await work.value
    } onCancel: {
      work.cancel()
    }
  }

  private func attempt(
    _ path: String,
    _ headers: [(String, String)],
    _ body: [UInt8]
  ) async -> Result<EndpointResponse, DeliveryFailure> {
    guard let url = settings.url.appending(path: path) else {
      return .failure(DeliveryFailure(.address, "the path is malformed"))
    }
    let client: HTTPClient
    do {
      client = try await self.client()
    } catch let fault as AddressFault {
      var failure = DeliveryFailure(.address, fault.detail)
      failure.isAddressRefused = fault.isRefused
      return .failure(failure)
    } catch {
      if Task.isCancelled { return .failure(DeliveryFailure(.timeout, "no address in time")) }
      return .failure(DeliveryFailure(.address, ErrorText.of(error)))
    }
    defer { release(client) }
    var request = HTTPClientRequest(url: url.text)
    request.method = .POST
    request.headers = HTTPHeaders(headers)
    request.headers.add(name: "user-agent", value: "tidemark-worker/\(ProductVersion.current)")
    request.body = .bytes(ByteBuffer(bytes: body))
    do {
      let response = try await client.execute(
        request,
        deadline: .now() + .milliseconds(settings.timeoutMilliseconds)
      )
      var fields: [String: String] = [:]
      for (name, value) in response.headers { fields[name.lowercased()] = fields[name.lowercased()] ?? value }
      let status = Int(response.status.code)
      return .success(EndpointResponse(status: status, headers: fields, body: try await start(of: response)))
    } catch {
      return .failure(failure(of: error))
    }
  }

  private func start(of response: HTTPClientResponse) async throws -> [UInt8] {
    var start: [UInt8] = []
    for try await part in response.body {
      start += part.readableBytesView.prefix(settings.bodyByteCountMax - start.count)
      if start.count >= settings.bodyByteCountMax { break }
    }
    return start
  }

  private func failure(of error: any Error) -> DeliveryFailure {
    if Task.isCancelled || error is CancellationError {
      return DeliveryFailure(
        .timeout,
        "no response within \(TimeSpan.text(milliseconds: settings.timeoutMilliseconds))"
      )
    }
    switch error as? HTTPClientError {
    case .deadlineExceeded, .readTimeout, .writeTimeout, .cancelled:
      return DeliveryFailure(
        .timeout,
        "no response within \(TimeSpan.text(milliseconds: settings.timeoutMilliseconds))"
      )
    default:
      // The next attempt may use another address.
      state.withLock { state in
        state.rotation &+= 1
        state.current?.resolvedAt = .now - Self.addressLifetime
      }
      return DeliveryFailure(.connection, String(Self.text(of: error).prefix(200)))
    }
  }

  private static func text(of error: any Error) -> String {
    if let error = error as? HTTPClientError { return error.shortDescription }
    if error is NIOSSLError || error is BoringSSLError {
      // The library's own text contains the paths of its sources.
      let reason = "\(error)".firstMatch(of: /OPENSSL_internal:(\w+)/)?.1
      return "the TLS handshake failed" + (reason.map { ": \($0)" } ?? "")
    }
    return ErrorText.of(error)
  }

  // MARK: Clients

  /// Return the client for an address that was checked within the last 30 s, and count its use.
  private func client() async throws -> HTTPClient {
    if let client = state.withLock({ Self.use(&$0, resolvedAfter: .now - Self.addressLifetime) }) { return client }
    let address = try await checkedAddress()
    let (client, unused) = state.withLock { state in
      if let address, state.current?.address == address {
        state.current?.resolvedAt = .now
      } else {
        Self.retire(&state)
        state.current = Client(client: makeClient(address), address: address, resolvedAt: .now)
      }
      let client = Self.use(&state, resolvedAfter: .now - Self.addressLifetime)
      let unused = state.retired.filter { state.uses[$0.key] == nil }
      for key in unused.keys { state.retired[key] = nil }
      return (client, Array(unused.values))
    }
    for client in unused { shutDown(client) }
    guard let client else { throw AddressFault(detail: "the clock has jumped") }
    return client
  }

  private static func use(_ state: inout State, resolvedAfter time: ContinuousClock.Instant) -> HTTPClient? {
    guard let current = state.current, current.resolvedAt > time else { return nil }
    state.uses[ObjectIdentifier(current.client), default: 0] += 1
    return current.client
  }

  private static func retire(_ state: inout State) {
    guard let old = state.current?.client else { return }
    state.retired[ObjectIdentifier(old)] = old
    state.current = nil
  }

  private func release(_ client: HTTPClient) {
    let unused = state.withLock { state -> HTTPClient? in
      let key = ObjectIdentifier(client)
      let count = (state.uses[key] ?? 1) - 1
      state.uses[key] = count > 0 ? count : nil
      return count > 0 ? nil : state.retired.removeValue(forKey: key)
    }
    if let unused { shutDown(unused) }
  }

  /// Return an address that may be called. All addresses of the host have to be allowed.
  private func checkedAddress() async throws -> SocketAddress? {
    let addresses: [SocketAddress]
    if let literal = settings.url.literalAddress {
      addresses = [literal]
    } else {
      addresses = try await lookup(settings.url.host, settings.url.port)
    }
    if !settings.allowsPrivateAddresses {
      for address in addresses {
        guard let kind = AddressRules.refusal(of: address) else { continue }
        let text = address.ipAddress ?? "?"
        throw AddressFault(
          detail: "\(settings.url.host) has the \(kind) address \(text); allow_private permits it",
          isRefused: true
        )
      }
    }
    guard !addresses.isEmpty else { throw AddressFault(detail: "\(settings.url.host) has no address") }
    return addresses[abs(state.withLock { $0.rotation }) % addresses.count]
  }

  private func makeClient(_ address: SocketAddress?) -> HTTPClient {
    var configuration = HTTPClient.Configuration(redirectConfiguration: .disallow)
    let timeout = TimeAmount.milliseconds(settings.timeoutMilliseconds)
    configuration.timeout = .init(connect: min(timeout, Self.connectTimeoutMax), read: timeout)
    configuration.connectionPool.retryConnectionEstablishment = false
    configuration.connectionPool.concurrentHTTP1ConnectionsPerHostSoftLimit = settings.connectionCountMax
    configuration.httpVersion = settings.version == .http1 ? .http1Only : .automatic
    if settings.url.literalAddress == nil, let ip = address?.ipAddress {
      configuration.dnsOverride = [settings.url.host: ip]
    }
    var tls = TLSConfiguration.makeClientConfiguration()
    if let file = settings.authorityFile { tls.additionalTrustRoots = [.file(file)] }
    configuration.tlsConfiguration = tls
    return HTTPClient(eventLoopGroup: MultiThreadedEventLoopGroup.singleton, configuration: configuration)
  }

  private func shutDown(_ client: HTTPClient) { client.shutdown { _ in } }

  /// Close all connections. No attempt may be in flight.
  func shutDown() async {
    let clients = state.withLock { state in
      Self.retire(&state)
      defer { state.retired = [:] }
      return Array(state.retired.values)
    }
    for client in clients { try? await client.shutdown().get() }
  }
}
