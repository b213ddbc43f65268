import TestSupport
import Testing

@testable import ReceiptModel

/// R9: acknowledgement requests.
@Suite("Stories of acknowledgement requests", .computing)
struct AcknowledgementStoryTests {
  @Test("an acknowledgement request is processing until all recipients have acknowledged, then done")
  func requestIsDoneOnceAllHaveAcknowledged() {
    acknowledgementStory(
      """
      join alice bob carol
      post m1 by alice            -> requested
      post m2 by alice plain      -> none
      request m1                  -> processing
      request m2                  -> none
      clock 2000
      ack bob m1                  -> ok
      request m1                  -> processing
      # The first acknowledgement stays, with its time and note.
      clock 3000
      ack bob m1 note later       -> ok
      ack carol m1 note read-it   -> ok
      request m1                  -> done
      records m1                  -> bob@2000 carol@3000=read-it
      recover
      records m1                  -> bob@2000 carol@3000=read-it
      """
    )
  }

  @Test("several messages are acknowledged at once, each with its own result")
  func severalMessagesAreAcknowledgedAtOnce() {
    acknowledgementStory(
      """
      join alice bob
      post m1…m3 by alice
      post m4 by alice plain
      post m5 by bob
      delete m3
      # A duplicate in the batch counts once.
      ack bob m1 m2 m1 m3 m4 m5 m9  -> ok ok ok messageDeleted acknowledgementNotRequested ownMessage messageNotFound
      records m1                    -> bob@1000
      ack zoe m1                    -> notAMember
      delete m1
      ack bob m1                    -> messageDeleted
      recover
      """
    )
  }

  @Test("an unfinished acknowledgement request with a lifetime expires; members who acknowledged keep that")
  func unfinishedRequestWithLifetimeExpires() {
    acknowledgementStory(
      """
      join alice bob carol
      post m1 by alice
      options ttl=10
      post m2…m3 by alice
      ack bob m2…m3               -> ok ok
      ack carol m3                -> ok
      clock 10999
      request m2                  -> processing
      clock 11000
      request m1                  -> processing
      request m2                  -> expired
      request m3                  -> done
      ack carol m2                -> acknowledgementExpired
      ack bob m2                  -> ok
      # Also where the request is done without them.
      join dora
      hide carol
      request m2                  -> done
      ack carol m2                -> acknowledgementExpired
      ack dora m2                 -> notExpected
      show carol
      request m2                  -> expired
      # The option at the time of registration applies.
      options ttl=-
      request m2                  -> expired
      recover
      """
    )
  }

  @Test("an acknowledgement request does not wait for members who hide, left or joined later; it needs at least one")
  func requestWaitsForShownRecipientsOnly() {
    acknowledgementStory(
      """
      join alice bob carol
      post m1 by alice
      hide bob
      ack carol m1                -> ok
      request m1                  -> done
      show bob
      request m1                  -> processing
      # Hidden again, the acknowledgement does not count, and if all hide, the request is not done.
      hide bob
      ack bob m1                  -> ok
      request m1                  -> done
      records m1                  -> carol@1000 (bob@1000)
      hide carol
      request m1                  -> processing
      show bob
      request m1                  -> done
      recover
      # Joining does not undo it.
      join dora
      request m1                  -> done
      ack dora m1                 -> notExpected
      records m1                  -> carol@1000 (bob@1000)
      post m2 by dora
      ack bob m2                  -> ok
      request m2                  -> processing
      leave alice
      request m2                  -> done
      leave bob
      request m2                  -> processing
      # The new row joined later, and is not waited for.
      join alice
      ack alice m2                -> notExpected
      show carol
      ack carol m2                -> ok
      request m2                  -> done
      recover
      """
    )
  }

  @Test("a sender who rejoined is not expected, and still may not acknowledge")
  func senderWhoRejoinedMayNotAcknowledge() {
    acknowledgementStory(
      """
      join alice bob
      post m1 by alice
      leave alice
      join alice
      ack alice m1                -> ownMessage
      request m1                  -> processing
      ack bob m1                  -> ok
      request m1                  -> done
      post m2 by system
      ack alice m2                -> ok
      ack bob m2                  -> ok
      request m2                  -> done
      """
    )
  }

  @Test("mark-read acknowledges in direct channels, always, or never")
  func readAcknowledges() {
    acknowledgementStory(
      """
      join alice bob
      post m1…m2 by alice
      post m3 by alice plain
      post m4 by bob
      read bob m2                 -> m1 m2 through 2
      read bob m2                 ->
      # Sending reads everything, and acknowledges nothing.
      read alice                  -> m4 through 4
      # A mark that moves nothing acknowledges too.
      post m5 by alice
      post m6 by bob
      request m5                  -> processing
      read bob m5                 -> m5 through 5
      request m5                  -> done
      join carol
      post m7…m8 by alice
      read bob                    ->
      options acks=always
      read bob m7                 -> m7 through 7
      # Members do not acknowledge messages from before their join.
      read carol                  -> m7 m8 through 8
      options acks=never
      post m9 by alice
      read bob                    ->
      options acks=direct
      leave carol
      read bob                    -> m8 m9 through 9
      recover
      """
    )
  }

  @Test("mark-read skips messages that could not be acknowledged one by one")
  func markReadSkipsRefused() {
    acknowledgementStory(
      """
      options ttl=1
      join alice bob
      post m1 by alice
      options ttl=-
      post m2…m5 by alice
      delete m2
      ack bob m3 note by-hand     -> ok
      clock 2000
      read bob m4                 -> m4 through 4
      records m3                  -> bob@1000=by-hand
      records m4                  -> bob@2000
      request m1                  -> expired
      post m6 by bob
      read bob m6                 -> m5 through 6
      read alice m6               -> m6 through 6
      # A lower mark changes nothing.
      read bob m3                 ->
      hide bob
      post m7 by alice
      read bob                    -> m7 through 7
      records m7                  -> (bob@2000)
      recover
      """
    )
  }

  @Test("beyond receipt_max_members the oldest record is evicted; hidden ones neither evict nor are evicted")
  func oldestRecordBeyondLimitIsEvicted() {
    acknowledgementStory(
      """
      options max=2
      join alice u1…u9
      post m1 by alice
      hide u2 u4 u6
      ack u1 m1 note one          -> ok
      clock 2000
      ack u2 m1                   -> ok
      clock 3000
      ack u3 m1 note three        -> ok
      ack u4 m1                   -> ok
      records m1                  -> u1@1000=one (u2@2000) u3@3000=three (u4@3000)
      page m1
      clock 4000
      ack u6 m1                   -> ok
      records m1                  -> u1@1000=one (u2@2000) u3@3000=three (u4@3000) (u6@4000)
      ack u5 m1 note five         -> ok
      records m1                  -> u1 (u2@2000) u3@3000=three (u4@3000) (u6@4000) u5@4000=five
      recover
      # An evicted record still counts as acknowledged.
      ack u1 m1 note again        -> ok
      records m1                  -> u1 (u2@2000) u3@3000=three (u4@3000) (u6@4000) u5@4000=five
      pages
      options max=1
      ack u7 m1                   -> ok
      records m1                  -> u1 u3 u5 (u2@2000) (u4@3000) (u6@4000) u7@4000
      options max=0
      ack u8 m1 note nothing      -> ok
      records m1                  -> u1 u3 u5 u7 u8 (u2@2000) (u4@3000) (u6@4000)
      ack u9 m1                   -> ok
      request m1                  -> done
      options max=-
      recover
      """
    )
  }

  @Test("receipt_daily_limit counts the acknowledgement requests of the UTC day, deleted ones included")
  func dailyLimitCountsDeletedRequests() {
    acknowledgementStory(
      """
      # The last second of 1970-01-01.
      clock 86399000
      options daily=2
      join alice bob
      post m1…m2 by alice         -> requested
      delete m1
      post m3 by alice            -> limitReached
      post m4 by alice plain      -> none
      request m3                  -> none
      ack bob m3                  -> acknowledgementNotRequested
      clock 86400000
      # The same id again gets the same answer, whatever the limits say now.
      post m3 by alice            -> limitReached
      post m5…m6 by bob           -> requested
      post m7 by alice            -> limitReached
      options daily=3
      post m8 by alice            -> requested
      options daily=-
      post m9…m12 by alice        -> requested
      post m7 by alice            -> limitReached
      options daily=0
      post m13 by alice           -> limitReached
      recover
      """
    )
  }

  @Test("receipt_request_roles: the sender's role at the time of registration")
  func senderRoleAtRegistrationDecidesRequest() {
    acknowledgementStory(
      """
      options roles=admin,host daily=1
      join alice as admin
      join bob
      join carol as guest
      post m1 by bob              -> notAllowed
      post m2 by carol            -> notAllowed
      post m3 by stranger         -> notAllowed
      post m4 by alice            -> requested
      # The refusal of a sender without the role does not reveal the limit.
      post m5 by alice            -> limitReached
      post m6 by bob              -> notAllowed
      join bob as host
      post m6 by bob              -> notAllowed
      post m7 by bob              -> limitReached
      options roles=- daily=-
      post m8 by carol            -> requested
      post m4 by alice            -> requested
      recover
      """
    )
  }

  @Test("pages and log give the same result, also where records were evicted between them")
  func pagesAndLogGiveTheSameResult() {
    acknowledgementStory(
      """
      options max=3
      join alice u1…u300
      post m1…m3 by alice
      ack u1 m1 note a            -> ok
      ack u290 m1 note b          -> ok
      pages
      ack u2 m1                   -> ok
      ack u3 m1 note c            -> ok
      page m1
      records m1                  -> u1 u290@1000=b u2@1000 u3@1000=c
      ack u4 m1 m2                -> ok ok
      ack u5 m2                   -> ok
      recover
      leave u3 u290
      hide u5
      recover
      ack u6 m1 m2 m3             -> ok ok ok
      page m3
      records m1                  -> u1 u2 u290 u3@1000=c u4@1000 u6@1000
      recover
      pages
      recover
      """
    )
  }

  @Test("assigning the same acknowledgement again changes nothing")
  func assigningSameAcknowledgementAgainChangesNothing() {
    var message = MessageAcknowledgements()
    let first = Acknowledgement(row: MemberOrdinal(3), at: Timestamp(milliseconds: 5), note: "first")
    let second = Acknowledgement(row: MemberOrdinal(70), at: Timestamp(milliseconds: 6), isHidden: true)
    let gone = Acknowledgement(row: MemberOrdinal(1), at: .none)
    for _ in 0..<2 {
      for acknowledgement in [gone, first, second] { message.assign(acknowledgement) }
      #expect(message.acknowledgements == [gone, first, second])
      #expect(message.count == 3)
    }
    for _ in 0..<2 { message.forget(first.row) }
    let forgotten = Acknowledgement(row: first.row, at: .none)
    #expect(message.acknowledgements == [gone, forgotten, second])
    #expect(message.record(first.row) == forgotten)
    #expect(message.record(MemberOrdinal(2)) == nil)
    // The log is replayed from the start again.
    for acknowledgement in [first, second] { message.assign(acknowledgement) }
    message.forget(first.row)
    #expect(message.acknowledgements == [gone, forgotten, second])
    #if DEBUG
      #expect(message.checkInvariants() == nil)
    #endif
  }

  @Test("evicted records free their memory")
  func evictedRecordsFreeMemory() {
    var message = MessageAcknowledgements()
    for row in 0..<10_000 as Range<UInt32> {
      message.assign(
        Acknowledgement(row: MemberOrdinal(row), at: Timestamp(milliseconds: Int64(row) + 1), note: "n\(row)")
      )
      for oldest in message.oldest(message.visibleCount - 10, isHidden: false) { message.forget(oldest) }
    }
    #expect(message.count == 10_000)
    #expect(message.visibleCount == 10)
    // One bit for each row, and a few dozen records.
    #expect(message.heapByteCount < 10_000 / 8 * 2 + 4_096)
    #if DEBUG
      #expect(message.checkInvariants() == nil)
    #endif
  }

  @Test("done is found among 100,000 members without counting them")
  func doneIsFoundAmong100000MembersWithoutCounting() {
    let shard = LargeChannel(members: 100_000)
    #expect(shard.progress == .init(isDone: false, wordsVisited: 0))
    // The first missing member ends the scan.
    shard.acknowledge(500)
    #expect(shard.progress == .init(isDone: false, wordsVisited: 1))
    for row in 1..<100_000 as Range<UInt32> where row != 70_000 { shard.acknowledge(row) }
    #expect(shard.progress == .init(isDone: false, wordsVisited: 70_000 / 64 + 1))
    shard.acknowledge(70_000)
    #expect(shard.progress == .init(isDone: true, wordsVisited: 100_000 / 64 + 1))
    #expect(shard.state[shard.slot].acknowledgementStatus(SequenceNumber(1), at: .none) == .done)
    #if DEBUG
      #expect(shard.state.checkInvariants() == nil)
    #endif
  }

  @Test("a member who leaves costs one bit, however many acknowledgement requests the channel has")
  func memberWhoLeavesCostsOneBit() {
    let shard = LargeChannel(members: 200)
    for row in 1..<199 as Range<UInt32> { shard.acknowledge(row) }
    #expect(!shard.progress.isDone)
    shard.leave(199)
    #expect(shard.progress == .init(isDone: true, wordsVisited: 4))
    for row in 1..<199 as Range<UInt32> { shard.leave(row) }
    // No recipient is left.
    #expect(shard.progress == .init(isDone: false, wordsVisited: 4))
  }
}

/// One message with an acknowledgement request, sent by the first of many members.
private final class LargeChannel {
  private(set) var state = ShardState(id: ShardID(0))
  let slot: ChannelSlot
  private let number = ChannelNumber(1)
  private let time = Timestamp(milliseconds: 1)

  init(members: UInt32) {
    state.assign(.countersAssigned(nextChannel: ChannelNumber(2), time: time))
    slot = state.insert(number, cid: "team:room", created: time, own: OptionPatch())
    for row in 0..<members {
      let record = RowRecord(user: "u\(row)", joined: .zero, joinedAt: time)
      state.assign(.rowAssigned(MemberOrdinal(row), record), to: slot)
    }
    let message = MessageRecord(id: "m1", sender: "u0", flags: .requestsAcknowledgement, registeredAt: time)
    state.assign(.messageAssigned(SequenceNumber(1), message), to: slot)
  }

  var progress: AcknowledgementTable.Progress { state[slot].acknowledgementProgress(SequenceNumber(1)) }

  func acknowledge(_ row: UInt32) {
    let record = Acknowledgement(row: MemberOrdinal(row), at: time)
    state.assign(.acknowledged(SequenceNumber(1), record), to: slot)
  }

  func leave(_ row: UInt32) { state.assign(.rowLeft(MemberOrdinal(row), at: time), to: slot) }
}
