internal import AsyncHTTPClient
internal import Foundation
internal import NIOCore
internal import NIOHTTP1
internal import NIOPosix
internal import NIOSSL
internal import Operations
internal import Synchronization

/// Client of a webhook's endpoint.
///
/// The host is resolved here, every address is checked, and the HTTP client connects to exactly the address that was
/// checked; the certificate is verified for the host. So a name that resolves to another address later (DNS rebinding)
/// has no effect before that address is checked too.
///
/// swift-nio-ssl accepts a certificate for the host, and also one for the connected address itself (an IP address among
/// its names), whatever the host is.
package final class WebhookEndpoint: Sendable {
  /// How long a resolved address is used before the host is resolved again.
  private static let addressLifetime = Duration.seconds(30)
  /// Bytes of a response's body that are read for an error's excerpt.
  private static let excerptByteCountMax = 4 * 1_024
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
  }

  private let task: WebhookTask
  private let signature: WebhookSignature
  private let lookup: HostResolver.Lookup
  private let state = Mutex(State())

  /// Create a client without connections.
  package init(_ task: WebhookTask, lookup: @escaping HostResolver.Lookup = HostResolver.system) {
    self.task = task
    signature = WebhookSignature(secrets: task.secrets)
    self.lookup = lookup
  }

  /// Make one attempt to deliver a batch. It ends within the task's timeout, and soon after its task is cancelled.
  package func deliver(_ batch: Batch) async -> DeliveryOutcome {
    let work = Task { await self.attempt(batch) }
    let timer = MultiThreadedEventLoopGroup.singleton.next()
      .scheduleTask(in: .milliseconds(task.timeoutMilliseconds)) { work.cancel() }
    defer { timer.cancel() }
    return await withTaskCancellationHandler {
      await work.value
    } onCancel: {
      work.cancel()
    }
  }

  private func attempt(_ batch: Batch) async -> DeliveryOutcome {
    let client: HTTPClient
    do {
      client = try await self.client()
    } catch let fault as AddressFault {
      return .failed(DeliveryFailure(.address, fault.detail))
    } catch {
      if Task.isCancelled { return .failed(DeliveryFailure(.timeout, "no address in time")) }
      return .failed(DeliveryFailure(.address, ErrorText.of(error)))
    }
    defer { release(client) }
    do {
      let response = try await client.execute(
        request(batch),
        deadline: .now() + .milliseconds(task.timeoutMilliseconds)
      )
      let excerpt = try await excerpt(of: response)
      let status = Int(response.status.code)
      if (200..<300).contains(status) { return .delivered }
      let failure = DeliveryFailure.status(
        status,
        location: response.headers.first(name: "location"),
        retryAfter: response.headers.first(name: "retry-after"),
        excerpt: excerpt,
        now: Times.now
      )
      return .failed(failure)
    } catch {
      return .failed(failure(of: error))
    }
  }

  private func request(_ batch: Batch) -> HTTPClientRequest {
    let seconds = Times.now / 1_000
    var request = HTTPClientRequest(url: task.url.text)
    request.method = .POST
    request.headers = [
      "content-type": "application/json",
      "user-agent": "tidemark-worker/\(ProductVersion.current)",
      "webhook-id": batch.id,
      "webhook-timestamp": "\(seconds)",
      "webhook-signature": signature.header(id: batch.id, seconds: seconds, body: batch.body),
    ]
    request.body = .bytes(ByteBuffer(bytes: batch.body))
    return request
  }

  private func excerpt(of response: HTTPClientResponse) async throws -> String {
    var excerpt: [UInt8] = []
    for try await part in response.body {
      excerpt += part.readableBytesView.prefix(Self.excerptByteCountMax - excerpt.count)
      if excerpt.count >= Self.excerptByteCountMax { break }
    }
    return String(decoding: excerpt, as: UTF8.self)
  }

  private func failure(of error: any Error) -> DeliveryFailure {
    if Task.isCancelled || error is CancellationError {
      return DeliveryFailure(.timeout, "no response within \(TimeSpan.text(milliseconds: task.timeoutMilliseconds))")
    }
    switch error as? HTTPClientError {
    case .deadlineExceeded, .readTimeout, .writeTimeout, .cancelled:
      return DeliveryFailure(.timeout, "no response within \(TimeSpan.text(milliseconds: task.timeoutMilliseconds))")
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
    if let literal = task.url.literalAddress {
      addresses = [literal]
    } else {
      addresses = try await lookup(task.url.host, task.url.port)
    }
    if !task.allowsPrivateAddresses {
      for address in addresses {
        guard let kind = AddressRules.refusal(of: address) else { continue }
        let text = address.ipAddress ?? "?"
        throw AddressFault(detail: "\(task.url.host) has the \(kind) address \(text); allow_private permits it")
      }
    }
    guard !addresses.isEmpty else { throw AddressFault(detail: "\(task.url.host) has no address") }
    return addresses[abs(state.withLock { $0.rotation }) % addresses.count]
  }

  private func makeClient(_ address: SocketAddress?) -> HTTPClient {
    var configuration = HTTPClient.Configuration(redirectConfiguration: .disallow)
    let timeout = TimeAmount.milliseconds(task.timeoutMilliseconds)
    configuration.timeout = .init(connect: min(timeout, Self.connectTimeoutMax), read: timeout)
    configuration.connectionPool.retryConnectionEstablishment = false
    configuration.connectionPool.concurrentHTTP1ConnectionsPerHostSoftLimit = task.partitionCount
    configuration.httpVersion = task.version == .http1 ? .http1Only : .automatic
    if task.url.literalAddress == nil, let ip = address?.ipAddress { configuration.dnsOverride = [task.url.host: ip] }
    var tls = TLSConfiguration.makeClientConfiguration()
    if let file = task.authorityFile { tls.additionalTrustRoots = [.file(file)] }
    configuration.tlsConfiguration = tls
    return HTTPClient(eventLoopGroup: MultiThreadedEventLoopGroup.singleton, configuration: configuration)
  }

  private func shutDown(_ client: HTTPClient) { client.shutdown { _ in } }

  /// Close all connections. No attempt may be in flight.
  package func shutDown() async {
    let clients = state.withLock { state in
      Self.retire(&state)
      defer { state.retired = [:] }
      return Array(state.retired.values)
    }
    for client in clients { try? await client.shutdown().get() }
  }
}
