import Testing

@testable import ReceiptModel

/// R16: deleting, truncating, erasing.
@Suite("Stories of removal")
struct RemovalStoryTests {
  @Test("deleting a message drops its acknowledgements, also from older pages")
  func deletedMessageLosesAcknowledgements() {
    acknowledgementStory(
      """
      join alice bob carol
      post m1…m2 by alice          -> requested
      ack bob m1 m2 note seen      -> ok ok
      ack carol m1                 -> ok
      # The page of acknowledgements stays as written here, before the deletion.
      page m1
      page m2
      delete m1
      records m1                   ->
      records m2                   -> bob@1000=seen
      recover
      records m1                   ->
      # The reverse: the segment is newer than the acknowledgements.
      pages
      ack carol m2                 -> ok
      page m2
      delete m2
      recover
      records m2                   ->
      delete m2
      ack bob m2                   -> messageDeleted
      """
    )
  }

  @Test("truncation deletes all messages before one; they count nowhere")
  func truncationDeletesAllMessagesBeforeOne() {
    acknowledgementStory(
      """
      join alice bob carol
      post m1…m600 by alice        -> requested
      ack bob m1 m300 m500         -> ok ok ok
      read carol m2
      unread bob                   -> 600 from m1
      unread carol                 -> 598 from m3
      truncate m400
      unread bob                   -> 201 from m400
      unread carol                 -> 201 from m400
      status m399                  -> messageDeleted
      status m400                  -> 0 of 2
      records m300                 ->
      records m500                 -> bob@1000
      ack bob m1                   -> messageDeleted
      ack bob m400                 -> ok
      # The deleted ids still mark positions, and are not reused.
      read bob m399
      unread bob                   -> 201 from m400
      recover
      unread bob                   -> 201 from m400
      # Truncating to an earlier or the same message does nothing.
      truncate m200
      truncate m400
      truncate m401
      unread bob                   -> 200 from m401
      records m400                 ->
      truncate
      unread bob                   -> 0
      status m600                  -> messageDeleted
      post m601 by alice           -> requested
      unread bob                   -> 1 from m601
      recover
      unread bob                   -> 1 from m601
      truncate m999                -> messageNotFound
      """
    )
  }

  @Test("pages from before a truncation are read as truncated")
  func pagesBeforeTruncationAreReadAsTruncated() {
    acknowledgementStory(
      """
      join alice bob
      post m1…m300 by alice
      ack bob m1 m290              -> ok ok
      pages
      delete m280
      truncate m290
      recover
      unread bob                   -> 11 from m290
      records m290                 -> bob@1000
      # Only the head is written: segments and acknowledgements are from before.
      head
      post m301 by alice
      recover
      unread bob                   -> 12 from m290
      truncate
      pages
      recover
      unread bob                   -> 0
      """
    )
  }

  @Test("a marker keeps its count of own messages through a truncation")
  func markerKeepsCountThroughTruncation() {
    acknowledgementStory(
      """
      join alice bob
      post m1…m2 by alice
      post m3 by bob
      post m4…m5 by alice
      post m6…m9 by bob
      post m10 by alice
      mark bob m2
      unread bob                   -> 4 from m2
      truncate m3
      unread bob                   -> 3 from m4
      truncate m5
      unread bob                   -> 2 from m5
      truncate m8
      unread bob                   -> 1 from m10
      recover
      unread bob                   -> 1 from m10
      mark bob m2
      post m11 by alice
      post m12 by bob
      mark bob m9
      unread bob                   -> 2 from m10
      truncate
      unread bob                   -> 0
      """
    )
  }

  @Test("after erasure in a channel no row, message, note, time or page names the user")
  func erasureRemovesEveryTraceFromChannel() {
    acknowledgementStory(
      """
      join alice bob carol as guest
      post m1…m2 by alice
      post m3 by bob
      post m4 by -                 -> requested
      ack bob m1 m4 note by-bob    -> ok ok
      ack carol m1                 -> ok
      read bob m2
      leave bob
      join bob as admin
      post m5 by bob
      post m6 by carol
      ack bob m6 note again        -> ok
      status m1                    -> 1 of 1
      # Pages written with the user's name in them.
      pages
      trace bob                    -> memory rows(0) segment(0)
      clock 2000
      erase bob                    -> erased
      trace bob                    ->
      sender m3                    -> -
      sender m6                    -> carol
      records m1                   -> * carol@1000
      records m4                   -> *
      records m6                   -> *
      unread bob                   -> notAMember
      status m3                    -> 1 of 2
      request m6                   -> processing
      erase bob                    -> unknown
      recover
      trace bob                    ->
      records m1                   -> * carol@1000
      erase zoe                    -> unknown
      # Both look alike: a nameless acknowledgement of a nameless message.
      erase alice                  -> erased
      erase carol                  -> erased
      trace carol                  ->
      status m1                    -> 0 of 0
      recover
      # Another user may take the name.
      join bob
      post m7 by bob
      trace bob                    -> memory rows(0) segment(0)
      recover
      pages
      recover
      erase bob                    -> erased
      trace bob                    ->
      """
    )
  }

  @Test("erasure covers pages of many segments, some written before it and some after")
  func erasureCoversPagesOfManySegments() {
    acknowledgementStory(
      """
      join u1…u300
      post m1…m260 by u299
      pages
      post m261…m520 by u299
      leave u299
      join u299
      read u299 m520
      unread u7                    -> 520 from m1
      erase u299                   -> erased
      trace u299                   ->
      unread u7                    -> 520 from m1
      page m1
      recover
      trace u299                   ->
      post m521 by u3
      pages
      recover
      trace u299                   ->
      unread u7                    -> 521 from m1
      """
    )
  }

  @Test("a sender who was never a member is erased too")
  func senderWhoWasNoMemberIsErased() {
    acknowledgementStory(
      """
      join alice
      post m1…m3 by robot
      trace robot                  -> memory segment(0)
      erase robot                  -> erased
      trace robot                  ->
      unread alice                 -> 3 from m1
      recover
      erase robot                  -> unknown
      """
    )
  }

  // MARK: Ids in memory

  @Test("an erased id leaves the table; its number is not reused until it is assigned again")
  func erasedIDLeavesTheTable() {
    var table = UserTable()
    let names = (1...2_000).map { "user-\($0)" }
    for name in names { _ = table.intern(name) }
    for number in 1...2_000 where number % 3 != 0 { table.erase(UserNumber(UInt32(number))) }
    table.erase(UserNumber(1))
    for (offset, name) in names.enumerated() {
      let number = UserNumber(UInt32(offset) + 1)
      #expect(table.find(name) == (number.rawValue % 3 == 0 ? number : nil))
      #expect(table.text(number) == (number.rawValue % 3 == 0 ? name : ""))
    }
    table.assign(UserNumber(4), "somebody")
    #expect(table.find("somebody") == UserNumber(4) && table.text(UserNumber(4)) == "somebody")
    #expect(table.intern("one more") == UserNumber(2_001))
    #expect(table.find("") == nil)
    #expect(table.byteCount < 80_000)
  }
}
