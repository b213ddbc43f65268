internal import Foundation

/// File of an import, and its members as rows for PostgreSQL's COPY, with the same names, positions and times.
struct ImportFiles: Sendable {
  /// Last read and last delivered message of a member, from 1.
  struct Position: Sendable, Hashable {
    var read: Int
    var delivered: Int
  }

  /// Columns of the table that ``rows`` is copied into.
  static let columns = """
    cid text, user_id text, joined_at timestamptz, read_id text, read_at timestamptz, delivered_id text, \
    delivered_at timestamptz, PRIMARY KEY (cid, user_id)
    """

  /// Holds the files.
  let directory: String
  let channels: Int
  /// Members of each channel.
  let members: Int
  /// Messages of each channel, at least 1.
  let messages: Int

  /// Lines for `POST /v1/import`.
  var lines: String { directory + "/lines.ndjson" }
  /// Rows for COPY, one for each member line.
  var rows: String { directory + "/rows.tsv" }
  var rowCount: Int { channels * members }

  static func cid(_ channel: Int) -> String { "messaging:room-\(channel)" }
  static func user(_ member: Int) -> String { "user-\(member)" }
  static func message(_ channel: Int, _ number: Int) -> String { "m\(channel)-\(number)" }

  /// Return the position of a member, which is the same in each channel.
  func position(_ member: Int) -> Position {
    let read = member * 7 % messages + 1
    return Position(read: read, delivered: max(read, member * 11 % messages + 1))
  }

  func remove() { try? FileManager.default.removeItem(atPath: directory) }

  /// Create the directory and both files.
  func write() throws {
    try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
    let lines = try Self.create(lines)
    let rows = try Self.create(rows)
    let times = (0...messages).map(Times.init)
    for channel in 0..<channels {
      let (lineText, rowText) = text(of: channel, times)
      try lines.write(contentsOf: Data(lineText.utf8))
      try rows.write(contentsOf: Data(rowText.utf8))
    }
    try lines.close()
    try rows.close()
  }

  private func text(of channel: Int, _ times: [Times]) -> (lines: String, rows: String) {
    let cid = Self.cid(channel)
    let begin = times[0].sent
    var lines = #"{"channel":{"cid":"\#(cid)","created_at":"\#(begin)"}}"# + "\n"
    for number in 1...messages {
      lines += #"{"message":{"cid":"\#(cid)","id":"\#(Self.message(channel, number))","user_id":"\#(Self.user(0))","#
      lines += #""created_at":"\#(times[number].sent)"}}"# + "\n"
    }
    var rows = ""
    for member in 0..<members {
      let (user, position) = (Self.user(member), position(member))
      let (readID, readAt) = (Self.message(channel, position.read), times[position.read].read)
      let (deliveredID, deliveredAt) = (Self.message(channel, position.delivered), times[position.delivered].delivered)
      lines += #"{"member":{"cid":"\#(cid)","user_id":"\#(user)","joined_at":"\#(begin)","joined_seq":0,"#
      lines += #""last_read_message_id":"\#(readID)","last_read_at":"\#(readAt)","#
      lines += #""last_delivered_message_id":"\#(deliveredID)","last_delivered_at":"\#(deliveredAt)"}}"# + "\n"
      rows += "\(cid)\t\(user)\t\(begin)\t\(readID)\t\(readAt)\t\(deliveredID)\t\(deliveredAt)\n"
    }
    return (lines, rows)
  }

  private static func create(_ path: String) throws -> FileHandle {
    guard FileManager.default.createFile(atPath: path, contents: nil), let file = FileHandle(forWritingAtPath: path)
    else { throw LoadError("\(path): cannot be written") }
    return file
  }

  /// Times of a message, one minute after those of the message before it.
  private struct Times {
    let sent: String
    let delivered: String
    let read: String

    init(_ number: Int) {
      sent = Self.text(number * 60)
      delivered = Self.text(number * 60 + 2)
      read = Self.text(number * 60 + 5)
    }

    /// Return a time some seconds after the beginning of 2024, within its January.
    private static func text(_ seconds: Int) -> String {
      let (day, rest) = seconds.quotientAndRemainder(dividingBy: 86_400)
      return String(format: "2024-01-%02dT%02d:%02d:%02d.000Z", 1 + day, rest / 3_600, rest / 60 % 60, rest % 60)
    }
  }
}
