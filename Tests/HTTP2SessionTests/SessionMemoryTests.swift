import CNghttp2
import Foundation
import Testing

@testable import HTTP2Session

@Suite("Memory of nghttp2's sessions")
struct SessionMemoryTests {
  let memory = SessionMemory()

  func take(_ size: Int) -> UnsafeMutableRawPointer {
    memory.table.pointee.malloc(size, memory.table.pointee.mem_user_data)!
  }
  func give(_ block: UnsafeMutableRawPointer?) {
    memory.table.pointee.free(block, memory.table.pointee.mem_user_data)
  }

  @Test(
    "a block that comes back is the next one of its size",
    arguments: [0, 1, 31, 32, 33, 64, 1_000, 1_024]
  )
  func reuse(size: Int) {
    let first = take(size)
    memset(first, 0xAB, size)
    #expect(memory.keptBytes == 0)
    give(first)
    #expect(memory.keptBytes >= max(size, 32))
    let second = take(size)
    #expect(second == first)
    #expect(memory.keptBytes == 0)
    give(second)
  }

  @Test("blocks in use do not overlap, whatever their sizes")
  func distinct() {
    let sizes = (0..<2_000).map { ($0 * 37) % 1_500 }
    let blocks = sizes.map { take($0) }
    for (index, block) in blocks.enumerated() { memset(block, Int32(index % 251), sizes[index]) }
    for (index, block) in blocks.enumerated() {
      let bytes = UnsafeRawBufferPointer(start: block, count: sizes[index])
      #expect(bytes.allSatisfy { $0 == UInt8(index % 251) })
      #expect(Int(bitPattern: block) % 16 == 0)
    }
    for block in blocks { give(block) }
  }

  @Test("what is larger than all shelves is not kept")
  func large() {
    give(take(1_025))
    give(take(100_000))
    #expect(memory.keptBytes == 0)
  }

  @Test("no more is kept than the limit")
  func bounded() {
    let blocks = (0..<(2 * SessionMemory.keptBytesMax / 1_024)).map { _ in take(1_024) }
    for block in blocks { give(block) }
    #expect(memory.keptBytes == SessionMemory.keptBytesMax)
  }

  @Test("resizing keeps the content, from nothing too; calloc clears what was used")
  func resize() {
    let table = memory.table.pointee
    var block = table.realloc(nil, 20, table.mem_user_data)!
    for size in [20, 32, 33, 700, 1_024, 1_025, 5_000, 10] {
      block = table.realloc(block, size, table.mem_user_data)!
      let known = min(size, 10)
      if size != 20 { #expect(UnsafeRawBufferPointer(start: block, count: known).allSatisfy { $0 == 7 }) }
      memset(block, 7, size)
    }
    give(block)
    let used = take(64)
    memset(used, 1, 64)
    give(used)
    let cleared = table.calloc(8, 8, table.mem_user_data)!
    #expect(UnsafeRawBufferPointer(start: cleared, count: 64).allSatisfy { $0 == 0 })
    #expect(table.calloc(.max, 2, table.mem_user_data) == nil)
    give(cleared)
    give(nil)
  }
}
