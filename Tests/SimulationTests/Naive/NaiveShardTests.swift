import Testing

/// Histories of `NaiveModelTests` with the same answers, which were worked out by hand: the two oracles agree on them.
@Suite("The naive shard")
struct NaiveShardTests {
  /// One channel of alice, bob and carol. The clock advances by 100 ms for each command.
  private struct Room {
    var shard = NaiveShard()
    var time: Int64 = 900
    let cid = "team:room"

    init(_ options: OptionChange = OptionChange()) {
      self.do(.put(cid: cid, options, ["alice", "bob", "carol"].map { MemberSpec(user: $0) }))
    }

    mutating func `do`(_ command: RequestContent) {
      time += 100
      let outcome = shard.perform(command, at: time, isDuplicate: false)
      #expect(!outcome.isRefused, "\(command): \(outcome.reply)")
    }

    mutating func post(_ id: String, requestsAcknowledgement: Bool = false) {
      self.do(
        .register(
          cid: cid,
          id: id,
          sender: "alice",
          created: 0,
          isSilent: false,
          requestsAcknowledgement: requestsAcknowledgement,
          movesPosition: true,
          mentions: []
        )
      )
    }

    mutating func read(_ user: String, _ id: String = "") {
      self.do(.read(cid: cid, user: user, message: id, epoch: nil))
    }

    mutating func deliver(_ user: String) { self.do(.delivered(cid: cid, user: user, message: "")) }

    mutating func acknowledge(_ user: String, _ id: String) {
      self.do(.acknowledge(cid: cid, user: user, note: "", ids: [id]))
    }

    mutating func hide(_ user: String, read: Bool? = nil, delivered: Bool? = nil) {
      self.do(.patchUser(user, showsRead: read.map { !$0 }, showsDelivered: delivered.map { !$0 }))
    }

    /// The status, `receipt_status`, read count, delivered count and recipient count, as of `NaiveRoom`.
    func status(_ id: String) -> String {
      let status = shard.status(cid, id)
      let word = ["sent", "delivered", "read"][Int(status.status)]
      let receipt = ["none", "processing", "done"][Int(status.receipt)]
      return "\(word) \(receipt) \(status.read) \(status.delivered) \(status.members)"
    }
  }

  @Test("R7: others see a hidden member as unmoved; showing again counts from that time")
  func othersSeeHiddenMemberAsUnmoved() {
    var room = Room()
    room.post("m1")
    room.read("bob", "m1")
    #expect(room.status("m1") == "read none 1 1 2")
    room.hide("bob", read: true)
    #expect(room.status("m1") == "sent none 0 0 2")
    room.post("m2")
    room.read("bob", "m2")
    room.hide("bob", read: false)
    #expect(room.shard.settings("bob").readShownSince == 1600)
    #expect(room.status("m1") == "read none 1 1 2" && room.status("m2") == "read none 1 1 2")
  }

  @Test("R7: read and delivery receipts are hidden separately")
  func readAndDeliveryReceiptsAreHiddenSeparately() {
    var room = Room()
    room.hide("bob", delivered: true)
    room.post("m1")
    room.deliver("bob")
    #expect(room.status("m1") == "sent none 0 0 2")
    room.read("bob")
    #expect(room.status("m1") == "read none 1 1 2")
    room.hide("bob", read: true, delivered: false)
    #expect(room.status("m1") == "delivered none 0 1 2")
  }

  @Test(
    "R8: without read_events all members look unmoved, acknowledging is not reading but still works"
  )
  func withoutReadEventsAllMembersLookUnmoved() {
    var room = Room(OptionChange(readEvents: false))
    room.post("m1", requestsAcknowledgement: true)
    room.read("bob")
    #expect(room.status("m1") == "sent processing 0 0 2")
    room.acknowledge("bob", "m1")
    room.acknowledge("carol", "m1")
    #expect(room.status("m1") == "sent done 0 0 2")
    room.deliver("bob")
    #expect(room.status("m1") == "delivered done 0 1 2")
    room.do(.put(cid: room.cid, OptionChange(readEvents: true, deliveryEvents: false), []))
    #expect(room.status("m1") == "read done 2 2 2")
  }
}
