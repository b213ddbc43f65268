import Testing

/// The interpreter itself: it must be able to fail.
@Suite("The story interpreter")
struct StoryTests {
  @Test(
    "control: wrong expectations are found",
    arguments: [
      "post m3 by alice -> known seq 3", "post m3 by alice -> created seq 4", "row bob -> unread 3",
      "row bob -> first m2", "row zoe -> unread 0", "read bob m1 -> same", "read bob m1 -> moved unread 2",
      "read bob m9 -> moved", "status m1 -> read", "status m1 -> sent members 3", "status m9 -> sent",
      "page as bob limit 1 -> bob", "page as bob limit 2 -> bob alice +", "more -> bob", "role bob -> admin",
      "shown bob -> unread 2", "row bob -> nonsense 1", "nonsense", "join carol -> same members 3",
    ]
  )
  func wrongExpectationsAreFound(row: String) {
    var story = Story()
    for row in ["join alice bob -> moved members 2", "post m1 m2 by alice -> created seq 2"] {
      #expect(story.run(row) == nil)
    }
    #expect(story.run(row) != nil)
  }
}
