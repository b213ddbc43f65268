public import Foundation

/// A request of the client, with its credential among the headers.
public struct TransportRequest: Sendable {
  /// Such as `POST`.
  public var method: String
  /// Path and query, percent-encoded, from `/v1` on.
  public var path: String
  /// Headers by their names in lower case.
  public var headers: [String: String]
  /// The body; nil: none.
  public var body: Data?

  /// Describe a request.
  public init(method: String, path: String, headers: [String: String], body: Data? = nil) {
    self.method = method
    self.path = path
    self.headers = headers
    self.body = body
  }
}

/// The response to a request. Its body may still be arriving, and of an event stream it has no end.
public struct TransportResponse: Sendable {
  /// The HTTP status.
  public var status: Int
  /// Headers by their names in lower case.
  public var headers: [String: String]
  /// The body as it arrives. It throws if the connection is lost; whoever stops reading cancels the request.
  public var chunks: AsyncThrowingStream<Data, any Error>

  /// Describe a response.
  public init(status: Int, headers: [String: String], chunks: AsyncThrowingStream<Data, any Error>) {
    self.status = status
    self.headers = headers
    self.chunks = chunks
  }
}

/// Carries requests to the gateway over HTTP/2. ``URLSessionTransport`` is the one for apps; a server may bring its
/// own.
public protocol Transport: Sendable {
  /// Perform a request, and return when the headers of its response are there.
  ///
  /// - Throws: Any error, if there is no response. The request ends soon after the task is cancelled.
  func open(_ request: TransportRequest) async throws -> TransportResponse

  /// Drop connections on which nothing arrives, with their requests.
  func reset()

  /// Fail all requests, also later ones.
  func close()
}
