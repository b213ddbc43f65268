/// One push for one device.
package struct PushNotification: Sendable, Hashable {
  /// What the push says.
  package var content: PushContent
  /// Ticket with which the device reports the delivery.
  package var ticket: String
  /// Unread messages of the user; nil: no badge is sent.
  package var badge: Int64?

  /// Members of the payload: identifiers, `data`, title and body, ticket and badge.
  package var members: [String: JSONValue] { content.members(ticket: ticket, badge: badge) }
}

/// A provider's answer to one request.
package enum PushAnswer: Error, Sendable, Hashable {
  /// Whom a provider asks to slow down.
  package enum Scope: Sendable, Hashable {
    case device
    case provider
  }

  case accepted(id: String?)
  /// The device no longer exists.
  case gone(code: String)
  /// This push is refused for good.
  case rejected(code: String, detail: String)
  case throttled(Scope, retryAfterMilliseconds: Int64?)
  /// A failure that may pass: no response, or a status 5xx.
  case unavailable(code: String, detail: String, retryAfterMilliseconds: Int64?)
  /// The access token or provider token has expired: another one may help.
  case tokenExpired
  /// The provider does not accept the task's credentials.
  case credentialsRefused(code: String, detail: String)

  /// Value of the metrics' label `outcome`.
  package var label: String {
    switch self {
    case .accepted: "accepted"
    case .gone: "gone"
    case .rejected: "rejected"
    case .throttled: "throttled"
    case .unavailable: "unavailable"
    case .tokenExpired: "token_expired"
    case .credentialsRefused: "credentials_refused"
    }
  }

  /// Map a request without a response.
  init(_ failure: DeliveryFailure) {
    if failure.isAddressRefused {
      self = .rejected(code: "address_refused", detail: failure.detail)
    } else {
      self = .unavailable(code: failure.cause.label, detail: failure.detail, retryAfterMilliseconds: nil)
    }
  }

  /// The answer of a provider that cannot be asked for a token.
  static func internalError(_ error: any Error) -> PushAnswer {
    .unavailable(code: "internal_error", detail: "\(error)", retryAfterMilliseconds: nil)
  }

  /// The answer for a payload that is larger than the provider takes.
  static func tooLarge(_ count: Int, max: Int) -> PushAnswer {
    .rejected(code: "payload_too_large", detail: "the payload has \(count) bytes, \(max) are allowed: shorten it")
  }
}

/// Protocol of one provider.
protocol PushProvider: Sendable {
  /// Open the way to a device's push service. Each successful call needs one of ``close(_:)``.
  func open(_ device: PushDevice) throws(PushAnswer) -> PushServiceConnection

  func close(_ connection: PushServiceConnection)

  /// Make one request.
  ///
  /// - Parameter now: in milliseconds since 1970.
  func send(_ notification: PushNotification, to device: PushDevice, on connection: PushServiceConnection, now: Int64)
    async -> PushAnswer

  /// Close all connections. No request may be in flight.
  func shutDown() async
}

extension EndpointResponse {
  /// `Retry-After` in milliseconds.
  func retryAfterMilliseconds(now: Int64) -> Int64? {
    headers["retry-after"].flatMap { RetryAfter.milliseconds($0, now: now) }
  }

  /// The answer for a status 5xx, or one that the provider does not document.
  func unavailable(code: String? = nil, now: Int64) -> PushAnswer {
    .unavailable(
      code: code ?? "\(status / 100)xx",
      detail: "\(status) \(String(decoding: body.prefix(200), as: UTF8.self))",
      retryAfterMilliseconds: retryAfterMilliseconds(now: now)
    )
  }
}
