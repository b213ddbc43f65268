import Testing

@testable import NaiveReceiptModel

/// R4 and R14: the unread marker, and which messages count as unread.
@Suite("Stories of unread markers and counts")
struct MarkerStoryTests {
  @Test("R4: mark-unread sets the marker before the message; watermarks do not move")
  func markUnreadSetsMarkerBeforeMessage() {
    story(
      """
      join alice bob
      post m1…m6 by alice
      clock 2000
      read bob m5                          -> moved seq 5 marker - epoch 0
      clock 3000
      unread bob m3                        -> moved seq 2 last m2 marker 2 epoch 1 unread 4 first m3 at 2000 delivered 5
      # Already above the watermark: no change.
      unread bob m6                        -> same marker 2 epoch 1
      # Repeating the mark changes nothing.
      unread bob m3                        -> same epoch 1
      # Raising the marker does.
      unread bob m5                        -> moved seq 4 marker 4 epoch 2 unread 2 first m5
      unread bob m1                        -> moved seq 0 last - marker 0 epoch 3 unread 6 first m1
      unread bob m9                        -> message_not_found
      unread zoe m1                        -> not_a_member
      """
    )
  }

  @Test("R2: reading raises the marker, and removes it once it reaches the watermark")
  func readingRaisesMarker() {
    story(
      """
      join alice bob
      post m1…m6 by alice
      clock 2000
      read bob m5
      unread bob m2                        -> moved marker 1
      clock 3000
      read bob m1                          -> same marker 1 epoch 1
      read bob m3                          -> moved marker 3 seq 3 at 2000 epoch 1 unread 3
      read bob m2                          -> same marker 3
      read bob m5                          -> moved marker - seq 5 at 2000 epoch 1
      unread bob m2                        -> moved marker 1 epoch 2
      read bob m6                          -> moved marker - seq 6 at 3000 epoch 2
      unread bob m2                        -> moved marker 1 epoch 3
      read bob                             -> moved marker - seq 6 epoch 3 unread 0 at 3000
      """
    )
  }

  @Test("R4: a channel's unread flag lasts until the next read or send that is not stale")
  func unreadFlagLastsUntilNextReadOrSend() {
    story(
      """
      join alice bob
      post m1…m2 by alice
      read bob
      flag bob                             -> moved seq 2 unread 0 epoch 1 flagged true marker -
      totals bob                           -> totals messages 0 channels 1 flagged true
      # Repeating the flag changes nothing.
      flag bob                             -> same epoch 1
      shown bob                            -> shown seq 2
      read bob m1 epoch 0                  -> same flagged true
      evict
      row bob                              -> row flagged true epoch 1
      # A read that moves nothing clears the flag too.
      read bob m1                          -> moved seq 2 flagged false epoch 1
      totals bob                           -> totals channels 0
      flag bob epoch 0                     -> same flagged false
      flag bob epoch 1                     -> moved flagged true epoch 2
      post m3 by bob leaving
      row bob                              -> row flagged true
      post m4 by bob
      row bob                              -> row flagged false epoch 2 unread 0
      recover
      row bob                              -> row flagged false epoch 2
      flag bob                             -> moved epoch 3
      unread bob m1                        -> moved epoch 4 flagged true marker 0
      read bob                             -> moved flagged false marker -
      options mark_unread=off
      flag bob                             -> mark_unread_off
      flag zoe                             -> not_a_member
      """
    )
  }

  @Test("R14: a muted channel counts in none of its member's totals; the own row keeps its unread count")
  func mutedChannelCountsInNoneOfMemberTotals() {
    story(
      """
      join alice bob
      post m1…m3 by alice
      totals bob                           -> totals messages 3 channels 1 muted false
      mute bob                             -> moved muted true
      mute bob                             -> same muted true
      flag bob                             -> moved flagged true unread 3
      totals bob                           -> totals messages 0 channels 0 muted true flagged true
      totals alice                         -> totals muted false
      evict
      totals bob                           -> totals messages 0 channels 0 muted true flagged true
      row bob                              -> row unread 3
      recover
      unmute bob                           -> moved muted false
      totals bob                           -> totals messages 3 channels 1
      mute zoe                             -> not_a_member
      # Joining again is another membership.
      mute bob
      swap bob
      totals bob                           -> totals muted false
      """
    )
  }

  @Test(
    "R14: mentions count where they are unread, except own ones and those in silent or deleted messages"
  )
  func mentionsCountWhereTheyAreUnread() {
    story(
      """
      join alice bob carol
      post m1 by alice mentioning bob,alice,zoe
      post m2 by alice mentioning *
      post m3 by alice silent mentioning bob
      post m4 by bob mentioning *
      row alice                            -> row unread 1 mentions 1
      row carol                            -> row unread 3 mentions 2
      row bob                              -> row unread 0 mentions 0
      unread bob m1                        -> moved unread 2 mentions 2
      totals bob                           -> totals messages 2 mentions 2
      read bob m1                          -> moved mentions 1
      evict
      row bob                              -> row mentions 1
      delete m2
      row bob                              -> row mentions 0 unread 0
      # The mention of everybody does not include members who join later.
      join dave
      unread dave m1                       -> moved unread 2 mentions 0
      post m5 by alice leaving mentioning *
      row alice                            -> row mentions 1
      row dave                             -> row mentions 1
      mute dave
      totals dave                          -> totals mentions 0
      recover
      row dave                             -> row mentions 1
      """
    )
  }

  @Test("R5: a message that does not move its sender's position is unread for the other members only")
  func messageThatMovesNothingIsUnreadForOthersOnly() {
    story(
      """
      join alice bob
      post m1…m3 by alice
      clock 2000
      read bob m1                          -> moved seq 1 unread 2
      unread bob m1                        -> moved seq 0 marker 0 epoch 1
      post m4 by bob leaving
      row bob                              -> row seq 0 marker 0 epoch 1 unread 3 first m1 delivered 1
      row alice                            -> row seq 3 unread 1 first m4
      evict
      row bob                              -> row seq 0 marker 0 epoch 1 unread 3 first m1 delivered 1
      read bob m2                          -> moved seq 2 marker - unread 1 first m3
      post m5 by bob leaving silent
      post m6 by alice
      row bob                              -> row seq 2 unread 2 first m3
      read bob m3                          -> moved seq 3 unread 1 first m6
      evict
      row bob                              -> row seq 3 unread 1 first m6
      delete m4
      row bob                              -> row seq 3 unread 1 first m6
      # A message that moves its sender's position does so as before.
      post m7 by bob
      row bob                              -> row seq 7 unread 0 delivered 7
      """
    )
  }

  @Test("R4: a stale epoch leaves the marker, so a stale device cannot undo a newer choice")
  func staleEpochLeavesMarker() {
    story(
      """
      join alice bob
      post m1…m6 by alice
      read bob m5 epoch 0                  -> moved seq 5
      unread bob m3 epoch 0                -> moved marker 2 epoch 1
      unread bob m4 epoch 0                -> same marker 2 epoch 1
      read bob m4 epoch 0                  -> same marker 2
      # The watermark moves anyway.
      clock 2000
      read bob m6 epoch 0                  -> moved seq 2 marker 2 at 2000 delivered 6
      shown bob                            -> seq 6
      read bob m4 epoch 1                  -> moved marker 4
      unread bob m2 epoch 1                -> moved marker 1 epoch 2
      # A missing epoch is never stale, nor is a newer one.
      read bob m3                          -> moved marker 3
      read bob m4 epoch 9                  -> moved marker 4
      read bob                             -> moved marker -
      # Without a marker there is none to keep.
      post m7 by alice
      read bob m7 epoch 0                  -> moved seq 7
      unread bob m7 epoch 1                -> same epoch 2
      """
    )
  }

  @Test("R4: mark-unread accepts any message, however old")
  func markUnreadAcceptsAnyMessage() {
    story(
      """
      join alice bob
      post m1…m600 by alice
      read bob
      unread bob m1                        -> moved marker 0 unread 600 first m1
      unread bob m257                      -> moved marker 256 unread 344 first m257
      unread bob m256                      -> moved marker 255 unread 345 first m256
      unread bob m600                      -> moved marker 599 unread 1 first m600
      # Also from before the join: under visible history the member could read it.
      join carol
      row carol                            -> seq 600 unread 0
      unread carol m10                     -> moved marker 9 unread 591 first m10
      status m10                           -> read members 1 readers 1
      """
    )
  }

  @Test("R4: private shows others the watermark, public the own position")
  func privateShowsOthersWatermark() {
    story(
      """
      join alice bob carol
      post m1…m4 by alice
      delivered carol m4
      read bob m4
      unread bob m2                        -> moved marker 1
      shown bob                            -> seq 4 delivered 4
      status m3                            -> read readers 1 received 2
      types mark_unread=public
      # Messages that bob has read stay delivered to him.
      shown bob                            -> seq 1 delivered 4
      status m3                            -> delivered readers 0 received 2 unread 2
      status m1                            -> read readers 1
      row bob                              -> seq 1 delivered 4
      delivered bob m3                     -> moved
      shown bob                            -> seq 1 delivered 4
      types mark_unread=private
      shown bob                            -> seq 4 delivered 4
      """
    )
  }

  @Test("R4: off refuses mark-unread; an existing marker stays until it is cleared by reading")
  func optionOffRefusesMarkUnread() {
    story(
      """
      join alice bob
      post m1…m4 by alice
      read bob m4
      unread bob m2                        -> moved marker 1
      types mark_unread=off
      unread bob m1                        -> mark_unread_off
      unread bob m9                        -> mark_unread_off
      unread zoe m1                        -> not_a_member
      row bob                              -> seq 1 marker 1 unread 3
      shown bob                            -> seq 4
      read bob m3                          -> moved marker 3
      read bob                             -> moved marker -
      options mark_unread=private
      unread bob m4                        -> moved marker 3 epoch 2
      """
    )
  }

  @Test("R14: own, silent and deleted messages do not count, also above a marker")
  func ownSilentAndDeletedMessagesDoNotCount() {
    story(
      """
      join alice bob
      post m1 by alice
      post m2 by alice silent
      post m3 by bob
      post m4 by alice
      post m5 by -
      post m6 by alice silent
      row bob                              -> seq 3 unread 2 first m4
      row alice                            -> seq 6 unread 0
      status m2                            -> read readers 1 unread 0
      delete m4
      row bob                              -> unread 1 first m5
      read bob                             -> moved unread 0
      unread bob m1                        -> moved marker 0 unread 2 first m1
      unread bob m2                        -> moved marker 1 unread 1 first m5
      unread alice m1                      -> moved marker 0 unread 2 first m3
      delete m3
      row alice                            -> unread 1 first m5
      delete m6                            -> moved seq 6
      row alice                            -> unread 1
      post m7 by alice silent
      row bob                              -> unread 1
      # Only silent messages: none is unread, though the position is below them.
      read bob m6                          -> moved seq 6 unread 0 first -
      """
    )
  }

  @Test("R14: own messages above a marker, over several segments")
  func ownMessagesAboveMarkerAreNotCounted() {
    story(
      """
      join alice bob
      post m1…m255 by alice
      post b1…b4 by bob
      post n1…n300 by alice
      read bob                             -> moved seq 559 unread 0
      unread bob m255                      -> moved marker 254 unread 301 first m255
      unread bob b1                        -> moved marker 255 unread 300 first n1
      unread bob b2                        -> moved marker 256 unread 300 first n1
      unread bob m1                        -> moved unread 555
      read bob b4                          -> moved marker 259 unread 300
      unread alice m255                    -> moved marker 254 unread 4 first b1
      unread alice b3                      -> moved marker 257 unread 2 first b3
      unread alice n1                      -> moved marker 259 unread 0 first -
      """
    )
  }

  @Test("R14, R16: deleting in an old segment updates the counts of all later ones")
  func deletionInOldSegmentUpdatesLaterCounts() {
    story(
      """
      join alice bob carol
      post m1…m800 by alice
      read carol m600                      -> moved unread 200 first m601
      delete m1 m256 m257 m512             -> moved seq 512
      row bob                              -> unread 796 first m2
      row carol                            -> unread 200
      unread carol m256                    -> moved marker 255 unread 542 first m258
      unread carol m513                    -> moved marker 512 unread 288 first m513
      delete m513 m700                     -> moved seq 700
      row carol                            -> unread 286 first m514
      recover
      row bob                              -> unread 794
      row carol                            -> unread 286
      evict
      row bob                              -> unread 794
      post m801 by alice
      delete m2
      row bob                              -> unread 794 first m3
      """
    )
  }

  @Test("a marker survives recovery and eviction")
  func markerSurvivesRecoveryAndEviction() {
    story(
      """
      join alice bob
      post m1…m4 by alice
      read bob m4
      unread bob m2                        -> moved marker 1 epoch 1
      recover
      row bob                              -> seq 1 marker 1 epoch 1 unread 3
      evict
      row bob                              -> seq 1 marker 1 epoch 1 unread 3
      read bob m3 epoch 0                  -> same marker 1
      read bob m3 epoch 1                  -> moved marker 3
      """
    )
  }
}
