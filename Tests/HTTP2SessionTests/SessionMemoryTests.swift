import Testing

@testable import HTTP2Session

@Suite("nghttp2's memory") struct SessionMemoryTests {
  @Test("blocks have the requested size, are aligned, and are reused")
  func blocksHaveRequestedSize() throws {
    var memory = SessionMemory()
    defer { memory.destroy() }
    for byteCount in [0, 1, 15, 16, 17, 48, 49, 240, 1_007, 1_008, 1_009, 100_000] {
      let taken = memory.allocate(byteCount)
      let block = try #require(taken)
      #expect(SessionMemory.room(block) >= byteCount && Int(bitPattern: block) % 16 == 0, "\(byteCount)")
      block.initializeMemory(as: UInt8.self, repeating: 0xA5, count: byteCount)
      memory.deallocate(block)
      if byteCount <= 1_008 { #expect(memory.allocate(byteCount) == block); memory.deallocate(block) }
    }
    memory.deallocate(nil)
    #expect(memory.allocate(.max) == nil)
  }

  @Test("a block that grows keeps its content")
  func blockThatGrowsKeepsContent() throws {
    var memory = SessionMemory()
    defer { memory.destroy() }
    let taken = memory.resize(nil, to: 8)
    var block = try #require(taken)
    block.storeBytes(of: 0x0102_0304_0506_0708, as: UInt64.self)
    for byteCount in [16, 17, 200, 1_008, 5_000, 50_000, 4] {
      let larger = memory.resize(block, to: byteCount)
      block = try #require(larger)
      #expect(block.load(as: UInt64.self) == 0x0102_0304_0506_0708 && SessionMemory.room(block) >= byteCount)
    }
    memory.deallocate(block)
  }

  @Test("the free list is bounded")
  func freeListIsBounded() {
    var memory = SessionMemory()
    defer { memory.destroy() }
    let blocks = (0..<3_000).compactMap { _ in memory.allocate(1_000) }
    #expect(blocks.count == 3_000)
    #expect(memory.keptByteCount == 0)
    for block in blocks { memory.deallocate(block) }
    #expect(memory.keptByteCount == SessionMemory.keptByteMax)
    for _ in 0..<10 { #expect(memory.allocate(1_000) != nil) }
    #expect(memory.keptByteCount == SessionMemory.keptByteMax - 10 * 1_024)
  }
}
