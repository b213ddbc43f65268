@testable import ReceiptModel

/// Array versions of the model's span functions: `#expect` captures its operands, and a span cannot escape.

extension UserTable {
  func find(_ id: String) -> UserNumber? {
    let id = Array(id.utf8)
    return find(id.span.bytes)
  }
}

extension StableHash {
  static func hash(_ bytes: [UInt8], seed: UInt64 = 0) -> UInt64 { hash(bytes.span.bytes, seed: seed) }
}

extension ShardID {
  static func owning(_ text: String, count: Int) -> ShardID {
    let bytes = Array(text.utf8)
    return owning(bytes.span.bytes, count: count)
  }
}

extension Identifier {
  static func isCID(_ text: String) -> Bool {
    let bytes = Array(text.utf8)
    return isCID(bytes.span.bytes)
  }

  static func colonOffset(_ text: String) -> Int? {
    let bytes = Array(text.utf8)
    return colonOffset(bytes.span.bytes)
  }
}

func areEqual(_ a: [UInt8], _ b: [UInt8]) -> Bool { a.span.bytes.equals(b.span.bytes) }
