internal import Synchronization

/// Decision of a ``RateTable`` on a request.
package struct RateDecision: Hashable, Sendable {
  package let isAllowed: Bool
  /// Requests that may follow at once.
  package let remaining: Int
  /// Seconds until the bucket is full again.
  package let resetSeconds: Int
  /// Seconds until this request would be allowed; 0 if it is.
  package let retryAfterSeconds: Int
}

/// Token buckets by key, one for each user, server or address, shared by all event loops.
///
/// A bucket allows the given number of requests per second, with bursts of twice that. It is stored as one timestamp,
/// up to which its requests are paid (GCRA, ITU-T I.371). An idle bucket refills and may be evicted.
///
/// The table is a set-associative cache of fixed capacity with eight ways. It evicts the bucket with the most tokens
/// left, so a client cannot shed its debt by flooding the table with keys. A request that costs more than a full bucket
/// has is allowed when the bucket is full, and leaves it in debt.
package final class RateTable: Sendable {
  private struct Bucket {
    var key: UInt64 = 0
    /// Nanoseconds, on the caller's clock.
    var paidUntil: Int64 = 0
  }

  /// A part of the table with its own lock.
  private final class Stripe: Sendable {
    /// Empty until the first request.
    let buckets = Mutex<[Bucket]>([])
  }

  private static let stripeCount = 16
  private static let wayCount = 8
  /// The burst allowance in nanoseconds of the rate: twice what a second allows.
  private static let burst: Int64 = 2_000_000_000
  private static let debtMax: Int64 = 10_000_000_000

  private let stripes = (0..<stripeCount).map { _ in Stripe() }
  private let placesPerStripe: Int
  /// 0: there is no limit.
  private let rate: Atomic<Int>

  /// - Parameters:
  ///   - perSecond: 1 to 1,000,000,000; nil: no limit.
  ///   - capacity: maximum number of buckets, 16 bytes each, allocated on first use.
  package init(perSecond: Int? = nil, capacity: Int = 65_536) {
    rate = Atomic(perSecond ?? 0)
    placesPerStripe = max(1, capacity / Self.stripeCount / Self.wayCount) * Self.wayCount
  }

  /// Requests per second; nil: no limit. A change applies to the next request.
  package var perSecond: Int? {
    get {
      let rate = rate.load(ordering: .relaxed)
      return rate == 0 ? nil : rate
    }
    set { rate.store(newValue ?? 0, ordering: .relaxed) }
  }

  /// Whether there is a limit.
  @inline(__always)
  package var isOn: Bool { rate.load(ordering: .relaxed) != 0 }

  /// How to charge a bucket.
  package enum ChargeMode: Sendable {
    /// Charge the cost if the bucket has enough, else nothing.
    case ifAllowed
    /// Charge nothing; only check.
    case nothing
    /// Charge the cost even beyond the bucket's content: its debt is at most ten seconds.
    case always
  }

  /// Charge a request's cost to the bucket of a key.
  ///
  /// - Parameters:
  ///   - cost: in requests, 1 or more.
  ///   - key: a hash with a secret seed.
  ///   - now: nanoseconds, on a monotonic clock.
  /// - Returns: nil where there is no limit.
  package func charge(_ cost: Int, to key: UInt64, at now: Int64, _ mode: ChargeMode = .ifAllowed) -> RateDecision? {
    let rate = rate.load(ordering: .relaxed)
    guard rate > 0 else { return nil }
    let interval = 1_000_000_000 / Int64(rate)
    return stripes[Int(key >> 60)].buckets.withLock { buckets in
      if buckets.isEmpty { buckets = Array(repeating: Bucket(), count: placesPerStripe) }
      let setCount = placesPerStripe / Self.wayCount
      let first = Int(key & 0xFFFF_FFFF) % setCount * Self.wayCount
      var place = first
      for candidate in first..<(first + Self.wayCount) {
        if buckets[candidate].key == key {
          place = candidate
          break
        }
        if buckets[candidate].paidUntil < buckets[place].paidUntil { place = candidate }
      }
      let paidUntil = buckets[place].key == key ? max(buckets[place].paidUntil, now) : now
      let price = Int64(cost) * interval
      let wanted = min(price, Self.burst)
      let isAllowed = paidUntil - now + wanted <= Self.burst
      let isCharged =
        switch mode {
        case .ifAllowed: isAllowed
        case .nothing: false
        case .always: true
        }
      guard isCharged else {
        return Self.decision(isAllowed: isAllowed, owed: paidUntil - now, wanted: wanted, rate: rate)
      }
      let paid = min(paidUntil + price, max(paidUntil, now + Self.debtMax))
      buckets[place] = Bucket(key: key, paidUntil: paid)
      return Self.decision(isAllowed: isAllowed, owed: paid - now, wanted: wanted, rate: rate)
    }
  }

  private static func decision(isAllowed: Bool, owed: Int64, wanted: Int64, rate: Int) -> RateDecision {
    func seconds(_ nanoseconds: Int64) -> Int { Int((nanoseconds + 999_999_999) / 1_000_000_000) }
    return RateDecision(
      isAllowed: isAllowed,
      remaining: min(2 * rate, Int(max(0, burst - owed) / (1_000_000_000 / Int64(rate)))),
      resetSeconds: seconds(owed),
      retryAfterSeconds: isAllowed ? 0 : max(1, seconds(owed + wanted - burst))
    )
  }
}
