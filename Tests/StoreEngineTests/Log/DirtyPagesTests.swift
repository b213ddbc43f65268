import ReceiptModel
import Testing

@testable import StoreEngine

@Suite("Dirty pages")
struct DirtyPagesTests {
  private let slot = ChannelSlot(0)

  private func pages() -> DirtyPages {
    var dirty = DirtyPages()
    dirty.insert(slot)
    return dirty
  }

  private func touch(_ dirty: inout DirtyPages, _ page: PageID, _ index: UInt64, isRecovered: Bool = false) {
    let (at, elapsed, loggedBytes) = (LogIndex(index), Int64(index), index * 10)
    if page.isOfChannel {
      dirty.touch(page, of: slot, at: at, elapsed: elapsed, loggedBytes: loggedBytes, isRecovered: isRecovered)
    } else {
      dirty.touchShardPage(page, at: at, elapsed: elapsed, loggedBytes: loggedBytes, isRecovered: isRecovered)
    }
  }

  @Test("the first effect since the last write holds the log")
  func firstEffectSinceLastWriteHoldsLog() {
    var dirty = pages()
    #expect(dirty.oldest == nil && dirty.isEmpty)
    touch(&dirty, .rows(0), 3)
    touch(&dirty, .segment(2), 4)
    touch(&dirty, .rows(0), 9)
    #expect(dirty.oldest == LogIndex(3) && dirty.count == 2)
    #expect(dirty.last(slot) == LogIndex(9))
    #expect(dirty.popDue { _ in true }?.page == .rows(0))
    #expect(dirty.oldest == LogIndex(4))
    // The page is clean, then dirty again, and queued behind the others.
    touch(&dirty, .rows(0), 10)
    #expect(dirty.popDue { _ in true }?.page == .segment(2))
    #expect(dirty.oldest == LogIndex(10))
  }

  @Test("pages are popped in the order in which they are due; recovered pages are due at once")
  func pagesArePoppedInOrderInWhichTheyAreDue() {
    var dirty = pages()
    touch(&dirty, .head, 1)
    touch(&dirty, .shardHead, 2)
    touch(&dirty, .types, 2, isRecovered: true)
    #expect(dirty.hasRecovered && dirty.count == 3)
    #expect(dirty.popDue { _ in false }?.page == .types)
    #expect(!dirty.hasRecovered)
    #expect(dirty.popDue { _ in false } == nil)
    #expect(dirty.popDue { $0.elapsed <= 1 }?.page == .head)
    #expect(dirty.popDue { $0.elapsed <= 1 } == nil)
    #expect(dirty.popDue { $0.loggedBytes <= 20 }?.page == .shardHead)
    #expect(dirty.isEmpty)
  }

  @Test("each channel type has a last effect of its own")
  func eachChannelTypeHasLastEffectOfOwn() {
    var dirty = pages()
    touch(&dirty, .types, 6)
    #expect(dirty.typesLast == LogIndex(6) && dirty.last(slot) == .zero)
    touch(&dirty, .types, 8)
    #expect(dirty.typesLast == LogIndex(8) && dirty.count == 1)
  }

  @Test("a reused slot starts clean")
  func reusedSlotStartsClean() {
    var dirty = pages()
    touch(&dirty, .head, 5)
    _ = dirty.popDue { _ in true }
    dirty.insert(slot)
    #expect(dirty.last(slot) == .zero)
    dirty.insert(ChannelSlot(40))
    #expect(dirty.last(ChannelSlot(39)) == .zero)
  }
}
