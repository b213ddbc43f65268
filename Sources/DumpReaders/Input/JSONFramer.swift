/// One JSON object of a dump, not decoded yet.
struct DumpObject: Hashable {
  var bytes: [UInt8]
  /// The line, from 1, in which it begins.
  var line: Int
}

/// How a product's dumps are cut into JSON objects.
enum JSONFraming {
  /// Each line is an object. A line that is no object, or too large, is refused, and the next one is read.
  case lines
  /// Objects follow one another, over any number of lines, and may be the elements of lists.
  case objects
}

/// Cuts a dump into JSON objects as its bytes arrive, and checks their size and nesting before anything decodes them.
struct JSONFramer {
  /// Levels of `{` and `[` in an object.
  static let nestingMax = 128

  enum Frame: Hashable {
    case object(DumpObject)
    /// A line that cannot be read. The lines after it can.
    case refusedLine(Int, detail: String)
  }

  private let framing: JSONFraming
  /// Maximum size of an object, in bytes.
  private let bytesMax: Int
  private var frames: [Frame] = []
  private var object: [UInt8] = []
  private var nesting = JSONNesting()
  /// Lines of the next byte and of the object's first one.
  private var line = 1
  private var firstLine = 1
  /// Whether the object is an element of a list.
  private var isInList = false
  /// Why the rest of a line is skipped.
  private var refusal: String?

  init(_ framing: JSONFraming, bytesMax: Int) {
    self.framing = framing
    self.bytesMax = bytesMax
  }

  /// Read further bytes.
  ///
  /// - Returns: the objects that are complete.
  /// - Throws: ``DumpError``, without the file's name.
  mutating func append(_ bytes: some Sequence<UInt8>) throws -> [Frame] {
    for byte in bytes {
      switch framing {
      case .lines: readInLine(byte)
      case .objects: try readInObjects(byte)
      }
      if byte == UInt8(ascii: "\n") { line += 1 }
    }
    return takeFrames()
  }

  /// Read the end of the dump.
  ///
  /// - Returns: a last line without a line feed.
  /// - Throws: ``DumpError`` if an object is incomplete.
  mutating func finish() throws -> [Frame] {
    switch framing {
    case .lines: endLine()
    case .objects:
      guard object.isEmpty, !isInList else {
        throw DumpError("line \(line): the dump ends within an object or a list; fetch it again")
      }
    }
    return takeFrames()
  }

  private mutating func takeFrames() -> [Frame] {
    defer { frames.removeAll(keepingCapacity: true) }
    return frames
  }

  // MARK: Lines

  private mutating func readInLine(_ byte: UInt8) {
    if byte == UInt8(ascii: "\n") { return endLine() }
    guard refusal == nil, !(object.isEmpty && byte.isJSONSpace) else { return }
    object.append(byte)
    nesting.read(byte)
    if object.count > bytesMax {
      refuseLine("has more than \(bytesMax) bytes")
    } else if nesting.depth > Self.nestingMax {
      refuseLine("has more than \(Self.nestingMax) levels")
    }
  }

  private mutating func refuseLine(_ reason: String) {
    refusal = reason + "; shorten it or leave it out"
    object = []
  }

  private mutating func endLine() {
    if let refusal {
      frames.append(.refusedLine(line, detail: refusal))
    } else if !object.isEmpty {
      frames.append(.object(DumpObject(bytes: object, line: line)))
    }
    (object, refusal, nesting) = ([], nil, JSONNesting())
  }

  // MARK: Objects

  private mutating func readInObjects(_ byte: UInt8) throws {
    if object.isEmpty { return try readBetweenObjects(byte) }
    object.append(byte)
    nesting.read(byte)
    guard object.count <= bytesMax else {
      throw DumpError(
        "line \(firstLine): an object has more than \(bytesMax) bytes; export fewer channels or a shorter time at once"
      )
    }
    guard nesting.depth <= Self.nestingMax else {
      throw DumpError("line \(line): an object has more than \(Self.nestingMax) levels; leave it out")
    }
    guard nesting.depth == 0 else { return }
    frames.append(.object(DumpObject(bytes: object, line: firstLine)))
    object = []
  }

  private mutating func readBetweenObjects(_ byte: UInt8) throws {
    if byte.isJSONSpace { return }
    switch byte {
    case UInt8(ascii: "{"):
      object.append(byte)
      nesting = JSONNesting()
      nesting.read(byte)
      firstLine = line
    case UInt8(ascii: "[") where !isInList: isInList = true
    case UInt8(ascii: "]") where isInList: isInList = false
    case UInt8(ascii: ",") where isInList: return
    default:
      throw DumpError("line \(line): expected a JSON object; give the JSON file that the product wrote, unpacked")
    }
  }
}

/// The depth of a place in JSON: brackets outside of strings.
private struct JSONNesting {
  private(set) var depth = 0
  private var isInString = false
  private var isEscaped = false

  mutating func read(_ byte: UInt8) {
    if isInString {
      if isEscaped {
        isEscaped = false
      } else if byte == UInt8(ascii: "\\") {
        isEscaped = true
      } else if byte == UInt8(ascii: "\"") {
        isInString = false
      }
      return
    }
    switch byte {
    case UInt8(ascii: "\""): isInString = true
    case UInt8(ascii: "{"), UInt8(ascii: "["): depth += 1
    case UInt8(ascii: "}"), UInt8(ascii: "]"): depth -= 1
    default: return
    }
  }
}

extension UInt8 {
  fileprivate var isJSONSpace: Bool {
    switch self {
    case UInt8(ascii: " "), UInt8(ascii: "\t"), UInt8(ascii: "\n"), UInt8(ascii: "\r"): true
    default: false
    }
  }
}
