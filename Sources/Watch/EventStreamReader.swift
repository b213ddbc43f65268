/// Event of an event stream.
package struct StreamedEvent: Hashable, Sendable {
  /// Event type; `message` if the stream names none.
  package var type: String
  /// Lines of data, separated by line feeds.
  package var data: String

  package init(type: String = "message", data: String) {
    self.type = type
    self.data = data
  }
}

/// Parser of `text/event-stream` as in browsers (WHATWG HTML, "Interpreting an event stream"), for input in arbitrary
/// pieces.
package struct EventStreamReader: Sendable {
  /// Reason why a stream is abandoned.
  package enum Failure: Error, Hashable, CustomStringConvertible {
    /// A line, or the data of one event, has more bytes than ``byteCountMax``.
    case tooLong

    package var description: String { "an event is longer than \(EventStreamReader.byteCountMax) bytes" }
  }

  /// Maximum size in bytes of a line, and of one event's data.
  package static let byteCountMax = 1 << 20

  /// Event id to resume from: that of the last complete block. Empty: none yet.
  package private(set) var lastEventID: String
  /// Reconnection delay, if the stream has set one.
  package private(set) var retryMilliseconds: Int?

  private var line: [UInt8] = []
  /// Whether the last line ended with a carriage return: a line feed right after it belongs to that line end.
  private var endedWithReturn = false
  /// Bytes of the byte order mark seen so far; nil after the start of the stream.
  private var markCount: Int? = 0
  private var type = ""
  private var data: [UInt8] = []
  private var id: String

  /// - Parameter lastEventID: event id from which the stream was resumed.
  package init(lastEventID: String = "") {
    self.lastEventID = lastEventID
    id = lastEventID
  }

  /// Parse the next bytes of the stream, and pass each completed event to `receive`, which returns whether it wants
  /// more.
  ///
  /// - Returns: false once `receive` wants no more.
  /// - Throws: ``Failure``. The reader cannot be used afterwards.
  package mutating func read(_ bytes: RawSpan, _ receive: (StreamedEvent) -> Bool) throws(Failure) -> Bool {
    for index in 0..<bytes.byteCount {
      let byte = bytes.unsafeLoad(fromByteOffset: index, as: UInt8.self)
      if let seen = markCount {
        if seen < 3, byte == Self.byteOrderMark[seen] {
          markCount = seen + 1
          continue
        }
        markCount = nil
        // An incomplete mark is data.
        if seen < 3 { line += Self.byteOrderMark[..<seen] }
      }
      if endedWithReturn {
        endedWithReturn = false
        if byte == 0x0A { continue }
      }
      guard byte == 0x0A || byte == 0x0D else {
        guard line.count < Self.byteCountMax else { throw .tooLong }
        line.append(byte)
        continue
      }
      endedWithReturn = byte == 0x0D
      let event = try endLine()
      line.removeAll(keepingCapacity: true)
      if let event, !receive(event) { return false }
    }
    return true
  }

  private static let byteOrderMark: [UInt8] = [0xEF, 0xBB, 0xBF]

  private mutating func endLine() throws(Failure) -> StreamedEvent? {
    guard !line.isEmpty else { return endBlock() }
    let colon = line.firstIndex(of: UInt8(ascii: ":")) ?? line.endIndex
    guard colon > 0 else { return nil }
    var value = line[min(colon + 1, line.endIndex)...]
    if value.first == UInt8(ascii: " ") { value = value.dropFirst() }
    switch String(decoding: line[..<colon], as: UTF8.self) {
    case "event": type = String(decoding: value, as: UTF8.self)
    case "data":
      guard data.count + value.count < Self.byteCountMax else { throw .tooLong }
      data += value
      data.append(0x0A)
    case "id" where !value.contains(0): id = String(decoding: value, as: UTF8.self)
    case "retry":
      if !value.isEmpty, value.allSatisfy({ (0x30...0x39).contains($0) }) {
        retryMilliseconds = Int(String(decoding: value, as: UTF8.self)) ?? retryMilliseconds
      }
    default: break
    }
    return nil
  }

  private mutating func endBlock() -> StreamedEvent? {
    lastEventID = id
    defer {
      type = ""
      data.removeAll(keepingCapacity: true)
    }
    guard !data.isEmpty else { return nil }
    return StreamedEvent(type: type.isEmpty ? "message" : type, data: String(decoding: data.dropLast(), as: UTF8.self))
  }
}
