import CNghttp2

#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#endif

/// Allocator for nghttp2, which asks for about ten blocks per request, most of them small and short-lived.
///
/// Blocks of up to 1 KiB come from free lists, one per power of two, shared by all connections of an event loop. A
/// system allocator takes 200 ns for the blocks of a mark (docs/contribute/benchmarks.md). The free lists are bounded;
/// other blocks are freed.
///
/// Each block starts with a header of 16 bytes, so that the rest is aligned as with `malloc`. The header holds the
/// block's list, or ``largeList`` and the size.
struct SessionMemory {
  /// Limit on the bytes in the free lists.
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

  /// Free the blocks of the free lists.
  mutating func destroy() {
    for list in 0..<Self.listCount {
      while let block = lists[list] {
        lists[list] = Self.next(block).pointee
        free(block)
      }
    }
    lists.deallocate()
  }

  /// Allocate a block.
  ///
  /// - Returns: nil if there is no memory, as nghttp2 expects.
  mutating func allocate(_ byteCount: Int) -> UnsafeMutableRawPointer? {
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

  /// Free a block.
  ///
  /// - Parameter memory: result of ``allocate(_:)``; nil does nothing.
  mutating func deallocate(_ memory: UnsafeMutableRawPointer?) {
    guard let memory else { return }
    let block = memory - Self.headerByteCount
    let list = block.load(as: UInt64.self) & 0xFF
    guard list != Self.largeList, keptByteCount < Self.keptByteMax else { return free(block) }
    keptByteCount += Self.blockByteMin << Int(list)
    Self.next(block).pointee = lists[Int(list)]
    lists[Int(list)] = block
  }

  mutating func resize(_ memory: UnsafeMutableRawPointer?, to byteCount: Int) -> UnsafeMutableRawPointer? {
    guard let memory else { return allocate(byteCount) }
    let room = Self.room(memory)
    if byteCount <= room { return memory }
    guard let larger = allocate(byteCount) else { return nil }
    larger.copyMemory(from: memory, byteCount: room)
    deallocate(memory)
    return larger
  }

  /// Return the usable size in bytes of an allocated block.
  static func room(_ memory: UnsafeMutableRawPointer) -> Int {
    let word = (memory - headerByteCount).load(as: UInt64.self)
    return word & 0xFF == largeList ? Int(word >> 8) : (blockByteMin << Int(word)) - headerByteCount
  }

  /// Return the list with the smallest blocks that are large enough.
  private static func list(_ blockByteCount: Int) -> Int {
    let units = (max(blockByteCount, blockByteMin) - 1) / blockByteMin
    return Int.bitWidth - units.leadingZeroBitCount
  }

  /// Return the address of a free block's link to the next block of its list.
  private static func next(_ block: UnsafeMutableRawPointer) -> UnsafeMutablePointer<UnsafeMutableRawPointer?> {
    (block + headerByteCount).assumingMemoryBound(to: UnsafeMutableRawPointer?.self)
  }
}

/// Create nghttp2's allocation functions over the allocator at `memory`.
func makeSessionMemory(_ memory: UnsafeMutablePointer<SessionMemory>) -> nghttp2_mem {
  nghttp2_mem(
    mem_user_data: memory,
    malloc: { byteCount, memory in sessionMemory(memory).pointee.allocate(byteCount) },
    free: { block, memory in sessionMemory(memory).pointee.deallocate(block) },
    calloc: { count, size, memory in
      let (byteCount, overflows) = count.multipliedReportingOverflow(by: size)
      guard !overflows, let block = sessionMemory(memory).pointee.allocate(byteCount) else { return nil }
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
