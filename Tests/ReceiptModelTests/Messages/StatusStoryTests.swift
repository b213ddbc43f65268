import Testing

/// R1, R2, R3, R5, R8 and R20: the status of a message, and the commands that change it.
@Suite("Stories of statuses and watermarks")
struct StatusStoryTests {
  @Test("R1: the sender is never counted, and delivered includes readers")
  func senderIsNeverCounted() {
    story(
      """
      join alice bob carol                 -> moved members 3
      post m1 by alice                     -> created seq 1
      status m1                            -> sent readers 0 received 0 unread 2 members 2
      # The sender's own marks do not count.
      read alice m1                        -> same seq 1
      delivered alice m1                   -> same
      status m1                            -> sent readers 0 received 0
      delivered bob m1                     -> moved delivered 1 unread 1
      status m1                            -> delivered readers 0 received 1 unread 2 members 2
      read carol m1                        -> moved seq 1 unread 0
      status m1                            -> read readers 1 received 2 unread 1 members 2
      read bob m1                          -> moved seq 1 unread 0
      status m1                            -> read readers 2 received 2 unread 0 members 2
      status m2                            -> message_not_found
      """
    )
  }

  @Test("R1: statuses are derived from the rows, and fall when a member leaves")
  func statusesAreDerivedFromRows() {
    story(
      """
      join alice bob carol
      post m1 by alice
      read bob m1
      delivered carol m1
      status m1                            -> read readers 1 received 2 unread 1 members 2
      leave bob                            -> moved members 2
      status m1                            -> delivered readers 0 received 1 unread 1 members 1
      leave carol
      status m1                            -> sent readers 0 received 0 unread 0 members 0
      # A sender who left is not counted, nor is any other member in their place.
      join dave
      post m2 by alice
      leave alice                          -> moved members 1
      status m2                            -> sent members 1
      leave alice                          -> same members 1
      """
    )
  }

  @Test("R1: a message by a sender who is no member, or by the system, counts every member")
  func messageOfOutsiderCountsEveryMember() {
    story(
      """
      join alice bob
      post m1 by robot                     -> created seq 1
      post m2 by -                         -> created seq 2
      status m1                            -> sent unread 2 members 2
      status m2                            -> sent unread 2 members 2
      read alice                           -> moved seq 2
      status m1                            -> read readers 1 unread 1
      # The robot joins: it is not expected for earlier messages, and never for its own.
      join robot
      status m1                            -> read unread 1 members 2
      post m3 by robot
      status m3                            -> sent members 2
      """
    )
  }

  @Test("R2: a read watermark only rises, at the time of the move; a stale read changes nothing")
  func readWatermarkOnlyRises() {
    story(
      """
      join alice bob
      post m1…m5 by alice
      row bob                              -> seq 0 at 1000 unread 5 first m1 last -
      clock 2000
      read bob m3                          -> moved seq 3 last m3 at 2000 unread 2 first m4
      clock 3000
      read bob m3                          -> same seq 3 at 2000
      read bob m1                          -> same seq 3 at 2000 unread 2
      read bob                             -> moved seq 5 at 3000 unread 0 first -
      clock 4000
      read bob                             -> same seq 5 at 3000
      read bob m9                          -> message_not_found
      read zoe m1                          -> not_a_member
      read zoe m9                          -> not_a_member
      """
    )
  }

  @Test("R2: reading to the newest message of an empty channel gives position 0")
  func readingToNewestMessageOfEmptyChannelGivesPosition0() {
    story(
      """
      join alice
      read alice                           -> same seq 0 unread 0 first - last - delivered 0 dat 0
      delivered alice                      -> same delivered 0 dat 0
      unread alice m1                      -> message_not_found
      shown alice                          -> seq 0 delivered 0 dat 0 at 1000
      """
    )
  }

  @Test("R3: reads and deliveries are stored separately; reading implies delivery where positions are shown")
  func readsAndDeliveriesAreStoredSeparately() {
    story(
      """
      join alice bob
      post m1…m5 by alice
      clock 2000
      delivered bob m2                     -> moved seq 0 delivered 2 dat 2000 unread 5
      clock 3000
      read bob m4                          -> moved seq 4 at 3000 delivered 4 dat 3000
      shown bob                            -> seq 4 delivered 4 dat 3000
      # The stored delivery position is 2: hiding reads shows it.
      options read_events=false
      shown bob                            -> seq 0 at 1000 delivered 2 dat 2000
      status m3                            -> sent received 0
      status m2                            -> delivered readers 0 received 1
      # It moves on from there, though a higher one was shown before.
      clock 4000
      delivered bob m3                     -> moved delivered 4
      shown bob                            -> delivered 3 dat 4000
      delivered bob m1                     -> same
      clock 5000
      delivered bob                        -> moved delivered 5 dat 5000 seq 4
      delivered bob m9                     -> message_not_found
      delivered zoe m1                     -> not_a_member
      """
    )
  }

  @Test("R5: registering moves the sender's own watermarks and clears their marker")
  func registeringMovesSenderOwnWatermarksAndClearsMarker() {
    story(
      """
      join alice bob
      post m1…m3 by alice
      row alice                            -> seq 3 delivered 3 unread 0
      row bob                              -> seq 0 delivered 0 unread 3
      clock 2000
      post m4 by bob                       -> created seq 4
      row bob                              -> seq 4 at 2000 delivered 4 dat 2000 unread 0
      unread bob m2                        -> moved seq 1 marker 1 epoch 1 unread 2 first m2
      post m5 by bob
      row bob                              -> seq 5 marker - epoch 1 unread 0
      # The same id again is the same message, which moves nothing; from another sender it is a conflict.
      post m5 by bob                       -> known seq 5
      post m5 by alice                     -> message_conflict
      row alice                            -> seq 3 unread 2
      """
    )
  }

  @Test("R8: read and delivery events switch what is shown, at any time; counting continues")
  func readAndDeliveryEventsSwitchWhatIsShown() {
    story(
      """
      join alice bob carol
      post m1 m2 by alice
      read bob m1
      delivered carol m2
      types read_events=false              -> moved version 1 read_events false
      status m1                            -> delivered readers 0 received 1 unread 2 read_events false
      # Bob's read is hidden, so it implies no delivery either.
      shown bob                            -> seq 0 delivered 0 dat 0 at 1000
      row bob                              -> seq 1 delivered 1 unread 1
      read bob m2                          -> moved seq 2 unread 0
      types delivery_events=false          -> moved version 2
      status m1                            -> sent readers 0 received 0 unread 2 members 2 delivery_events false
      shown carol                          -> seq 0 delivered 0 dat 0
      row carol                            -> seq 0 delivered 2
      types read_events=true
      status m2                            -> read readers 1 received 1 unread 1 delivery_events false
      shown bob                            -> seq 2 delivered 2
      types delivery_events=true
      status m2                            -> read readers 1 received 2 delivery_events true
      types delivery_events=true           -> same version 4
      # A channel's own option overrides its type's.
      options read_events=false
      types read_events=true               -> same
      status m2                            -> delivered readers 0 received 1
      """
    )
  }

  @Test("R16: a deleted message has no status and does not count, but still marks a position")
  func deletedMessageHasNoStatusAndDoesNotCount() {
    story(
      """
      join alice bob
      post m1…m4 by alice
      delete m2                            -> moved seq 2
      delete m2                            -> same seq 2
      delete m9                            -> message_not_found
      status m2                            -> message_deleted
      post m2 by alice                     -> message_deleted
      row bob                              -> unread 3 first m1
      delivered bob m2                     -> moved delivered 2
      read bob m2                          -> moved seq 2 last m2 unread 2 first m3
      unread bob m2                        -> moved seq 1 marker 1 unread 2 first m3
      status m1                            -> read readers 1
      status m3                            -> sent
      """
    )
  }

  @Test("R20: a shard's time never falls; created_at is for display")
  func shardTimeNeverFalls() {
    story(
      """
      join alice bob
      clock 5000
      post m1 by alice created 77
      status m1                            -> sent created 77
      clock 4000
      post m2 by alice
      status m2                            -> sent created 5000
      read bob m2                          -> moved at 5000 dat 5000
      clock 5001
      post m3 by alice
      delivered bob m3                     -> moved dat 5001 at 5000
      recover
      clock 10
      read bob m3                          -> moved at 5001
      # Later than every existing message.
      join carol
      row carol                            -> at 5002
      """
    )
  }

  @Test("several independent channels, and roles")
  func channelsAndRolesAreIndependent() {
    story(
      """
      channel dm:x                         -> created members 0 newest 0
      channel dm:x                         -> same members 0
      join alice bob as admin              -> moved members 2
      role bob                             -> admin
      join bob                             -> same
      role bob                             -> admin
      join bob as owner                    -> moved members 2
      role bob                             -> owner
      swap bob                             -> moved members 2
      role bob                             -> -
      channel team:room                    -> same members 0
      post m1 by alice                     -> created seq 1
      channel dm:x
      status m1                            -> message_not_found
      """
    )
  }
}
