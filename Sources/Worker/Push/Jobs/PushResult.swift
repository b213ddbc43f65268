/// What became of a push to one device.
package enum PushOutcome: Sendable, Hashable {
  /// The provider has accepted the push. The id is the provider's own, if it gives one.
  case accepted(id: String?)
  /// No push was sent, because the user has the message already, or is no recipient of it.
  case skipped(code: String)
  /// The device no longer exists: its owner removes it.
  case gone(code: String)
  /// The provider refuses this push for good; repeating it does not help.
  case rejected(code: String, detail: String)
  /// No attempt has succeeded so far: the caller may send the line again.
  case failed(code: String, detail: String)

  /// Value of `result`, and of the metrics' label.
  package var label: String {
    switch self {
    case .accepted: "accepted"
    case .skipped: "skipped"
    case .gone: "gone"
    case .rejected: "rejected"
    case .failed: "failed"
    }
  }
}

/// Where a job comes from, for its results.
package enum PushJobOrigin: Sendable, Hashable {
  /// Number of the input line, from 1.
  case line(Int)
  /// The gateway's name of a job of its queue.
  case queue(String)

  fileprivate var member: (name: String, value: JSONValue) {
    switch self {
    case .line(let number): ("line", .integer(Int64(number)))
    case .queue(let id): ("job_id", .string(id))
    }
  }
}

/// Lines of the output.
package enum PushResultLine {
  /// A device's result.
  ///
  /// - Parameters:
  ///   - attempts: requests to the provider.
  ///   - reportCode: why an accepted push could not be reported to the gateway; nil otherwise.
  package static func device(
    _ origin: PushJobOrigin,
    job: PushJob,
    userID: String,
    device: PushDevice,
    outcome: PushOutcome,
    attempts: Int,
    reportCode: String? = nil
  ) -> String {
    var members: [String: JSONValue] = [
      origin.member.name: origin.member.value, "user_id": .string(userID), "provider": .string(device.provider),
      "result": .string(outcome.label), "attempts": .integer(Int64(attempts)),
    ]
    members["id"] = job.id.map { .string($0) }
    switch device.address {
    case .token(let token): members["token"] = .string(token)
    case .subscription(let subscription): members["endpoint"] = .string(subscription.endpoint)
    }
    switch outcome {
    case .accepted(let id): members["provider_message_id"] = id.map { .string($0) }
    case .skipped(let code), .gone(let code): members["code"] = .string(code)
    case .rejected(let code, let detail), .failed(let code, let detail):
      members["code"] = .string(code)
      if !detail.isEmpty { members["detail"] = .string(detail) }
    }
    members["report_code"] = reportCode.map { .string($0) }
    return JSONValue.object(members).text
  }

  /// The last line of a job: the number of its devices, by result.
  package static func done(_ origin: PushJobOrigin, job: PushJob, counts: [String: Int]) -> String {
    var members: [String: JSONValue] = [
      origin.member.name: origin.member.value, "done": .boolean(true),
      "devices": .integer(Int64(counts.values.reduce(0, +))),
    ]
    members["id"] = job.id.map { .string($0) }
    for (label, count) in counts { members[label] = .integer(Int64(count)) }
    return JSONValue.object(members).text
  }

  /// The only line of an input line, or of an entry of the queue, that is no job.
  package static func error(_ origin: PushJobOrigin, _ error: PushJobError) -> String {
    JSONValue.object([
      origin.member.name: origin.member.value, "done": .boolean(true), "code": .string(error.code),
      "detail": .string(error.detail),
    ]).text
  }
}
