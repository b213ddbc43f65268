/// Reads the JSON objects of one product's dumps.
protocol DumpReader {
  /// How its dumps are cut into objects.
  var framing: JSONFraming { get }

  /// Read one object. What is wrong with a record refuses that record.
  ///
  /// - Throws: ``DumpError`` if the dump cannot be read at all.
  mutating func read(_ object: DumpObject, into records: RecordCollector) throws
}

/// A product whose dumps can be converted (docs/api/import-dumps.md).
package enum DumpFormat: String, CaseIterable, Sendable {
  case stream
  case sendbird
  case matrix
  case mattermost

  /// Maximum size of one JSON object of a dump, in bytes. Decoding takes several times its size.
  var objectBytesMax: Int {
    switch self {
    case .mattermost: 16 << 20
    // A room or a channel with all its messages is one object.
    case .stream, .sendbird, .matrix: 256 << 20
    }
  }

  func makeReader() -> any DumpReader {
    switch self {
    case .stream: StreamReader()
    case .sendbird: SendbirdReader()
    case .matrix: MatrixReader()
    case .mattermost: MattermostReader()
    }
  }
}
