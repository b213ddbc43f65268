/// Incremental count of the lines of a change feed by type. It makes no strings and parses no more than the type, so
/// that the reader costs little beside the services.
struct FeedLineCounts {
  /// Size limit of a line.
  static let byteCountMax = 1 << 20
  private static let leaseType = "lease"
  private static let heartbeatType = "heartbeat"
  /// Types of lines after which records are missing, or no further ones follow.
  private static let faultTypes = ["gap", "lease_lost", "error"]

  private var input = PartialBytes()
  /// Types in the order in which they came first. There are few, so they are compared one after the other.
  private var counts: [(type: String, count: Int)] = []

  /// Count the lines that the next bytes complete.
  ///
  /// - Throws: ``LoadError`` for a gap or an end of the stream, and for a line without a type.
  mutating func read(_ bytes: UnsafeRawBufferPointer) throws(LoadError) {
    // Moved out while it parses, because the parser changes this value.
    var input = input
    self.input = PartialBytes()
    try input.feed(bytes) { bytes throws(LoadError) in try parse(bytes) }
    self.input = input
    guard input.count <= Self.byteCountMax else {
      throw LoadError("a line of the feed has more than \(Self.byteCountMax) bytes")
    }
  }

  /// Number of lines of a type.
  func count(of type: String) -> Int { counts.first { $0.type == type }?.count ?? 0 }

  var heartbeats: Int { count(of: Self.heartbeatType) }

  /// Number of records of all types.
  var records: Int {
    counts.reduce(0) { sum, entry in
      [Self.leaseType, Self.heartbeatType].contains(entry.type) ? sum : sum + entry.count
    }
  }

  /// - Returns: the size of all complete lines.
  private mutating func parse(_ bytes: UnsafeRawBufferPointer) throws(LoadError) -> Int {
    var start = 0
    while let end = EventBlocks.lineFeed(in: bytes, from: start) {
      try add(UnsafeRawBufferPointer(rebasing: bytes[start..<end]))
      start = end + 1
    }
    return start
  }

  private mutating func add(_ line: UnsafeRawBufferPointer) throws(LoadError) {
    // The first one: what stands before it is a cursor and an id.
    guard let type = line.text(after: #""type":""#) else { throw Self.unexpected(line) }
    for index in counts.indices where type.equals(counts[index].type) {
      counts[index].count += 1
      return
    }
    let name = String(decoding: type, as: UTF8.self)
    guard !Self.faultTypes.contains(name) else { throw Self.unexpected(line) }
    counts.append((name, 1))
  }

  private static func unexpected(_ line: UnsafeRawBufferPointer) -> LoadError {
    LoadError("an unexpected line of the feed: \(String(decoding: line.prefix(300), as: UTF8.self))")
  }
}
