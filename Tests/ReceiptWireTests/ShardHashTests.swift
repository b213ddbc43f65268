import ReceiptModel
import Testing

/// XXH64 and the shard derived from it, compared with the output of the independent tool xxhsum
/// (Proto/vectors/shard-hash.json).
struct ShardHashTests {
  @Test func hashesOfBytesMatchVectors() {
    for vector in Vectors.shardHash.sequences {
      let bytes = (0..<vector.length).map { UInt8(truncatingIfNeeded: 31 * $0 + 7) }
      #expect(StableHash.hash(bytes.span.bytes) == UInt64(vector.hash, radix: 16), "\(vector.length) bytes")
    }
  }

  @Test func hashesOfTextsMatchVectors() {
    for vector in Vectors.shardHash.texts {
      #expect(
        StableHash.hash(Array(vector.text.utf8).span.bytes) == UInt64(vector.hash, radix: 16),
        "\(vector.text)"
      )
    }
  }

  @Test func shardsMatchVectors() {
    for vector in Vectors.shardHash.shards {
      let shard = ShardID.owning(Array(vector.cid.utf8).span.bytes, count: vector.shardCount)
      #expect(shard == ShardID(vector.shard), "\(vector.cid) of \(vector.shardCount)")
    }
  }

  /// The hash must not depend on the alignment of its bytes.
  @Test func hashesIgnoreAlignment() {
    let bytes = (0..<300).map { UInt8(truncatingIfNeeded: 31 * $0 + 7) }
    for shift in 0..<9 {
      let shifted = [UInt8](repeating: 0xAA, count: shift) + bytes
      let hash = StableHash.hash(shifted.span.bytes.extracting(shift..<(shift + 300)))
      #expect(hash == StableHash.hash(bytes.span.bytes))
    }
  }
}
