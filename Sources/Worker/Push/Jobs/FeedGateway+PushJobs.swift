package import FeedClient
internal import HTTP2Session
internal import Operations

/// A job of the gateway's queue, claimed by this worker.
package struct ClaimedJob: Sendable {
  /// The gateway's name of the job.
  package var id: String
  /// Time since it was queued, in seconds.
  package var ageSeconds: Int64
  /// The job; an error if this worker cannot read it.
  package var job: Result<PushJob, PushJobError>
}

extension FeedGateway {
  private struct ClaimRequest: Encodable {
    var limit: Int
    var lease_seconds: Int
  }

  private struct RenewRequest: Encodable {
    var ids: [String]
    var lease_seconds: Int
  }

  private struct DoneRequest: Encodable {
    var ids: [String]
  }

  private struct UnknownAnswer: Decodable {
    var unknown: [String]
  }

  /// Most jobs of one request.
  package static let jobsMax = 1_000

  /// Claim jobs. Until the lease ends no other worker gets them.
  ///
  /// - Returns: the jobs, and whether the gateway has more.
  package func claimJobs(limit: Int, leaseSeconds: Int) async throws -> (jobs: [ClaimedJob], hasMore: Bool) {
    let body = ClaimRequest(limit: limit, lease_seconds: leaseSeconds)
    guard let answer = JSONValue(parsing: try await call(.post, "/v1/push/jobs/claim", body)),
      let list = answer["jobs"]?.array
    else { throw GatewayError("the gateway's response has no jobs") }
    let jobs = try list.map { entry in
      guard let id = entry["id"]?.string, let value = entry["job"] else {
        throw GatewayError("the gateway's response has a job without id")
      }
      let now = Times.now
      let created = entry["created_at"]?.string.flatMap { Times.milliseconds($0) } ?? now
      return ClaimedJob(id: id, ageSeconds: max(0, (now - created) / 1_000), job: Self.job(value))
    }
    return (jobs, answer["more"] == .boolean(true))
  }

  private static func job(_ value: JSONValue) -> Result<PushJob, PushJobError> {
    do throws(PushJobError) { return .success(try PushJob(value)) } catch { return .failure(error) }
  }

  /// Renew the claims on jobs; with no seconds, give the jobs back.
  ///
  /// - Returns: jobs that no longer exist.
  package func renewJobs(_ ids: [String], leaseSeconds: Int) async throws -> [String] {
    let body = RenewRequest(ids: ids, lease_seconds: leaseSeconds)
    let answer: UnknownAnswer = try await decode(call(.post, "/v1/push/jobs/renew", body))
    return answer.unknown
  }

  /// Report jobs: the gateway forgets them.
  package func finishJobs(_ ids: [String]) async throws {
    _ = try await call(.post, "/v1/push/jobs/done", DoneRequest(ids: ids))
  }
}
