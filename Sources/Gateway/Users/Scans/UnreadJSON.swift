internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// JSON of results that cover all channels of a user (Proto/openapi.yaml; R13, R14).
enum UnreadJSON {
  /// Upper bound for the size of an entry without its variable-length strings.
  private static let fixedByteMax = 256

  /// Write the response of a finished job.
  static func write(_ job: UserScanJob, into buffer: inout ByteBuffer) {
    switch job.request.route {
    case .markRead, .markUnread: writeMark(job, into: &buffer)
    case .markReadMany: writeMarked(job.scan, into: &buffer)
    case .unreadOfUsers: writeUsers(job, into: &buffer)
    default: writePage(job.scan, into: &buffer)
    }
  }

  /// Write `{"read", "total_unread_count", "unread_channels", "unread_threads"}`.
  private static func writeMark(_ job: UserScanJob, into buffer: inout ByteBuffer) {
    // The row without its closing brace.
    buffer.writeImmutableBuffer(job.row)
    buffer.moveWriterIndex(to: buffer.writerIndex - 1)
    buffer.writeStaticString(",")
    writeTotals(job.scan.users[0].totals, into: &buffer)
    buffer.writeStaticString("}")
  }

  /// Write `{"channels_read", "failed": [cid…], "failed_count"?}`.
  private static func writeMarked(_ scan: UserChannelScan, into buffer: inout ByteBuffer) {
    buffer.writeString("{\"channels_read\":\(scan.markedCount),\"failed\":[")
    var reader = FieldReader(scan.failed.readableBytesSpan)
    var isFirst = true
    while reader.remaining > 0, let cid = try? reader.string() {
      if !isFirst { buffer.writeStaticString(",") }
      isFirst = false
      buffer.writeJSONString(cid)
    }
    buffer.writeStaticString("]")
    if scan.hasMoreFailed { buffer.writeString(",\"failed_count\":\(scan.failedCount)") }
    buffer.writeStaticString("}")
  }

  /// Write `{"users": [{"user_id", totals} | {"user_id", "code"}…]}`, in the order of the request.
  private static func writeUsers(_ job: UserScanJob, into buffer: inout ByteBuffer) {
    buffer.writeStaticString("{\"users\":[")
    for (index, entry) in job.entries.enumerated() {
      buffer.writeStaticString(index == 0 ? "{" : ",{")
      switch entry {
      case .user(let index):
        let user = job.scan.users[index]
        writeUser(user.id, into: &buffer)
        if let problem = user.problem {
          write(problem.code, into: &buffer)
        } else {
          writeTotals(user.totals, into: &buffer)
        }
      case .refused(let id, let code):
        if let id { writeUser(id, into: &buffer) }
        write(code, into: &buffer)
      }
      buffer.writeStaticString("}")
    }
    buffer.writeStaticString("]}")
  }

  private static func writeUser(_ id: [UInt8], into buffer: inout ByteBuffer) {
    buffer.writeStaticString("\"user_id\":")
    buffer.writeJSONString(id.span.bytes)
    buffer.writeStaticString(",")
  }

  private static func write(_ code: ProblemCode, into buffer: inout ByteBuffer) {
    buffer.writeString("\"code\":\"\(code.rawValue)\"")
  }

  private static func writeTotals(_ totals: UnreadTotals, into buffer: inout ByteBuffer) {
    buffer.writeWithOutputRawSpan(minimumWritableBytes: fixedByteMax) { out in
      out.literal("\"total_unread_count\":")
      out.decimal(totals.messages)
      out.literal(",\"unread_channels\":")
      out.decimal(totals.channels)
      out.literal(",\"unread_threads\":")
      out.decimal(totals.threads)
      out.literal(",\"unread_mentions\":")
      out.decimal(totals.mentions)
    }
  }

  /// Write `{totals, "channels": […], "next"?}`.
  private static func writePage(_ scan: UserChannelScan, into buffer: inout ByteBuffer) {
    buffer.writeStaticString("{")
    writeTotals(scan.users[0].totals, into: &buffer)
    buffer.writeStaticString(",\"channels\":[")
    for (index, channel) in (scan.page?.shown ?? []).enumerated() {
      if index > 0 { buffer.writeStaticString(",") }
      write(channel, into: &buffer)
    }
    buffer.writeStaticString("]")
    writeNext(scan.page?.next, into: &buffer)
    buffer.writeStaticString("}")
  }

  private static func write(_ channel: UnreadPage.Detail, into buffer: inout ByteBuffer) {
    let strings = channel.cid.count + channel.lastReadMessage.count + channel.firstUnreadMessage.count
    buffer.writeWithOutputRawSpan(minimumWritableBytes: fixedByteMax + 6 * strings) { out in
      out.literal("{\"cid\":")
      out.jsonString(channel.cid.span.bytes)
      out.literal(",\"unread_messages\":")
      out.decimal(UInt64(channel.unread))
      out.literal(",\"unread_mentions\":")
      out.decimal(UInt64(channel.mentions))
      if channel.isFlagged { out.literal(",\"marked_unread\":true") }
      if !channel.lastReadMessage.isEmpty {
        out.literal(",\"last_read_message_id\":")
        out.jsonString(channel.lastReadMessage.span.bytes)
      }
      if !channel.firstUnreadMessage.isEmpty {
        out.literal(",\"first_unread_message_id\":")
        out.jsonString(channel.firstUnreadMessage.span.bytes)
      }
      out.literal(",\"last_read\":")
      out.timestamp(milliseconds: channel.lastRead.milliseconds)
      out.literal("}")
    }
  }

  /// Write a reply to list_channels as `{"channels": [{"cid", "joined_at"}…], "next"?}`.
  static func writeChannels(_ reader: inout FieldReader, into buffer: inout ByteBuffer) throws(WireError) {
    buffer.writeStaticString("{\"channels\":[")
    var isFirst = true
    let next = try reader.channelList { channel in
      guard channel.isMember else { return }
      if !isFirst { buffer.writeStaticString(",") }
      isFirst = false
      buffer.writeWithOutputRawSpan(minimumWritableBytes: fixedByteMax + 6 * channel.cid.byteCount) { out in
        out.literal("{\"cid\":")
        out.jsonString(channel.cid)
        out.literal(",\"joined_at\":")
        out.timestamp(milliseconds: channel.joinedAt.milliseconds)
        out.literal("}")
      }
    }
    buffer.writeStaticString("]")
    writeNext(next, into: &buffer)
    buffer.writeStaticString("}")
  }

  private static func writeNext(_ cursor: UInt64?, into buffer: inout ByteBuffer) {
    if let cursor { buffer.writeString(",\"next\":\"c\(cursor)\"") }
  }
}
