import Testing

@testable import NaiveReceiptModel

/// R6, R12 and R18: membership and the read state.
@Suite("Stories of members and the read state")
struct MemberStoryTests {
  @Test("R6 visible: a new member starts read up to the newest message, and is not expected for older ones")
  func newMemberStartsReadWhereHistoryIsVisible() {
    story(
      """
      join alice bob
      post m1…m3 by alice
      clock 2000
      join carol
      row carol                            -> seq 3 last m3 at 2000 unread 0 first - delivered 3 dat 2000
      status m3                            -> sent readers 0 members 1
      post m4 by alice
      row carol                            -> seq 3 unread 1 first m4
      status m4                            -> sent members 2 unread 2
      # Further reading does not make a reader of earlier messages.
      read carol
      status m3                            -> sent readers 0 received 0 members 1
      status m4                            -> read readers 1 members 2
      """
    )
  }

  @Test("R6 hidden: a new member starts at 0; messages from before the join do not exist for them")
  func newMemberStartsAtZeroWhereHistoryIsHidden() {
    story(
      """
      types history=hidden
      join alice bob
      post m1…m3 by alice
      clock 2000
      join carol
      row carol                            -> seq 0 last - at 2000 unread 0 first - delivered 0 dat 0
      status m3                            -> sent members 1
      post m4 by alice
      row carol                            -> seq 0 unread 1 first m4
      # Same answer as for an unknown id.
      unread carol m2                      -> message_not_found
      clock 3000
      read carol m2                        -> message_not_found
      delivered carol m3                   -> message_not_found
      status m2                            -> sent readers 0
      read carol m4                        -> moved seq 4 last m4 unread 0
      unread carol m1                      -> message_not_found
      # The position before the first message that exists for the member has no id.
      unread carol m4                      -> moved marker 3 seq 3 last - unread 1 first m4
      status m4                            -> read readers 1 members 2
      # The option at the time of the join decides.
      types history=visible
      row carol                            -> unread 1 first m4
      join dave
      row dave                             -> seq 4 unread 0
      """
    )
  }

  @Test("R6: leaving and joining again makes a new row")
  func leavingAndJoiningAgainMakesNewRow() {
    story(
      """
      join alice bob as admin
      post m1 m2 by alice
      read bob m1
      unread bob m1                        -> moved epoch 1 marker 0
      status m1                            -> read readers 1 members 1
      leave bob                            -> moved members 1
      read bob m1                          -> not_a_member
      clock 2000
      join bob                             -> moved members 2
      role bob                             -> -
      row bob                              -> seq 2 at 2000 unread 0 epoch 0 marker -
      status m1                            -> sent readers 0 members 0
      post m3 by alice
      status m3                            -> sent members 1
      # In both lists: removed first.
      swap bob                             -> moved members 2
      status m3                            -> sent members 0
      swap carol                           -> moved members 3
      # A sender who rejoined is expected neither for the earlier message nor for the next.
      swap alice
      status m3                            -> sent members 0
      post m4 by alice
      status m4                            -> sent members 2
      join alice alice bob                 -> same members 3
      join erin erin                       -> moved members 4
      leave erin erin                      -> moved members 3
      """
    )
  }

  @Test("R6: counts of members who joined before a message, among many joins and leaves")
  func countsIncludeMembersWhoJoinedBeforeMessage() {
    story(
      """
      join u1…u5
      post m1 by u1
      join u6…u9
      post m2 by u1
      join u10
      status m1                            -> sent members 4
      status m2                            -> sent members 8
      leave u2 u6
      status m1                            -> sent members 3
      status m2                            -> sent members 6
      read u3…u10 m2
      status m1                            -> read readers 3 members 3
      status m2                            -> read readers 6 members 6 unread 0
      join u6
      status m2                            -> read readers 6 members 6
      """
    )
  }

  @Test("R12: newest members first, the caller's own row on the first page exactly once")
  func newestMembersAreListedFirst() {
    story(
      """
      join u1…u6
      page as u3 limit 3                   -> u3 u6 u5 +
      more                                 -> u4 u2 u1
      page as u6 limit 3                   -> u6 u5 u4 +
      more                                 -> u3 u2 u1
      page as u1 limit 3                   -> u1 u6 u5 +
      more                                 -> u4 u3 u2
      page as u1 limit 1                   -> u1 +
      more                                 -> u6 +
      more                                 -> u5 +
      more                                 -> u4 +
      more                                 -> u3 +
      more                                 -> u2
      page as u2 limit 100                 -> u2 u6 u5 u4 u3 u1
      page as u2 limit 6                   -> u2 u6 u5 u4 u3 u1
      page as u2 limit 5                   -> u2 u6 u5 u4 u3 +
      more                                 -> u1
      page as zoe limit 3                  -> not_a_member
      page server as zoe limit 3           -> not_a_member
      page server limit 4                  -> u6 u5 u4 u3 +
      more                                 -> u2 u1
      page server as u2 limit 4            -> u2 u6 u5 u4 +
      more                                 -> u3 u1
      """
    )
  }

  @Test("R12: former members have no row; pages stay consistent while members join and leave")
  func pagesStayConsistentWhileMembersMove() {
    story(
      """
      join u1…u8
      leave u8 u3 u1
      page as u5 limit 2                   -> u5 u7 +
      # New members come before the cursor, former ones are skipped, and no user is listed twice.
      join u9
      leave u4
      swap u7
      more                                 -> u6 u2
      page as u5 limit 100                 -> u5 u7 u9 u6 u2
      page server limit 2                  -> u7 u9 +
      leave u7 u9 u6 u5 u2
      more                                 ->
      page server limit 2                  ->
      """
    )
  }

  @Test("R12, R18: the read state of more than 100 members, with rows found through the index")
  func readStateOfManyMembersIsFound() {
    story(
      """
      join u1…u300                         -> moved members 300
      post m1 by u1
      status m1                            -> sent members 299
      read u2…u256 m1
      status m1                            -> read readers 255 unread 44 members 299
      delivered u257…u300 m1
      status m1                            -> read readers 255 received 299
      read u300                            -> moved seq 1
      leave u16 u17 u255 u256 u257         -> moved members 295
      status m1                            -> read readers 252 received 294 unread 42 members 294
      read u256 m1                         -> not_a_member
      join u256                            -> moved members 296
      row u256                             -> seq 1 last m1
      page as u256 limit 3                 -> u256 u300 u299 +
      more                                 -> u298 u297 u296 +
      recover
      status m1                            -> read readers 252 received 294 members 294
      row u300                             -> seq 1
      leave u256                           -> moved members 295
      join u16 u17                         -> moved members 297
      evict
      row u17                              -> seq 1
      page as u17 limit 3                  -> u17 u16 u300 +
      """
    )
  }

  @Test("R12: every limit, for channels of one to 300 members", arguments: [1, 2, 99, 100, 101, 102, 300])
  func everyPageLimitWorksForChannelsOfOneTo300Members(count: Int) throws {
    let shard = TestShard()
    var model = NaiveModel()
    let members = (1...count).map { MemberSpec(user: "u\($0)") }
    for command in [
      Command.put(cid: "team:room", settings: [:], members: members),
      .post(cid: "team:room", id: "m1", sender: "u1", created: 0, isSilent: false),
      .read(cid: "team:room", user: "u\(count)", message: "", epoch: nil),
    ] {
      #expect(shard.perform(command, clock: 1) == model.perform(command, clock: 1))
    }
    let answers = model.answers("team:room")
    for viewer in [Viewer.server, .member("u1"), .member("u\(count)"), .serverFor("u\((count + 1) / 2)")] {
      let expected = try answers.readState(viewer).get()
      #expect(expected.count == count)
      for limit in [1, 2, 3, 7, 50, 99, 100] {
        let pages = try shard.readState("team:room", viewer, limit: limit).get()
        #expect(Array(pages.joined()) == expected, "limit \(limit) for \(viewer)")
        #expect(pages.count == (count + limit - 1) / limit, "limit \(limit) for \(viewer)")
      }
    }
  }

  @Test("rows and segments at the edges of pages are found", arguments: [255, 256, 257, 511, 512, 513, 1025])
  func rowsAndSegmentsAtEdgesOfPagesAreFound(count: Int) {
    story(
      """
      join alice u1…u\(count)              -> moved members \(count + 1)
      post m1…m\(count) by alice
      row u\(count)                        -> unread \(count) first m1
      read u\(count) m\(count)             -> moved unread 0
      status m\(count)                     -> read readers 1 members \(count)
      read u1 m\(count - 1)                -> moved unread 1 first m\(count)
      delivered u\(count - 1)              -> moved delivered \(count)
      unread u\(count) m\(count - 1)       -> moved marker \(count - 2) unread 2
      delete m\(count)                     -> moved seq \(count)
      row u1                               -> unread 0 first -
      row u2                               -> unread \(count - 1)
      recover
      row u2                               -> unread \(count - 1)
      row u\(count)                        -> marker \(count - 2) unread 1 first m\(count - 1)
      status m\(count)                     -> message_deleted
      post m\(count) by alice              -> message_deleted
      post next by alice                   -> created seq \(count + 1)
      evict
      row u1                               -> unread 1 first next
      join new
      row new                              -> seq \(count + 1)
      """
    )
  }
}
