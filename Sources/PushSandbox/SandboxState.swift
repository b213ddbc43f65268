internal import Crypto
internal import Worker

/// Protocol of a simulated device.
enum SandboxKind: String, Sendable, CaseIterable {
  case webpush
  case apns
  case fcm
}

/// A failure that the sandbox is told to answer with.
enum SandboxFault: String, Sendable, CaseIterable {
  /// The device no longer exists, from now on.
  case gone
  /// 429, with `Retry-After: 1` where the protocol has it.
  case throttled
  /// The sender's token has expired: it is refused from now on. Web Push answers 503 instead.
  case expired
  /// 503.
  case unavailable
  /// 500.
  case error = "internal_error"
  /// The credentials are refused.
  case credentials
  /// 413.
  case tooLarge = "too_large"
  /// No response, while the connection stays open.
  case hang
  /// The connection is closed before the push is delivered.
  case close
  /// The push is delivered, and the connection is closed without a response.
  case lost
}

/// Devices, faults and deliveries of the sandbox. It does no I/O.
struct SandboxState: Sendable {
  /// A simulated device.
  struct Device: Sendable {
    var kind: SandboxKind
    /// Token of APNs or FCM, or the last part of a Web Push endpoint's path.
    var id: String
    /// Keys of a Web Push subscription.
    var key: P256.KeyAgreement.PrivateKey?
    var secret: [UInt8] = []
    var postsTickets: Bool
    var isGone = false
  }

  /// A push that has reached a device.
  struct Delivery: Sendable {
    var kind: SandboxKind
    var device: String
    /// The payload, decrypted.
    var payload: JSONValue
    /// Headers that say how the push is delivered.
    var headers: [String: String]
  }

  /// A fault for the next requests that match.
  private struct Rule: Sendable {
    var kind: SandboxKind?
    var device: String?
    var fault: SandboxFault
    var remaining: Int
  }

  static let devicesMax = 100_000
  static let deliveriesMax = 1_000_000

  private(set) var devices: [String: Device] = [:]
  private(set) var deliveries: [Delivery] = []
  private var rules: [Rule] = []
  private var randomFaults: [SandboxFault] = []
  private var rate = 0.0
  private var random = SplitMix64(state: 0)
  /// Tokens of senders that are refused as expired.
  private(set) var expiredTokens: Set<String> = []
  /// Access tokens of FCM that were issued.
  private(set) var accessTokens: Set<String> = []

  mutating func add(_ device: Device) -> Bool {
    guard devices.count < Self.devicesMax else { return false }
    devices[device.id] = device
    return true
  }

  mutating func remove(_ id: String) { devices[id]?.isGone = true }

  mutating func add(fault: SandboxFault, kind: SandboxKind?, device: String?, times: Int) {
    rules.append(Rule(kind: kind, device: device, fault: fault, remaining: times))
  }

  /// Let a share of all requests fail with one of the faults, chosen by a seed.
  mutating func fail(rate: Double, with faults: [SandboxFault], seed: UInt64) {
    (self.rate, randomFaults, random) = (rate, faults, SplitMix64(state: seed))
  }

  mutating func removeFaults() {
    rules = []
    randomFaults = []
  }

  /// Return the fault of the next request, and count it.
  mutating func nextFault(kind: SandboxKind, device: String) -> SandboxFault? {
    let match = rules.firstIndex { ($0.kind ?? kind) == kind && ($0.device ?? device) == device }
    if let match {
      rules[match].remaining -= 1
      let fault = rules[match].fault
      if rules[match].remaining <= 0 { rules.remove(at: match) }
      return fault
    }
    guard !randomFaults.isEmpty, Double.random(in: 0..<1, using: &random) < rate else { return nil }
    return randomFaults.randomElement(using: &random)
  }

  mutating func expire(_ token: String) { expiredTokens.insert(token) }

  mutating func issue(_ token: String) { accessTokens.insert(token) }

  mutating func deliver(_ delivery: Delivery) {
    if deliveries.count < Self.deliveriesMax { deliveries.append(delivery) }
  }
}

/// The generator SplitMix64, so that a seed repeats the faults.
private struct SplitMix64: RandomNumberGenerator, Sendable {
  var state: UInt64

  mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var mixed = state
    mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
    mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
    return mixed ^ (mixed >> 31)
  }
}
