package import Crypto

/// How the worker sends pushes: the section `push` of the tasks file.
package struct PushTask: Sendable {
  /// Users who are not sent a message.
  package enum Skip: String, Sendable, CaseIterable {
    /// Those who have received or read it.
    case delivered
    /// Those who have read it.
    case read
  }

  /// When the worker marks a message delivered.
  package enum Report: String, Sendable, CaseIterable {
    /// Never: the device posts the ticket.
    case acknowledged
    /// Once the provider has accepted the push.
    case accepted
  }

  /// Providers by name.
  package var providers: [String: PushProviderTask]
  /// Users who are not sent a message.
  package var skip = Skip.delivered
  /// When the worker marks a message delivered.
  package var report = Report.acknowledged
  /// Whether pushes carry the number of the user's unread messages.
  package var sendsBadge = true
  /// Lifetime of tickets in seconds: 1 to 2,419,200.
  package var ticketSeconds: Int64 = 604_800
  /// Time from reading a job after which no more attempts are made, in milliseconds.
  package var retryMilliseconds: Int64 = 600_000
  /// Maximum number of requests to one provider in flight.
  package var requestsMax = 100

  /// Create a task with the defaults of the tasks file.
  package init(providers: [String: PushProviderTask]) { self.providers = providers }
}

/// A provider of the section `push`.
package struct PushProviderTask: Sendable {
  /// Settings of Web Push.
  package struct WebPush: Sendable {
    /// Key of VAPID (RFC 8292).
    package var key: P256.Signing.PrivateKey
    /// `mailto:` or `https:` URL of the operator.
    package var subject: String
  }

  /// Settings of APNs.
  package struct APNs: Sendable {
    /// Authentication token signing key (.p8).
    package var key: P256.Signing.PrivateKey
    /// Id of the key: 10 characters.
    package var keyID: String
    /// Id of the developer's team: 10 characters.
    package var teamID: String
    /// The app's bundle id.
    package var topic: String
    /// Origin of APNs.
    package var url: EndpointURL
  }

  /// Settings of FCM, from the file of a service account.
  package struct FCM: Sendable {
    /// Name of the service account.
    package var clientEmail: String
    /// RSA key, PEM.
    package var privateKey: String
    /// Id of the key, sent as `kid`.
    package var keyID: String?
    /// URL that issues access tokens.
    package var tokenURL: EndpointURL
    /// The same as it is written in the file: the assertion's audience.
    package var tokenAudience: String
    /// Origin of FCM.
    package var url: EndpointURL
    /// Path of `messages:send` with the project.
    package var path: String
  }

  /// Protocol, with its settings.
  package enum Kind: Sendable {
    case webPush(WebPush)
    case apns(APNs)
    case fcm(FCM)

    /// Label of acks, metrics and records of the feed.
    package var label: String {
      switch self {
      case .webPush: "webpush"
      case .apns: "apns"
      case .fcm: "fcm"
      }
    }

    /// Default label of devices.
    package var deviceLabel: String {
      switch self {
      case .webPush: "web"
      case .apns: "ios"
      case .fcm: "android"
      }
    }
  }

  /// Name of the provider in jobs.
  package var name: String
  /// Protocol, with its settings.
  package var kind: Kind
  /// Limit of a whole request, in milliseconds.
  package var timeoutMilliseconds: Int64 = 10_000
  /// Duration of a pause after the provider has refused the credentials, in milliseconds.
  package var pauseMilliseconds: Int64 = 60_000
  /// Whether addresses may be called that are not public.
  package var allowsPrivateAddresses = false
  /// Whether requests may be made without TLS.
  package var allowsHTTP = false
  /// File of an additional trust root, PEM.
  package var authorityFile: String?

  /// Create a provider with the defaults of the tasks file.
  package init(name: String, kind: Kind) {
    self.name = name
    self.kind = kind
  }

  func endpointSettings(_ url: EndpointURL) -> CheckedEndpoint.Settings {
    CheckedEndpoint.Settings(
      url: url,
      timeoutMilliseconds: timeoutMilliseconds,
      connectionCountMax: 8,
      allowsPrivateAddresses: allowsPrivateAddresses,
      authorityFile: authorityFile
    )
  }

  func makeProvider(lookup: @escaping HostResolver.Lookup) -> any PushProvider {
    switch kind {
    case .webPush(let settings): WebPushProvider(self, settings, lookup: lookup)
    case .apns(let settings): APNsProvider(self, settings, lookup: lookup)
    case .fcm(let settings): FCMProvider(self, settings, lookup: lookup)
    }
  }
}
