package import Logging
internal import NIOConcurrencyHelpers
package import NIOCore

/// Small audit log of refused tokens, requests and connections by address. Refusals may happen thousands of times a
/// second, so they are counted and written as a few lines every ten seconds.
package final class RefusalLog: Sendable {
  /// Kind of refusal.
  package enum Kind: Int, CaseIterable, Sendable {
    case token, rate, connection
  }

  private struct Counts {
    var byKind = [Int](repeating: 0, count: Kind.allCases.count)

    var total: Int { byKind.reduce(0, +) }
    mutating func add(_ other: Counts) {
      for index in byKind.indices { byKind[index] += other.byKind[index] }
    }
  }

  private struct State {
    var addresses: [PeerAddress: Counts] = [:]
    /// Counts of unknown addresses, and of those above ``addressesMax``.
    var others = Counts()
  }

  /// Maximum number of addresses that are counted separately between two writes.
  static let addressesMax = 1_024
  /// Maximum number of lines per write, besides one for all other addresses.
  static let linesMax = 10
  /// Time between two writes.
  package static let interval = TimeAmount.seconds(10)

  private let logger: Logger
  private let state = NIOLockedValueBox(State())

  package init(logger: Logger) { self.logger = logger }

  /// Count a refusal.
  ///
  /// - Parameter address: nil if it is unknown.
  package func record(_ kind: Kind, from address: PeerAddress?) {
    state.withLockedValue { state in
      guard let network = address?.network,
        state.addresses.count < Self.addressesMax || state.addresses[network] != nil
      else {
        state.others.byKind[kind.rawValue] += 1
        return
      }
      state.addresses[network, default: Counts()].byKind[kind.rawValue] += 1
    }
  }

  /// Write the counts, largest first, and reset them.
  package func write() {
    let (addresses, others) = state.withLockedValue { state in
      defer { state = State() }
      return (state.addresses, state.others)
    }
    let sorted = addresses.sorted { ($0.value.total, $1.key.low) > ($1.value.total, $0.key.low) }
    for (address, counts) in sorted.prefix(Self.linesMax) { write("\(address)", counts) }
    var rest = others
    for (_, counts) in sorted.dropFirst(Self.linesMax) { rest.add(counts) }
    if rest.total > 0 { write("others", rest) }
  }

  private func write(_ address: String, _ counts: Counts) {
    logger.notice(
      "Refused in the last \(Self.interval.nanoseconds / 1_000_000_000) s",
      metadata: [
        "address": "\(address)", "tokens": "\(counts.byKind[Kind.token.rawValue])",
        "requests": "\(counts.byKind[Kind.rate.rawValue])",
        "connections": "\(counts.byKind[Kind.connection.rawValue])",
      ]
    )
  }
}
