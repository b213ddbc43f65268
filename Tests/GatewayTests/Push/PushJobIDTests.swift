import ReceiptModel
import Testing

@testable import Gateway

/// Names of push jobs, as the routes of push jobs answer and take them.
@Suite struct PushJobIDTests {
  @Test(arguments: [
    PushJobID(shard: ShardID(0), key: 0), PushJobID(shard: ShardID(3), key: 255, claim: 7),
    PushJobID(shard: ShardID(15), key: .max, claim: .max),
  ])
  func namesAreReadBack(id: PushJobID) {
    let text = Array(id.text.utf8)
    #expect(PushJobID(text.span.bytes, shardCount: 16) == id)
  }

  /// Each job has one name: a set of names counts jobs.
  @Test(arguments: [
    "", "3", "3-", "-00000000000000ff", "3-ff", "3-00000000000000FF", "03-00000000000000ff", "+3-00000000000000ff",
    "3-00000000000000ff-", "3-00000000000000ff-0", "3-00000000000000ff-07", "3-00000000000000ff-7-1",
    "16-00000000000000ff", "3-00000000000000ff-18446744073709551616",
  ])
  func otherSpellingsAreRefused(text: String) {
    let text = Array(text.utf8)
    #expect(PushJobID(text.span.bytes, shardCount: 16) == nil)
  }
}
