internal import Foundation
package import LinkSecurity
package import Operations
package import TLSSession

/// What requests one connection makes.
package enum LoadWork: Sendable {
  /// GET of one path, over and over.
  case get(path: String)
  /// Requests of which each is about the next message.
  case walk(RequestWalk)
}

/// One run of the load generator: who is asked, by how many connections, for how long.
package struct LoadPlan: Sendable {
  /// As good as no limit.
  package static let requestsMax = 1_000_000_000

  /// One connection's part.
  package struct Connection: Sendable {
    /// `authorization`; empty for none.
    package var authorization: String
    package var work: LoadWork

    package init(authorization: String = "", work: LoadWork) {
      self.authorization = authorization
      self.work = work
    }
  }

  /// What is spoken.
  package enum Language: Sendable {
    case http2
    /// The store's frames (Proto/frames.md), with the secrets that it shares with its gateways. Every connection has to
    /// have a walk of frames.
    case frames(secrets: [[UInt8]])

    var isHTTP2: Bool { if case .http2 = self { true } else { false } }
  }

  package var endpoint: Endpoint
  package var language = Language.http2
  /// TLS, or h2c with prior knowledge.
  package var tls: TLSContext?
  /// TLS of frames to a store; nil: in the clear.
  package var storeTLS: LinkTLS?
  package var connections: [Connection]
  /// Requests under way at once on each connection, at least 1.
  package var streams: Int
  /// Event loops that the connections are spread over, at least 1.
  package var loops = 1
  /// Answers that are measured; all of them together.
  package var requests: Int
  /// Answers before those, which are not.
  package var warmup: Int
  /// Seconds within which a store has to be ready.
  package var openingTimeout = 10.0
  /// Seconds of the measured time after which no more requests are made; nil for no limit.
  package var duration: Double?
  /// Requests a second, of all connections together, made whether those before were answered or not; nil: each stream's
  /// next one when its last is answered. Over HTTP/2 only.
  package var rate: Double?
  /// Processes whose CPU time is measured, by name, each with those that it started.
  package var processes: [(name: String, processID: Int32)] = []

  package init(
    endpoint: Endpoint,
    tls: TLSContext? = nil,
    connections: [Connection],
    streams: Int,
    requests: Int,
    warmup: Int = 0
  ) {
    self.endpoint = endpoint
    self.tls = tls
    self.connections = connections
    self.streams = streams
    self.requests = requests
    self.warmup = warmup
  }
}

/// `http://HOST[:PORT][/PATH]` or the same with https.
package struct LoadURL: Hashable, Sendable {
  package let endpoint: Endpoint
  /// Path and query; "/" where the text has none.
  package let path: String
  package let usesTLS: Bool

  /// Nil where the text is no such URL.
  package init?(_ text: String) {
    let lower = text.lowercased()
    guard let scheme = ["http://", "https://"].first(where: { lower.hasPrefix($0) }) else { return nil }
    usesTLS = scheme == "https://"
    let rest = text.dropFirst(scheme.count)
    let authority = rest.prefix { $0 != "/" && $0 != "?" && $0 != "#" }
    let tail = rest.dropFirst(authority.count).prefix { $0 != "#" }
    guard tail.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) else { return nil }
    guard let endpoint = Endpoint(authority) ?? Endpoint("\(authority):\(usesTLS ? 443 : 80)") else {
      return nil
    }
    self.endpoint = endpoint
    path = tail.hasPrefix("/") ? String(tail) : "/" + tail
  }
}

/// Why a run was not made, or not carried through.
package struct LoadError: Error, Hashable, CustomStringConvertible {
  package let description: String

  package init(_ description: String) { self.description = description }
}
