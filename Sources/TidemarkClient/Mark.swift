import Foundation

/// A mark as it is stored until the server has answered it.
struct Mark: Codable, Sendable, Equatable {
  var kind: MarkKind
  var cid: CID?
  var thread: String?
  /// The message; nil: the newest one, or all.
  var id: String?
  /// Messages of an acknowledgement.
  var ids: [String]?
  var note: String?
  /// The time of a mark-unread.
  var timestamp: Date?
  /// Whether all threads are read too.
  var threads: Bool?
  /// Number of the message, if it was known when the mark was made.
  var seq: Int?
  /// The place's epoch that the user saw.
  var epoch: Int?
  /// When the mark was made, in milliseconds since 1970.
  var at: Int = 0

  init(_ kind: MarkKind, place: Place? = nil, id: String? = nil) {
    self.kind = kind
    cid = place?.cid
    thread = place?.thread
    self.id = id
  }

  /// The place whose marks have an order; nil: all places.
  var place: Place? { cid.map { Place(cid: $0, thread: thread) } }

  /// Whether it is a position, which a further one makes needless.
  var isPosition: Bool { kind == .read || kind == .delivered }
}

/// A mark with its key in the store.
struct StoredMark: Sendable, Equatable {
  var key: String
  var mark: Mark
}

/// A mark that was refused, or has to be sent again.
struct FailedMark: Sendable {
  var key: String
  var mark: Mark
  var error: TidemarkError
}

extension Date {
  /// Milliseconds since 1970.
  var milliseconds: Int { Int((timeIntervalSince1970 * 1_000).rounded()) }
}
