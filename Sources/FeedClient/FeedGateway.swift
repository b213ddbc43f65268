internal import Foundation
package import GatewayClient
package import HTTP2Session
internal import Operations
package import TLSSession

/// Refusal or failure of a call to the gateway.
package struct GatewayError: Error, CustomStringConvertible {
  /// Status; 0 without a response.
  package var status: Int
  /// Code of the problem document; empty without one.
  package var code: String
  /// The problem, for logs and `/ready`.
  package var description: String

  package init(_ response: HTTPCallResponse) {
    let (code, detail) = ProblemDocument.parts(of: response.body)
    status = response.status
    self.code = code
    description = "the gateway answered " + ["\(status)", code, detail].filter { !$0.isEmpty }.joined(separator: " ")
  }

  package init(_ description: String) {
    (status, code, self.description) = (0, "", description)
  }

  /// An entry of a batch was refused with a code.
  package init(entry code: String) {
    (status, self.code, description) = (200, code, "the gateway answered \(code)")
  }
}

/// Client of a gateway's routes about the change feed. All calls share one connection, which is opened when it is
/// needed.
package final class FeedGateway: Sendable {
  /// The gateway's URL.
  package let url: GatewayURL
  package let tls: TLSContext?
  package let credential: ServerCredential
  private let client: ReconnectingHTTP2Client

  /// - Parameter tls: for a gateway with TLS.
  package init(url: GatewayURL, tls: TLSContext?, credential: ServerCredential) {
    self.url = url
    self.tls = tls
    self.credential = credential
    client = ReconnectingHTTP2Client(url: url, tls: tls)
  }

  // MARK: Routes

  /// Consumer of the feed as the gateway describes it.
  package struct Consumer: Decodable, Sendable {
    /// Partition of a consumer.
    package struct Partition: Decodable, Sendable {
      /// Such as `3/8`.
      package var partition: String
      /// Epoch of the newest stream.
      package var epoch: Int64?
      /// Records that are not committed.
      package var lagRecords: Int64?
      /// Time since the last committed record, or since the consumer was created, in seconds; 0 without lag.
      package var lagSeconds: Double?
      /// The stored state; only told of a single consumer.
      package var state: String?

      enum CodingKeys: String, CodingKey {
        case partition, epoch, state
        case lagRecords = "lag_records"
        case lagSeconds = "lag_seconds"
      }
    }

    /// The consumer's name.
    package var name: String
    /// Partitions of the current division.
    package var partitions: [Partition]
  }

  /// All consumers.
  package struct Consumers: Decodable, Sendable {
    /// Nil: the feed is not limited by time.
    package var retentionSeconds: Int64?
    /// Every consumer of the feed.
    package var consumers: [Consumer]

    enum CodingKeys: String, CodingKey {
      case retentionSeconds = "retention_seconds"
      case consumers
    }
  }

  private struct NewConsumer: Encodable {
    var from: String
    var types: [String]?
    var channelTypes: [String]?

    enum CodingKeys: String, CodingKey {
      case from, types
      case channelTypes = "channel_types"
    }
  }

  private struct CommitRequest: Encodable {
    var partition: String
    var cursor: String?
    var epoch: Int64?
    var state: String?
  }

  private struct LeaseRequest: Encodable {
    var worker: String
    var partitions: Int
    var held: [String]
    var ttlSeconds: Int

    enum CodingKeys: String, CodingKey {
      case worker, partitions, held
      case ttlSeconds = "ttl_seconds"
    }
  }

  private struct LeaseResponse: Decodable {
    var partitions: [String]
  }

  /// Create a consumer, if there is none.
  ///
  /// - Parameters:
  ///   - start: `now`, `earliest` or a time.
  ///   - types: of records; empty: all.
  ///   - channelTypes: empty: all.
  package func createConsumer(_ name: String, from start: String, types: [String], channelTypes: [String]) async throws
  {
    let body = NewConsumer(
      from: start,
      types: types.isEmpty ? nil : types,
      channelTypes: channelTypes.isEmpty ? nil : channelTypes
    )
    _ = try await call(.put, "/v1/feed/consumers/\(name)", body)
  }

  /// Delete a consumer. Repeats succeed.
  package func deleteConsumer(_ name: String) async throws {
    _ = try await call(.delete, "/v1/feed/consumers/\(name)")
  }

  /// Return all consumers, with their lag.
  package func consumers() async throws -> Consumers {
    try await decode(call(.get, "/v1/feed/consumers"))
  }

  /// Return a consumer with the state of its partitions.
  package func consumer(_ name: String) async throws -> Consumer {
    try await decode(call(.get, "/v1/feed/consumers/\(name)"))
  }

  /// Ask for the partitions that this worker may serve.
  ///
  /// - Parameter ttlSeconds: how long the answer holds; 0 leaves.
  package func lease(
    _ consumer: String,
    worker: String,
    partitionCount: Int,
    held: [String],
    ttlSeconds: Int
  ) async throws -> [String] {
    let body = LeaseRequest(worker: worker, partitions: partitionCount, held: held, ttlSeconds: ttlSeconds)
    let response: LeaseResponse = try await decode(call(.post, "/v1/feed/consumers/\(consumer)/lease", body))
    return response.partitions
  }

  /// Commit a position, store a state, or both.
  ///
  /// - Throws: ``GatewayError``; its code is `lease_lost` if the epoch is no longer current.
  package func commit(
    _ consumer: String,
    partition: String,
    epoch: Int64?,
    cursor: String? = nil,
    state: String? = nil
  ) async throws {
    let body = CommitRequest(partition: partition, cursor: cursor, epoch: epoch, state: state)
    _ = try await call(.post, "/v1/feed/consumers/\(consumer)/commit", body)
  }

  // MARK: Calls

  package func call(_ method: HTTP2Method, _ path: String, _ body: some Encodable) async throws -> [UInt8] {
    let encoder = JSONEncoder()
    encoder.outputFormatting = .withoutEscapingSlashes
    return try await call(method, path, bytes: Array(encoder.encode(body)))
  }

  package func call(_ method: HTTP2Method, _ path: String, bytes: [UInt8]? = nil) async throws -> [UInt8] {
    let token = try await credential.token()
    let response: HTTPCallResponse
    do {
      response = try await client.call(method, path, body: bytes, token: token)
    } catch {
      throw GatewayError("no response from the gateway: \(ErrorText.of(error))")
    }
    guard (200..<300).contains(response.status) else { throw GatewayError(response) }
    return response.body
  }

  package func decode<Value: Decodable>(_ body: [UInt8]) throws -> Value {
    do {
      return try JSONDecoder().decode(Value.self, from: Data(body))
    } catch {
      throw GatewayError("the gateway's response cannot be read: \(error)")
    }
  }

  /// Close the connection.
  package func close() async { await client.close() }
}
