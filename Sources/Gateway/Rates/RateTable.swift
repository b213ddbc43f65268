internal import Synchronization

/// What a ``RateTable`` says of a request.
package struct RateDecision: Hashable, Sendable {
  package let isAllowed: Bool
  /// Requests that may follow at once.
  package let remaining: Int
  /// Seconds until as many may follow as at first.
  package let resetSeconds: Int
  /// Seconds until this one is allowed; 0 where it is.
  package let retryAfterSeconds: Int
}

/// Token buckets by key, one for each user, server or address, shared by all event loops.
///
/// A bucket lets through so many requests a second, and twice as many at once. It is kept as one time, up to which its
/// requests are paid (GCRA, ITU-T I.371). A bucket that nobody draws from is full and forgotten: the table has as many
/// places as it was made with, and where a set of eight is taken the fullest of them gives way, so that nobody is rid of
/// a debt by sending under many names. A request that costs more than a full bucket has is let through when it is full,
/// and leaves it in debt.
package final class RateTable: Sendable {
  private struct Bucket {
    var key: UInt64 = 0
    /// Nanoseconds, on the caller's clock.
    var paidUntil: Int64 = 0
  }

  /// A part of the table with a lock of its own.
  private final class Stripe: Sendable {
    /// Empty until the first request.
    let buckets = Mutex<[Bucket]>([])
  }

  private static let stripeCount = 16
  private static let wayCount = 8
  /// What may follow at once, in nanoseconds of the rate: bursts of twice what a second lets through.
  private static let burst: Int64 = 2_000_000_000

  private let stripes = (0..<stripeCount).map { _ in Stripe() }
  private let placesPerStripe: Int
  /// What a request takes of the burst, in nanoseconds; 0: there is no limit.
  private let interval: Atomic<Int64>

  /// - Parameters:
  ///   - perSecond: 1 to 1,000,000,000; nil: no limit.
  ///   - capacity: buckets at most, of 16 bytes each, made when the first is needed.
  package init(perSecond: Int? = nil, capacity: Int = 65_536) {
    interval = Atomic(Self.interval(perSecond))
    placesPerStripe = max(1, capacity / Self.stripeCount / Self.wayCount) * Self.wayCount
  }

  private static func interval(_ perSecond: Int?) -> Int64 {
    perSecond.map { 1_000_000_000 / Int64($0) } ?? 0
  }

  /// Requests a second; nil: no limit. A change holds for the next request.
  package var perSecond: Int? {
    get {
      let interval = interval.load(ordering: .relaxed)
      return interval == 0 ? nil : Int(1_000_000_000 / interval)
    }
    set { interval.store(Self.interval(newValue), ordering: .relaxed) }
  }

  /// Whether there is a limit.
  @inline(__always)
  package var isOn: Bool { interval.load(ordering: .relaxed) != 0 }

  /// Takes a request's cost from the bucket of a key, or nothing where that has too little.
  ///
  /// - Parameters:
  ///   - key: a hash with a seed that nobody outside knows.
  ///   - cost: in requests, 0 or more. With 0 nothing is taken, and asked whether one more request would be allowed.
  ///   - now: nanoseconds, on a clock that does not go back.
  /// - Returns: nil where there is no limit.
  package func take(_ cost: Int, from key: UInt64, at now: Int64) -> RateDecision? {
    let interval = interval.load(ordering: .relaxed)
    guard interval > 0 else { return nil }
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
      let isAllowed = paidUntil - now + min(max(price, interval), Self.burst) <= Self.burst
      guard isAllowed, cost > 0 else {
        return Self.decision(isAllowed, paidUntil - now, min(max(price, interval), Self.burst), interval)
      }
      buckets[place] = Bucket(key: key, paidUntil: paidUntil + price)
      return Self.decision(true, paidUntil + price - now, 0, interval)
    }
  }

  private static func decision(_ isAllowed: Bool, _ owed: Int64, _ wanted: Int64, _ interval: Int64)
    -> RateDecision
  {
    func seconds(_ nanoseconds: Int64) -> Int { Int((nanoseconds + 999_999_999) / 1_000_000_000) }
    return RateDecision(
      isAllowed: isAllowed,
      remaining: Int(max(0, burst - owed) / interval),
      resetSeconds: seconds(owed),
      retryAfterSeconds: isAllowed ? 0 : max(1, seconds(owed + wanted - burst))
    )
  }
}
