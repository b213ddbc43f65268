import TestSupport
import Testing

@testable import NaiveReceiptModel
@testable import ReceiptModel

/// R15: threads.
@Suite("Stories of threads", .computing)
struct ThreadStoryTests {
  @Test(
    "control: the interpreter finds wrong expectations",
    arguments: [
      "reply r2 to m1 by bob -> known seq 2", "reply r2 to m1 by bob -> created seq 3",
      "row alice in m1 -> unread 0",
      "row carol in m1 -> row", "total alice -> messages 0 threads 2", "list unread r1 -> nobody",
      "member carol of r1 -> sent", "status r1 -> read", "nonsense",
    ]
  )
  func interpreterFindsWrongExpectations(row: String) {
    var story = ThreadStory()
    for row in ["join alice bob carol", "post m1 by alice", "reply r1 to m1 by bob -> created seq 1"] {
      #expect(story.run(row) == nil)
    }
    #expect(story.run(row) != nil)
  }

  @Test("R4: a read or a reply in a thread clears the channel's unread flag")
  func readOrReplyInThreadClearsChannelUnreadFlag() {
    threadStory(
      """
      join alice bob
      post m1 by alice
      reply r1 to m1 by alice
      read bob in m1
      unread bob in m1                     -> moved epoch 1
      flag bob
      read bob in m1 epoch 0               -> same
      total bob                            -> flagged true
      read bob in m1                       -> moved
      total bob                            -> flagged false
      flag bob
      # A read that moves nothing clears it too.
      read bob in m1                       -> moved
      total bob                            -> flagged false
      flag bob
      delivered bob in m1                  -> moved
      total bob                            -> flagged true
      recover
      reply r2 to m1 by bob
      total bob                            -> flagged false
      """
    )
  }

  @Test("replies have their own numbers in the thread, use none of the channel's, and count only there")
  func repliesHaveOwnNumbersInThread() {
    threadStory(
      """
      join alice bob carol
      post m1 m2 by alice
      reply r1 to m1 by bob                -> created seq 1
      reply r2 to m1 by carol              -> created seq 2
      reply x1 to m2 by bob                -> created seq 1
      post m3 by alice                     -> created seq 3
      # The channel's own positions: only alice has read.
      total bob                            -> messages 3 threads 1
      total alice                          -> messages 0 threads 2
      total carol                          -> messages 3 threads 0
      total zoe                            -> not_a_member
      """
    )
  }

  @Test("R15: in a channel of two, both take part from the first reply on, also when a third joins")
  func bothOfTwoMembersTakePart() {
    threadStory(
      """
      join alice bob
      post m1 m2 by alice
      clock 2000
      # Alice replies to herself.
      reply r1 to m1 by alice              -> created seq 1
      row bob in m1                        -> seq 0 unread 1 first r1
      status r1                            -> sent members 1
      list unread r1                       -> bob
      total bob                            -> threads 1
      clock 3000
      delivered bob in m1 r1               -> moved seq 0 delivered 1
      status r1                            -> delivered received 1
      read bob in m1 r1                    -> moved seq 1 unread 0
      status r1                            -> read readers 1 members 1
      join carol
      clock 4000
      reply r2 to m1 by alice              -> created seq 2
      status r2                            -> sent members 1
      row carol in m1                      -> none
      status r1                            -> read members 1
      # In a thread that begins with three members, only participants are listed.
      reply x1 to m2 by alice              -> created seq 1
      status x1                            -> sent members 0
      row bob in m2                        -> none
      # With two members again both take part, from the next reply on.
      leave carol
      reply x2 to m2 by alice              -> created seq 2
      row bob in m2                        -> seq 0 unread 1 first x2
      status x1                            -> sent members 0
      status x2                            -> sent members 1
      clock 5000
      read bob in m2                       -> moved seq 2
      # His earlier reads count too.
      status x1                            -> read readers 1 members 1
      list readers x1                      -> bob@5000
      """
    )
  }

  @Test(
    "R15: an earlier reply counts for members who read it, so that no status falls when one takes part"
  )
  func earlierReplyCountsForItsReaders() {
    threadStory(
      """
      join alice bob carol dave
      options status_rule=all
      post m1 by alice
      clock 2000
      reply r1…r4 to m1 by bob
      read alice in m1                     -> moved seq 4
      status r2                            -> read readers 1 members 1
      clock 3000
      read carol in m1 r2                  -> moved seq 2 last r2 unread 0 at 3000
      status r2                            -> read readers 2 members 2
      status r3                            -> read readers 1 members 1
      list readers r2                      -> alice@2000 carol@3000
      list unread r3                       -> nobody
      member carol of r2                   -> read
      member carol of r3                   -> not_expected
      # Delivery alone does not count for an earlier reply.
      delivered carol in m1 r4             -> moved delivered 4
      status r4                            -> read members 1
      clock 4000
      reply r5 to m1 by bob
      status r5                            -> sent members 2
      # Replies that she marks unread stay read for others; under this option they see it.
      options mark_unread=public
      unread carol in m1 r1                -> moved seq 0 unread 5
      status r2                            -> delivered readers 1 members 2 received 2
      options mark_unread=private
      # Hidden, she has read nothing, and her row is as at the join.
      hide carol
      status r2                            -> read readers 1 members 1
      status r5                            -> sent members 1
      show carol
      status r2                            -> read readers 2 members 2
      status r5                            -> sent members 2
      evict
      status r2                            -> read readers 2 members 2
      recover
      row carol in m1                      -> seq 0 unread 5
      list readers r2                      -> alice@2000 carol@3000
      """
    )
  }

  @Test("R6 in a thread: replies from before a member joined the channel never count for them")
  func repliesFromBeforeJoinNeverCount() {
    threadStory(
      """
      join alice bob
      post m1 by alice
      clock 2000
      reply r1 to m1 by bob
      clock 3000
      join carol
      reply r2 to m1 by bob
      clock 4000
      read carol in m1                     -> moved seq 2
      status r1                            -> sent members 1
      status r2                            -> read readers 1 members 2
      member carol of r1                   -> not_expected
      member carol of r1 as carol          -> not_expected
      evict
      status r1                            -> sent members 1
      reply r3 to m1 by carol
      recover
      status r1                            -> sent members 1
      status r2                            -> read readers 1 members 2
      """
    )
  }

  @Test("the parent's sender is in the thread from its start, a member who replies from then on")
  func parentSenderIsInThreadFromStart() {
    threadStory(
      """
      join alice bob carol
      post m1 by alice
      clock 2000
      reply r1 to m1 by bob                -> created seq 1
      row alice in m1                      -> seq 0 unread 1 first r1 at 2000
      row bob in m1                        -> seq 1 unread 0 at 2000 delivered 1 dat 2000
      row carol in m1                      -> none
      # r1 has alice and bob; carol was not in the thread yet.
      status r1                            -> sent seq 1 members 1 unread 1
      clock 3000
      reply r2 to m1 by carol              -> created seq 2
      row carol in m1                      -> seq 2 unread 0
      # A member who replies has read the earlier replies.
      status r1                            -> read readers 1 members 2
      status r2                            -> sent members 2
      member carol of r1                   -> read
      member carol of r2                   -> read
      member zoe of r2                     -> not_a_member
      clock 4000
      read alice in m1                     -> moved seq 2 last r2 unread 0 at 4000
      status r1                            -> read readers 2 members 2
      status r2                            -> read readers 1 members 2
      list readers r1                      -> alice@4000 carol@3000
      list unread r2                       -> bob
      """
    )
  }

  @Test("a sender who is no member can reply without a row; so can the system")
  func senderWhoIsNoMemberCanReplyWithoutRow() {
    threadStory(
      """
      join alice bob carol
      post m1 by zoe
      post m2 by -
      reply r1 to m1 by bot                -> created seq 1
      row alice in m1                      -> none
      status r1                            -> sent members 0
      reply r2 to m1 by bob                -> created seq 2
      row bob in m1                        -> seq 2 unread 0
      reply x1 to m2 by -                  -> created seq 1
      reply x2 to m2 by alice              -> created seq 2
      status x2                            -> members 0
      read bob in m2                       -> moved seq 2
      # Silent replies do not count as unread.
      reply x3 to m2 by - silent           -> created seq 3
      row bob in m2                        -> unread 0
      reply x4 to m2 by -
      row bob in m2                        -> unread 1 first x4
      """
    )
  }

  @Test("messages that cannot have a thread, and replies that are refused")
  func invalidParentsAndRepliesAreRefused() {
    threadStory(
      """
      join alice bob
      post m1…m3 by alice
      reply r1 to m9 by bob                -> message_not_found
      delete m2
      reply r1 to m2 by bob                -> message_deleted
      reply r1 to m1 by bob receipt        -> created seq 1 refusal receipt_not_allowed
      reply r2 to r1 by alice              -> invalid_field
      read alice in r1                     -> invalid_field
      read alice in m9                     -> message_not_found
      read alice in m2                     -> message_deleted
      read zoe in m1                       -> not_a_member
      read alice in m1 m1                  -> message_not_found
      read alice in m1 m3                  -> message_not_found
      status r1                            -> receipt none
      """
    )
  }

  @Test("a message id is unique in the channel and all its threads")
  func messageIdIsUniqueInChannelAndAllThreads() {
    threadStory(
      """
      join alice bob
      post m1 m2 by alice
      reply r1 r2 to m1 by bob
      reply x1 to m2 by bob
      # The same answer again; under another parent or none it is another message.
      reply r2 to m1 by bob                -> known seq 2
      reply r2 to m2 by bob                -> message_conflict
      reply m2 to m1 by bob                -> message_conflict
      post r2 by bob                       -> message_conflict
      post x1 by bob                       -> message_conflict
      reply r2 to m9 by bob                -> message_conflict
      delete r2                            -> moved seq 2
      reply r2 to m1 by bob                -> message_deleted
      post r2 by bob                       -> message_deleted
      post m3 by alice                     -> created seq 3
      """
    )
  }

  @Test("R2 in a thread: a member who marks it read takes part from then on")
  func markingThreadReadJoinsIt() {
    threadStory(
      """
      join alice bob carol
      post m1 by alice
      # There is nothing to read yet, and no row.
      read carol in m1                     -> same seq 0 unread 0
      read carol in m1 r1                  -> message_not_found
      clock 2000
      reply r1 r2 r3 to m1 by bob
      clock 3000
      read carol in m1 r1                  -> moved seq 1 last r1 unread 0 at 3000
      read carol in m1 r9                  -> message_not_found
      list readers r1                      -> carol@3000
      list readers r3                      -> nobody
      reply r4 to m1 by bob
      row carol in m1                      -> seq 1 unread 1 first r4
      clock 4000
      # By a reply's id alone.
      read carol r4                        -> moved seq 4 unread 0 at 4000
      read carol r4                        -> same seq 4
      read carol r9                        -> message_not_found
      unread carol r4                      -> moved seq 3 unread 1 first r4
      unread carol r9                      -> message_not_found
      delivered alice r1                   -> moved seq 0 unread 4 delivered 1
      delivered alice r9                   -> message_not_found
      read alice in m1 r2                  -> moved seq 2 unread 2 first r3
      read alice r1                        -> same seq 2
      list readers r2                      -> alice@4000 carol@4000
      list readers r4                      -> carol@4000
      """
    )
  }

  @Test("R3, R4 in a thread: delivered and unread marks need a row")
  func deliveredAndUnreadMarksInThreadNeedRow() {
    threadStory(
      """
      join alice bob carol
      post m1 by alice
      delivered carol in m1                -> same seq 0
      unread carol in m1                   -> same seq 0
      reply r1…r4 to m1 by bob
      clock 2000
      # A member who is not in the thread changes nothing.
      delivered carol in m1 r2             -> same seq 0 delivered 0
      delivered carol in m1 r9             -> message_not_found
      row carol in m1                      -> none
      unread carol in m1 r2                -> not_in_thread
      delivered alice in m1 r2             -> moved seq 0 delivered 2 dat 2000
      status r2                            -> delivered received 1
      status r3                            -> sent
      read alice in m1                     -> moved seq 4
      unread alice in m1 r3                -> moved seq 2 unread 2 first r3 epoch 1
      total alice                          -> threads 1
      # The whole thread.
      unread alice in m1                   -> moved seq 0 unread 4 first r1 epoch 2
      unread alice in m1                   -> same epoch 2
      unread alice in m1 r9                -> message_not_found
      read alice in m1 epoch 1             -> same seq 0
      read alice in m1                     -> moved seq 4 unread 0
      # Sending removes the marker (R5).
      unread alice in m1 r2                -> moved unread 3
      reply r5 to m1 by alice
      row alice in m1                      -> seq 5 unread 0
      options mark_unread=off
      unread alice in m1                   -> mark_unread_off
      """
    )
  }

  @Test("leaving the channel leaves its threads; a member who rejoins is in none")
  func leavingChannelLeavesThreads() {
    threadStory(
      """
      join alice bob carol
      post m1 m2 by alice
      reply r1 to m1 by bob
      reply x1 to m2 by bob
      read carol in m1
      status r1                            -> members 2
      leave bob                            -> moved members 2
      row bob in m1                        -> none
      row bob in m2                        -> none
      clock 2000
      swap carol                           -> moved members 2
      row carol in m1                      -> none
      total carol                          -> messages 0 threads 0
      read carol in m1                     -> moved seq 1
      reply r2 to m1 by alice
      total carol                          -> threads 1
      clock 3000
      join bob
      reply r3 to m1 by bob                -> created seq 3
      row bob in m1                        -> seq 3
      status r2                            -> members 1
      leave alice bob carol
      status r3                            -> members 0
      """
    )
  }

  @Test("deleting a parent closes its thread; a deleted reply is a deleted message")
  func deletingParentClosesThread() {
    threadStory(
      """
      join alice bob
      post m1 m2 by alice
      reply r1 r2 r3 to m1 by bob
      reply x1 to m2 by bob
      row alice in m1                      -> unread 3
      delete r2                            -> moved seq 2
      delete r2                            -> same seq 2
      row alice in m1                      -> unread 2
      status r2                            -> message_deleted
      # It still marks a position.
      read alice in m1 r2                  -> moved seq 2 last r2 unread 1
      total alice                          -> threads 2
      delete m1                            -> moved seq 1
      total alice                          -> threads 1
      status r1                            -> message_deleted
      list readers r1                      -> message_deleted
      member alice of r1                   -> message_deleted
      reply r4 to m1 by bob                -> message_deleted
      reply r1 to m1 by bob                -> message_deleted
      read alice in m1                     -> message_deleted
      read alice r1                        -> message_deleted
      delivered alice in m1                -> message_deleted
      unread alice in m1                   -> message_deleted
      delete r3                            -> same seq 3
      delete r9                            -> message_not_found
      leave alice
      total bob                            -> threads 0
      """
    )
  }

  @Test("one query returns statuses of messages and replies")
  func oneQueryReturnsStatusesOfMessagesAndReplies() {
    threadStory(
      """
      join alice bob
      post m1…m30 by alice
      reply r1…r3 to m1 by bob
      reply x1 to m2 by alice
      clock 2000
      read alice in m1
      status r9 m1 r1                      -> read seq 1 readers 1 members 1
      status m1…m30 x1 r1…r3               -> read seq 3 readers 1
      status m1…m30 r1 x1                  -> sent seq 1 members 1
      """
    )
  }

  @Test("a thread keeps a tail of steps: earlier times are not exact")
  func threadKeepsTailOfSteps() {
    threadStory(
      """
      join alice bob
      post m1 by bob
      clock 2000
      reply r1 to m1 by bob
      clock 3000
      reply r2 to m1 by alice
      list readers r1                      -> alice@3000
      read bob in m1
      list readers r2                      -> bob@3000
      # Two steps each: more than one page's tail holds.
      clock 4000
      reply s1…s40 to m1 by alice
      clock 5000
      list readers r2                      -> bob~3000
      # The position reached by the step before is no longer known.
      read bob in m1 s40
      list readers s40                     -> bob~5000
      reply t1 to m1 by alice
      clock 6000
      read bob in m1 t1
      list readers t1                      -> bob@6000
      recover
      list readers t1                      -> bob@6000
      """
    )
  }

  @Test("threads survive a crash and the eviction of their channel")
  func threadsSurviveCrashAndEvictionOfChannel() {
    threadStory(
      """
      join alice bob carol
      post m1 m2 by alice
      reply r1 r2 to m1 by bob
      reply x1 to m2 by carol
      read alice in m1 r1
      hide bob
      recover
      row alice in m1                      -> seq 1 unread 1
      row bob in m1                        -> seq 2
      total alice                          -> threads 2
      reply r2 to m1 by bob                -> known seq 2
      reply r3 to m1 by carol              -> created seq 3
      unread alice in m1
      evict
      row alice in m1                      -> seq 0 unread 3 epoch 1
      status r3                            -> sent members 2
      leave carol
      evict
      recover
      status r3                            -> members 2
      reply x2 to m2 by bob                -> created seq 2
      delete m2
      evict
      reply x3 to m2 by bob                -> message_deleted
      """
    )
  }

  @Test("a channel has 65,536 threads at most; existing ones still take replies")
  func threadsOfChannelAreLimited() {
    let shard = TestShard()
    _ = shard.perform(.put(cid: "team:x", settings: [:], members: [MemberSpec(user: "bob")]), clock: 1)
    let slot = shard.slot("team:x")!
    for n in 1...UInt32(ThreadTable.threadsMax + 1) {
      let message = MessageRecord(id: "m\(n)", sender: "", flags: [], registeredAt: .none)
      shard.state.assign(.messageAssigned(SequenceNumber(n), message), to: slot)
      guard n < ThreadTable.threadsMax else { continue }
      let reply = MessageRecord(id: "r\(n)", sender: "", flags: [], registeredAt: .none)
      shard.state.assign(.inThread(SequenceNumber(n), .messageAssigned(SequenceNumber(1), reply)), to: slot)
    }
    func reply(_ id: String, to parent: String) -> Outcome {
      shard.reply("team:x", to: parent, id, by: "bob", clock: 2)
    }
    #expect(reply("x1", to: "m65536") == .message(sequence: 1, isNew: true))
    #expect(reply("x2", to: "m65537") == .refused("limit_reached"))
    #expect(reply("x2", to: "m65536") == .message(sequence: 2, isNew: true))
    #expect(shard.faults == [])
  }

  @Test("many replies and many members: a thread's pages are written and read")
  func pagesOfLargeThreadAreWrittenAndRead() {
    threadStory(
      """
      join u1…u600
      post m1 by u1
      reply r1…r300 to m1 by u2
      read u3…u600 r300 in m1
      reply s1…s300 to m1 by u2
      read u300…u599 in m1 s10
      status s10                           -> read readers 300 members 599
      evict
      status s10                           -> read readers 300 members 599
      row u1 in m1                         -> unread 600 first r1
      recover
      row u599 in m1                       -> seq 310 unread 290 first s11
      leave u300…u599
      recover
      status s10                           -> sent members 299
      """
    )
  }
}
