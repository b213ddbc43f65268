internal import Foundation

/// Reads the bulk export of Mattermost: `import.jsonl`, version 1, one object a line.
///
/// Sources:
/// - https://docs.mattermost.com/administration-guide/onboard/bulk-loading-data.html, "Data format": the objects, their
///   order and most of their fields (read 2026-11; it does not list the fields below).
/// - The types of that format in Mattermost's source (`server/channels/app/imports/import_types.go` of
///   github.com/mattermost/mattermost, 2025), which add `last_viewed_at` and `thread_followers`, and `participants`
///   of direct channels.
///
/// Posts have no id there. Ids are made of their time and author, by which Mattermost's own import knows a post again.
struct MattermostReader: DumpReader {
  private static let channelType = "mattermost"
  private static let directType = "mattermost-direct"

  var framing: JSONFraming { .lines }

  private let decoder = JSONDecoder()
  private var hasVersion = false
  /// The number of messages so far, for their keys.
  private var messageCount = 0

  mutating func read(_ object: DumpObject, into records: RecordCollector) throws {
    guard hasVersion else { return try readVersion(object) }
    let origin = DumpOrigin(line: object.line)
    try records.attempt(origin) {
      try read(try decoder.decode(Line.self, from: Data(object.bytes)), at: origin, into: records)
    }
  }

  /// Read the first line. Without it the file is something else.
  private mutating func readVersion(_ object: DumpObject) throws {
    guard let line = try? decoder.decode(Line.self, from: Data(object.bytes)), line.type == "version" else {
      throw DumpError("line \(object.line): the first line must be the version; give the import.jsonl of an export")
    }
    guard line.version == 1 else {
      throw DumpError("line \(object.line): version \(line.version ?? 0) of the format; this reads version 1")
    }
    hasVersion = true
  }

  private mutating func read(_ line: Line, at origin: DumpOrigin, into records: RecordCollector) throws {
    switch line.type {
    case "channel": try read(line.channel.required("channel"), at: origin, into: records)
    case "user": try read(line.user.required("user"), at: origin, into: records)
    case "post":
      let post = try line.post.required("post")
      let cid = try Self.cid(team: post.team.required("post.team"), channel: post.channel.required("post.channel"))
      try read(post, in: cid, at: origin.within("post"), into: records)
    case "direct_channel": try read(line.directChannel.required("direct_channel"), at: origin, into: records)
    case "direct_post":
      let post = try line.directPost.required("direct_post")
      let cid = try Self.cid(members: post.channelMembers.required("direct_post.channel_members"))
      try read(post, in: cid, at: origin.within("direct_post"), into: records)
    case "team", "version": return
    case "scheme": records.leftOut.add("permission schemes")
    case "role": records.leftOut.add("permission roles")
    case "emoji": records.leftOut.add("custom emoji")
    case "bot": records.leftOut.add("bots")
    default: records.leftOut.add("lines of type \(ForeignID.shown(line.type))")
    }
  }

  // MARK: Channels and members

  private static func cid(team: String, channel: String) throws -> String {
    try ForeignID.channel(type: channelType, id: ForeignID.part(team) + "/" + ForeignID.part(channel))
  }

  /// A direct channel is known by its members.
  private static func cid(members: [String]) throws -> String {
    let id = Set(members.map(ExactID.init)).sorted().map { ForeignID.part($0.text) }.joined(separator: ",")
    return try ForeignID.channel(type: directType, id: id)
  }

  private func read(_ channel: Channel, at origin: DumpOrigin, into records: RecordCollector) throws {
    records.addChannel(try Self.cid(team: channel.team, channel: channel.name), at: origin)
  }

  private func read(_ user: User, at origin: DumpOrigin, into records: RecordCollector) throws {
    let id = try ForeignID.user(user.username)
    for (teamIndex, team) in (user.teams ?? []).enumerated() {
      let origin = origin.within("user.teams[\(teamIndex)]")
      try records.attempt(team.channels ?? [], of: "channels", at: origin) { membership, origin in
        let cid = try Self.cid(team: team.name, channel: membership.name)
        let role = membership.roles?.split(separator: " ").first { $0 != "channel_user" }
        try Self.add(id, role: role.map(String.init), lastViewed: membership.lastViewedAt, in: cid, origin, records)
      }
    }
  }

  private func read(_ channel: DirectChannel, at origin: DumpOrigin, into records: RecordCollector) throws {
    let origin = origin.within("direct_channel")
    let participants = channel.participants ?? []
    let names = try participants.isEmpty ? channel.members.required("members") : participants.map(\.username)
    let cid = try Self.cid(members: names)
    records.addChannel(cid, at: origin)
    for name in participants.isEmpty ? Set(names.map(ExactID.init)).sorted() : [] {
      try Self.add(try ForeignID.user(name.text), role: nil, lastViewed: nil, in: cid, origin, records)
    }
    for participant in participants {
      let user = try ForeignID.user(participant.username)
      let role = participant.schemeAdmin == true ? "channel_admin" : nil
      try Self.add(user, role: role, lastViewed: participant.lastViewedAt, in: cid, origin, records)
    }
  }

  private static func add(
    _ user: String,
    role: String?,
    lastViewed: UnixMilliseconds?,
    in cid: String,
    _ origin: DumpOrigin,
    _ records: RecordCollector
  ) throws {
    try records.add(.member(DumpMember(user: user, role: role, origin: origin)), to: cid, at: origin)
    guard let time = lastViewed?.time else { return }
    let position = DumpPosition(kind: .read, user: user, at: time, isUpToTime: true, origin: origin)
    try records.add(.position(position), to: cid, at: origin)
  }

  // MARK: Posts

  private mutating func read(
    _ post: Post,
    in cid: String,
    at origin: DumpOrigin,
    into records: RecordCollector
  ) throws {
    let key = try add(post, parent: nil, in: cid, at: origin, into: records)
    try records.attempt(post.replies ?? [], of: "replies", at: origin) { reply, origin in
      _ = try add(reply, parent: key, in: cid, at: origin, into: records)
    }
    try records.attempt(post.threadFollowers ?? [], of: "thread_followers", at: origin) { follower, origin in
      let position = DumpPosition(
        kind: .read,
        user: try ForeignID.user(follower.user),
        thread: key,
        at: follower.lastViewed?.time,
        isUpToTime: true,
        origin: origin
      )
      try records.add(.position(position), to: cid, at: origin)
    }
  }

  /// - Returns: the message's key.
  private mutating func add(
    _ post: Post,
    parent: String?,
    in cid: String,
    at origin: DumpOrigin,
    into records: RecordCollector
  ) throws -> String {
    guard let createdAt = post.createAt.time else { throw RecordRefusal("create_at is 0: a post needs its time") }
    messageCount += 1
    let user = try ForeignID.user(post.user)
    let message = DumpMessage(
      key: "\(messageCount)",
      stem: try ForeignID.message("\(createdAt.microseconds / 1_000):\(ForeignID.part(user))"),
      sender: user,
      createdAt: createdAt,
      parent: parent,
      // Joins, leaves and renamings, which Mattermost counts for nobody.
      isSilent: post.type?.hasPrefix("system_") ?? false,
      origin: origin
    )
    try records.add(.message(message), to: cid, at: origin)
    records.leftOut.add(post.reactions?.count ?? 0, "reactions")
    records.leftOut.add(post.attachments?.count ?? 0, "files")
    return message.key
  }
}

// MARK: - Lines

extension MattermostReader {
  private struct Line: Decodable {
    var type: String
    var version: Int?
    var channel: Channel?
    var user: User?
    var post: Post?
    var directChannel: DirectChannel?
    var directPost: Post?

    private enum CodingKeys: String, CodingKey {
      case type
      case version
      case channel
      case user
      case post
      case directChannel = "direct_channel"
      case directPost = "direct_post"
    }
  }

  private struct Channel: Decodable {
    var team: String
    var name: String
  }

  private struct User: Decodable {
    struct Team: Decodable {
      var name: String
      var channels: [Lenient<Membership>]?
    }

    struct Membership: Decodable {
      var name: String
      var roles: String?
      var lastViewedAt: UnixMilliseconds?

      private enum CodingKeys: String, CodingKey {
        case name
        case roles
        case lastViewedAt = "last_viewed_at"
      }
    }

    var username: String
    var teams: [Team]?
  }

  private struct DirectChannel: Decodable {
    struct Participant: Decodable {
      var username: String
      var schemeAdmin: Bool?
      var lastViewedAt: UnixMilliseconds?

      private enum CodingKeys: String, CodingKey {
        case username
        case schemeAdmin = "scheme_admin"
        case lastViewedAt = "last_viewed_at"
      }
    }

    var members: [String]?
    var participants: [Participant]?
  }

  /// A post, a direct post, or a reply to one.
  private struct Post: Decodable {
    struct Follower: Decodable {
      var user: String
      var lastViewed: UnixMilliseconds?

      private enum CodingKeys: String, CodingKey {
        case user
        case lastViewed = "last_viewed"
      }
    }

    var team: String?
    var channel: String?
    var channelMembers: [String]?
    var user: String
    var type: String?
    var createAt: UnixMilliseconds
    var replies: [Lenient<Post>]?
    var reactions: FieldCount?
    var attachments: FieldCount?
    var threadFollowers: [Lenient<Follower>]?

    private enum CodingKeys: String, CodingKey {
      case team
      case channel
      case channelMembers = "channel_members"
      case user
      case type
      case createAt = "create_at"
      case replies
      case reactions
      case attachments
      case threadFollowers = "thread_followers"
    }
  }
}
