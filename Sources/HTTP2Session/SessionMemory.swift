import CNghttp2

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// The memory that nghttp2 asks for: ten blocks or so for each request, most of them small and freed soon.
///
/// Blocks of up to 1 KiB come from lists of free ones, a list for each power of two, which are shared by all connections
/// of an event loop; a system allocator takes 200 ns for those of a mark (docs/benchmarks.md). What is kept free is
/// bounded, the rest goes back.
///
/// Each block has a header of 16 bytes, so that what follows is aligned as `malloc` aligns it: the block's list, or
/// ``largeList`` and its size.
struct SessionMemory {
  /// Bytes of free blocks that are kept.
  static let keptByteMax = 1 << 20

  private static let headerByteCount = 16
  private static let blockByteMin = 32
  private static let listCount = 6
  private static let largeList: UInt64 = 0xFF

  private let lists: UnsafeMutablePointer<UnsafeMutableRawPointer?>
  private(set) var keptByteCount = 0

  init() {
    lists = .allocate(capacity: Self.listCount)
    lists.initialize(repeating: nil, count: Self.listCount)
  }

  /// Gives back what is kept.
  mutating func destroy() {
    for list in 0..<Self.listCount {
      while let block = lists[list] {
        lists[list] = Self.next(block).pointee
        free(block)
      }
    }
    lists.deallocate()
  }

  /// - Returns: nil where there is no memory, as nghttp2 has it.
  mutating func take(_ byteCount: Int) -> UnsafeMutableRawPointer? {
    let (blockByteCount, overflows) = byteCount.addingReportingOverflow(Self.headerByteCount)
    guard !overflows, byteCount >= 0 else { return nil }
    guard blockByteCount <= Self.blockByteMin << (Self.listCount - 1) else {
      guard let block = malloc(blockByteCount) else { return nil }
      block.storeBytes(of: UInt64(byteCount) << 8 | Self.largeList, as: UInt64.self)
      return block + Self.headerByteCount
    }
    let list = Self.list(blockByteCount)
    if let block = lists[list] {
      lists[list] = Self.next(block).pointee
      keptByteCount -= Self.blockByteMin << list
      return block + Self.headerByteCount
    }
    guard let block = malloc(Self.blockByteMin << list) else { return nil }
    block.storeBytes(of: UInt64(list), as: UInt64.self)
    return block + Self.headerByteCount
  }

  /// - Parameter memory: what ``take(_:)`` gave; nil: nothing.
  mutating func give(_ memory: UnsafeMutableRawPointer?) {
    guard let memory else { return }
    let block = memory - Self.headerByteCount
    let list = block.load(as: UInt64.self) & 0xFF
    guard list != Self.largeList, keptByteCount < Self.keptByteMax else { return free(block) }
    keptByteCount += Self.blockByteMin << Int(list)
    Self.next(block).pointee = lists[Int(list)]
    lists[Int(list)] = block
  }

  mutating func resize(_ memory: UnsafeMutableRawPointer?, to byteCount: Int) -> UnsafeMutableRawPointer? {
    guard let memory else { return take(byteCount) }
    let room = Self.room(memory)
    if byteCount <= room { return memory }
    guard let larger = take(byteCount) else { return nil }
    larger.copyMemory(from: memory, byteCount: room)
    give(memory)
    return larger
  }

  /// The bytes that a block that was given out has room for.
  static func room(_ memory: UnsafeMutableRawPointer) -> Int {
    let word = (memory - headerByteCount).load(as: UInt64.self)
    return word & 0xFF == largeList ? Int(word >> 8) : (blockByteMin << Int(word)) - headerByteCount
  }

  /// The list of the smallest blocks that are large enough.
  private static func list(_ blockByteCount: Int) -> Int {
    let units = (max(blockByteCount, blockByteMin) - 1) / blockByteMin
    return Int.bitWidth - units.leadingZeroBitCount
  }

  /// Where a free block has the next one of its list.
  private static func next(_ block: UnsafeMutableRawPointer) -> UnsafeMutablePointer<UnsafeMutableRawPointer?>
  {
    (block + headerByteCount).assumingMemoryBound(to: UnsafeMutableRawPointer?.self)
  }
}

/// nghttp2's functions for memory, of what is at `memory`.
func makeSessionMemory(_ memory: UnsafeMutablePointer<SessionMemory>) -> nghttp2_mem {
  nghttp2_mem(
    mem_user_data: memory,
    malloc: { byteCount, memory in sessionMemory(memory).pointee.take(byteCount) },
    free: { block, memory in sessionMemory(memory).pointee.give(block) },
    calloc: { count, size, memory in
      let (byteCount, overflows) = count.multipliedReportingOverflow(by: size)
      guard !overflows, let block = sessionMemory(memory).pointee.take(byteCount) else { return nil }
      memset(block, 0, byteCount)
      return block
    },
    realloc: { block, byteCount, memory in sessionMemory(memory).pointee.resize(block, to: byteCount) }
  )
}

@inline(__always)
private func sessionMemory(_ memory: UnsafeMutableRawPointer?) -> UnsafeMutablePointer<SessionMemory> {
  memory.unsafelyUnwrapped.assumingMemoryBound(to: SessionMemory.self)
}
