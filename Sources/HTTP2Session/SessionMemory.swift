internal import CNghttp2

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#endif

/// What nghttp2's sessions of one event loop allocate from: a request takes it some fifteen small blocks, for the stream, each header and the answer's
/// frames, and all of them come back. Blocks are kept by size, so that taking one is a few instructions. One thread at a time; the sessions go first.
final class SessionMemory {
  /// For `nghttp2_session_server_new3` and `…client_new3`, which copy it.
  let table: UnsafeMutablePointer<nghttp2_mem>
  private let shelves: UnsafeMutablePointer<Shelves>

  init() {
    shelves = .allocate(capacity: 1)
    shelves.initialize(to: Shelves())
    table = .allocate(capacity: 1)
    table.initialize(
      to: nghttp2_mem(
        mem_user_data: shelves,
        malloc: { size, shelves in Shelves.of(shelves).pointee.take(size) },
        free: { block, shelves in
          guard let block else { return }
          Shelves.of(shelves).pointee.put(block)
        },
        calloc: { count, size, shelves in
          let (total, overflow) = count.multipliedReportingOverflow(by: size)
          guard !overflow, let block = Shelves.of(shelves).pointee.take(total) else { return nil }
          memset(block, 0, total)
          return block
        },
        realloc: { block, size, shelves in Shelves.of(shelves).pointee.resize(block, size) }
      )
    )
  }

  deinit {
    shelves.pointee.clear()
    shelves.deinitialize(count: 1)
    shelves.deallocate()
    table.deinitialize(count: 1)
    table.deallocate()
  }

  /// Blocks that are kept now, in bytes.
  var keptBytes: Int { shelves.pointee.keptBytes }

  /// At most this much is kept; what comes back beyond it is freed.
  static let keptBytesMax = 4 << 20
}

/// Free blocks of 32, 64 … 1,024 bytes, each size a list through the blocks themselves. A block is preceded by 16 bytes that say its size; larger ones
/// are malloc's own.
private struct Shelves {
  private static let headerBytes = 16
  private static let smallestShift = 5
  private static let largestShift = 10
  private var lists: InlineArray<6, UnsafeMutableRawPointer?> = InlineArray(repeating: nil)
  private(set) var keptBytes = 0

  @inline(__always)
  static func of(_ pointer: UnsafeMutableRawPointer?) -> UnsafeMutablePointer<Shelves> {
    pointer.unsafelyUnwrapped.assumingMemoryBound(to: Shelves.self)
  }

  /// The shelf of blocks that hold `size` bytes; nil: larger than all.
  @inline(__always)
  private static func shelf(_ size: Int) -> Int? {
    let shift = max(smallestShift, Int.bitWidth - max(size - 1, 0).leadingZeroBitCount)
    return shift <= largestShift ? shift - smallestShift : nil
  }

  @inline(__always)
  mutating func take(_ size: Int) -> UnsafeMutableRawPointer? {
    guard let shelf = Self.shelf(size) else { return Self.make(size) }
    let capacity = 1 << (shelf + Self.smallestShift)
    guard let block = lists[shelf] else { return Self.make(capacity) }
    lists[shelf] = block.load(as: UnsafeMutableRawPointer?.self)
    keptBytes -= capacity
    return block
  }

  @inline(__always)
  mutating func put(_ block: UnsafeMutableRawPointer) {
    let capacity = Self.capacity(block)
    guard let shelf = Self.shelf(capacity), keptBytes + capacity <= SessionMemory.keptBytesMax else {
      free(block - Self.headerBytes)
      return
    }
    block.storeBytes(of: lists[shelf], as: UnsafeMutableRawPointer?.self)
    lists[shelf] = block
    keptBytes += capacity
  }

  mutating func resize(_ block: UnsafeMutableRawPointer?, _ size: Int) -> UnsafeMutableRawPointer? {
    guard let block else { return take(size) }
    let capacity = Self.capacity(block)
    if size <= capacity { return block }
    guard let larger = take(size) else { return nil }
    larger.copyMemory(from: block, byteCount: capacity)
    put(block)
    return larger
  }

  mutating func clear() {
    for shelf in lists.indices {
      while let block = lists[shelf] {
        lists[shelf] = block.load(as: UnsafeMutableRawPointer?.self)
        free(block - Self.headerBytes)
      }
    }
    keptBytes = 0
  }

  private static func make(_ capacity: Int) -> UnsafeMutableRawPointer? {
    guard capacity <= Int.max - headerBytes, let made = malloc(capacity + headerBytes) else { return nil }
    made.storeBytes(of: capacity, as: Int.self)
    return made + headerBytes
  }

  @inline(__always)
  private static func capacity(_ block: UnsafeMutableRawPointer) -> Int {
    (block - headerBytes).load(as: Int.self)
  }
}
