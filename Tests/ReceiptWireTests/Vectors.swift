import Foundation
import TestSupport
import Testing

/// The golden vectors of Proto/vectors, as in the files.
enum Vectors {
  static let frames = load("frames.json", as: FrameFile.self).frames
  static let badFrames = load("bad-frames.json", as: BadFrameFile.self).frames
  static let log = load("log.json", as: LogFile.self)
  static let shardHash = load("shard-hash.json", as: ShardHashFile.self)

  struct FrameFile: Decodable { var frames: [Frame] }
  struct BadFrameFile: Decodable { var frames: [Bad] }

  struct Frame: Decodable, NamedVector {
    var name: String
    var kind: String
    var kindNumber: UInt8
    var flags: UInt8
    var shard: UInt16
    var correlation: UInt32
    var fields: [Field]
    var hex: String
  }

  /// Bytes, and the name of their `WireError`.
  struct Bad: Decodable, NamedVector {
    var name: String
    var refusal: String
    var hex: String
    var lengthLimit: UInt32?
  }

  struct LogFile: Decodable {
    var effects: [Effect]
    var batches: [Batch]
    var pages: [Page]
    var badBatches: [Bad]
  }

  struct Effect: Decodable, NamedVector {
    var name: String
    var effect: String
    var fields: [Field]
    var hex: String
  }

  struct Batch: Decodable, NamedVector {
    var name: String
    var index: UInt64
    var time: Int64
    var sessions: [[Field]]
    var effects: [String]
    var hex: String
  }

  struct Page: Decodable, NamedVector {
    var name: String
    var index: UInt64
    var effects: [String]
    var hex: String
  }

  struct ShardHashFile: Decodable {
    struct Sequence: Decodable { var length: Int, hash: String }
    struct Text: Decodable { var text: String, hash: String }
    struct Shard: Decodable { var cid: String, shardCount: Int, shard: UInt16 }
    var sequences: [Sequence]
    var texts: [Text]
    var shards: [Shard]
  }

  /// `[name, notation, value]`.
  struct Field: Decodable {
    var name: String
    var value: Value

    enum Value: Equatable {
      case varint(UInt64)
      case byte(UInt8)
      case raw([UInt8])
      case string(String)
      case blob([UInt8])
      case optional(UInt64?)
      case list([[Field]])

      static func == (a: Value, b: Value) -> Bool { "\(a)" == "\(b)" }
    }

    init(from decoder: any Decoder) throws {
      var fields = try decoder.unkeyedContainer()
      name = try fields.decode(String.self)
      let notation = try fields.decode(String.self)
      switch notation {
      case "varint", "time": value = .varint(try fields.decode(UInt64.self))
      case "byte": value = .byte(try fields.decode(UInt8.self))
      case "bytes": value = .raw(Array(hex: try fields.decode(String.self)))
      // A nested effect: the name of its vector.
      case "effect": value = .string(try fields.decode(String.self))
      case "string": value = .string(try fields.decode(String.self))
      case "blob": value = .blob(Array(hex: try fields.decode(String.self)))
      case "opt": value = .optional(try fields.decode(UInt64?.self))
      case "list": value = .list(try fields.decode([[Field]].self))
      default: throw DecodingError.dataCorruptedError(in: fields, debugDescription: "notation \(notation)")
      }
    }
  }

  private static func load<T: Decodable>(_ name: String, as type: T.Type) -> T {
    let decoder = JSONDecoder()
    decoder.keyDecodingStrategy = .convertFromSnakeCase
    do {
      return try decoder.decode(
        type,
        from: Data(contentsOf: packageRoot.appending(path: "Proto/vectors/\(name)"))
      )
    } catch {
      fatalError("Proto/vectors/\(name): \(error)")
    }
  }
}

/// Vector that a test's output shows by its name.
protocol NamedVector: CustomTestStringConvertible, Sendable {
  var name: String { get }
}

extension NamedVector {
  var testDescription: String { name }
}

extension [UInt8] {
  /// Bytes from hexadecimal digits.
  init(hex: String) {
    let digits = hex.compactMap(\.hexDigitValue)
    self = stride(from: 0, to: digits.count - 1, by: 2).map { UInt8(digits[$0] << 4 | digits[$0 + 1]) }
  }

  var hex: String { map { String($0 >> 4, radix: 16) + String($0 & 15, radix: 16) }.joined() }
}

extension [Vectors.Field] {
  /// The value of the field with this name; a missing name is a mistake in the test's table.
  subscript(name: String) -> Vectors.Field.Value { first { $0.name == name }!.value }

  func number(_ name: String) -> UInt64 {
    switch self[name] {
    case .varint(let value): value
    case .byte(let value): UInt64(value)
    default: fatalError("\(name) is no number")
    }
  }

  func text(_ name: String) -> String {
    guard case .string(let value) = self[name] else { fatalError("\(name) is no text") }
    return value
  }

  func optional(_ name: String) -> UInt64? {
    guard case .optional(let value) = self[name] else { fatalError("\(name) is not optional") }
    return value
  }

  func bytes(_ name: String) -> [UInt8] {
    switch self[name] {
    case .raw(let value), .blob(let value): return value
    default: fatalError("\(name) is no bytes")
    }
  }

  func list(_ name: String) -> [[Vectors.Field]] {
    guard case .list(let value) = self[name] else { fatalError("\(name) is no list") }
    return value
  }
}
