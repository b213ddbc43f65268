/// Where a record stands in its dump.
package struct DumpOrigin: Hashable, Codable, Sendable, CustomStringConvertible {
  /// The line, from 1, in which the record's JSON object begins.
  package var line: Int
  /// The record within that object, such as `messages[3]`; empty: the object itself.
  package var path: String

  package init(line: Int, path: String = "") {
    self.line = line
    self.path = path
  }

  package var description: String { path.isEmpty ? "line \(line)" : "line \(line), \(path)" }

  /// Return the origin of something within this record, such as `members[3]`.
  func within(_ part: String) -> Self { Self(line: line, path: path.isEmpty ? part : "\(path).\(part)") }
}

/// What the readers of all products make of a dump, in any order. ``ChannelAssembly`` makes a channel's lines of it.
enum DumpRecord: Codable, Hashable {
  case message(DumpMessage)
  case member(DumpMember)
  case membershipChange(DumpMembershipChange)
  case position(DumpPosition)
  case event(DumpEvent)
  case deletion(DumpDeletion)
}

/// A message, a reply, or a deleted one.
struct DumpMessage: Codable, Hashable {
  /// The name by which records of this dump refer to the message. It is the message's id, unless there is a `stem`.
  var key: String
  /// Of products whose dumps have no message ids: what the id is made of. The second message of a channel with the same
  /// stem gets `:2` appended, and so on.
  var stem: String?
  var sender: String?
  var createdAt: DumpTime
  /// Key of the message that this one replies to.
  var parent: String?
  var isSilent = false
  var isDeleted = false
  var deletedAt: DumpTime?
  var mentions: [String] = []
  var mentionsAll = false
  /// Whether the product's positions include each sender's own messages (R5).
  var movesPosition = false
  var origin: DumpOrigin
}

/// A stay of a member, as a whole.
struct DumpMember: Codable, Hashable {
  var user: String
  var role: String?
  var joinedAt: DumpTime?
  var leftAt: DumpTime?
  var isMuted = false
  var origin: DumpOrigin
}

/// A join or a leave; in order of time, these make up a user's stays.
struct DumpMembershipChange: Codable, Hashable {
  enum Kind: String, Codable, Hashable {
    case join
    /// Of a member, or of somebody who was invited or asked to join.
    case leave
    /// An invitation, or a request to join: no membership.
    case invitation
  }

  var user: String
  var kind: Kind
  var at: DumpTime
  var origin: DumpOrigin
}

/// How far a user has read or received a channel or a thread.
struct DumpPosition: Codable, Hashable {
  enum Kind: String, Codable, Hashable {
    case read
    case delivered
  }

  var kind: Kind
  var user: String
  /// Key of the thread's first message; nil: the channel.
  var thread: String?
  /// Key of the newest message that was read, or the id of an event.
  var message: String?
  /// The time of the last move. Without it the time is not known.
  var at: DumpTime?
  /// Whether everything up to `at` was read or received, if the dump does not have `message`.
  var isUpToTime = false
  /// Whether others may not see it (R7).
  var isHidden = false
  var origin: DumpOrigin
}

/// Something in a channel's history that is no message, but that a position may name.
struct DumpEvent: Codable, Hashable {
  var id: String
  var at: DumpTime
}

/// The deletion of a message that stands elsewhere in the dump.
struct DumpDeletion: Codable, Hashable {
  /// Key of the message.
  var message: String
  var at: DumpTime?
}
