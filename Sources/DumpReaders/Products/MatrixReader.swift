internal import Foundation

/// Reads events of Matrix rooms: exports of a room by Element, pages of `/rooms/{roomId}/messages`, answers of `/sync`,
/// and single events, one after the other.
///
/// Sources, read in 2026-11:
/// - https://spec.matrix.org/latest/client-server-api/ (v1.18): events, `/messages`, `/sync`, `m.receipt` with
///   `m.read`, `m.read.private` and `thread_id`, `m.room.member`, `m.mentions`, threads and redactions.
/// - Element's exporter (`src/utils/exportUtils/JSONExport.ts` of github.com/element-hq/element-web): `messages`, the
///   room's events in the order of time. It has no receipts: these are only in `/sync`.
struct MatrixReader: DumpReader {
  private static let channelType = "matrix"
  /// Types of events that are messages, if they are no state and no edit.
  private static let messageTypes: Set = ["m.room.message", "m.room.encrypted", "m.sticker", "m.poll.start"]

  var framing: JSONFraming { .objects }

  private let decoder = JSONDecoder()

  mutating func read(_ object: DumpObject, into records: RecordCollector) throws {
    let origin = DumpOrigin(line: object.line)
    try records.attempt(origin) {
      let data = Data(object.bytes)
      let answer = try decoder.decode(Answer.self, from: data)
      if let rooms = answer.rooms {
        for (kind, rooms) in [("join", rooms.join), ("leave", rooms.leave)] {
          for (id, room) in (rooms ?? [:]).sorted(by: { ExactID($0.key) < ExactID($1.key) }) {
            let origin = origin.within("rooms.\(kind)[\(ForeignID.quoted(id))]")
            try records.attempt(origin) { try Self.read(room, of: id, at: origin, into: records) }
          }
        }
      } else if answer.messages != nil || answer.chunk != nil {
        try Self.read(answer.messages, "messages", of: nil, at: origin, into: records)
        try Self.read(answer.state, "state", of: nil, at: origin, into: records)
        try Self.read(answer.chunk, "chunk", of: nil, at: origin, into: records)
      } else if answer.type != nil {
        try Self.read(try decoder.decode(Event.self, from: data), of: nil, at: origin, into: records)
      } else {
        throw RecordRefusal("it is no export of a room, no answer of /messages or /sync, and no event")
      }
    }
  }

  private static func read(_ room: Room, of id: String, at origin: DumpOrigin, into records: RecordCollector) throws {
    try read(room.state?.events, "state.events", of: id, at: origin, into: records)
    try read(room.timeline?.events, "timeline.events", of: id, at: origin, into: records)
    try read(room.ephemeral?.events, "ephemeral.events", of: id, at: origin, into: records)
  }

  private static func read(
    _ events: [Lenient<Event>]?,
    _ list: String,
    of room: String?,
    at origin: DumpOrigin,
    into records: RecordCollector
  ) throws {
    try records.attempt(events ?? [], of: list, at: origin) { try read($0, of: room, at: $1, into: records) }
  }

  // MARK: Events

  private static func read(
    _ event: Event,
    of room: String?,
    at origin: DumpOrigin,
    into records: RecordCollector
  ) throws {
    if event.type == "m.typing" || event.type == "m.presence" { return records.leftOut.add("\(event.type) events") }
    let room = try (event.roomID ?? room).required("room_id")
    let cid = try ForeignID.channel(type: channelType, id: room)
    if let receipts = event.receipts { return try read(receipts, in: cid, at: origin, into: records) }
    let id = try ForeignID.message(try event.eventID.required("event_id"))
    let time = try (event.time?.time).required("origin_server_ts")
    if event.stateKey == nil, messageTypes.contains(event.type), event.content?.relation?.type != "m.replace" {
      return try read(event, id, time, in: cid, at: origin, into: records)
    }
    // Receipts may name any event.
    try records.add(.event(DumpEvent(id: id, at: time)), to: cid, at: origin)
    switch event.type {
    case "m.room.create": records.addChannel(cid, createdAt: time, at: origin)
    case "m.room.member": try readMember(event, time, in: cid, at: origin, into: records)
    case "m.room.redaction":
      let target = try (event.redacts ?? event.content?.redacts).required("redacts")
      try records.add(.deletion(DumpDeletion(message: target, at: time)), to: cid, at: origin)
    case "m.reaction": records.leftOut.add("reactions")
    case _ where messageTypes.contains(event.type): records.leftOut.add("edits")
    default: records.leftOut.add("\(ForeignID.shown(event.type)) events")
    }
  }

  private static func read(
    _ event: Event,
    _ id: String,
    _ time: DumpTime,
    in cid: String,
    at origin: DumpOrigin,
    into records: RecordCollector
  ) throws {
    let relation = event.content?.relation
    let redaction = event.unsigned?.redaction
    let message = DumpMessage(
      key: id,
      sender: try event.sender.map(ForeignID.user),
      createdAt: time,
      parent: relation?.type == "m.thread" ? try relation?.eventID.map(ForeignID.message) : nil,
      isDeleted: redaction != nil,
      deletedAt: redaction?.time?.time,
      mentions: records.mentions(event.content?.mentions?.users ?? []),
      mentionsAll: event.content?.mentions?.room ?? false,
      origin: origin
    )
    try records.add(.message(message), to: cid, at: origin)
  }

  private static func readMember(
    _ event: Event,
    _ time: DumpTime,
    in cid: String,
    at origin: DumpOrigin,
    into records: RecordCollector
  ) throws {
    let user = try ForeignID.user(try event.stateKey.required("state_key"))
    let kind: DumpMembershipChange.Kind
    switch (event.content?.membership, event.unsigned?.previous?.membership) {
    case ("join", _): kind = .join
    // Who declines an invitation was no member.
    case ("leave", "invite"), ("leave", "knock"), ("ban", "invite"), ("ban", "knock"), ("ban", "leave"):
      kind = .invitation
    case ("leave", _), ("ban", _): kind = .leave
    default:
      records.leftOut.add("invitations")
      kind = .invitation
    }
    let change = DumpMembershipChange(user: user, kind: kind, at: time, origin: origin)
    try records.add(.membershipChange(change), to: cid, at: origin)
  }

  /// Read receipts in the order of their texts: the order of an object's members does not count.
  private static func read(
    _ receipts: [String: [String: [String: Receipt]]],
    in cid: String,
    at origin: DumpOrigin,
    into records: RecordCollector
  ) throws {
    for (event, kinds) in receipts.sorted(by: { ExactID($0.key) < ExactID($1.key) }) {
      for (kind, users) in kinds.sorted(by: { $0.key < $1.key }) {
        guard kind == "m.read" || kind == "m.read.private" else {
          records.leftOut.add(users.count, "\(ForeignID.shown(kind)) receipts")
          continue
        }
        for (user, receipt) in users.sorted(by: { ExactID($0.key) < ExactID($1.key) }) {
          let origin = origin.within("content[\(ForeignID.quoted(event))]")
          try records.attempt(origin) {
            let position = DumpPosition(
              kind: .read,
              user: try ForeignID.user(user),
              thread: receipt.thread.flatMap { $0 == "main" ? nil : $0 },
              message: event,
              at: receipt.time?.time,
              isHidden: kind == "m.read.private",
              origin: origin
            )
            try records.add(.position(position), to: cid, at: origin)
          }
        }
      }
    }
  }
}

// MARK: - Answers of the API

extension MatrixReader {
  private struct Answer: Decodable {
    struct Rooms: Decodable {
      var join: [String: Room]?
      var leave: [String: Room]?
    }

    /// Of Element's export.
    var messages: [Lenient<Event>]?
    /// Of `/messages`.
    var chunk: [Lenient<Event>]?
    var state: [Lenient<Event>]?
    /// Of `/sync`.
    var rooms: Rooms?
    /// Of a single event.
    var type: String?
  }

  private struct Room: Decodable {
    struct Events: Decodable {
      var events: [Lenient<Event>]?
    }

    var state: Events?
    var timeline: Events?
    var ephemeral: Events?
  }

  private struct Event: Decodable {
    var type: String
    var eventID: String?
    var roomID: String?
    var sender: String?
    var time: UnixMilliseconds?
    var stateKey: String?
    var redacts: String?
    var unsigned: Unsigned?
    /// Of the types that are read.
    var content: Content?
    /// Of `m.receipt`: by event, kind and user.
    var receipts: [String: [String: [String: Receipt]]]?

    private enum CodingKeys: String, CodingKey {
      case type
      case eventID = "event_id"
      case roomID = "room_id"
      case sender
      case time = "origin_server_ts"
      case stateKey = "state_key"
      case redacts
      case unsigned
      case content
    }

    init(from decoder: any Decoder) throws {
      let container = try decoder.container(keyedBy: CodingKeys.self)
      type = try container.decode(String.self, forKey: .type)
      eventID = try container.decodeIfPresent(String.self, forKey: .eventID)
      roomID = try container.decodeIfPresent(String.self, forKey: .roomID)
      sender = try container.decodeIfPresent(String.self, forKey: .sender)
      time = try container.decodeIfPresent(UnixMilliseconds.self, forKey: .time)
      stateKey = try container.decodeIfPresent(String.self, forKey: .stateKey)
      redacts = try container.decodeIfPresent(String.self, forKey: .redacts)
      unsigned = try container.decodeIfPresent(Unsigned.self, forKey: .unsigned)
      if type == "m.receipt" {
        receipts = try container.decode([String: [String: [String: Receipt]]].self, forKey: .content)
      } else if messageTypes.contains(type) || type == "m.room.member" || type == "m.room.redaction" {
        content = try container.decodeIfPresent(Content.self, forKey: .content)
      }
    }
  }

  private struct Content: Decodable {
    struct Relation: Decodable {
      var type: String?
      var eventID: String?

      private enum CodingKeys: String, CodingKey {
        case type = "rel_type"
        case eventID = "event_id"
      }
    }

    struct Mentions: Decodable {
      var users: [String]?
      var room: Bool?

      private enum CodingKeys: String, CodingKey {
        case users = "user_ids"
        case room
      }
    }

    var membership: String?
    var relation: Relation?
    var mentions: Mentions?
    /// Of redactions since room version 11.
    var redacts: String?

    private enum CodingKeys: String, CodingKey {
      case membership
      case relation = "m.relates_to"
      case mentions = "m.mentions"
      case redacts
    }

    /// Senders choose the content. What is malformed in it counts as missing, so that the message is not missing.
    init(from decoder: any Decoder) throws {
      let container = try decoder.container(keyedBy: CodingKeys.self)
      membership = try? container.decode(String.self, forKey: .membership)
      relation = try? container.decode(Relation.self, forKey: .relation)
      mentions = try? container.decode(Mentions.self, forKey: .mentions)
      redacts = try? container.decode(String.self, forKey: .redacts)
    }
  }

  private struct Unsigned: Decodable {
    struct Redaction: Decodable {
      var time: UnixMilliseconds?

      private enum CodingKeys: String, CodingKey {
        case time = "origin_server_ts"
      }
    }

    struct Previous: Decodable {
      var membership: String?
    }

    var redaction: Redaction?
    /// Content of the state event before this one.
    var previous: Previous?

    private enum CodingKeys: String, CodingKey {
      case redaction = "redacted_because"
      case previous = "prev_content"
    }
  }

  private struct Receipt: Decodable {
    var time: UnixMilliseconds?
    var thread: String?

    private enum CodingKeys: String, CodingKey {
      case time = "ts"
      case thread = "thread_id"
    }
  }
}
