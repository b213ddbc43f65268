import Testing

/// The events that watchers receive for each kind of change, live and after a gap.
@Suite("Stories of events")
struct EventStoryTests {
  @Test(
    "mark-read sends events to the member's devices, other members, and the senders of newly read messages"
  )
  func markReadSendsEventsToMemberDevices() {
    eventStory(
      """
      join alice bob carol
      post m1…m3 by alice
      post m4 by carol
      events               -> added alice, added bob, added carol, new m1 moving both, new m2 moving both, \
                              new m3 moving both, new m4 moving both, alice:m1…m3=read
      read bob m2
      events               -> bob: read +read
      delivered bob
      events               -> bob: +delivered, carol:m4=delivered
      read bob m2
      events               -> nothing
      read bob
      events               -> bob: read +read, carol:m4=read
      """
    )
  }

  @Test(
    "a group's marks of one row make one event; messages that meet the rule make one run for each sender"
  )
  func groupMarksOfOneRowMakeOneEvent() {
    eventStory(
      """
      join alice bob carol
      options status_rule=all
      post m1 by alice
      post m2 by bob
      post m3 by alice
      events               -> added alice, added bob, added carol, updated, new m1 moving both, new m2 moving both, \
                              new m3 moving both, alice:m1…m3=sent, bob:m2=sent
      read carol m1
      read carol m2
      read carol m3
      read bob
      events               -> carol: read +read, bob: read +read, alice:m1…m3=read, bob:m2=read
      """
    )
  }

  @Test("R4: mark-unread is sent to the own devices, and to others where they see the marker")
  func markUnreadIsSentToOwnDevices() {
    eventStory(
      """
      join alice bob
      post m1…m3 by alice
      read bob
      events               -> added alice, added bob, new m1 moving both, new m2 moving both, new m3 moving both, \
                              bob: read +read, alice:m1…m3=read
      unread bob m2
      events               -> bob: unread
      read bob m2
      events               -> bob: read
      options mark_unread=public
      events               -> updated, bob: +row, alice:m1…m2=read, alice:m3=delivered
      unread bob m1
      events               -> bob: unread +row, alice:m1…m2=delivered
      read bob
      events               -> bob: read +read, alice:m1…m3=read
      """
    )
  }

  @Test("R7: a hidden member's changes go to their own devices only; showing again sends the current row")
  func hiddenMemberChangesGoToOwnDevicesOnly() {
    eventStory(
      """
      join alice bob carol
      post m1 by alice
      events               -> added alice, added bob, added carol, new m1 moving both
      hide bob
      events               -> bob: +row, alice:m1=sent
      read bob
      events               -> bob: read
      delivered bob
      events               -> nothing
      show bob
      events               -> bob: +row, alice:m1=read
      """
    )
  }

  @Test(
    "R8: a kind that is off sends no events; switching it sends the rows that look different"
  )
  func kindThatIsOffSendsNoEvents() {
    eventStory(
      """
      join alice bob
      post m1 by alice
      type read_events=false
      events               -> added alice, added bob, new m1 moving both, alice: +row, updated, alice:m1=sent
      read bob
      events               -> bob: read
      type read_events=true
      events               -> updated, alice: +row, bob: +row, alice:m1=read
      type kept_steps=3
      events               -> updated
      """
    )
  }

  @Test("R6, R16: members join and leave, and statuses change with them")
  func membersJoinAndLeave() {
    eventStory(
      """
      join alice bob
      post m1 by alice
      read bob
      events               -> added alice, added bob, new m1 moving both, bob: read +read, alice:m1=read
      leave bob
      events               -> removed bob, alice:m1=sent
      join bob
      events               -> added bob
      swap bob
      events               -> removed bob, added bob
      erase bob
      events               -> removed bob
      """
    )
  }

  @Test("R9: an acknowledgement is sent to the message's sender and counts as a read, unless it is hidden")
  func acknowledgementIsSentToMessageSenderAndCountsAsRead() {
    eventStory(
      """
      join alice bob carol
      ask m1 by alice
      hide carol
      events               -> added alice, added bob, added carol, new m1 moving both, carol: +row, alice:m1=sent
      ack carol m1
      events               -> nothing
      ack bob m1
      events               -> receipt:m1=done by bob, alice:m1=read
      show carol
      events               -> carol: +row, receipt:m1=done, alice:m1=read
      """
    )
  }

  @Test(
    "R9: an expired acknowledgement request sends an event at its time, unless it is done or its message is deleted"
  )
  func expiredRequestSendsEventAtTime() {
    eventStory(
      """
      join alice bob
      options receipt_ttl=2
      ask m1 by alice
      events               -> added alice, added bob, updated, new m1 moving both
      clock 2999
      expire
      events               -> nothing
      clock 3000
      expire
      events               -> receipt:m1=expired
      expire
      events               -> nothing
      since 3000           -> receipt:m1=expired
      clock 3500
      since 3001           -> nothing
      ask m2 by alice
      events               -> new m2 moving both
      ack bob m2
      events               -> receipt:m2=done by bob, alice:m2=read
      clock 4000
      ask m3 by alice
      delete m3
      events               -> new m3 moving both, deleted m3
      clock 9000
      expire
      events               -> nothing
      recover
      since 5500           -> nothing
      since 3000           -> receipt:m1=expired, new m2, receipt:m2=done by bob, deleted m3, \
                              alice: read +read +delivered, alice:m2=read
      """
    )
  }

  @Test("R16: deleted and truncated messages send events")
  func deletedAndTruncatedMessagesSendEvents() {
    eventStory(
      """
      join alice bob
      post m1…m4 by alice
      events               -> added alice, added bob, new m1 moving both, new m2 moving both, new m3 moving both, \
                              new m4 moving both
      delete m3
      events               -> deleted m3
      read bob
      events               -> bob: read +read, alice:m1…m4=read
      truncate m4
      events               -> truncated m3
      """
    )
  }

  @Test("R15: a thread sends events, without its hidden participants")
  func threadSendsEventsWithoutHiddenParticipants() {
    eventStory(
      """
      join alice bob carol
      post m1 by alice
      reply r1 to m1 by bob
      events               -> added alice, added bob, added carol, new m1 moving both, m1/new r1 moving both
      read alice in m1
      events               -> m1/alice: read +read, m1/bob:r1=read
      hide carol
      events               -> carol: +row, alice:m1=sent
      read carol in m1
      events               -> m1/carol: read
      show carol
      events               -> carol: +row, m1/carol: +row, alice:m1=sent, m1/bob:r1=read
      """
    )
  }

  @Test("after a gap the changes since then are sent, without erased members")
  func afterGapChangesSinceThenAreSent() {
    eventStory(
      """
      clock 2000
      join alice bob carol
      post m1…m3 by alice
      clock 3000
      read bob m2
      since 3000           -> bob: read +read, alice:m1…m2=read
      since 3001           -> nothing
      clock 4000
      unread bob m1
      delete m3
      recover
      since 4000           -> deleted m3, bob: unread
      clock 5000
      leave carol
      truncate m2
      recover
      since 5000           -> truncated m1, removed carol, alice:m2=read
      since 4500           -> truncated m1, removed carol, alice:m2=read
      clock 6000
      erase carol
      since 6000           -> everything
      since 6001           -> nothing
      """
    )
  }

  @Test("R5, R15: after a gap a reply also moves its sender's positions, also if it made them a participant")
  func replyMovesItsSendersPositionsAfterGap() {
    eventStory(
      """
      clock 2000
      join alice bob carol
      post m1 by alice
      clock 3000
      reply r1 to m1 by bob
      recover
      since 3000           -> m1/new r1 moving both, m1/alice: +row, m1/bob: read, m1/bob:r1=sent
      """
    )
  }

  @Test("R7: live events reveal nothing hidden by their time or order")
  func timeAndOrderOfEventsRevealNothing() {
    eventStory(
      """
      clock 2000
      join alice bob carol
      post m1…m3 by alice
      hide bob reads
      events               -> added alice, added bob, added carol, new m1 moving both, new m2 moving both, \
                              new m3 moving both, bob: +row, alice:m1…m3=sent
      clock 3000
      delivered bob m1
      clock 3100
      read carol m1
      clock 3200
      read bob m3
      events times         -> bob: +delivered@3000, carol: read +read@3100, bob: read@3200, alice:m1=read@3100
      clock 4000
      read bob m2
      unread bob m2
      events times         -> bob: unread@4000
      show bob
      hide bob deliveries
      events               -> bob: +row, alice:m1…m3=read
      clock 5000
      post m4…m5 by alice
      read bob m4
      clock 5100
      delivered bob m5
      events times         -> new m4 moving both@5000, new m5 moving both@5000, bob: read +read@5000, alice:m4=read@5000
      """
    )
  }

  @Test("R5, R7: the first reply of a member who hides reads also carries their delivered position")
  func firstReplyOfHiddenMemberCarriesDelivery() {
    eventStory(
      """
      join alice bob carol
      post m1 by alice
      hide bob reads
      events               -> added alice, added bob, added carol, new m1 moving both, bob: +row, alice:m1=sent
      reply r1 to m1 by bob
      events               -> m1/new r1 moving both shown delivered
      reply r2 to m1 by bob
      events               -> m1/new r2 moving both shown delivered
      show bob
      events               -> bob: +row, m1/bob: +row, alice:m1=sent, m1/bob:r1…r2=sent
      reply x1 to m1 by carol
      events               -> m1/new x1 moving both, m1/bob:r1…r2=read
      """
    )
  }

  @Test("R4, R8, R15: events reveal no private marker, no kind that is off, and no hidden thread participant")
  func eventsRevealNoPrivateMarker() {
    eventStory(
      """
      clock 2000
      join alice bob carol
      post m1…m3 by alice
      reply r1 to m1 by alice
      hide carol
      events               -> added alice, added bob, added carol, new m1 moving both, new m2 moving both, \
                              new m3 moving both, m1/new r1 moving both, carol: +row, alice:m1…m3=sent
      clock 3000
      read bob m2
      read bob in m1
      clock 3100
      unread bob m1
      read carol in m1
      events times         -> bob: +read@3000, m1/bob: read +read@3000, bob: read unread@3100, m1/carol: read@3100, \
                              alice:m1…m2=read@3000, m1/alice:r1=read@3000
      leave carol
      events               -> removed carol, alice:m1…m2=read, alice:m3=sent
      type read_events=false
      events               -> updated, alice: +row, bob: +row, m1/alice: +row, m1/bob: +row, alice:m1…m3=sent, \
                              m1/alice:r1=sent
      clock 4000
      delivered bob m1
      clock 4100
      read bob m3
      events times         -> bob: +delivered@4000, bob: read@4100, alice:m1=delivered@4000
      """
    )
  }

  @Test(
    "R4, R7: after a gap, hidden and private changes go to the own devices only, and no time reveals them"
  )
  func hiddenChangesGoToOwnDevicesAfterGap() {
    eventStory(
      """
      clock 2000
      join alice bob carol
      post m1…m3 by alice
      reply r1 to m1 by alice
      hide bob reads
      hide carol deliveries
      clock 3000
      delivered bob m1
      clock 3100
      read bob m3
      read bob in m1
      recover
      since 3000 times     -> bob: +delivered@3000, bob: read@3100, alice:m1=delivered@3000, m1/bob: read@3100
      since 3001 times     -> bob: read@3100, m1/bob: read@3100
      clock 4000
      read carol m2
      clock 4100
      delivered carol m3
      clock 4200
      unread carol m1
      recover
      since 4000 times     -> carol: +read@4000, carol: read unread@4200, alice:m1…m2=read@4000
      since 4001 times     -> carol: unread@4200
      clock 5000
      delivered carol m3
      type read_events=false
      clock 6000
      read carol
      recover
      since 6000 times     -> carol: read@6000
      """
    )
  }

  @Test(
    "R7, R9: after a gap an acknowledgement follows its message, also where the acknowledgement's time is hidden"
  )
  func acknowledgementFollowsItsMessageAfterGap() {
    eventStory(
      """
      join alice bob
      hide bob
      clock 2000
      ask m1 by alice
      clock 2100
      ack bob m1
      clock 2200
      show bob
      since 1500 times     -> new m1 moving both@2000, receipt:m1=done@2000, bob: +row@2200, alice:m1=read@2200
      since 2150 times     -> receipt:m1=done@2150, bob: +row@2200, alice:m1=read@2200
      options receipt_max_members=0
      clock 3000
      ask m2 by alice
      clock 3100
      ack bob m2
      recover
      since 2500 times     -> new m2 moving both@3000, receipt:m2=done@3000, alice:m2=read@3000
      since 3050 times     -> receipt:m2=done@3050, alice:m2=read@3050
      """
    )
  }

  @Test(
    "after a gap only messages with possibly changed statuses are checked, as far as steps in memory tell"
  )
  func onlyChangedStatusesAreCheckedAfterGap() {
    eventStory(
      """
      clock 2000
      join alice bob carol
      post m1…m600 by alice
      clock 3000
      read bob m500
      delivered carol m400
      clock 4000
      read bob m503
      delivered carol m402
      recover
      since 4000 within 103 scanning 106 -> bob: read +read, carol: +delivered, alice:m401…m503=read
      since 4000 within 102 -> everything
      since 3000 within 503 -> bob: read +read, carol: +delivered, alice:m1…m503=read
      clock 5000
      delete m300
      since 5000 scanning 261 -> deleted m300
      clock 6000
      join dave
      post m601 by alice
      read dave m601
      clock 7000
      leave dave
      since 7000 scanning 5 -> removed dave, alice:m601=sent
      """
    )
  }
}
