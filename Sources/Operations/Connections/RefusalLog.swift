package import Logging
internal import NIOConcurrencyHelpers
package import NIOCore

/// A small audit log: how many tokens, requests and connections of which addresses were refused. What happens thousands
/// of times a second is summed up, and written as a few lines every ten seconds.
package final class RefusalLog: Sendable {
  /// What was refused.
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
    /// Of addresses for which there was no place, or that are not known.
    var others = Counts()
  }

  /// Addresses that are told apart between two writings.
  static let addressesMax = 1_024
  /// Lines of one writing, beside one for all others.
  static let linesMax = 10
  /// Between two writings.
  package static let interval = TimeAmount.seconds(10)

  private let logger: Logger
  private let state = NIOLockedValueBox(State())

  package init(logger: Logger) { self.logger = logger }

  /// Counts something that was refused.
  ///
  /// - Parameter address: nil where it is not known.
  package func note(_ kind: Kind, from address: PeerAddress?) {
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

  /// Writes what has come together, most first, and begins anew.
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
