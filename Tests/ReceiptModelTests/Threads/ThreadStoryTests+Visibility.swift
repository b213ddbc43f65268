import TestSupport
import Testing

@testable import NaiveReceiptModel
@testable import ReceiptModel

/// Threads with hidden receipts: which members and counts others see (R7, R8, R10).
extension ThreadStoryTests {
  @Test("a member who only reads a thread and hides reads is invisible in it, until they reply")
  func memberWhoOnlyReadsThreadAndHidesReadsIsInvisibleInIt() {
    threadStory(
      """
      join alice bob carol
      post m1 by alice
      reply r1 to m1 by bob                -> created seq 1
      hide carol
      read carol in m1
      reply r2 to m1 by bob                -> created seq 2
      # Others see only alice as expected.
      status r2                            -> sent members 1
      list unread r2                       -> alice
      total carol                          -> messages 1 threads 1
      reply r3 to m1 by carol              -> created seq 3
      reply r4 to m1 by bob                -> created seq 4
      status r4                            -> sent members 2
      """
    )
  }

  @Test("R8: where the channel hides reads, a member who only reads a thread is invisible in it")
  func invisibleWithoutReadEvents() {
    threadStory(
      """
      join alice bob carol
      post m1 by alice
      reply r1 to m1 by bob                -> created seq 1
      options read_events=false
      read carol in m1
      reply r2 to m1 by bob                -> created seq 2
      # Others see only alice as expected.
      status r2                            -> sent members 1
      list unread r2                       -> alice
      total carol                          -> threads 1
      reply r3 to m1 by carol              -> created seq 3
      reply r4 to m1 by bob                -> created seq 4
      status r4                            -> sent members 2
      """
    )
  }

  @Test(
    "R7, R11: a list's cursor in a thread reveals no invisible member, and the next page continues right"
  )
  func listCursorInThreadRevealsNoInvisibleMember() {
    let shard = TestShard()
    let cid = "team:room"
    let users = ["alice", "bob", "carol", "dave", "erin"]
    _ = shard.perform(.put(cid: cid, settings: [:], members: users.map { MemberSpec(user: $0) }), clock: 1)
    _ = shard.perform(.post(cid: cid, id: "m1", sender: "alice", created: 0, isSilent: false), clock: 2)
    _ = shard.reply(cid, to: "m1", "r1", by: "bob", clock: 3)
    _ = shard.perform(.patchUser("carol", showsRead: false, showsDelivered: nil, revoked: nil), clock: 4)
    for user in ["carol", "dave", "erin"] { _ = shard.mark("read", cid, user, under: "m1", clock: 5) }
    _ = shard.reply(cid, to: "m1", "r2", by: "alice", clock: 6)
    /// The users of a page, and its cursor.
    func page(_ cursor: String?, limit: Int = 1) -> String {
      switch shard.list(cid, "r2", .server, .unread, .joined, limit: limit, cursor: cursor) {
      case .success(let (entries, next)):
        entries.map(\.user).joined(separator: " ") + (next.map { " | \($0)" } ?? "")
      case .failure(let refusal): refusal.name
      }
    }
    #expect(page(nil) == "bob | k3-bob")
    #expect(page("k3-bob") == "dave | k5-dave")
    #expect(page("k5-dave") == "erin")
    #expect(page("k5-erin") == "")
    // The user in the cursor has left or was never there: the page still skips no other user.
    #expect(page("k5-zoe", limit: 2) == "dave erin")
    #expect(page("k4-zoe", limit: 2) == "dave erin")
    #expect(page("k9-zoe") == "")
    _ = shard.perform(.change(cid: cid, add: [], remove: ["dave"]), clock: 7)
    #expect(page("k5-dave") == "erin")
    // A channel's cursors are invalid in a thread, and vice versa.
    for cursor in ["j1", "t5-dave", "k", "k5", "k5-", "k05-dave", "k-dave", "k5-d d"] {
      #expect(page(cursor) == "invalid_cursor", "\(cursor)")
    }
    #expect(page("k9223372036854775808-bob") == "invalid_cursor")
  }

  @Test("R7: an invisible reader who replies takes part from then on, at their current position")
  func invisibleReaderWhoRepliesTakesPart() {
    threadStory(
      """
      join alice bob carol
      options status_rule=all
      post m1 by alice
      reply r1 r2 to m1 by bob
      hide carol
      clock 2000
      read carol in m1 r1                  -> moved seq 1 at 2000
      reply r3 to m1 by bob
      status r3                            -> sent members 1
      unread carol in m1 r1                -> moved seq 0 unread 3 epoch 1
      clock 3000
      reply r4 to m1 by carol
      row carol in m1                      -> seq 4 unread 0 epoch 1
      status r3                            -> sent members 1
      reply r5 to m1 by bob
      status r5                            -> sent members 2
      clock 4000
      show carol
      status r3                            -> sent readers 1 members 2
      list readers r1                      -> carol~4000
      """
    )
  }

  @Test("R7: hiding receipts applies in threads too")
  func hidingReceiptsAppliesInThreadsToo() {
    threadStory(
      """
      join alice bob carol
      post m1 by alice
      reply r1 to m1 by bob
      hide alice
      clock 2000
      read alice in m1                     -> moved seq 1 at 2000
      status r1                            -> sent members 1 readers 0
      shown alice in m1                    -> seq 0
      # A member who joins while hidden, and one who replies.
      hide carol
      reply r2 to m1 by carol
      reply r3 to m1 by bob
      read carol in m1
      list readers r3                      -> nobody
      shown carol in m1                    -> seq 0
      clock 5000
      show alice
      show carol
      status r1                            -> read readers 2
      list readers r3                      -> carol~5000
      """
    )
  }

  @Test(
    "R10: only a reply's sender sees counts, also where a server asks for a user outside the thread"
  )
  func onlyReplySenderSeesCounts() {
    threadStory(
      """
      join alice bob carol
      options counts_visible_to=sender
      post m1 by alice
      reply r1 to m1 by bob
      read alice in m1
      status r1 as bob                     -> read readers 1
      status r1 as alice                   -> sent readers 0
      status r1 as carol                   -> sent readers 0
      status r1                            -> read readers 1
      status r1 as zoe                     -> not_a_member
      list readers r1 as carol             -> counts_not_visible
      list readers r1 as bob               -> alice@1000
      member alice of r1 as carol          -> counts_not_visible
      member carol of r1 as carol          -> not_expected
      member carol of r1 as alice          -> counts_not_visible
      member alice of r1 as alice          -> read
      """
    )
  }
}
