import Foundation
import TestSupport
import Testing

@testable import TidemarkClient

@Suite struct TicksTests {
  @MainActor @Test func ticksFollowReadsOfOthers() async throws {
    let gateway = FakeGateway()
    let client = gateway.client()
    try await client.start()
    let ticks = Ticks(client, cid: "messaging:a")
    var changed: [Set<String>] = []
    ticks.onChange = { changed.append($0) }
    try await ticks.show([
      Message(cid: "messaging:a", id: "m2", seq: 2, user: "alice"),
      Message(cid: "messaging:a", id: "m3", seq: 3, user: "bob"),
      Message(cid: "messaging:a", id: "m4", user: "alice"),
      Message(cid: "messaging:a", id: "m5", user: "alice", hasFailed: true),
    ])
    try await eventually("the count is known") { @MainActor in ticks.unreadCount == 0 }
    #expect(ticks.ticks.mapValues(\.status) == ["m2": .sent, "m4": .pending, "m5": .failed])
    #expect(ticks.ticks.mapValues(\.checkmarks) == ["m2": 1, "m4": 0, "m5": 0])

    changed = []
    gateway.send(
      event: #"{"type":"message.read","cid":"messaging:a","user":{"id":"bob"},"last_read_seq":2}"#,
      id: "e1"
    )
    gateway.send(
      event: #"{"type":"message.status","cid":"messaging:a","user":{"id":"alice"},"#
        + #""from_seq":2,"to_seq":2,"status":"read"}"#,
      id: "e2"
    )
    try await eventually("bob's read is shown") { @MainActor in ticks.ticks["m2"]?.isHighlighted == true }
    #expect(ticks.ticks["m2"]?.readers == ["bob"])
    #expect(ticks.ticks["m2"]?.checkmarks == 2)
    #expect(changed.allSatisfy { $0 == ["m2"] } && !changed.isEmpty)
    ticks.stop()
    await client.close()
  }

  @MainActor @Test func droppedModelIsFreed() async throws {
    let client = FakeGateway().client()
    var ticks: Ticks? = Ticks(client, cid: "messaging:a")
    weak let observed = ticks
    ticks = nil
    try await eventually("the model is gone") { @MainActor in observed == nil }
    await client.close()
  }
}
